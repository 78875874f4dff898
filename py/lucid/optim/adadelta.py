"""`Adadelta`: steps in units of earlier steps."""

from __future__ import annotations

from lucid.optim.optimizer import ParamsT
from lucid.optim.options import checked
from lucid.optim.stepping import Stepping

__all__ = ["Adadelta"]


class Adadelta(Stepping):
    """Adadelta (Zeiler, 2012).

    `s = ρ s + (1 - ρ) g²`, `d = sqrt(u + eps) / sqrt(s + eps) · g`, `u = ρ u + (1 - ρ) d²`, `p -= lr · d`.

    State per parameter: `step`, `square_avg`, `acc_delta`.

    Args:
        params (ParamsT): the parameters to optimize, pairs of a name and a parameter, or dicts of groups with
            options of their own.
        lr (float, default: 1.0): Factor on the change.
        rho (float, default: 0.9): Decay rate of the means.
        eps (float, default: 1e-06): Added below the roots.
        weight_decay (float, default: 0): L2 penalty.
        foreach (bool, optional): Accepted; a step is one engine call in any case.
        capturable (bool, default: False): For parameters on the GPU device; True gives one warning that it has no
            effect.
        maximize (bool, default: False): Ascend instead.
        differentiable (bool, default: False): Record the step, for gradients through it.

    Raises:
        ValueError: an option is out of its range.

    Example:
        >>> x = lucid.ones(1, requires_grad=True)
        >>> optimizer = lucid.optim.Adadelta([x], lr=0.1)
        >>> (x * x).sum().backward()
        >>> optimizer.step()
        >>> x.detach()
        tensor([0.9997])
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
