"""`RAdam`: Adam whose rate follows how well the variance is known."""

from __future__ import annotations

from lucid.optim.optimizer import ParamsT
from lucid.optim.options import checked
from lucid.optim.stepping import Stepping

__all__ = ["RAdam"]


class RAdam(Stepping):
    """Adam whose rate follows how well the variance is known (Liu et al., 2020); at first the momentum alone leads.

    State per parameter: `step`, `exp_avg`, `exp_avg_sq`.

    Args:
        params (ParamsT): the parameters to optimize, pairs of a name and a parameter, or dicts of groups with
            options of their own.
        lr (float, default: 0.001): Learning rate.
        betas (tuple[float, float], optional): Decay rates of the moments. Default: (0.9, 0.999).
        eps (float, default: 1e-08): Added to the denominator.
        weight_decay (float, default: 0): Penalty.
        decoupled_weight_decay (bool, default: False): Shrink parameters by the penalty directly.
        foreach (bool, optional): Accepted; a step is one engine call in any case.
        maximize (bool, default: False): Ascend instead.
        capturable (bool, default: False): For parameters on the GPU device; True gives one warning that it has no
            effect.
        differentiable (bool, default: False): Record the step, for gradients through it.

    Raises:
        ValueError: an option is out of its range.

    Example:
        >>> x = lucid.ones(1, requires_grad=True)
        >>> optimizer = lucid.optim.RAdam([x], lr=0.1)
        >>> (x * x).sum().backward()
        >>> optimizer.step()
        >>> x.detach()
        tensor([0.8000])
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
