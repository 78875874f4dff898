"""`Lion`: steps by the sign of the momentum."""

from __future__ import annotations

from typing import Any

from lucid.optim.optimizer import ParamsT
from lucid.optim.options import checked
from lucid.optim.stepping import Counts, Stepping

__all__ = ["Lion"]


class Lion(Stepping):
    """Lion (Chen et al., 2023): steps of one size by the sign of the momentum. PyTorch has none.

    `p -= lr · (sign(β₁ m + (1 - β₁) g) + weight_decay · p)`, `m = β₂ m + (1 - β₂) g`.

    State per parameter: `exp_avg`.

    Args:
        params (ParamsT): the parameters to optimize, pairs of a name and a parameter, or dicts of groups with
            options of their own.
        lr (float, default: 0.0001): Learning rate.
        betas (tuple[float, float], optional): The momentum's share in the direction, and its decay rate. Default:
            (0.9, 0.99).
        weight_decay (float, default: 0.0): Penalty, which shrinks parameters directly.
        maximize (bool, default: False): Ascend instead.
        differentiable (bool, default: False): Record the step, for gradients through it.

    Raises:
        ValueError: an option is out of its range.

    Example:
        >>> x = lucid.ones(1, requires_grad=True)
        >>> optimizer = lucid.optim.Lion([x], lr=0.1)
        >>> (x * x).sum().backward()
        >>> optimizer.step()
        >>> x.detach()
        tensor([0.9000])
    """

    _kind = "lion"
    _state = ("exp_avg",)
    _numbers = ("lr", "betas", "weight_decay", "maximize")
    _counts = ()

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, checked(locals()))

    def _advance(self, group: dict[str, Any], counts: Counts) -> tuple[dict[str, float], Counts]:
        return {}, {}
