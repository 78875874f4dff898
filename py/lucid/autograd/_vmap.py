"""Functions with gradients of their own inside of `vmap`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from lucid import _C
from lucid._C import Tensor

if TYPE_CHECKING:
    from lucid.autograd.function import Function, FunctionCtx


class VmapInfo(NamedTuple):
    """What a function's `vmap` is told of the samples."""

    batch_size: int
    randomness: str


def level_of(args: Iterable[Any]) -> int | None:
    """The innermost level of `vmap` that any of these tensors is batched at, or if one is, any of their tangents."""
    active = _C._vmap_active()
    if not active:
        return None
    tensors = [a for a in args if isinstance(a, Tensor)]
    level = max((parts[1] for t in tensors if (parts := _C._vmap_parts(t)) is not None), default=None)
    if level is not None:
        for inner in sorted((id for id, *_ in active if id > level), reverse=True):
            if any(_C._vmap_spread(t, inner) is not None for t in tensors):
                return inner
    return level


def call(cls: type[Function], level: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Applies the function to tensors that are batched at this level, by its `vmap` or by a generated one."""
    from lucid.autograd.function import Function

    name = cls.__name__
    own = cls.vmap is not Function.vmap
    if cls.generate_vmap_rule and own:
        raise RuntimeError(
            f"You tried to vmap over {name}, but it has both generate_vmap_rule=True and an overriden vmap "
            "staticmethod. Please set generate_vmap_rule=False or delete the overriden vmap staticmethod to avoid "
            "ambiguity."
        )
    if not cls.generate_vmap_rule and not own:
        raise RuntimeError(
            f"You tried to vmap over {name}, but it does not have vmap support. Please override and implement the vmap "
            "staticmethod or set generate_vmap_rule=True."
        )
    info = next(VmapInfo(size, random) for id, size, random in _C._vmap_active() if id == level)
    values, dims = _taken_off(args, level)
    left = _C._vmap_suspend(level)
    try:
        if own:
            found = cls.vmap(info, dims, *values, **kwargs)
            if not isinstance(found, tuple) or len(found) != 2:
                raise RuntimeError(
                    f"Expected the vmap staticmethod of {name} to have two returns, an output and out_dims with pytree "
                    f"structure compatible with the output. Got {type(found).__name__}."
                )
            output, out_dims = found
        else:
            output, out_dims = _generated(cls, info, dims).apply(*values, **kwargs), 0
    finally:
        _C._vmap_resume(left)
    outs = list(output) if isinstance(output, tuple) else [output]
    places = list(out_dims) if isinstance(out_dims, (tuple, list)) else [out_dims] * len(outs)
    if len(places) != len(outs):
        raise RuntimeError(f"{name}: vmap gave {len(outs)} outputs and {len(places)} out_dims")
    hidden = tuple(
        _C._vmap_hide(o, d, level) if isinstance(o, Tensor) and d is not None else o
        for o, d in zip(outs, places, strict=True)
    )
    return hidden if isinstance(output, tuple) else hidden[0]


def _taken_off(args: Sequence[Any], level: int) -> tuple[tuple[Any, ...], tuple[int | None, ...]]:
    """The arguments outside of the level, with their samples in front, and for each where its samples are."""
    values: list[Any] = []
    dims: list[int | None] = []
    for a in args:
        parts = _C._vmap_parts(a) if isinstance(a, Tensor) else None
        inside = parts is not None and parts[1] == level
        value = parts[2] if parts is not None and inside else a
        if isinstance(a, Tensor) and not inside and (wide := _C._vmap_spread(a, level)) is not None:
            # All samples have the same value, but tangents of their own.
            value, inside = wide, True
        values.append(value)
        dims.append(0 if inside else None)
    return tuple(values), tuple(dims)


class _Held:
    """The saved tensors of a context while its `backward` runs."""

    def __init__(self, tensors: tuple[Tensor | None, ...]) -> None:
        self.tensors = tensors

    def get(self) -> tuple[Tensor | None, ...]:
        return self.tensors


def _generated(cls: type[Function], info: VmapInfo, in_dims: tuple[int | None, ...]) -> type[Function]:
    """The function of all samples: `cls` with each of its methods under `vmap`.

    A function of its own, so that its gradient can be taken after this level has ended. Every tensor among its results
    has the samples in front.
    """
    from lucid.autograd.function import Function

    @contextmanager
    def inside() -> Iterator[int]:
        level = _C._vmap_enter(*info)
        try:
            yield level
        finally:
            _C._vmap_exit(level)

    def hide(values: Sequence[Any], dims: Sequence[int | None], level: int) -> tuple[Any, ...]:
        return tuple(
            v if d is None or v is None else _C._vmap_hide(v, d, level) for v, d in zip(values, dims, strict=True)
        )

    class Vmapped(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*args: Any, **kwargs: Any) -> Any:
            with inside() as level:
                output = cls.forward(*hide(args, in_dims, level), **kwargs)
                listed = output if isinstance(output, tuple) else (output,)
                shown = tuple(_C._vmap_show(o, 0, level) if isinstance(o, Tensor) else o for o in listed)
            return shown if isinstance(output, tuple) else shown[0]

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            inner: FunctionCtx = cls._backward_cls()
            inner.needs_input_grad = ctx.needs_input_grad
            listed = output if isinstance(output, tuple) else (output,)
            with inside() as level:
                given = hide(inputs, in_dims, level)
                outs = hide(listed, [0 if isinstance(o, Tensor) else None for o in listed], level)
                cls.setup_context(inner, given, outs if isinstance(output, tuple) else outs[0])
                if inner._dirty:
                    raise RuntimeError(f"{cls.__name__}: mark_dirty has no meaning inside of vmap; write a vmap rule")
                saved, ctx.saved_dims = _taken_off(inner._to_save, level)
                # A result or an argument that is saved is to be known as one.
                plain = dict(zip(map(id, (*given, *outs)), (*inputs, *listed), strict=True))
                ctx.save_for_backward(*(plain.get(id(t), v) for t, v in zip(inner._to_save, saved, strict=True)))
                ctx.pushed_dims = None
                if inner._for_forward is not None:
                    saved, ctx.pushed_dims = _taken_off(inner._for_forward, level)
                    ctx.save_for_forward(*(plain.get(id(t), v) for t, v in zip(inner._for_forward, saved, strict=True)))
                still = {id(t) for t in inner._non_differentiable}
                ctx.mark_non_differentiable(*(o for o, h in zip(listed, outs, strict=True) if id(h) in still))
            ctx.set_materialize_grads(inner._materialize)
            inner._to_save = inner._non_differentiable = ()
            # They belong to a level that has ended.
            inner._for_forward = None
            ctx.inner = inner

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            inner = ctx.inner
            with inside() as level:
                if ctx.pushed_dims is None:
                    inner._saved, inner._for_forward = _Held(hide(ctx.saved_tensors, ctx.saved_dims, level)), None
                else:
                    inner._for_forward = hide(ctx.saved_tensors, ctx.pushed_dims, level)
                found = cls.jvp(inner, *hide(tangents, in_dims, level))
                inner._saved = inner._for_forward = None
                listed = found if isinstance(found, tuple) else (found,)
                shown = tuple(_C._vmap_show(t, 0, level) if isinstance(t, Tensor) else t for t in listed)
            return shown if isinstance(found, tuple) else shown[0]

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            inner = ctx.inner
            with inside() as level:
                inner._saved = _Held(hide(ctx.saved_tensors, ctx.saved_dims, level))
                found = cls._gradients(inner, *hide(grads, [0] * len(grads), level))
                listed = found if isinstance(found, (tuple, list)) else (found,)
                inner._saved = None
                shown: list[Tensor | None] = []
                for g, dim in zip(listed, (*in_dims, *[None] * len(listed)), strict=False):
                    if g is None:
                        shown.append(None)
                    elif dim is not None:
                        shown.append(_C._vmap_show(g, dim, level))
                    else:
                        # Every sample has used the same argument; a gradient that no sample changes counts for each.
                        shown.append(_C._vmap_show(g, 0, level).sum(0))
                return tuple(shown)

    Vmapped.__name__ = f"Vmapped{cls.__name__}"
    Vmapped._backward_cls.__name__ = f"{Vmapped.__name__}Backward"
    return Vmapped
