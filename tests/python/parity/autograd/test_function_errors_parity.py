"""Misused functions with gradients of their own, `grad` and `backward`, against PyTorch: what is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import lucid
import pytest
import torch

from tests.python.parity.autograd.test_graph_parity import leaf, plain, same


def function(
    forward: Callable[..., Any],
    backward: Callable[..., Any] | None = None,
    args: Callable[[Any, Any], tuple[Any, ...]] | None = None,
    use: Callable[[Any, Any, Any], Any] | None = None,
    setup: Callable[..., Any] | None = None,
) -> Callable[[Any], Any]:
    """A function of these methods, which get the framework first, applied and gone back through."""

    def f(m: Any) -> Any:
        methods: dict[str, Any] = {"forward": staticmethod(lambda *a: forward(m, *a))}
        if backward is not None:
            methods["backward"] = staticmethod(lambda *a: backward(m, *a))
        if setup is not None:
            methods["setup_context"] = staticmethod(lambda *a: setup(m, *a))
        made = type("Made", (m.autograd.Function,), methods)
        x = leaf(m)
        given = args(m, x) if args else (x,)
        y = made.apply(*given)
        if use:
            return use(m, x, y)
        y.sum().backward()
        # The versions tell what was written.
        return x.grad, [a._version for a in given if isinstance(a, (lucid.Tensor, torch.Tensor))]

    return f


def doubled(m: Any, ctx: Any, x: Any) -> Any:
    return x * 2


def saving(*values: Any) -> Callable[..., Any]:
    def forward(m: Any, ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(*(x if v == "x" else v for v in values))
        return x * 2

    return forward


def marking(how: str, *values: Any, times: int = 1) -> Callable[..., Any]:
    """Marks values, `"x"` for the input, and writes that."""

    def forward(m: Any, ctx: Any, x: Any) -> Any:
        for _ in range(times):
            getattr(ctx, how)(*(x if isinstance(v, str) and v == "x" else v for v in values))
        return x.mul_(2) if how == "mark_dirty" and "x" in values else x * 2

    return forward


def passed(m: Any, ctx: Any, g: Any) -> Any:
    return g


def inner(m: Any, x: Any) -> tuple[Any, ...]:
    """A tensor that is no leaf."""
    return (x * 1,)


RETURNED: list[Callable[..., Any]] = [
    lambda m, ctx, g: (g, g),
    lambda m, ctx, g: (g, None, None),
    lambda m, ctx, g: (),
    lambda m, ctx, g: None,
    lambda m, ctx, g: 3,
    lambda m, ctx, g: (3,),
    lambda m, ctx, g: [g],
    lambda m, ctx, g: "g",
    lambda m, ctx, g: m.ones(4),
    lambda m, ctx, g: m.ones(2, 3),
    lambda m, ctx, g: m.ones(()),
    lambda m, ctx, g: m.ones(3, dtype=m.float64),
    lambda m, ctx, g: m.ones(3, dtype=m.int64),
    lambda m, ctx, g: m.ones(3, dtype=m.complex64),
    lambda m, ctx, g: g * ctx.missing,
    lambda m, ctx, g: g * (1 + len(ctx.saved_tensors)),
    lambda m, ctx: 1,
]


@pytest.mark.parametrize("returned", RETURNED)
def test_what_backward_returns(returned: Any) -> None:
    same(function(doubled, returned))


@pytest.mark.parametrize(
    "f",
    [
        function(doubled),
        function(lambda m, ctx, x, k: x * k, lambda m, ctx, g: (g, g), lambda m, x: (x, 3)),
        function(lambda m, ctx, x, k: x * k, lambda m, ctx, g: (g, None), lambda m, x: (x, 3)),
        function(lambda m, ctx, x, y: x * y, passed, lambda m, x: (x, x)),
        function(saving(3), passed),
        function(saving("x", "a"), passed),
        function(saving(["x"]), passed),
        function(saving(None, "x"), lambda m, ctx, g: g * ctx.saved_tensors[1]),
        function(marking("mark_dirty", "x"), passed),
        function(marking("mark_dirty", "x"), passed, inner),
        function(marking("mark_dirty", "x", "x"), passed, inner),
        function(marking("mark_dirty", "x", times=2), passed, inner),
        function(marking("mark_dirty", 3), passed, inner),
        function(lambda m, ctx, x: (ctx.mark_dirty(x), x * 2)[1], passed, inner),
        function(marking("mark_non_differentiable", 3), passed),
        function(marking("set_materialize_grads", 3), passed),
        function(marking("set_materialize_grads", False), passed),
        function(
            lambda m, ctx, x: (ctx.mark_non_differentiable(x), x)[1], passed, inner, lambda m, x, y: y.requires_grad
        ),
        function(
            lambda m, ctx, x: (ctx.mark_dirty(x), ctx.mark_non_differentiable(x), x.mul_(2))[2],
            passed,
            inner,
            lambda m, x, y: (y.requires_grad, y),
        ),
        function(lambda m, x: x * 2, lambda m, ctx, g: g * ctx.n, setup=lambda m, ctx, i, o: setattr(ctx, "n", len(i))),
        function(lambda m, x: x * 2, passed, setup=lambda m, ctx: None),
    ],
)
def test_misused_functions(f: Any) -> None:
    same(f)


def test_marking_what_is_no_input_warns() -> None:
    def f(m: Any) -> Any:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            found = function(lambda m, ctx, x: (lambda y: (ctx.mark_dirty(y), y)[1])(x * 2), passed)(m)
        return plain(found[0]), [w.category for w in seen]

    same(f)


def unrecorded(m: Any, mode: str, kind: str) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        if kind == "write":
            ctx.mark_dirty(x)
            return x.mul_(2)
        return x if kind == "same" else x.view_as(x)

    made = type("Made", (m.autograd.Function,), {"forward": staticmethod(forward)})
    x = leaf(m) * 1
    with getattr(m, mode)():
        y = made.apply(x)
    return y.requires_grad, y.is_leaf, y is x, y, x._version


@pytest.mark.parametrize("kind", ["write", "same", "view"])
@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_functions_applied_without_recording(mode: str, kind: str) -> None:
    same(lambda m: unrecorded(m, mode, kind))


@pytest.mark.parametrize(
    "f",
    [
        lambda m, x: m.autograd.grad(x.sum(), [3]),
        lambda m, x: m.autograd.grad(x.sum(), 3),
        lambda m, x: m.autograd.grad(x.sum(), None),
        lambda m, x: m.autograd.grad(x.sum(), []),
        lambda m, x: m.autograd.grad([], x),
        lambda m, x: m.autograd.grad(None, x),
        lambda m, x: m.autograd.grad(x * 2, x),
        lambda m, x: m.autograd.grad(x * 2, x, m.ones(2)),
        lambda m, x: m.autograd.grad(x * 2, x, m.ones(3, dtype=m.float64)),
        lambda m, x: m.autograd.grad(x * 2, x, m.ones(3, dtype=m.complex64)),
        lambda m, x: m.autograd.grad(x * 2, x, 3),
        lambda m, x: m.autograd.grad(x * 2, x, (3,)),
        lambda m, x: m.autograd.grad(x * 2, x, m.ones(2, 2), is_grads_batched=True),
        lambda m, x: m.autograd.grad([x.sum(), x.sum()], x, (m.ones(()),)),
        lambda m, x: m.autograd.grad(x.sum(), [x, leaf(m)], materialize_grads=True, allow_unused=False),
        lambda m, x: x.sum().backward(inputs=[3]),
        lambda m, x: x.sum().backward(inputs=[m.ones(3)]),
        lambda m, x: x.sum().backward(inputs=[]),
        lambda m, x: (x * 2).backward(3),
        lambda m, x: (x * 2).requires_grad_(False),
        lambda m, x: setattr(x, "data", 3),
        lambda m, x: setattr(x, "data", m.ones(3, dtype=m.int64)),
        lambda m, x: m.set_grad_enabled(3),
        lambda m, x: m.set_grad_enabled(None),
        lambda m, x: m.autograd.set_detect_anomaly(3),
    ],
)
def test_wrong_arguments(f: Any) -> None:
    same(lambda m: f(m, leaf(m)))


def test_new_data_leaves_the_rest_as_it_is() -> None:
    def f(m: Any) -> Any:
        x = leaf(m)
        y = x * 2
        y.data = m.zeros(3)
        y.sum().backward()
        seen = [y.requires_grad, y.is_leaf, type(y.grad_fn).__name__, y, x.grad]
        x.data = m.zeros(5)
        return [*seen, x.requires_grad, x, x.grad]

    same(f)


# ---- what is made without recording, and written so ------------------------------------------------------------------


def view_of_a_view(m: Any, x: Any, y: Any) -> Any:
    with m.no_grad():
        v = x.t()
    w = v[0]
    (g,) = m.autograd.grad(w.sum(), x, allow_unused=True)
    return v.is_leaf, w.is_leaf, w.requires_grad, type(w.grad_fn).__name__, g


def written_unrecorded(m: Any, x: Any, y: Any) -> Any:
    pieces, part = y.unbind(0), y[0]
    with m.no_grad():
        y.mul_(2)
    (part * part).sum().backward(retain_graph=True)
    return part, x.grad, pieces[0] * 2


def in_inference_mode(m: Any, x: Any, y: Any) -> Any:
    z = m.ones(1, 3)
    with m.inference_mode():
        z.squeeze_()
    return z.is_inference(), z._version, (z * x[0]).grad_fn is not None


def copied(m: Any, x: Any, y: Any) -> Any:
    z, seen = m.zeros(2, 3), []
    z.copy_(y)
    z.register_hook(lambda g: seen.append(plain(g)))
    z.retain_grad()
    (y.sum() * 10 + z.sum()).backward()
    return type(z.grad_fn).__name__, seen, z.grad, x.grad, m.autograd.grad((x * 2).sum(), z, allow_unused=True)


def copied_leaf(m: Any, x: Any, y: Any) -> Any:
    z = m.zeros(2, 3)
    z.copy_(x)
    (x.sum() * 10 + z.sum()).backward()
    return type(z.grad_fn).__name__, z.is_leaf, x.grad


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("f", [view_of_a_view, written_unrecorded, in_inference_mode, copied, copied_leaf])
def test_writes_and_views_off_the_tape(f: Any, device: str) -> None:
    def on(m: Any) -> Any:
        rows = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
        place = device if m.__name__ == "lucid" else "cpu"
        x = m.tensor(rows, device=place).requires_grad_()
        if place != "cpu":
            with m.device(place):
                return plain(f(m, x, x * 1))
        return plain(f(m, x, x * 1))

    same(on)
