"""`NAdam`: Adam with Nesterov's momentum."""

from __future__ import annotations

from typing import Any

import lucid
from lucid.optim.optimizer import ParamsT
from lucid.optim.options import checked
from lucid.optim.stepping import Counts, Stepping

__all__ = ["NAdam"]


class NAdam(Stepping):
    """Adam with Nesterov's momentum (Dozat, 2016).

    With `μₜ = β₁ (1 - 0.5 · 0.96^(t · momentum_decay))` and `Mₜ` the product of all so far,
    `p -= lr · ((1 - μₜ) / (1 - Mₜ) · g + μₜ₊₁ / (1 - Mₜ₊₁) · m) / (sqrt(v / (1 - β₂ᵗ)) + eps)`.

    Args:
        params: Parameters, pairs of name and parameter, or dicts of groups.
        lr: Learning rate. Default: 2e-3.
        betas: Decay rates of the moments. Default: (0.9, 0.999).
        eps: Added to the denominator. Default: 1e-8.
        weight_decay: Penalty. Default: 0.
        momentum_decay: How fast the momentum approaches β₁. Default: 4e-3.
        decoupled_weight_decay: Shrink parameters by the penalty directly. Default: False.
        foreach: Accepted; a step is one engine call in any case.
        maximize: Ascend instead. Default: False.
        capturable: Accepted for parameters on the GPU device; no effect.
        differentiable: Record the step, for gradients through it. Default: False.

    State per parameter: `step` and `mu_product` (0-d float32 on the CPU), `exp_avg`, `exp_avg_sq`.
    """

    _kind = "nadam"
    _state = ("exp_avg", "exp_avg_sq")
    _numbers = ("lr", "betas", "eps", "weight_decay", "maximize", "decoupled_weight_decay")
    _counts = ("step", "mu_product")

    def __init__(
        self,
        params: ParamsT,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, checked(locals()))

    def _first_counts(self, group: dict[str, Any]) -> Counts:
        return {"step": 0.0, "mu_product": 1.0}

    def _advance(self, group: dict[str, Any], counts: Counts) -> tuple[dict[str, float], Counts]:
        t = counts["step"] + 1.0
        beta1, decay = float(group["betas"][0]), float(group["momentum_decay"])
        mu, mu_next = (beta1 * (1.0 - 0.5 * 0.96 ** (n * decay)) for n in (t, t + 1.0))
        # Kept in float32, and used as it is kept.
        product = lucid.tensor(counts["mu_product"], dtype=lucid.float32).mul(mu).item()
        return (
            {"t": t, "mu": mu, "mu_next": mu_next, "mu_product": product},
            {"step": t, "mu_product": product},
        )
