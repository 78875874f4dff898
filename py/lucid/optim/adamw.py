"""`AdamW`: Adam whose weight decay shrinks parameters directly."""

from __future__ import annotations

from typing import Any

from lucid.optim.adam import Adam
from lucid.optim.optimizer import ParamsT

__all__ = ["AdamW"]


class AdamW(Adam):
    """Adam whose weight decay shrinks parameters directly: `p -= lr · weight_decay · p` (Loshchilov and Hutter, 2019).

    Arguments as in `Adam`, but `weight_decay` is 0.01 by default.

    Args:
        params (ParamsT): the parameters to optimize, pairs of a name and a parameter, or dicts of groups with
            options of their own.
        lr (float, default: 0.001): the learning rate.
        betas (tuple[float, float], optional): the coefficients of the running averages of the gradient and of its
            square.
        eps (float, default: 1e-08): what is added to the denominator.
        weight_decay (float, default: 0.01): the share by which parameters shrink.
        amsgrad (bool, default: False): divides by the largest average of squares so far.
        maximize (bool, default: False): ascends along the gradient rather than descends.
        foreach (bool, optional): all parameters are stepped in one call in any case.
        capturable (bool, default: False): for parameters on the GPU device; True gives one warning that it has no
            effect.
        differentiable (bool, default: False): records the step, for gradients through it.
        fused (bool, optional): a step is fused in any case.

    Raises:
        ValueError: an option is out of its range.

    Example:
        >>> x = lucid.ones(1, requires_grad=True)
        >>> optimizer = lucid.optim.AdamW([x], lr=0.1)
        >>> (x * x).sum().backward()
        >>> optimizer.step()
        >>> x.detach()
        tensor([0.8990])
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # State dicts from before the option existed are AdamW's all the same.
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True
