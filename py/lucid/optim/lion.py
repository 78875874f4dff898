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

    Args:
        params: Parameters, pairs of name and parameter, or dicts of groups.
        lr: Learning rate. Default: 1e-4.
        betas: The momentum's share in the direction, and its decay rate. Default: (0.9, 0.99).
        weight_decay: Penalty, which shrinks parameters directly. Default: 0.
        maximize: Ascend instead. Default: False.
        differentiable: Record the step, for gradients through it. Default: False.

    State per parameter: `exp_avg`.
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
