"""Optimizers that look at a parameter as a matrix: Muon and Adafactor. A step of all groups is one engine call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import lucid
from lucid import _C, Tensor, errors
from lucid.optim.optimizer import Optimizer, ParamsT
from lucid.optim.options import at_least, check, checked, rate
from lucid.optim.stepping import Batch, refuse

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

    State per parameter: `momentum_buffer`.

    Args:
        params (ParamsT): Matrices, pairs of name and matrix, or dicts of groups.
        lr (float, default: 0.001): Learning rate.
        weight_decay (float, default: 0.1): Penalty, which shrinks parameters directly.
        momentum (float, default: 0.95): Default: 0.95.
        nesterov (bool, default: True): Default: True.
        ns_coefficients (tuple[float, float, float], optional): Of the iteration's polynomial. Default: (3.4445,
            -4.775, 2.0315).
        eps (float, default: 1e-07): Least norm to divide by.
        ns_steps (int, default: 5): Iterations.
        adjust_lr_fn (str, optional): `c` for a matrix of (A, B): "original" (also None), `sqrt(max(1, A / B))`;
            "match_rms_adamw", `0.2 · sqrt(max(A, B))`; "spectral_unclamped", `sqrt(A / B)`.

    Raises:
        ValueError: an option is out of its range, or a parameter is no matrix.

    Example:
        >>> x = lucid.eye(2).requires_grad_()
        >>> optimizer = lucid.optim.Muon([x], lr=0.1)
        >>> (x * x).sum().backward()
        >>> optimizer.step()
        >>> x.shape
        lucid.Size([2, 2])
    """

    def __init__(
        self,
        params: ParamsT,
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
        """Updates every parameter that has a gradient, in one engine call; asynchronous on the GPU device."""
        loss = self._evaluate(closure)
        batches: list[Batch] = []
        for group in self.param_groups:
            # Matrices whose shapes have one factor step together.
            together: dict[float, list[list[Tensor]]] = {}
            for p in group["params"]:
                grad = p.grad
                if grad is None:
                    continue
                refuse(self, grad, complex=True)
                state = self.state[p]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = lucid.zeros_like(grad)
                lists = together.setdefault(_adjustment(group["adjust_lr_fn"], *p.shape), [[], [], []])
                for into, tensor in zip(lists, (p, grad, state["momentum_buffer"]), strict=True):
                    into.append(tensor)
            if together:
                options = _muon_options(group)
                batches += [("muon", {**options, "rate": options["lr"] * c}, lists) for c, lists in together.items()]
        if batches:
            _C._matrix_step(batches)
        return loss


def _muon_options(group: dict[str, Any]) -> dict[str, float]:
    if group["ns_steps"] >= 100:
        raise errors.ValueError("Number of steps must be less than 100 for computational efficiency")
    if len(group["ns_coefficients"]) != 3:
        raise errors.ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = map(float, group["ns_coefficients"])
    numbers = {name: float(group[name]) for name in ("lr", "weight_decay", "momentum", "nesterov", "eps")}
    return {**numbers, "iterations": float(group["ns_steps"]), "a": a, "b": b, "c": c}


def _adjustment(name: str | None, rows: int, columns: int) -> float:
    if name == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    ratio = rows / columns
    return math.sqrt(ratio if name == "spectral_unclamped" else max(1, ratio))


class Adafactor(Optimizer):
    """Adafactor (Shazeer and Stern, 2018): second moments of matrices as a row and a column.

    State per parameter: `step`, and `row_var` and `col_var`, or `variance` for vectors and numbers.

    Args:
        params (ParamsT): Parameters, pairs of name and parameter, or dicts of groups.
        lr (float, default: 0.01): The most that a step's relative size may be.
        beta2_decay (float, default: -0.8): The second moment takes `t^beta2_decay` of the new square.
        eps (tuple[float or None, float], optional): Least second moment's root (by default the dtype's `eps`), and
            least parameter size.
        d (float, default: 1.0): Largest root mean square of an update.
        weight_decay (float, default: 0.0): Penalty, which shrinks parameters directly.
        foreach (bool, optional): Accepted; no effect.
        maximize (bool, default: False): Ascend instead.

    Raises:
        ValueError: an option is out of its range.

    Example:
        >>> x = lucid.ones(1, requires_grad=True)
        >>> optimizer = lucid.optim.Adafactor([x], lr=0.1)
        >>> (x * x).sum().backward()
        >>> optimizer.step()
        >>> x.detach()
        tensor([0.9000])
    """

    def __init__(
        self,
        params: ParamsT,
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
        """Updates every parameter that has a gradient, in one engine call; asynchronous on the GPU device."""
        loss = self._evaluate(closure)
        batches: list[Batch] = []
        after: list[tuple[float, list[dict[str, Any]]]] = []
        for group in self.param_groups:
            # Parameters of one count, one least root and one kind of state step together.
            together: dict[tuple[float, float, bool], tuple[list[list[Tensor]], list[dict[str, Any]]]] = {}
            for p in group["params"]:
                grad = p.grad
                if grad is None:
                    continue
                refuse(self, grad, complex=True)
                state = self.state[p] or self._begin(p)
                t = float(state["step"]) + 1.0
                eps1 = lucid.finfo(p.dtype).eps if group["eps"][0] is None else float(group["eps"][0])
                names = ("row_var", "col_var") if p.dim() > 1 else ("variance",)
                lists, states = together.setdefault((t, eps1, p.dim() > 1), ([[] for _ in range(2 + len(names))], []))
                for into, tensor in zip(lists, (p, grad, *(state[name] for name in names)), strict=True):
                    into.append(tensor)
                states.append(state)
            numbers = {name: float(group[name]) for name in ("lr", "beta2_decay", "d", "weight_decay", "maximize")}
            for (t, eps1, _), (lists, states) in together.items():
                options = {**numbers, "eps1": eps1, "eps2": float(group["eps"][1]), "t": t}
                batches.append(("adafactor", options, lists))
                after.append((t, states))
        if batches:
            _C._matrix_step(batches)
        for t, states in after:
            count = lucid.tensor(t, dtype=lucid.float32)
            for state in states:
                state["step"] = count
        return loss

    def _begin(self, p: Tensor) -> dict[str, Any]:
        state = self.state[p]
        state["step"] = lucid.tensor(0.0, dtype=lucid.float32)
        if p.dim() > 1:
            shape = list(p.shape)
            state["row_var"] = lucid.zeros([*shape[:-1], 1], dtype=p.dtype, device=p.device)
            state["col_var"] = lucid.zeros([*shape[:-2], 1, shape[-1]], dtype=p.dtype, device=p.device)
        else:
            state["variance"] = lucid.zeros_like(p.detach())
        return state
