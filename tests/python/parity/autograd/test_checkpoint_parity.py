"""Checkpointing against PyTorch's: how often the function runs again, what is noticed, options and their errors."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from tests.python.parity.autograd.test_graph_parity import MODULES, graph_of, leaf, plain, same


def tools(m: Any) -> Any:
    return importlib.import_module(f"{m.__name__}.utils.checkpoint")


def run(m: Any, f: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return tools(m).checkpoint(f, *args, **{"use_reentrant": False, **options})


class Counting:
    """A function that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        return x.sin().exp() * x


def counted(f: Callable[[Any, Counting, Any], Any]) -> Callable[[Any], Any]:
    """`f(m, counting, x)`, then the calls and the gradient."""

    def g(m: Any) -> Any:
        count, x = Counting(), leaf(m)
        return f(m, count, x), count.calls, None if x.grad is None else [round(v, 3) for v in plain(x.grad)]

    return g


def twice(m: Any, y: Any, x: Any) -> None:
    (g,) = m.autograd.grad(y.sum(), x, create_graph=True)
    g.sum().backward()


def separately(m: Any, c: Counting, x: Any) -> int:
    def f(x: Any) -> Any:
        c.calls += 1
        return x.sin(), x.exp()

    a, b = run(m, f, x)
    a.sum().backward()
    calls = c.calls
    b.sum().backward()
    return calls


def in_a_group(m: Any, c: Counting, x: Any) -> None:
    a, b = run(m, lambda x: (c(x).sin(), x.exp()), x)
    with tools(m).GraphExecGroup():
        a.sum().backward()
        b.sum().backward()


@pytest.mark.parametrize(
    "f",
    [
        lambda m, c, x: run(m, c, x).sum().backward(),
        lambda m, c, x: twice(m, run(m, c, x), x),
        lambda m, c, x: run(m, lambda y: run(m, c, y).sin(), x).sum().backward(),
        lambda m, c, x: run(m, lambda y: run(m, lambda z: run(m, c, z) * z.exp(), y).cos() * y, x).sum().backward(),
        lambda m, c, x: twice(m, run(m, lambda y: run(m, c, y).sin(), x), x),
        separately,
        in_a_group,
        lambda m, c, x: [run(m, c, x).sum().backward() for _ in range(2)] and None,
        lambda m, c, x: (lambda y: [y.sum().backward(retain_graph=True) for _ in range(2)] and None)(run(m, c, x)),
        lambda m, c, x: (lambda y: [y.sum().backward() for _ in range(2)])(run(m, c, x)),
    ],
)
def test_how_often_the_function_runs(f: Any) -> None:
    same(counted(f))


@pytest.mark.parametrize("options", [{}, {"early_stop": False}])
@pytest.mark.parametrize("around", [None, True, False])
def test_recomputing_stops_early(around: bool | None, options: dict[str, Any]) -> None:
    def f(m: Any) -> Any:
        log: list[str] = []

        def g(x: Any) -> Any:
            for step in ("sin", "exp", "cos"):
                log.append(step)
                x = getattr(x, step)()
            log.append("end")
            return x

        with tools(m).set_checkpoint_early_stop(around):
            y = run(m, g, leaf(m), **options)
        y.sum().backward()
        return log

    same(f)


def changing(first: Callable[..., Any], second: Callable[..., Any], **options: Any) -> Callable[[Any], Any]:
    """A function that is another one when it is run again."""

    def f(m: Any) -> Any:
        left, x = [first], leaf(m)
        run(m, lambda x: (left.pop() if left else second)(m, x), x, **options).sum().backward()
        return [round(v, 3) for v in plain(x.grad)]

    return f


