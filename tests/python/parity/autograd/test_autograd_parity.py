"""Autograd from the outside: small programs run with PyTorch and with Lucid must give the same.

Each program takes the module (`torch` or `lucid`) and gives nested lists, numbers and strings. An exception that a
program catches with `caught` counts by the builtin class it derives from.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from importlib import import_module
from typing import Any

import lucid
import pytest
import torch

PROGRAMS: list[Callable[[Any], Any]] = []


def program(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    PROGRAMS.append(f)
    return f


def caught(f: Callable[[], Any]) -> str:
    """The builtin class of the exception that `f` raises."""
    try:
        f()
    except Exception as e:
        return next(c.__name__ for c in type(e).__mro__ if c.__module__ == "builtins")
    return "nothing"


def leaf(L: Any, *values: float) -> Any:
    return L.tensor([float(v) for v in values], requires_grad=True)


def lib(L: Any, path: str) -> Any:
    return import_module(f"{L.__name__}.{path}")


@program
def graph_names(L: Any) -> Any:
    x = leaf(L, 1, 2)
    y = ((x * 2).exp() + x).sum()
    seen = []
    stack: list[Any] = [(y.grad_fn, 0)]
    while stack:
        node, nr = stack.pop()
        seen.append((None if node is None else type(node).__name__, nr))
        if node is not None:
            stack.extend(node.next_functions)
    return seen, type(y.grad_fn).__name__, y.grad_fn == y.grad_fn, x.grad_fn, x.is_leaf


@program
def accumulate_node(L: Any) -> Any:
    x = leaf(L, 1, 2)
    node = (x * 2).grad_fn.next_functions[0][0]
    return type(node).__name__, node.variable.tolist(), caught(lambda: (x * 2).grad_fn.variable)


@program
def hooks_run_in_order(L: Any) -> Any:
    log: list[Any] = []
    x = leaf(L, 1, 2)
    y = x * x
    z = y.sum()
    y.retain_grad()
    y.register_hook(lambda g: log.append(("y", g.tolist())) or g * 2)
    y.grad_fn.register_prehook(lambda gs: log.append(("pre", gs[0].tolist())) or (gs[0] + 1,))
    y.grad_fn.register_hook(lambda gi, go: log.append(("post", [g.tolist() for g in gi], go[0].tolist())))
    x.register_hook(lambda g: log.append(("x", g.tolist())))
    x.register_post_accumulate_grad_hook(lambda p: log.append(("acc", p is x, p.grad.tolist())))
    z.backward()
    return log, x.grad.tolist(), y.grad.tolist()


@program
def post_hook_replaces(L: Any) -> Any:
    x, w = leaf(L, 1, 2), leaf(L, 3, 4)
    y = x * w
    handle = y.grad_fn.register_hook(lambda gi, go: (gi[0] * 10, gi[1]))
    y.sum().backward(retain_graph=True)
    handle.remove()
    handle.remove()
    y.sum().backward()
    return x.grad.tolist(), w.grad.tolist()


@program
def bad_hooks(L: Any) -> Any:
    x = leaf(L, 1, 2)

    def run(hook: Any) -> str:
        y = x * 2
        y.register_hook(hook)
        return caught(y.sum().backward)

    plain = L.tensor([1.0])
    return (
        run(lambda g: g[:1]),
        run(lambda g: 1 / 0),
        caught(lambda: plain.register_hook(print)),
        caught(lambda: (x * 2).register_post_accumulate_grad_hook(print)),
        caught(lambda: plain.register_post_accumulate_grad_hook(print)),
    )


@program
def hook_with_context(L: Any) -> Any:
    x = leaf(L, 1)
    log: list[Any] = []
    with x.register_hook(lambda g: log.append(g.tolist())):
        (x * 2).sum().backward()
    (x * 2).sum().backward()
    return log


@program
def multi_grad_hook(L: Any) -> Any:
    graph = lib(L, "autograd.graph")
    x, w = leaf(L, 1), leaf(L, 2)
    log: list[Any] = []
    handle = graph.register_multi_grad_hook([x, w], lambda gs: log.append([g.tolist() for g in gs]))
    (x * w).sum().backward()
    (x * w).sum().backward()
    handle.remove()
    (x * w).sum().backward()
    graph.register_multi_grad_hook([x, w], lambda g: log.append(1), mode="any")
    (x * w).sum().backward()
    return log


@program
def retain_grad_follows_writes(L: Any) -> Any:
    x = leaf(L, 1, 2)
    y = x * 3
    y.retain_grad()
    y.retain_grad()
    flag = y.retains_grad, x.retains_grad
    (y * y).sum().backward()
    return flag, y.grad.tolist(), x.grad.tolist()


@program
def detach_in_place(L: Any) -> Any:
    x = leaf(L, 1, 2)
    y = x * 2
    y.detach_()
    view = (x * 2)[0:1]
    (x * x).sum().backward(create_graph=True)
    x.grad.detach_()
    return y.requires_grad, y.is_leaf, caught(view.detach_), x.grad.requires_grad


def square(L: Any) -> Any:
    class Square(L.autograd.Function):  # type: ignore[name-defined, misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 2 * x * g

    return Square


@program
def function_and_its_second_gradient(L: Any) -> Any:
    x = leaf(L, 1, 2)
    y = square(L).apply(x)
    (g,) = L.autograd.grad(y.sum(), x, create_graph=True)
    (gg,) = L.autograd.grad(g.sum(), x)
    return y.tolist(), g.tolist(), gg.tolist(), y.grad_fn.name(), type(y.grad_fn).__name__, y.requires_grad


@program
def function_frees_what_it_saved(L: Any) -> Any:
    x = leaf(L, 1, 2)
    y = square(L).apply(x).sum()
    y.backward()
    return caught(y.backward)


@program
def function_sees_writes(L: Any) -> Any:
    x = leaf(L, 1, 2) * 1
    y = square(L).apply(x)
    x.add_(1)
    return caught(y.sum().backward)


@program
def function_with_several_results(L: Any) -> Any:
    class Parts(L.autograd.Function):  # type: ignore[name-defined, misc]
        @staticmethod
        def forward(ctx: Any, x: Any, k: float, name: str, flag: Any = None) -> Any:
            ctx.k = k
            index = x.argmax()
            ctx.mark_non_differentiable(index)
            return x * k, x.sum(), index, name

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
            log.append((a.tolist(), b.tolist(), c is None, d, ctx.needs_input_grad))
            return a * ctx.k + b, None, None

    log: list[Any] = []
    x = leaf(L, 1, 5, 2)
    a, b, c, d = Parts.apply(x, 3.0, "name")
    (a.sum() * 2).backward()
    facts = a.requires_grad, c.requires_grad, c.grad_fn, d, a.output_nr, b.output_nr
    b.backward()
    return facts, x.grad.tolist(), [entry[:2] for entry in log], [entry[-1] for entry in log]


@program
def function_with_setup_context(L: Any) -> Any:
    class Scaled(L.autograd.Function):  # type: ignore[name-defined, misc]
        @staticmethod
        def forward(x: Any, k: float) -> Any:
            return x * k

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.k = inputs[1]
            ctx.save_for_backward(output)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (y,) = ctx.saved_tensors
            return g * ctx.k + y * 0, None

    x = leaf(L, 1, 2)
    y = Scaled.apply(x, 4.0)
    (g,) = L.autograd.grad(y.sum(), x, create_graph=True)
    return g.tolist(), y.grad_fn.name()


@program
def function_without_materialized_gradients(L: Any) -> Any:
    class Two(L.autograd.Function):  # type: ignore[name-defined, misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any) -> Any:
            return (None if a is None else a * 2) if b is None else b * 3

    x = leaf(L, 1)
    _, b = Two.apply(x)
    b.sum().backward()
    return x.grad.tolist()


@program
def function_that_writes_its_input(L: Any) -> Any:
    class Double(L.autograd.Function):  # type: ignore[name-defined, misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    x = leaf(L, 1, 2)
    y = x * 1
    out = Double.apply(y)
    (out * out).sum().backward()
    return out is y, y.tolist(), x.grad.tolist(), y.grad_fn.name(), caught(lambda: Double.apply(x))


@program
def function_that_gives_its_input(L: Any) -> Any:
    class Same(L.autograd.Function):  # type: ignore[name-defined, misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 7

    x = leaf(L, 1, 2)
    y = Same.apply(x)
    y.sum().backward()
    return y is x, x.grad.tolist(), x.is_leaf, y.is_leaf


def broken(L: Any, result: Callable[[Any], Any]) -> Any:
    class Broken(L.autograd.Function):  # type: ignore[name-defined, misc]
        @staticmethod
        def forward(ctx: Any, x: Any, k: int) -> Any:
            return x * k

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return result(g)

    return Broken


@program
def wrong_gradients_of_functions(L: Any) -> Any:
    def run(result: Callable[[Any], Any]) -> str:
        x = leaf(L, 1, 2)
        return caught(broken(L, result).apply(x, 2).sum().backward)

    return (
        run(lambda g: (g, g)),
        run(lambda g: g),
        run(lambda g: (g[:1], None)),
        run(lambda g: (g, None, None)),
        run(lambda g: (1.0, None)),
        run(lambda g: 1 / 0),
        run(lambda g: (None, None)),
        run(lambda g: (g[0], None)),
    )


@program
def function_without_backward(L: Any) -> Any:
    class Forward(L.autograd.Function):  # type: ignore[name-defined, misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

    x = leaf(L, 1)
    with L.no_grad():
        quiet = Forward.apply(x)
    return quiet.requires_grad, caught(Forward.apply(x).sum().backward), caught(Forward), caught(L.autograd.Function)


@program
def functions_differentiable_once(L: Any) -> Any:
    once = lib(L, "autograd.function").once_differentiable

    class Square(L.autograd.Function):  # type: ignore[name-defined, misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 2 * x * g

    x = leaf(L, 3)
    (g,) = L.autograd.grad(Square.apply(x).sum(), x, create_graph=True)
    return g.tolist(), caught(lambda: L.autograd.grad(g.sum(), x))


@program
def functions_leave_no_cycle(L: Any) -> Any:
    class Keeps(L.autograd.Function):  # type: ignore[name-defined, misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x.exp()
            ctx.save_for_backward(y)
            ctx.marker = holder.pop()
            return y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.saved_tensors[0]

    class Marker: ...

    holder = [Marker()]
    alive = weakref.ref(holder[0])
    x = leaf(L, 1)
    y = Keeps.apply(x)
    del y
    gc.collect()
    return alive() is None


@program
def saved_tensor_hooks(L: Any) -> Any:
    graph = lib(L, "autograd.graph")
    x = leaf(L, 1, 2)
    log: list[str] = []
    with graph.saved_tensors_hooks(
        lambda t: log.append("pack") or t.tolist(), lambda v: log.append("un") or L.tensor(v)
    ):
        y = (x.exp() * x).sum()
    (g,) = L.autograd.grad(y, x, create_graph=True)
    (gg,) = L.autograd.grad(g.sum(), x)
    return [round(v, 3) for v in g.tolist()], [round(v, 3) for v in gg.tolist()], sorted(set(log))


@program
def saved_on_cpu(L: Any) -> Any:
    graph = lib(L, "autograd.graph")
    x = leaf(L, 1, 2)
    with graph.save_on_cpu():
        y = (x * x).sum()
    y.backward()
    return x.grad.tolist()


@program
def saved_tensor_hooks_refused(L: Any) -> Any:
    graph = lib(L, "autograd.graph")
    with graph.disable_saved_tensors_hooks("not here"):
        return caught(lambda: graph.saved_tensors_hooks(lambda t: t, lambda t: t).__enter__())


@program
def hooks_that_fail(L: Any) -> Any:
    graph = lib(L, "autograd.graph")
    x = leaf(L, 1)
    with graph.saved_tensors_hooks(lambda t: 1 / 0, lambda t: t):
        packing = caught(lambda: x.exp() * x)
    with graph.saved_tensors_hooks(lambda t: t, lambda t: 1 / 0):
        y = (x * x).sum()
    with graph.saved_tensors_hooks(lambda t: t, lambda t: 3):
        z = (x * x).sum()
    return packing, caught(y.backward), caught(z.backward)


@program
def inference(L: Any) -> Any:
    x = leaf(L, 1, 2)
    with L.inference_mode():
        y = x * 2
        inside = L.is_inference_mode_enabled(), L.is_grad_enabled(), y.is_inference(), y.requires_grad
        y.add_(1)
    with L.inference_mode(False):
        z = x * 2

    @L.inference_mode()
    def decorated() -> Any:
        return L.is_inference_mode_enabled(), (x * 2).is_inference()

    return (
        inside,
        z.requires_grad,
        decorated(),
        L.is_inference_mode_enabled(),
        caught(lambda: x * y),
        caught(lambda: y.add_(1)),
        caught(lambda: y.requires_grad_()),
        (y + 1).is_inference(),
        y.clone().is_inference(),
    )


@program
def anomalies(L: Any) -> Any:
    import warnings

    def fails() -> Any:
        x = leaf(L, -1)
        return (x.sqrt() * 0).sum()

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with L.autograd.detect_anomaly():
            on = L.is_anomaly_enabled() if L is torch else L.autograd.is_anomaly_enabled()
            kind = caught(lambda: fails().backward())
        with L.autograd.set_detect_anomaly(True, check_nan=False):
            quiet = caught(lambda: fails().backward())
    text = [str(w.message) for w in told]
    off = L.is_anomaly_enabled() if L is torch else L.autograd.is_anomaly_enabled()
    return on, kind, quiet, off, [("SqrtBackward0" in t, "return (x.sqrt() * 0).sum()" in t) for t in text]


@program
def checkpoints(L: Any) -> Any:
    checkpoint = lib(L, "utils.checkpoint").checkpoint
    runs: list[int] = []

    def f(x: Any, k: float = 1.0) -> Any:
        runs.append(1)
        return (x * w).tanh() * k, x

    out = []
    for reentrant in (True, False):
        x, w = leaf(L, 1, 2), leaf(L, 0.5, 0.25)
        y, _ = checkpoint(f, x, use_reentrant=reentrant)
        y.sum().backward()
        out.append(([round(v, 4) for v in x.grad.tolist()], [round(v, 4) for v in w.grad.tolist()], len(runs)))
    y, _ = checkpoint(f, x, use_reentrant=False, k=2.0)
    (g,) = L.autograd.grad(y.sum(), w, create_graph=True)
    (gg,) = L.autograd.grad(g.sum(), x)
    with L.no_grad():
        quiet = checkpoint(f, x, use_reentrant=False)[0].requires_grad
    return out, [round(v, 4) for v in gg.tolist()], quiet, caught(lambda: checkpoint(f, x, use_reentrant=True, k=2.0))


@program
def checkpoints_that_differ(L: Any) -> Any:
    checkpoint = lib(L, "utils.checkpoint").checkpoint
    times: list[int] = []

    def f(x: Any) -> Any:
        times.append(1)
        return (x * w if len(times) == 1 else (x * w[:, None])).exp().sum()

    x, w = leaf(L, 1, 2), leaf(L, 0.5, 0.25)
    y = checkpoint(f, x, use_reentrant=False)
    return caught(y.backward)


@program
def checkpoints_in_sequence(L: Any) -> Any:
    utils = lib(L, "utils.checkpoint")
    x = leaf(L, 0.1, 0.2)
    steps = [lambda t: t.sin(), lambda t: t * 2, lambda t: t.exp(), lambda t: t.sum()]
    utils.checkpoint_sequential(steps, 2, x, use_reentrant=False).backward()
    return [round(v, 4) for v in x.grad.tolist()]


@program
def checkpoint_with_random_numbers(L: Any) -> Any:
    checkpoint = lib(L, "utils.checkpoint").checkpoint
    L.manual_seed(3)
    x = L.ones(50, requires_grad=True)
    kept: list[Any] = []

    def f(t: Any) -> Any:
        mask = L.rand(50) > 0.5
        kept.append(mask)
        return (t * mask).exp()

    checkpoint(f, x, use_reentrant=False).sum().backward()
    return bool((kept[0] == kept[1]).all()), bool(((x.grad > 0) == kept[0]).all())


@program
def gradient_edges(L: Any) -> Any:
    graph = lib(L, "autograd.graph")
    x = leaf(L, 1)
    edge = graph.get_gradient_edge(x)
    return type(edge.node).__name__, edge.output_nr, caught(lambda: graph.get_gradient_edge(L.tensor([1.0])))


@program
def node_metadata(L: Any) -> Any:
    x = leaf(L, 1)
    y = x * 2
    y.grad_fn.metadata["who"] = "me"
    return y.grad_fn.metadata


@program
def gradient_order(L: Any) -> Any:
    """Later ops run first in backward."""
    log: list[str] = []
    x = leaf(L, 1)
    a, b, c = x * 2, x * 3, x * 4
    for name, t in (("c", c), ("a", a), ("b", b)):
        t.register_hook(lambda g, name=name: log.append(name))
    (b + (c + a)).sum().backward()
    return log


@program
def batched_gradients(L: Any) -> Any:
    x, unused = leaf(L, 1, 2, 3), leaf(L, 1)
    y = x.exp() * x.sum()
    g, none = L.autograd.grad(y, (x, unused), L.eye(3), is_grads_batched=True, allow_unused=True, retain_graph=True)
    (one,) = L.autograd.grad((y, y.sum()), x, (L.eye(3), L.ones(3)), is_grads_batched=True)
    return [[round(v, 2) for v in row] for row in g.tolist()], none, list(one.shape)


@program
def pieces_share_one_node(L: Any) -> Any:
    """Of three pieces one is not used; the graph leads from each to the same node, and twice through it."""

    def cuts(x: Any) -> list[Any]:
        return [x.split(2, 1), x.split([1, 4], 1), x.chunk(2, 1), x.unbind(1), x.unbind(0), L.tensor_split(x, 3, 1)]

    out = []
    for which in range(6):
        x = L.arange(10.0).view(2, 5).requires_grad_()
        parts = cuts(x * x)[which]
        loss = (parts[0] * parts[-1].sum()).pow(2).sum()
        (g,) = L.autograd.grad(loss, x, create_graph=True)
        (gg,) = L.autograd.grad(g.square().sum(), x)
        out += [g.tolist(), gg.tolist()]
    x = leaf(L, 1, 2, 3)
    a, b, c = x.unbind()
    nodes = [t.grad_fn for t in (a, b, c)]
    same = nodes[0] == nodes[1] == nodes[2] and len(set(nodes)) == 1
    return out, same, nodes[0].next_functions[0][0] == (x + 1).grad_fn.next_functions[0][0]


@pytest.mark.parametrize("run", PROGRAMS, ids=lambda f: f.__name__)
def test_same_as_pytorch(run: Callable[[Any], Any]) -> None:
    assert plain(run(lucid)) == plain(run(torch))


def plain(value: Any) -> Any:
    """Tuples as lists, so that only what was computed is compared."""
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def test_saving_on_the_cpu_from_the_gpu() -> None:
    x = lucid.tensor([1.0, 2.0], device="gpu", requires_grad=True)
    with lucid.autograd.graph.save_on_cpu():
        y = (x * x).exp()
    kept = {t.device.type for t in y.grad_fn.saved_tensors if t is not None}
    y.sum().backward()
    assert x.grad is not None and x.grad.device == x.device and kept <= {x.device.type}


NAMED = [
    "x + 1", "1 - x", "x * x", "x / 2", "x**2", "-x", "x.exp()", "x.log1p()", "x @ x.t()", "x.sum()", "x.mean()",
    "x.t()", "x.transpose(0, 1)", "x.permute(1, 0)", "x.view(4)", "x.reshape(4)", "x.flatten()", "x.squeeze()",
    "x.unsqueeze(0)",
    "x[0]", "x[0:1]", "x[:, None]", "x[x > 0]", "x.expand(2, 2)", "x.diagonal()", "x.unbind()[0]", "x.split(1)[0]",
    "x.chunk(2)[0]", "x.clone()", "x.double()", "x.max(0)[0]", "x.sort()[0]", "x.softmax(0)", "x.relu()",
    "L.cat([x, x])", "L.stack([x, x])", "L.where(x > 0, x, x)", "x.std()", "L.nn.functional.mse_loss(x, x)",
    "L.nn.functional.cross_entropy(x, x.argmax(1))", "L.nn.functional.linear(x, x, x[0])", "x.add_(1)", "x.cumsum(0)",
]  # fmt: skip


@pytest.mark.parametrize("text", NAMED)
def test_nodes_are_named_as_in_pytorch(text: str) -> None:
    """Apart from the number of the overload, which is 0 here."""

    def name(L: Any) -> str:
        x = L.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True) * 1
        return type(eval(text, {"L": L, "x": x}).grad_fn).__name__.rstrip("0123456789")

    assert name(lucid) == name(torch)


# ---- writes to views that the tape cannot follow ---------------------------------------------------------------------

VIEWS: dict[str, str] = {
    "split": "y.split(1)[0].add_(1)",
    "split in sizes": "y.split([1, 1])[1].mul_(2)",
    "chunk": "y.chunk(2)[0].add_(1)",
    "unbind": "y.unbind()[0].zero_()",
    "iteration": "list(y)[0].add_(1)",
    "of a leaf": "x.split(1)[0].add_(1)",
    "a view of one": "y.split(1)[0][0].add_(1)",
    "one of constants": "z.split(1)[0].add_(1)",
    "a gradient into one of constants": "z.split(1)[0].mul_(x[:1])",
    "assignment": "y.unbind()[0].__setitem__(0, 1.0)",
    "fill": "y.split(1)[0].index_fill_(0, i, 1.0)",
    "shape": "y.split(1)[0].squeeze_()",
    "cut off": "y.split(1)[0].detach().add_(1)",
    "tensor_split": "y.tensor_split(2)[0].add_(1)",
    "hsplit": "y.hsplit(3)[0].add_(1)",
    "unsafe_split": "y.unsafe_split(1)[0].add_(1)",
    "unsafe_split_with_sizes": "y.unsafe_split_with_sizes([1, 1])[0].add_(1)",
    "unsafe_chunk": "y.unsafe_chunk(2)[0].add_(1)",
    "select": "y[0].add_(1)",
    "made without grad": "v.add_(1)",
    "a view of one made without grad": "v[:2].mul_(2)",
    "of constants, made without grad": "c.add_(1)",
    "a gradient, made without grad": "c.mul_(x[0])",
    "of a leaf, made without grad": "l.add_(1)",
    "pieces made without grad": "p[0].add_(1)",
    "cut off, made without grad": "v.detach().add_(1)",
    "made and written without grad": "without(lambda: v.add_(1))",
    "pieces written without grad": "without(lambda: y.split(1)[0].add_(1))",
}


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("name", VIEWS)
def test_writes_to_views_that_the_tape_cannot_follow(name: str, device: str) -> None:
    def run(m: Any, device: str) -> Any:
        def without(f: Any) -> Any:
            with m.no_grad():
                return f()

        x = m.arange(6.0, device=device).reshape(2, 3).requires_grad_()
        y, z = x * 2, m.zeros(2, 3, device=device)
        own = {"x": x, "y": y, "z": z, "i": m.tensor([0], device=device), "without": without}
        with m.no_grad():
            own |= {"v": y[0], "c": z[0], "l": x[0], "p": y.split(1)}
        try:
            made = eval(VIEWS[name], own)
        except RuntimeError:
            return "refused"
        return made.tolist() if made is not None else None

    assert run(lucid, device) == run(torch, "cpu")


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_gradients_of_pieces_written_in_place(device: str) -> None:
    def run(m: Any, device: str) -> Any:
        x = m.arange(6.0, device=device).reshape(2, 3).requires_grad_()
        first, second = (x * 2).unsafe_split(1)
        first.mul_(3)
        (first * second).sum().backward()
        return x.grad.tolist()

    assert run(lucid, device) == run(torch, "cpu")
