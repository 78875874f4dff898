"""Functions with gradients of their own against PyTorch's: results that are views, writes, contexts, callbacks."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable
from typing import Any

import lucid
import pytest
import torch

DEVICES = ["cpu", "gpu"]


def plain(x: Any) -> Any:
    """Tensors as lists, nested as they are."""
    if isinstance(x, (lucid.Tensor, torch.Tensor)):
        return x.detach().cpu().tolist()
    return type(x)(map(plain, x)) if type(x) in (list, tuple) else x


def same(f: Callable[[Any, Any], Any], device: str = "cpu") -> None:
    """Both give the same, or refuse it with the same kind of error."""
    found = []
    for m in (lucid, torch):

        def x(m: Any = m) -> Any:
            values = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
            return m.tensor(values, requires_grad=True, device=device if m is lucid else "cpu")

        try:
            found.append(plain(f(m, x())))
        except Exception as e:
            found.append(next(c for c in type(e).__mro__ if c.__module__ == "builtins"))
    assert found[0] == found[1]


def function(m: Any, forward: Callable[..., Any], backward: Callable[..., Any], **more: Any) -> Any:
    methods = {"forward": forward, "backward": backward, **more}
    return type("Own", (m.autograd.Function,), {k: staticmethod(v) for k, v in methods.items()})


def view(m: Any) -> Any:
    return function(m, lambda ctx, x: x.view(-1), lambda ctx, g: 3 * g.view(2, 3)).apply


def as_is(m: Any) -> Any:
    return function(m, lambda ctx, x: x, lambda ctx, g: 3 * g).apply


def rows(m: Any) -> Any:
    return function(m, lambda ctx, x: (x[0], x[1]), lambda ctx, a, b: m.stack([a, b])).apply


def of_own(m: Any) -> Any:
    return function(m, lambda ctx, x: (x * 2).view(-1), lambda ctx, g: g.view(2, 3)).apply


def doubling(m: Any, results: int = 1) -> Any:
    def forward(ctx: Any, x: Any, *others: Any) -> Any:
        ctx.mark_dirty(x)
        x.mul_(2)
        return (x, *(y * 2 for y in others)) if others else x

    return function(m, forward, lambda ctx, *g: tuple(2 * x for x in g)).apply


# ---- results that are inputs or views --------------------------------------------------------------------------------


def used(m: Any, x: Any, f: Any) -> Any:
    y = f(m)(x)
    y = y[0] if isinstance(y, tuple) else y
    y.sum().backward()
    return y._is_view(), y._base is not None, y.grad_fn.name(), x.grad


def used_below(m: Any, x: Any, f: Any) -> Any:
    z = x * 1
    y = f(m)(z)
    (y[0] if isinstance(y, tuple) else y).square().sum().backward()
    return x.grad


def written(m: Any, x: Any, f: Any) -> Any:
    y = f(m)(x * 1)
    (y[0] if isinstance(y, tuple) else y).mul_(2)


def written_leaf(m: Any, x: Any, f: Any) -> Any:
    y = f(m)(x)
    (y[0] if isinstance(y, tuple) else y).mul_(2)


def written_without_recording(m: Any, x: Any, f: Any) -> Any:
    y = f(m)(x * 1)
    y = y[0] if isinstance(y, tuple) else y
    with m.no_grad():
        y.mul_(2)
    return y


def written_without_gradients(m: Any, x: Any, f: Any) -> Any:
    plain_x = x.detach().clone()
    y = f(m)(plain_x)
    (y[0] if isinstance(y, tuple) else y).mul_(2)
    return plain_x, y


def base_written(m: Any, x: Any, f: Any) -> Any:
    z = x * 1
    y = f(m)(z)
    z.mul_(2)
    (y[0] if isinstance(y, tuple) else y).sum().backward()
    return x.grad


def cloned(m: Any, x: Any, f: Any) -> Any:
    y = f(m)(x * 1)
    (y[0] if isinstance(y, tuple) else y).clone().mul_(2).sum().backward()
    return x.grad


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("f", [view, as_is, rows, of_own])
@pytest.mark.parametrize(
    "use",
    [
        used,
        used_below,
        written,
        written_leaf,
        written_without_recording,
        written_without_gradients,
        base_written,
        cloned,
    ],
)
def test_results_that_are_inputs_or_views(use: Any, f: Any, device: str) -> None:
    same(lambda m, x: use(m, x, f), device)


def test_messages_say_that_a_function_made_the_view() -> None:
    x = lucid.ones(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"modified inplace\. This view was created inside a custom Function"):
        view(lucid)(x * 1).mul_(2)
    z = x * 1
    y = as_is(lucid)(z)
    z.mul_(2)
    with pytest.raises(RuntimeError, match=r"its base has been modified inplace\. This view was created"):
        y.sum()


# ---- writes, contexts, gradients ------------------------------------------------------------------------------------


def on_context(m: Any, x: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.factor = 5
        ctx.save_for_backward(x)
        return x * 2

    y = function(m, forward, lambda ctx, g: g * 2).apply(x)
    node = y.grad_fn
    return node.factor, node.saved_tensors, node.needs_input_grad, hasattr(node, "other"), node is y.grad_fn


def of_results_without_gradients(m: Any, x: Any) -> Any:
    seen = []

    def forward(ctx: Any, x: Any) -> Any:
        parts = x * 2, x + 1, x.argmax()
        ctx.mark_non_differentiable(parts[1])
        return parts

    def backward(ctx: Any, *grads: Any) -> Any:
        seen.extend([None if g is None else (g.tolist(), str(g.dtype).split(".")[1]) for g in grads])
        return grads[0] * 2

    function(m, forward, backward).apply(x)[0].sum().backward()
    return seen, x.grad


def saved_result(m: Any, x: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        y = x.exp().view(3, 2)
        ctx.save_for_backward(y)
        return y

    y = function(m, forward, lambda ctx, g: (g * ctx.saved_tensors[0]).view(2, 3)).apply(x / 4)
    (g,) = m.autograd.grad(y.sum(), x, create_graph=True)
    return [round(v, 4) for v in m.autograd.grad(g.sum(), x)[0].reshape(-1).tolist()]


@pytest.mark.parametrize(
    "f",
    [
        lambda m, x: doubling(m)(x),
        lambda m, x: (z := x * 1, doubling(m)(z) is z, z.sum().backward(), x.grad),
        lambda m, x: (z := x * 1, v := z[0], doubling(m)(v) is v, z.sum().backward(), x.grad),
        lambda m, x: doubling(m)((x * 1)[0], x),
        lambda m, x: doubling(m)((x.detach() * 1)[0], x),
        lambda m, x: doubling(m)(x * 1, x),
        on_context,
        of_results_without_gradients,
        saved_result,
    ],
)
@pytest.mark.parametrize("device", DEVICES)
def test_writes_and_contexts(f: Any, device: str) -> None:
    same(f, device)


def test_contexts_end_with_their_nodes() -> None:
    from lucid.autograd import function as module

    y = view(lucid)(lucid.ones(2, 3, requires_grad=True))
    held = len(module._CONTEXTS)
    assert held > 0 and y.grad_fn._forward_cls.__name__ == "Own"
    del y
    gc.collect()
    assert len(module._CONTEXTS) == held - 1


# ---- nodes and callbacks ---------------------------------------------------------------------------------------------


def node_identity(m: Any, x: Any) -> Any:
    y = x * 2
    z = y + 1
    node = y.grad_fn
    edge = m.autograd.graph.get_gradient_edge(y)
    nodes = z.grad_fn.next_functions[0][0], y.grad_fn, edge.node
    return [n is node for n in nodes], (x * 2).grad_fn is node


def callbacks(m: Any, x: Any) -> Any:
    queue = m.autograd.Variable._execution_engine.queue_callback
    log: list[Any] = []

    def last() -> None:
        log.append(("last", x.grad is not None))

    def first() -> None:
        log.append(("first", x.grad is not None))
        queue(last)

    x.register_hook(lambda g: log.append("hook") or queue(first))
    (x * 2).sum().backward()
    log.append("done")
    return log


def raising_callback(m: Any, x: Any) -> Any:
    x.register_hook(lambda g: m.autograd.Variable._execution_engine.queue_callback(lambda: 1 / 0))
    (x * 2).sum().backward()


@pytest.mark.parametrize(
    "f",
    [
        node_identity,
        callbacks,
        raising_callback,
        lambda m, x: m.autograd.Variable._execution_engine.queue_callback(print),
        lambda m, x: (x.register_post_accumulate_grad_hook(lambda p: 3), x.sum().backward()),
    ],
)
def test_nodes_and_callbacks(f: Any) -> None:
    same(f)


def test_what_is_set_on_a_parameter_is_pickled() -> None:
    for m in (lucid, torch):
        p = m.nn.Parameter(m.ones(3))
        p.role = "scale"
        assert pickle.loads(pickle.dumps(p)).role == "scale"


@pytest.mark.parametrize("hold", [True, False])
def test_saved_tensors_are_the_objects_that_were_given(hold: bool) -> None:
    def f(m: Any) -> Any:
        seen: list[Any] = []

        class Product(m.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any, y: Any) -> Any:
                out = x * y
                ctx.save_for_backward(x, y, None, out)
                return out

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                a, b, none, out = ctx.saved_tensors
                seen.append([a is x, b is kept[0] if hold else b.tolist(), none, out is made, out.tolist()])
                return g * b, g * a

        x, kept = m.ones(2, requires_grad=True), [m.full((2,), 3.0)]
        made = Product.apply(x, kept[0] if hold else kept.pop())
        made.sum().backward()
        return seen, x.grad.tolist()

    assert f(lucid) == f(torch)