@pytest.mark.parametrize(
    "f",
    [
        changing(lambda m, x: x.sin(), lambda m, x: x.sin().exp()),
        changing(lambda m, x: x.sin(), lambda m, x: x.sin().exp(), early_stop=False),
        changing(lambda m, x: x.sin().exp(), lambda m, x: x.sin()),
        changing(lambda m, x: x.sin(), lambda m, x: x[:2].sin()),
        changing(lambda m, x: x.sin(), lambda m, x: x[:2].sin(), debug=True),
        changing(lambda m, x: x.sin(), lambda m, x: x.double().sin()),
        changing(lambda m, x: x.sin(), lambda m, x: (x + 1).sin(), determinism_check="none"),
        lambda m: run(m, lambda x: x.sin(), leaf(m), determinism_check="strict"),
        lambda m: run(m, lambda x: x.sin(), leaf(m), use_reentrant=True, debug=True),
        lambda m: run(m, lambda x: x.sin(), leaf(m), debug=True, context_fn=lambda: (1, 2)),
        lambda m: run(m, lambda x: x.sin(), leaf(m), context_fn=lambda: 3),
        lambda m: run(m, lambda x: x.sin(), leaf(m), unknown=3),
        lambda m: run(m, lambda x, k: x.relu() * k, leaf(m), k=3.0),
    ],
)
def test_what_is_refused(f: Any) -> None:
    same(f)


def test_debug_tells_where_tensors_were_saved() -> None:
    for m in MODULES:
        with (
            tools(m).set_checkpoint_debug_enabled(True),
            pytest.raises(RuntimeError, match=r"(?s)you passed\s+`debug=True`.*test_checkpoint_parity"),
        ):
            changing(lambda m, x: x.sin(), lambda m, x: x[:2].sin())(m)


def test_arguments_that_were_written_are_noticed() -> None:
    def f(m: Any) -> None:
        y = leaf(m) * 1
        z = run(m, lambda y: y.sin(), y)
        y.add_(1)
        z.sum().backward()

    same(f)


def test_arguments_go_through_the_hooks_around() -> None:
    def f(m: Any) -> Any:
        seen: list[str] = []
        pack, unpack = (lambda t: (seen.append("pack"), t)[1]), (lambda t: (seen.append("unpack"), t)[1])
        x = leaf(m)
        with graph_of(m).saved_tensors_hooks(pack, unpack):
            y = run(m, lambda x: x.sin().exp(), x)
        y.sum().backward()
        return seen, [round(v, 3) for v in plain(x.grad)]

    same(f)


@pytest.mark.parametrize("reentrant", [False, True])
def test_the_second_run_casts_as_the_first(reentrant: bool) -> None:
    def f(m: Any) -> Any:
        seen: list[Any] = []

        def g(x: Any) -> Any:
            seen.append(str((x @ m.ones(3, 3)).dtype).rsplit(".")[-1])
            return (x @ m.ones(3, 3)).relu() * 2

        x = m.ones(2, 3, requires_grad=True)
        with m.autocast("cpu", dtype=m.bfloat16):
            y = run(m, g, x, use_reentrant=reentrant)
        y.float().sum().backward()
        with m.autocast("cpu", dtype=m.bfloat16):
            # Autocast is off in the second run, as it was in the first.
            with m.autocast("cpu", enabled=False):
                y = run(m, g, x, use_reentrant=reentrant)
            y.sum().backward()
        return seen, x.grad

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(f)


UNARY = ["exp", "sigmoid", "tanh", "sqrt", "rsqrt", "log", "sin", "softplus", "silu", "gelu", "mish", "erf", "square"]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("name", UNARY)
def test_a_gradient_unpacks_each_tensor_once(name: str, device: str) -> None:
    """Whatever the rule of the op asks for."""
    found = []
    for m, d in ((MODULES[1], "cpu"), (MODULES[0], device)):
        op = getattr(m, name, None) or getattr(m.nn.functional, name)
        x = m.tensor([0.5, 1.5], device=d).requires_grad_()
        y = m.utils.checkpoint.checkpoint(lambda x, op=op: op(op(x)), x, use_reentrant=False)
        y.sum().backward()
        unpacked: list[Any] = []
        with m.autograd.graph.saved_tensors_hooks(lambda t: [t], lambda p, seen=unpacked: (seen.append(p), p[0])[1]):
            y = op(x)
        y.sum().backward()
        assert len(unpacked) == len({id(p) for p in unpacked}) > 0, (m, name)
        found.append([f"{v:.4g}" for v in x.grad.tolist()])
    assert found[0] == found[1]
