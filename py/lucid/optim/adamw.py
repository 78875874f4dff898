"""`AdamW`: Adam whose weight decay shrinks parameters directly."""

from __future__ import annotations

from typing import Any

from lucid.optim.adam import Adam
from lucid.optim.optimizer import ParamsT

__all__ = ["AdamW"]


class AdamW(Adam):
    """Adam whose weight decay shrinks parameters directly: `p -= lr · weight_decay · p` (Loshchilov and Hutter, 2019).

    Arguments as in `Adam`, but `weight_decay` is 0.01 by default.
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
