"""L-BFGS, with a line search for the strong Wolfe conditions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import lucid
from lucid import _C, Tensor, errors
from lucid.optim.optimizer import Optimizer, ParamsT
from lucid.optim.options import checked

__all__ = ["LBFGS"]

# A place along a direction: its distance, the loss there, its slope, the flat gradient and its largest element.
_Point = tuple[float, float, float, Tensor, float]


class LBFGS(Optimizer):
    """Limited-memory BFGS (Nocedal and Wright, 2006, algorithms 7.4 and 3.5).

    Each `step` takes a closure that clears the gradients, computes the loss and its gradients, and returns the loss; it
    is called several times. All parameters form one vector: there are no groups. Between two calls of the closure there
    are two of the engine, for the direction and for the movement. On the GPU device every iteration waits for a handful
    of numbers that decide how it goes on.

    State, on the first parameter: `func_evals`, `n_iter`, `d`, `t`, `old_dirs`, `old_stps`, `ro`, `H_diag`,
    `prev_flat_grad`, `prev_loss`, `al`.

    Args:
        params (ParamsT): Parameters, or pairs of name and parameter.
        lr (float, default: 1): Length of a step, or the first guess of the line search.
        max_iter (int, default: 20): Iterations per step.
        max_eval (int, optional): Calls of the closure per step.
        tolerance_grad (float, default: 1e-07): Ends a step where no element of the gradient is larger.
        tolerance_change (float, default: 1e-09): Ends a step where the loss or all parameters change less.
        history_size (int, default: 100): Pairs of changes that are kept.
        line_search_fn (str, optional): "strong_wolfe" or None.
        maximize (bool, default: False): Ascend instead.

    Raises:
        ValueError: there are several groups, or another `line_search_fn`.

    Example:
        >>> x = lucid.ones(1, requires_grad=True)
        >>> optimizer = lucid.optim.LBFGS([x])
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = (x * x).sum()
        ...     loss.backward()
        ...     return loss
        >>> loss = optimizer.step(closure)
        >>> abs(x.item()) < 1e-3
        True
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
        *,
        maximize: bool = False,
    ) -> None:
        max_eval = max_iter * 5 // 4 if max_eval is None else max_eval
        super().__init__(params, checked(locals()))
        if len(self.param_groups) != 1:
            raise errors.ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    @property
    def _params(self) -> list[Tensor]:
        params: list[Tensor] = self.param_groups[0]["params"]
        return params

    @property
    def _ascends(self) -> bool:
        return bool(self.param_groups[0].get("maximize", False))

    def _loss(self, closure: Callable[[], Any]) -> tuple[Any, float]:
        with lucid.enable_grad():
            loss = closure()
        return loss, -float(loss) if self._ascends else float(loss)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Runs up to `max_iter` iterations; gives the closure's first loss."""
        if closure is None:
            raise errors.TypeError("LBFGS.step() missing 1 required positional argument: 'closure'")
        with lucid.no_grad():
            return self._step(closure)

    def _step(self, closure: Callable[[], Any]) -> Any:
        group = self.param_groups[0]
        if not self._params:
            with lucid.enable_grad():
                return closure()
        lr, max_iter, max_eval = float(group["lr"]), group["max_iter"], group["max_eval"]
        search = group["line_search_fn"]
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first_loss, loss = self._loss(closure)
        evaluations = 1
        state["func_evals"] += 1
        flat, largest = _C._lbfgs_gradient(self._params, self._ascends)
        if largest <= group["tolerance_grad"]:
            return first_loss
        names = ("d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss")
        held: list[Any] = [state.get(name) for name in names]
        d, t, dirs, steps, ro, scale, before, loss_before = held
        for iteration in range(1, max_iter + 1):
            state["n_iter"] += 1
            first = state["n_iter"] == 1
            history, last = ([], [], []) if first else (dirs, steps, ro), None if first else (before, d, float(t))
            scale = scale if isinstance(scale, Tensor) and not first else None
            d, (dirs, steps, ro), scale, factors, found = _C._lbfgs_direction(
                flat, last, history, scale, group["history_size"]
            )
            slope, size, _, total = found
            scale = 1 if scale is None else scale
            if not first:
                state["al"] = factors + [None] * (group["history_size"] - len(factors))
            before, loss_before = flat, loss
            t = min(1.0, 1.0 / total) * lr if first else lr
            if slope > -group["tolerance_change"]:
                break
            calls = 0
            if search is not None:
                if search != "strong_wolfe":
                    raise errors.RuntimeError("only 'strong_wolfe' is supported")
                start = (0.0, loss, slope, flat, largest)
                place, calls = _strong_wolfe(self._along(closure, d), t, size, start, max_eval - evaluations)
                t, loss, _, flat, largest = place
                _C._lbfgs_move(self._params, d, t)
            else:
                _C._lbfgs_move(self._params, d, t)
                # The last iteration's loss would be computed for nothing.
                if iteration != max_iter:
                    _, loss = self._loss(closure)
                    flat, largest = _C._lbfgs_gradient(self._params, self._ascends)
                    calls = 1
            evaluations += calls
            state["func_evals"] += calls
            if iteration == max_iter or evaluations >= max_eval or largest <= group["tolerance_grad"]:
                break
            if size * abs(t) <= group["tolerance_change"] or abs(loss - loss_before) < group["tolerance_change"]:
                break
        state.update(zip(names, (d, t, dirs, steps, ro, scale, before, loss_before), strict=True))
        return first_loss

    def _along(self, closure: Callable[[], Any], direction: Tensor) -> Callable[[float], _Point]:
        start = [p.detach().clone() for p in self._params]

        def at(t: float) -> _Point:
            _C._lbfgs_move(self._params, direction, t)
            _, loss = self._loss(closure)
            flat, slope, largest = _C._lbfgs_probe(self._params, start, direction, self._ascends)
            return t, loss, slope, flat, largest

        return at


