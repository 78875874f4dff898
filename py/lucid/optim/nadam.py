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

    State per parameter: `step` and `mu_product` (0-d float32 on the CPU), `exp_avg`, `exp_avg_sq`.

    Args:
        params (ParamsT): the parameters to optimize, pairs of a name and a parameter, or dicts of groups with
            options of their own.
        lr (float, default: 0.002): Learning rate.
        betas (tuple[float, float], optional): Decay rates of the moments. Default: (0.9, 0.999).
        eps (float, default: 1e-08): Added to the denominator.
        weight_decay (float, default: 0): Penalty.
        momentum_decay (float, default: 0.004): How fast the momentum approaches β₁.
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
        >>> optimizer = lucid.optim.NAdam([x], lr=0.1)
        >>> (x * x).sum().backward()
        >>> optimizer.step()
        >>> x.detach()
        tensor([0.8944])
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
