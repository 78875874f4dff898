"""`Adadelta`: steps in units of earlier steps."""

from __future__ import annotations

from lucid.optim.optimizer import ParamsT
from lucid.optim.options import checked
from lucid.optim.stepping import Stepping

__all__ = ["Adadelta"]


class Adadelta(Stepping):
    """Adadelta (Zeiler, 2012).

    `s = ρ s + (1 - ρ) g²`, `d = sqrt(u + eps) / sqrt(s + eps) · g`, `u = ρ u + (1 - ρ) d²`, `p -= lr · d`.

    Args:
        params: Parameters, pairs of name and parameter, or dicts of groups.
        lr: Factor on the change. Default: 1.
        rho: Decay rate of the means. Default: 0.9.
        eps: Added below the roots. Default: 1e-6.
        weight_decay: L2 penalty. Default: 0.
        foreach: Accepted; a step is one engine call in any case.
        capturable: Accepted for parameters on the GPU device; no effect.
        maximize: Ascend instead. Default: False.
        differentiable: Record the step, for gradients through it. Default: False.

    State per parameter: `step`, `square_avg`, `acc_delta`.
    """

    _kind = "adadelta"
    _state = ("square_avg", "acc_delta")
    _numbers = ("lr", "rho", "eps", "weight_decay", "maximize")

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, checked(locals()))
