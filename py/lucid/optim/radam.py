"""`RAdam`: Adam whose rate follows how well the variance is known."""

from __future__ import annotations

from lucid.optim.optimizer import ParamsT
from lucid.optim.options import checked
from lucid.optim.stepping import Stepping

__all__ = ["RAdam"]


class RAdam(Stepping):
    """Adam whose rate follows how well the variance is known (Liu et al., 2020); at first the momentum alone leads.

    Args:
        params: Parameters, pairs of name and parameter, or dicts of groups.
        lr: Learning rate. Default: 1e-3.
        betas: Decay rates of the moments. Default: (0.9, 0.999).
        eps: Added to the denominator. Default: 1e-8.
        weight_decay: Penalty. Default: 0.
        decoupled_weight_decay: Shrink parameters by the penalty directly. Default: False.
        foreach: Accepted; a step is one engine call in any case.
        maximize: Ascend instead. Default: False.
        capturable: Accepted for parameters on the GPU device; no effect.
        differentiable: Record the step, for gradients through it. Default: False.

    State per parameter: `step`, `exp_avg`, `exp_avg_sq`.
    """

    _kind = "radam"
    _state = ("exp_avg", "exp_avg_sq")
    _numbers = ("lr", "betas", "eps", "weight_decay", "maximize", "decoupled_weight_decay")

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, checked(locals()))
