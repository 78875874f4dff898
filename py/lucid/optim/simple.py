"""Optimizers that go by the gradient's sign, or average the parameters: Rprop, Lion, ASGD."""

from __future__ import annotations

from typing import Any

from lucid.optim.optimizer import Params
from lucid.optim.options import checked
from lucid.optim.stepping import Counts, Stepping

__all__ = ["ASGD", "Lion", "Rprop"]


class Rprop(Stepping):
    """Resilient backpropagation (Riedmiller and Braun, 1993): each element has a step size of its own.

    Where the gradient kept its sign the size grows by `etas[1]`; where it turned the size shrinks by `etas[0]` and the
    element rests; then `p -= sign(g) · size`.

    Args:
        params: Parameters, pairs of name and parameter, or dicts of groups.
        lr: The first step size. Default: 1e-2.
        etas: Factors of the step size. Default: (0.5, 1.2).
        step_sizes: Smallest and largest step. Default: (1e-6, 50).
        capturable: Accepted for parameters on the GPU device; no effect.
        foreach: Accepted; a step is one engine call in any case.
        maximize: Ascend instead. Default: False.
        differentiable: Record the step, for gradients through it. Default: False.

    State per parameter: `step`, `prev`, `step_size`.
    """

    _kind = "rprop"
    _state = ("prev", "step_size")

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, checked(locals()))

    def _first_value(self, group: dict[str, Any], name: str) -> float:
        return float(group["lr"]) if name == "step_size" else 0.0

    def _options(self, group: dict[str, Any]) -> dict[str, float]:
        (minus, plus), (least, most) = group["etas"], group["step_sizes"]
        return {
            "eta_minus": float(minus),
            "eta_plus": float(plus),
            "step_min": float(least),
            "step_max": float(most),
            "maximize": group["maximize"],
        }


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
        params: Params,
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
        params: Params,
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
