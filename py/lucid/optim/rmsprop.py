"""`RMSprop`: gradients over the root of their mean square."""

from __future__ import annotations

from typing import Any

from lucid.optim.optimizer import ParamsT
from lucid.optim.options import checked
from lucid.optim.stepping import Stepping

__all__ = ["RMSprop"]


class RMSprop(Stepping):
    """RMSprop (Hinton, 2012): `s = α s + (1 - α) g²`, `p -= lr · g / (sqrt(s) + eps)`.

    Args:
        params: Parameters, pairs of name and parameter, or dicts of groups.
        lr: Learning rate. Default: 1e-2.
        alpha: Decay rate of the means. Default: 0.99.
        eps: Added to the denominator. Default: 1e-8.
        weight_decay: L2 penalty. Default: 0.
        momentum: Default: 0, which keeps no buffer.
        centered: Divide by the root of the variance (Graves, 2013). Default: False.
        capturable: Accepted for parameters on the GPU device; no effect.
        foreach: Accepted; a step is one engine call in any case.
        maximize: Ascend instead. Default: False.
        differentiable: Record the step, for gradients through it. Default: False.

    State per parameter: `step`, `square_avg`, `momentum_buffer` with `momentum`, `grad_avg` where `centered`.
    """

    _kind = "rmsprop"
    _numbers = ("lr", "alpha", "eps", "weight_decay", "momentum", "centered", "maximize")

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, checked(locals()))

    def _arrays(self, group: dict[str, Any]) -> tuple[str, ...]:
        names = ["square_avg"]
        names += ["grad_avg"] if group["centered"] else []
        names += ["momentum_buffer"] if group["momentum"] > 0 else []
        return tuple(names)

    def _state_order(self, group: dict[str, Any]) -> tuple[str, ...]:
        first, *rest = self._arrays(group)
        return (first, *reversed(rest))