def _interpolate(
    a: tuple[float, float, float], b: tuple[float, float, float], bounds: tuple[float, float] | None = None
) -> float:
    """The minimum of the cubic through two points (place, value, slope), within bounds; their middle without one."""
    (x1, f1, g1), (x2, f2, g2) = a, b
    low, high = bounds or (min(x1, x2), max(x1, x2))
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1**2 - g1 * g2
    if not square >= 0:
        return (low + high) / 2.0
    d2 = math.sqrt(square)
    if x1 <= x2:
        below, place = g2 - g1 + 2 * d2, (x2, x2 - x1, g2 + d2 - d1)
    else:
        below, place = g1 - g2 + 2 * d2, (x1, x1 - x2, g1 + d2 - d1)
    # In floats the division gives infinity or NaN, and the bounds hold.
    ratio = place[2] / below if below else math.copysign(math.inf, place[2]) if place[2] else math.nan
    return min(max(place[0] - place[1] * ratio, low), high)


def _strong_wolfe(
    at: Callable[[float], _Point],
    t: float,
    size: float,
    start: _Point,
    max_ls: int,
    c1: float = 1e-4,
    c2: float = 0.9,
    tolerance: float = 1e-9,
) -> tuple[_Point, int]:
    """A place along a direction, of the given largest element, that lowers the loss and flattens the slope enough.

    Gives the place, and how often the loss was computed.
    """
    _, f, slope, _, _ = start
    # First: bracket a good place.
    new = at(t)
    calls, tries, done = 1, 0, False
    last = start
    bracket = [start, new]
    while tries < max_ls:
        bracket = [last, new]
        if new[1] > f + c1 * t * slope or (tries > 1 and new[1] >= last[1]):
            break
        if abs(new[2]) <= -c2 * slope:
            bracket, done = [new], True
            break
        if new[2] >= 0:
            break
        bounds = (t + 0.01 * (t - last[0]), t * 10)
        t = _interpolate(last[:3], new[:3], bounds)
        last = new
        new = at(t)
        calls += 1
        tries += 1
    if tries == max_ls:
        bracket = [start, new]
    # Then: narrow the bracket.
    stuck = False
    low, high = (0, 1) if bracket[0][1] <= bracket[-1][1] else (1, 0)
    while not done and tries < max_ls:
        places = [point[0] for point in bracket]
        if abs(places[1] - places[0]) * size < tolerance:
            break
        t = _interpolate(bracket[0][:3], bracket[1][:3])
        # A place near the bracket's end is moved inwards, if it happens twice or is at the very end.
        margin = 0.1 * (max(places) - min(places))
        if min(max(places) - t, t - min(places)) < margin:
            if stuck or t >= max(places) or t <= min(places):
                upper = abs(t - max(places)) < abs(t - min(places))
                t = max(places) - margin if upper else min(places) + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        new = at(t)
        calls += 1
        tries += 1
        if new[1] > f + c1 * t * slope or new[1] >= bracket[low][1]:
            bracket[high] = new
            low, high = (0, 1) if bracket[0][1] <= bracket[1][1] else (1, 0)
        else:
            if abs(new[2]) <= -c2 * slope:
                done = True
            elif new[2] * (bracket[high][0] - bracket[low][0]) >= 0:
                bracket[high] = bracket[low]
            bracket[low] = new
    return bracket[low if len(bracket) > 1 else 0], calls
