"""Optimizers that look at a parameter as a matrix: Muon and Adafactor. They are written in tensor ops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.optim.optimizer import Optimizer, Params
from lucid.optim.options import at_least, check, checked, rate
from lucid.optim.stepping import refuse

__all__ = ["Adafactor", "Muon"]

_ADJUSTMENTS = ("original", "match_rms_adamw", "spectral_unclamped")


_LR = rate("Learning rate should be >= 0 but is: ")


def _known_adjustment(name: Any) -> None:
    check(name is None or name in _ADJUSTMENTS, f"Adjust learning rate function {name} is not supported")


def _two_eps(eps: Any) -> None:
    check(eps[0] is None or eps[0] >= 0.0, f"epsilon1 should be >= 0 but is: {eps[0]}")
    check(eps[1] >= 0.0, f"epsilon2 should be >= 0 but is: {eps[1]}")


_MUON: dict[str, Any] = {
    "lr": _LR,
    "momentum": at_least(0.0, "momentum should be >= 0 but is: "),
    "weight_decay": at_least(0.0, "weight decay should be >= 0 but is: "),
    "adjust_lr_fn": _known_adjustment,
    # PyTorch looks at none.
    "eps": lambda eps: None,
}
_ADAFACTOR: dict[str, Any] = {
    "lr": _LR,
    "beta2_decay": lambda decay: check(decay <= 0.0, f"beta2_decay should be <= 0 but is: {decay}"),
    "eps": _two_eps,
    "d": at_least(1.0, "Clipping threshold d should be >= 1 but is: "),
    "weight_decay": at_least(0.0, "weight_decay should be >= 0 but is: "),
}


class Muon(Optimizer):
    """Momentum whose matrices are orthogonalised by Newton-Schulz iterations (Jordan et al., 2024). For matrices only.

    `b = momentum · b + (1 - momentum) · g`, `u` the gradient's blend with it (with `nesterov`) or `b` itself, then
    `p = (1 - lr · weight_decay) p - lr · c · orthogonal(u)`, computed in bfloat16.

    Args:
        params: Matrices, pairs of name and matrix, or dicts of groups.
        lr: Learning rate. Default: 1e-3.
        weight_decay: Penalty, which shrinks parameters directly. Default: 0.1.
        momentum: Default: 0.95.
        nesterov: Default: True.
        ns_coefficients: Of the iteration's polynomial. Default: (3.4445, -4.775, 2.0315).
        eps: Least norm to divide by. Default: 1e-7.
        ns_steps: Iterations. Default: 5.
        adjust_lr_fn: `c` for a matrix of (A, B): "original" (also None), `sqrt(max(1, A / B))`; "match_rms_adamw",
            `0.2 · sqrt(max(A, B))`; "spectral_unclamped", `sqrt(A / B)`.

    State per parameter: `momentum_buffer`.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        super().__init__(params, checked(locals(), **_MUON))
        for group in self.param_groups:
            for p in group["params"]:
                why = f"Muon only supports 2D parameters whereas we found a parameter with size: {p.size()}"
                check(p.ndim == 2, why)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient."""
        loss = self._evaluate(closure)
        with lucid.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        refuse(self, p.grad, complex=True)
                        self._update(group, p, p.grad)
        return loss

    def _update(self, group: dict[str, Any], p: Tensor, g: Tensor) -> None:
        state = self.state[p]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = lucid.zeros_like(g)
        buffer, momentum, lr = state["momentum_buffer"], group["momentum"], float(group["lr"])
        buffer.copy_(buffer.lerp(g, 1 - momentum))
        update = g.lerp(buffer, momentum) if group["nesterov"] else buffer
        update = _orthogonal(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
        p.mul_(1 - lr * group["weight_decay"])
        p.add_(update, alpha=-lr * _adjustment(group["adjust_lr_fn"], *p.shape))


def _adjustment(name: str | None, rows: int, columns: int) -> float:
    if name == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    ratio = rows / columns
    return math.sqrt(ratio if name == "spectral_unclamped" else max(1, ratio))


def _orthogonal(g: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """About `U Vᵀ` of the matrix `U S Vᵀ`, by a quintic Newton-Schulz iteration in bfloat16."""
    if steps >= 100:
        raise errors.ValueError("Number of steps must be less than 100 for computational efficiency")
    if len(coefficients) != 3:
        raise errors.ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = coefficients
    tall = g.shape[0] > g.shape[1]
    x = g.to(lucid.bfloat16)
    x = x.t() if tall else x
    norm = x.float().square().sum().sqrt().to(lucid.bfloat16)
    x = x / norm.clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.t()
        x = lucid.addmm(x, lucid.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.t() if tall else x


class Adafactor(Optimizer):
    """Adafactor (Shazeer and Stern, 2018): second moments of matrices as a row and a column.

    Args:
        params: Parameters, pairs of name and parameter, or dicts of groups.
        lr: The most that a step's relative size may be. Default: 1e-2.
        beta2_decay: The second moment takes `t^beta2_decay` of the new square. Default: -0.8.
        eps: Least second moment's root (by default the dtype's `eps`), and least parameter size. Default: (None, 1e-3).
        d: Largest root mean square of an update. Default: 1.
        weight_decay: Penalty, which shrinks parameters directly. Default: 0.
        foreach: Accepted; no effect.
        maximize: Ascend instead. Default: False.

    State per parameter: `step`, and `row_var` and `col_var`, or `variance` for vectors and numbers.
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, checked(locals(), **_ADAFACTOR))

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient."""
        loss = self._evaluate(closure)
        with lucid.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        refuse(self, p.grad, complex=True)
                        self._update(group, p, -p.grad if group["maximize"] else p.grad)
        return loss

    def _update(self, group: dict[str, Any], p: Tensor, g: Tensor) -> None:
        state = self.state[p]
        if not state:
            state["step"] = lucid.tensor(0.0, dtype=lucid.float32)
            if g.dim() > 1:
                shape = list(g.shape)
                state["row_var"] = lucid.zeros([*shape[:-1], 1], dtype=g.dtype, device=g.device)
                state["col_var"] = lucid.zeros([*shape[:-2], 1, shape[-1]], dtype=g.dtype, device=g.device)
            else:
                state["variance"] = lucid.zeros_like(g)
        t = float(state["step"].item()) + 1.0
        state["step"] = lucid.tensor(t, dtype=lucid.float32)
        eps1 = lucid.finfo(p.dtype).eps if group["eps"][0] is None else group["eps"][0]
        lr, new = float(group["lr"]), t ** group["beta2_decay"]
        size = _root_mean_square(p.detach()).clamp(min=group["eps"][1]) * min(lr, 1 / t**0.5)
        if group["weight_decay"] != 0:
            p.mul_(1 - lr * group["weight_decay"])
        if g.dim() > 1:
            rows, columns = state["row_var"], state["col_var"]
            square = g * g
            rows.copy_(rows.lerp(square.mean(-1, keepdim=True), new))
            columns.copy_(columns.lerp(square.mean(-2, keepdim=True), new))
            estimate = rows @ columns / rows.mean(-2, keepdim=True).clamp(min=eps1)
        else:
            estimate = state["variance"]
            estimate.copy_(estimate.lerp(g * g, new))
        update = estimate.clamp(min=eps1 * eps1).rsqrt() * g
        p.sub_(update * (size / (_root_mean_square(update) / group["d"]).clamp(min=1.0)).to(update.dtype))


def _root_mean_square(x: Tensor) -> Tensor:
    # In float32 at least: sums of squares leave the range of 16 bits.
    wide = x if x.dtype == lucid.float64 else x.float()
    return wide.square().mean().sqrt()
