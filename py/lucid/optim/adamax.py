"""`Adamax`: Adam with the infinity norm."""

from __future__ import annotations

from lucid.optim.optimizer import ParamsT
from lucid.optim.options import checked
from lucid.optim.stepping import Stepping

__all__ = ["Adamax"]


class Adamax(Stepping):
    """Adam with the infinity norm in place of the second moment (Kingma and Ba, 2015).

    `u = max(β₂ u, |g| + eps)`, `p -= lr / (1 - β₁ᵗ) · m / u`.

    Args:
        params: Parameters, pairs of name and parameter, or dicts of groups.
        lr: Learning rate. Default: 2e-3.
        betas: Decay rates of the first moment and the norm. Default: (0.9, 0.999).
        eps: Added to the gradient's magnitude. Default: 1e-8.
        weight_decay: L2 penalty. Default: 0.
        foreach: Accepted; a step is one engine call in any case.
        maximize: Ascend instead. Default: False.
        differentiable: Record the step, for gradients through it. Default: False.
        capturable: Accepted for parameters on the GPU device; no effect.

    State per parameter: `step`, `exp_avg`, `exp_inf`.
    """

    _kind = "adamax"
    _state = ("exp_avg", "exp_inf")
    _numbers = ("lr", "betas", "eps", "weight_decay", "maximize")

    def __init__(
        self,
        params: ParamsT,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, checked(locals()))
