"""Custom functions in forward mode: `jvp` gives the tangents of what `forward` computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lucid import _C
from lucid._C import Tensor

if TYPE_CHECKING:
    from lucid.autograd.function import Function, FunctionCtx


def applied(cls: type[Function], ctx: FunctionCtx, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`Function.apply` while a dual level is open."""
    try:
        return _at_level(cls, ctx, args, kwargs)
    finally:
        ctx._roles = ctx._for_forward = None


def _at_level(cls: type[Function], ctx: FunctionCtx, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The same at the innermost level, with those around it at work for results and tangents alike."""
    tangents = [_C._tangent(a) if isinstance(a, Tensor) else None for a in args]
    bound, former = _C._leave_level(), True
    outer = _C._forward_active()
    try:
        if outer:
            output = _at_level(cls, ctx, args, kwargs)
        else:
            former = _C._set_fwd_grad_enabled(False)
            ctx._roles = {}
            output = cls._applied(ctx, args, kwargs)
        carried = any(t is not None for t in tangents)
        pushed = _tangents_of(cls, ctx, args, tangents, output) if carried else []
    finally:
        if not outer:
            _C._set_fwd_grad_enabled(former)
        _C._set_bound(bound)
    for out, tangent in pushed:
        _C._set_tangent(out, tangent)
    return output


def _tangents_of(
    cls: type[Function], ctx: FunctionCtx, args: tuple[Any, ...], tangents: list[Tensor | None], output: Any
) -> list[tuple[Tensor, Tensor]]:
    """The differentiable results with their tangents, but for those written in place, which have theirs already."""
    given = [
        _C.zeros_like(a) if t is None and ctx._materialize and isinstance(a, Tensor) else t
        for a, t in zip(args, tangents, strict=True)
    ]
    found = cls.jvp(ctx, *given)
    outputs = output if isinstance(output, tuple) else (output,)
    listed = found if isinstance(found, tuple) else (found,)
    if len(listed) != len(outputs):
        raise RuntimeError(
            f"Function's jvp returned an invalid number of forward gradients (expected {len(outputs)} but got "
            f"{len(listed)})"
        )
    roles = ctx._roles or {}
    pushed = []
    for i, (out, tangent) in enumerate(zip(outputs, listed, strict=True)):
        if tangent is not None and not isinstance(tangent, Tensor):
            raise RuntimeError(f"expected Variable or None (got {type(tangent).__name__}) for grad output {i}.")
        if not isinstance(out, Tensor):
            continue
        if roles[i] == "fixed" or not (out.is_floating_point() or out.is_complex()):
            if tangent is not None:
                raise RuntimeError(
                    f"Function's jvp returned a gradient at position {i}, but  the corresponding forward output is not "
                    "a differentiable Tensor.You should return None at that position instead."
                )
            continue
        written = next((j for j, a in enumerate(args) if a is out), None)
        if written is not None and roles[i] == "written":
            moved = given[written]
            if tangent is not moved and (tangent is None or moved is None or not tangent._shares_storage(moved)):
                raise RuntimeError(
                    "An inplace custom Function is not modifying the forward mode gradients inplace. If the forward is "
                    "modifying an input inplace, then the jvp function must modify the corresponding gradient inplace."
                )
            if tangents[written] is None and tangent is not None:
                pushed.append((out, tangent))
            continue
        if tangent is None:
            raise RuntimeError(f"Function's jvp returned no tangent for the differentiable result {i}")
        shows = any(isinstance(a, Tensor) and a._shares_storage(out) for a in args)
        if shows and not tangent._is_view():
            raise RuntimeError(
                "A custom Function's forward is returning a view (or an input as-is) but the jvp is not returning a "
                "view."
            )
        # What is no view has a tangent in memory of its own.
        own = shows or not any(t is not None and t._shares_storage(tangent) for t in given)
        pushed.append((out, tangent if own else tangent.clone()))
    return pushed
