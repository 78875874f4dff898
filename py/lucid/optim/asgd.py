"""`ASGD`: gradient descent that averages the parameters."""

from __future__ import annotations

from typing import Any

from lucid.optim.optimizer import ParamsT
from lucid.optim.options import checked
from lucid.optim.stepping import Counts, Stepping

__all__ = ["ASGD"]


class ASGD(Stepping):
    """Averaged stochastic gradient descent (Polyak and Juditsky, 1992).

    `p = (1 - lambd · η) p - η g`; `ax += μ (p - ax)`; then
    `η = lr / (1 + lambd · lr · t)^alpha`, `μ = 1 / max(1, t - t0)`.

    Args:
        params: Parameters, pairs of name and parameter, or dicts of groups.
        lr: Learning rate. Default: 1e-2.
        lambd: Decay. Default: 1e-4.
        alpha: Power of the rate's fall. Default: 0.75.
        t0: From which step the average is one. Default: 1e6.
        weight_decay: L2 penalty. Default: 0.
        foreach: Accepted; a step is one engine call in any case.
        maximize: Ascend instead. Default: False.
        differentiable: Record the step, for gradients through it. Default: False.
        capturable: Accepted for parameters on the GPU device; no effect.

    State per parameter: `step`, `eta`, `mu` (0-d float32, on the CPU where PyTorch has the parameter's device), `ax`.
    """

    _kind = "asgd"
    _state = ("ax",)
    _numbers = ("lambd", "weight_decay", "maximize")
    _counts = ("step", "eta", "mu")

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, checked(locals()))

    def _first_counts(self, group: dict[str, Any]) -> Counts:
        return {"step": 0.0, "eta": float(group["lr"]), "mu": 1.0}

    def _advance(self, group: dict[str, Any], counts: Counts) -> tuple[dict[str, float], Counts]:
        t, lr, lambd = counts["step"] + 1.0, float(group["lr"]), float(group["lambd"])
        after = {
            "step": t,
            "eta": lr / (1.0 + lambd * lr * t) ** float(group["alpha"]),
            "mu": 1.0 / max(1.0, t - float(group["t0"])),
        }
        return {"eta": counts["eta"], "mu": counts["mu"]}, after
