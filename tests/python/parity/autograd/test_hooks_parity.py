"""Hooks on nodes, results and leaves against PyTorch's: what they may return, their order, adding and removing."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import lucid
import pytest
import torch

from tests.python.parity.autograd.test_graph_parity import leaf, plain, same
from tests.python.tolerances import within


def after(returned: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """The gradient, with a hook after the node that returns this for the gradients of its inputs."""

    def f(m: Any) -> Any:
        x = leaf(m)
        y = x * 2
        y.grad_fn.register_hook(lambda inputs, outputs: returned(m, inputs))
        y.sum().backward()
        return x.grad

    return f


def before(returned: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """Likewise, before the node."""

    def f(m: Any) -> Any:
        x = leaf(m)
        y = x * 2
        y.grad_fn.register_prehook(lambda outputs: returned(m, outputs))
        y.sum().backward()
        return x.grad

    return f


def on_result(returned: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """Likewise, on the result itself."""

    def f(m: Any) -> Any:
        x = leaf(m)
        y = x * 2
        y.register_hook(lambda g: returned(m, g))
        y.sum().backward()
        return x.grad

    return f


RETURNED: list[Callable[[Any, Any], Any]] = [
    lambda m, g: None,
    lambda m, g: g,
    lambda m, g: (*g, m.ones(3), m.ones(3)),
    lambda m, g: (),
    lambda m, g: list(g),
    lambda m, g: m.ones(3),
    lambda m, g: 3,
    lambda m, g: (3, *g[1:]),
    lambda m, g: (None, *g[1:]),
    lambda m, g: (m.ones(4), *g[1:]),
    lambda m, g: (m.ones(()), *g[1:]),
    lambda m, g: (m.ones(3, dtype=m.float64), *g[1:]),
    lambda m, g: (m.full((3,), 7.0), *g[1:]),
]


@pytest.mark.parametrize("returned", RETURNED)
def test_what_a_hook_on_a_node_returns(returned: Any) -> None:
    same(after(returned))
    same(before(returned))


@pytest.mark.parametrize(
    "returned",
    [
        lambda m, g: m.ones(4),
        lambda m, g: m.ones(()),
        lambda m, g: m.ones(3, dtype=m.float64),
        lambda m, g: 3,
        lambda m, g: (g,),
        lambda m, g: m.ones(3, requires_grad=True),
        lambda m, g: 1 / 0,
    ],
)
def test_what_a_hook_on_a_result_returns(returned: Any) -> None:
    same(on_result(returned))


def removing(kind: str, which: int) -> Callable[[Any], Any]:
    """Two hooks, the first of which removes one of them; two passes."""

    def f(m: Any) -> Any:
        x = leaf(m)
        y = x * 2
        register = {"result": y.register_hook, "after": y.grad_fn.register_hook, "before": y.grad_fn.register_prehook}
        seen: list[int] = []
        handles: list[Any] = []

        def first(*_: Any) -> None:
            seen.append(1)
            handles[which].remove()

        handles += [register[kind](first), register[kind](lambda *_: seen.append(2))]
        y.sum().backward(retain_graph=True)
        y.sum().backward()
        return seen

    return f


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("kind", ["result", "after", "before"])
def test_hooks_that_remove_hooks(kind: str, which: int) -> None:
    same(removing(kind, which))


def test_the_order_of_hooks() -> None:
    def f(m: Any) -> Any:
        x = leaf(m)
        y = x * 2
        seen: list[str] = []

        def note(what: str) -> Callable[..., None]:
            return lambda *_: seen.append(what)

        node, adds = y.grad_fn, y.grad_fn.next_functions[0][0]
        node.register_hook(note("after"))
        node.register_prehook(note("before"))
        y.register_hook(note("on the result"))
        y.retain_grad()
        y.register_hook(note("on the result, second"))
        node.register_prehook(note("before, second"))
        adds.register_hook(note("after the leaf"))
        adds.register_prehook(note("before the leaf"))
        x.register_hook(note("on the leaf"))
        x.register_post_accumulate_grad_hook(note("leaf has grown"))
        y.sum().backward()
        return seen, y.grad

    same(f)


@pytest.mark.parametrize("asked", ["y", "x", "yx", "xy"])
@pytest.mark.parametrize("kind", ["result", "before"])
def test_gradients_asked_for_where_hooks_are(kind: str, asked: str) -> None:
    def f(m: Any) -> Any:
        x = leaf(m)
        y = x * 2
        if kind == "result":
            y.register_hook(lambda g: g * 3)
        elif "x" in asked:
            y.grad_fn.register_prehook(lambda g: (g[0] * 3,))
        own = {"x": x, "y": y}
        return m.autograd.grad((y * y).sum(), [own[a] for a in asked])

    same(f)


def called(*grads: Any) -> Callable[[Any], Any]:
    return lambda m: leaf(m).exp().grad_fn(*(m.ones(3) if g == "ones" else g for g in grads))


@pytest.mark.parametrize("f", [called("ones"), called("ones", "ones"), called(), called(3), called(None)])
def test_nodes_called_by_hand(f: Any) -> None:
    same(f)


def test_nodes_take_no_attributes() -> None:
    def kept(m: Any, node: Any) -> Any:
        node.what = 3
        return node.what

    def custom(m: Any) -> Any:
        class Same(m.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 1

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g

        return Same.apply(leaf(m)).grad_fn

    same(lambda m: kept(m, (leaf(m) * 2).grad_fn))
    same(lambda m: kept(m, custom(m)))
    same(lambda m: (leaf(m) * 2).grad_fn.metadata.setdefault("what", 3))


def test_hooks_outlive_new_data() -> None:
    def f(m: Any) -> Any:
        x = leaf(m)
        y = x * 2
        seen: list[Any] = []
        x.register_hook(lambda g: seen.append(plain(g)))
        x.data = m.zeros(3)
        (g,) = m.autograd.grad(y.sum(), x)
        (x * 5).sum().backward()
        return g, x.grad, seen

    same(f)


def test_one_class_of_handles() -> None:
    def f(m: Any) -> Any:
        x, layer = leaf(m), m.nn.Linear(2, 2)
        y = x * 2
        handles = [
            x.register_hook(lambda g: g),
            y.grad_fn.register_hook(lambda *g: None),
            layer.register_forward_hook(lambda *a: None),
            m.optim.SGD([x]).register_step_post_hook(lambda *a: None),
            m.autograd.graph.register_multi_grad_hook([x], lambda g: None),
        ]
        return [isinstance(h, m.utils.hooks.RemovableHandle) for h in handles]

    same(f)


@pytest.mark.parametrize("kinds", [{}, {"with_kwargs": True}, {"with_kwargs": True, "always_call": True}])
def test_the_handle_of_a_copied_module_removes_its_copys_hook(kinds: dict[str, bool]) -> None:
    def f(m: Any) -> Any:
        layer, seen = m.nn.Linear(2, 2), []
        layer.handle = layer.register_forward_hook(lambda *a: seen.append(1), **kinds)
        other = copy.deepcopy(layer)
        other(m.ones(2))
        other.handle.remove()
        other.handle.remove()
        other(m.ones(2))
        layer(m.ones(2))
        again = other.register_forward_hook(lambda *a: None)
        return len(seen), again.id > other.handle.id, len(other._forward_hooks_with_kwargs)

    same(f)


def test_a_copied_handle_without_its_module() -> None:
    def f(m: Any) -> Any:
        layer = m.nn.Linear(2, 2)
        handle = layer.register_forward_hook(print)
        lone = copy.deepcopy(handle)
        lone.remove()
        kept = len(layer._forward_hooks)
        hooks = OrderedDict(a=1)
        with m.utils.hooks.RemovableHandle(hooks) as own:
            hooks[own.id] = 2
        return kept, lone.id == handle.id, list(hooks)

    same(f)


def test_names_of_nodes_that_are_no_ops_steps() -> None:
    def f(m: Any) -> Any:
        x = leaf(m)
        y = x * 2
        step = y.grad_fn.next_functions[0][0]
        y[0] = 3
        return [(n.name(), type(n).__name__) for n in (step, y.grad_fn)], repr(y)

    found = []
    same(lambda m: found.append(f(m)) or found[-1][0])
    assert found[0][1].endswith("grad_fn=<CopySlices>)") and found[1][1].endswith("grad_fn=<CopySlices>)")


@pytest.mark.parametrize(
    "call",
    [
        lambda m, a: m.linalg.lu(a)[1:],
        lambda m, a: m.linalg.lu_factor(a)[:1],
        lambda m, a: m.linalg.lstsq(a, m.ones(3, 2))[:1],
        lambda m, a: m.triangular_solve(m.ones(3, 2), a),
        lambda m, a: m.linalg.qr(a),
        lambda m, a: m.linalg.slogdet(a)[1:],
        lambda m, a: m.std_mean(a, 1),
        lambda m, a: m.aminmax(a, dim=1),
    ],
    ids=["lu", "lu_factor", "lstsq", "triangular_solve", "qr", "slogdet", "std_mean", "aminmax"],
)
@pytest.mark.filterwarnings("ignore:.*triangular_solve")
def test_hooks_that_return_nothing_change_no_gradient(call: Callable[[Any, Any], Any]) -> None:
    def gradient(m: Any, hooked: bool) -> Any:
        x = m.tensor([[1.5, 0.2, 0.3], [0.4, 1.9, 0.1], [0.7, 0.6, 1.2]]).requires_grad_()
        results = [y for y in call(m, x) if y.requires_grad]
        for y in results:
            if hooked:
                y.grad_fn.register_hook(lambda inputs, outputs: None)
        sum((y * (i + 1)).sum() for i, y in enumerate(results)).backward()
        return torch.tensor(plain(x.grad))

    want = gradient(lucid, False)
    for got in (gradient(lucid, True), gradient(torch, True)):
        torch.testing.assert_close(got, want, **within("program"))
