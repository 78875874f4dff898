"""Results that were computed from stand-ins for a call's tensors, as results of what those stand for."""

from __future__ import annotations

from typing import Any

import lucid
from lucid._C import Tensor
from lucid.compiler import _trees


class _Bridge(lucid.autograd.Function):
    """Results that were computed from stand-ins, as results of what those stand for."""

    @staticmethod
    def forward(ctx: Any, outs: list[Tensor], inside: list[Tensor], *real: Tensor) -> Any:
        ctx.outs, ctx.inside = outs, inside
        return tuple(o.detach() for o in outs)

    @staticmethod
    @lucid.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        pairs = [(o, g) for o, g in zip(ctx.outs, grads, strict=True) if g is not None]
        found = lucid.autograd.grad(
            [o for o, _ in pairs], ctx.inside, [g for _, g in pairs], retain_graph=True, allow_unused=True
        )
        return (None, None, *found)


def stand_ins(tensors: list[Tensor]) -> list[Tensor]:
    """The tensors, those that were computed as leaves of the same memory: what led to them is not recorded."""
    return [t.detach().requires_grad_(True) if t.requires_grad and not t.is_leaf else t for t in tensors]


def bridged(result: Any, inside: list[Tensor], real: list[Tensor]) -> Any:
    """The result of a call with stand-ins as that of the call with what they stand for."""
    leaves: list[Any] = []
    tree = _trees.flatten(result, leaves)
    own = {id(t): r for t, r in zip(inside, real, strict=True)}
    wanted = [(t, r) for t, r in zip(inside, real, strict=True) if t.requires_grad]
    outs: list[Tensor] = []
    for t in leaves:
        if isinstance(t, Tensor) and t.requires_grad and id(t) not in own and all(t is not o for o in outs):
            outs.append(t)
    made: Any = ()
    if outs:
        made = _Bridge.apply(outs, [t for t, _ in wanted], *[r for _, r in wanted])
    to = {**own, **{id(o): m for o, m in zip(outs, made, strict=True)}}
    return _trees.unflatten(tree, iter([to.get(id(t), t) if isinstance(t, Tensor) else t for t in leaves]))
