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

    State per parameter: `step`, `eta`, `mu` (0-d float32, on the CPU where PyTorch has the parameter's device), `ax`.

    Args:
        params (ParamsT): the parameters to optimize, pairs of a name and a parameter, or dicts of groups with
            options of their own.
        lr (float, default: 0.01): Learning rate.
        lambd (float, default: 0.0001): Decay.
        alpha (float, default: 0.75): Power of the rate's fall.
        t0 (float, default: 1000000.0): From which step the average is one.
        weight_decay (float, default: 0): L2 penalty.
        foreach (bool, optional): Accepted; a step is one engine call in any case.
        maximize (bool, default: False): Ascend instead.
        differentiable (bool, default: False): Record the step, for gradients through it.
        capturable (bool, default: False): For parameters on the GPU device; True gives one warning that it has no
            effect.

    Raises:
        ValueError: an option is out of its range.

    Example:
        >>> x = lucid.ones(1, requires_grad=True)
        >>> optimizer = lucid.optim.ASGD([x], lr=0.1)
        >>> (x * x).sum().backward()
        >>> optimizer.step()
        >>> x.detach()
        tensor([0.8000])
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
