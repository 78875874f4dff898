"""`Adamax`: Adam with the infinity norm."""

from __future__ import annotations

from lucid.optim.optimizer import ParamsT
from lucid.optim.options import checked
from lucid.optim.stepping import Stepping

__all__ = ["Adamax"]


class Adamax(Stepping):
    """Adam with the infinity norm in place of the second moment (Kingma and Ba, 2015).

    `u = max(β₂ u, |g| + eps)`, `p -= lr / (1 - β₁ᵗ) · m / u`.

    State per parameter: `step`, `exp_avg`, `exp_inf`.

    Args:
        params (ParamsT): the parameters to optimize, pairs of a name and a parameter, or dicts of groups with
            options of their own.
        lr (float, default: 0.002): Learning rate.
        betas (tuple[float, float], optional): Decay rates of the first moment and the norm. Default: (0.9, 0.999).
        eps (float, default: 1e-08): Added to the gradient's magnitude.
        weight_decay (float, default: 0): L2 penalty.
        foreach (bool, optional): Accepted; a step is one engine call in any case.
        maximize (bool, default: False): Ascend instead.
        differentiable (bool, default: False): Record the step, for gradients through it.
        capturable (bool, default: False): For parameters on the GPU device; True gives one warning that it has no
            effect.

    Raises:
        ValueError: an option is out of its range.

    Example:
        >>> x = lucid.ones(1, requires_grad=True)
        >>> optimizer = lucid.optim.Adamax([x], lr=0.1)
        >>> (x * x).sum().backward()
        >>> optimizer.step()
        >>> x.detach()
        tensor([0.9000])
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
