"""Schedules with state of their own: cycles, restarts, and the one that watches a metric."""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, SupportsFloat

from lucid import errors
from lucid._warnings import warn
from lucid.optim.lr_scheduler import EPOCH_DEPRECATION_WARNING, LRScheduler, check_optimizer, per_group, rates, set_rate
from lucid.optim.optimizer import Optimizer

__all__ = ["CosineAnnealingWarmRestarts", "CyclicLR", "OneCycleLR", "ReduceLROnPlateau"]


class ReduceLROnPlateau(LRScheduler):
    """Multiplies the rate by `factor` when a metric has not got better for more than `patience` steps.

    Args:
        optimizer (Optimizer): Whose rates are set.
        mode (Literal['min', 'max'], default: "min"): Is less ("min") or more ("max") better?
        factor (float, default: 0.1): Below 1.
        patience (int, default: 10): Steps without improvement that are borne.
        threshold (float, default: 0.0001): What counts as better: a share ("rel") or a difference ("abs").
        threshold_mode (Literal['rel', 'abs'], default: "rel"): "rel" or "abs".
        cooldown (int, default: 0): Steps after a reduction that are not counted.
        min_lr (list[float] | float, default: 0): No rate below this; one, or one per group.
        eps (float, default: 1e-08): Reductions smaller than this are not made.

    Raises:
        ValueError: `factor` is not below 1, or another mode.
        TypeError: `optimizer` is none.

    Example:
        >>> optimizer = lucid.optim.SGD([lucid.zeros(1)], lr=1.0)
        >>> scheduler = lucid.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
        >>> for loss in (1.0, 1.0):
        ...     scheduler.step(loss)
        >>> scheduler.get_last_lr()
        [0.1]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: Literal["min", "max"] = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: Literal["rel", "abs"] = "rel",
        cooldown: int = 0,
        min_lr: list[float] | float = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1.0:
            raise errors.ValueError(f"Factor should be < 1.0, got {factor}")
        self.factor = factor
        check_optimizer(optimizer)
        self.optimizer = optimizer
        groups = len(optimizer.param_groups)
        if isinstance(min_lr, (list, tuple)):
            if len(min_lr) != groups:
                raise errors.ValueError(f"expected {groups} min_lrs, got {len(min_lr)}")
            self.default_min_lr: float | None = None
            self.min_lrs = list(min_lr)
        else:
            self.default_min_lr = min_lr
            self.min_lrs = [min_lr] * groups
        self.patience = patience
        self.cooldown = cooldown
        self.eps = eps
        self.last_epoch = 0
        self._last_lr = rates(optimizer)
        self._init_is_better(mode, threshold, threshold_mode)
        self._reset()

    def _reset(self) -> None:
        self.best = self.mode_worse
        self.cooldown_counter = 0
        self.num_bad_epochs = 0

    def step(self, metrics: SupportsFloat, epoch: int | None = None) -> None:  # type: ignore[override]
        """Looks at the metric, and sets the rates."""
        current = float(metrics)
        if epoch is None:
            epoch = self.last_epoch + 1
        else:
            warn(EPOCH_DEPRECATION_WARNING)
        self.last_epoch = epoch
        if self._is_better(current, self.best):
            self.best = current
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce_lr()
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = rates(self.optimizer)

    def _reduce_lr(self) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise errors.RuntimeError(
                    f"The number of param groups in the `optimizer` ({len(groups)}) differs from when "
                    f"`ReduceLROnPlateau` was initialized ({len(self.min_lrs)}), usually due to a new param group "
                    "being added to the optimizer. Please modify the `min_lrs` field to match the length of the "
                    "`optimizer` param groups."
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for i, (group, least) in enumerate(zip(groups, self.min_lrs, strict=True)):
            old = float(group["lr"])
            new = max(old * self.factor, least)
            if old - new > self.eps:
                set_rate(group, new)
                if self.verbose:
                    print(f"Epoch {self.last_epoch:5d}: reducing learning rate of group {i} to {float(new):.4e}.")

    @property
    def in_cooldown(self) -> bool:
        """Are steps not counted at present?"""
        return self.cooldown_counter > 0

    def _is_better(self, a: float, best: float) -> bool:
        if self.threshold_mode == "rel":
            return a < best * (1.0 - self.threshold) if self.mode == "min" else a > best * (self.threshold + 1.0)
        return a < best - self.threshold if self.mode == "min" else a > best + self.threshold

    def _init_is_better(self, mode: str, threshold: float, threshold_mode: str) -> None:
        if mode not in {"min", "max"}:
            raise errors.ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in {"rel", "abs"}:
            raise errors.ValueError(f"threshold mode {threshold_mode} is unknown!")
        self.mode_worse = math.inf if mode == "min" else -math.inf
        self.mode = mode
        self.threshold = threshold
        self.threshold_mode = threshold_mode

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave."""
        super().load_state_dict(state_dict)
        self._init_is_better(self.mode, self.threshold, self.threshold_mode)


class _WithMomentum(LRScheduler):
    """Schedules that move the momentum, or `betas[0]`, against the rate."""

    cycle_momentum: bool
    use_beta1: bool

    def _start_momentum(
        self, optimizer: Optimizer, base: Any, most: Any, last_epoch: int
    ) -> tuple[list[Any], list[Any]]:
        if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
            raise errors.ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        self.use_beta1 = "betas" in optimizer.defaults
        lows, highs = per_group("base_momentum", optimizer, base), per_group("max_momentum", optimizer, most)
        if last_epoch == -1:
            for high, low, group in zip(highs, lows, optimizer.param_groups, strict=True):
                self._set_momentum(group, high)
                group["max_momentum"] = high
                group["base_momentum"] = low
        return lows, highs

    def _set_momentum(self, group: dict[str, Any], momentum: float) -> None:
        if self.use_beta1:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum


class CyclicLR(_WithMomentum):
    """Moves the rate between `base_lr` and `max_lr` in cycles (Smith, 2017), and the momentum against it.

    Args:
        optimizer (Optimizer): Whose rates are set.
        base_lr (float | list[float]): The lower rate, one or one per group.
        max_lr (float | list[float]): The upper rate, likewise.
        step_size_up (int, default: 2000): Steps of the rise.
        step_size_down (int, optional): Steps of the fall; by default as many.
        mode (Literal['triangular', 'triangular2', 'exp_range'], default: "triangular"): "triangular";
            "triangular2", whose height halves each cycle; "exp_range", whose height is `gamma^step`.
        gamma (float, default: 1.0): For "exp_range".
        scale_fn (Callable[[float], float], optional): The height by the cycle's or step's number, in place of
            `mode`.
        scale_mode (Literal['cycle', 'iterations'], default: "cycle"): Is `scale_fn` of the "cycle" or of
            "iterations"?
        cycle_momentum (bool, default: True): Move the momentum, or `betas[0]`, between `max_momentum` and
            `base_momentum`?
        base_momentum (float, default: 0.8): The lower momentum, one or one per group.
        max_momentum (float, default: 0.9): The upper momentum, likewise.
        last_epoch (int, default: -1): Where to go on; -1 starts anew.

    Raises:
        ValueError: another mode, or an optimizer without momentum.

    Example:
        >>> optimizer = lucid.optim.SGD([lucid.zeros(1)], lr=1.0)
        >>> scheduler = lucid.optim.lr_scheduler.CyclicLR(optimizer, 0.1, 1.0, step_size_up=3, cycle_momentum=False)
        >>> for _ in range(3):
        ...     optimizer.step()
        ...     scheduler.step()
        >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
        [1.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: Literal["triangular", "triangular2", "exp_range"] = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: Literal["cycle", "iterations"] = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float = 0.8,
        max_momentum: float = 0.9,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        base_lrs = per_group("base_lr", optimizer, base_lr)
        if last_epoch == -1:
            for rate, group in zip(base_lrs, optimizer.param_groups, strict=True):
                set_rate(group, rate)
        self.max_lrs = per_group("max_lr", optimizer, max_lr)
        up = float(step_size_up)
        self.total_size = up + (up if step_size_down is None else float(step_size_down))
        self.step_ratio = up / self.total_size
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise errors.ValueError(f"mode is invalid and scale_fn is None, got mode {mode!r}")
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode
        self._init_scale_fn()
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            lows, highs = self._start_momentum(optimizer, base_momentum, max_momentum, last_epoch)
            self.base_momentums, self.max_momentums = lows, highs
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def _init_scale_fn(self) -> None:
        if self._scale_fn_custom is not None:
            return
        self._scale_fn_ref: Callable[[float], float]
        if self.mode == "triangular":
            self._scale_fn_ref, self.scale_mode = _flat, "cycle"
        elif self.mode == "triangular2":
            self._scale_fn_ref, self.scale_mode = _halving, "cycle"
        else:
            self._scale_fn_ref, self.scale_mode = partial(_exponential, self.gamma), "iterations"

    def scale_fn(self, x: float) -> float:
        """The height by the cycle's or step's number."""
        return float((self._scale_fn_custom or self._scale_fn_ref)(x))

    def get_lr(self) -> list[Any]:
        """The rates at `last_epoch`; sets the momenta on the way."""
        self._warn_unless_stepping()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        place = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        scale = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        values = [base + (most - base) * place * scale for base, most in zip(self.base_lrs, self.max_lrs, strict=True)]
        if self.cycle_momentum:
            momenta = zip(self.base_momentums, self.max_momentums, self.optimizer.param_groups, strict=True)
            for base, most, group in momenta:
                self._set_momentum(group, most - (most - base) * place * scale)
        return values

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the optimizer; a scale function only where it is a callable object."""
        state = super().state_dict()
        state.pop("_scale_fn_ref", None)
        custom = state.pop("_scale_fn_custom")
        kept = custom is not None and not isinstance(custom, types.FunctionType)
        state["_scale_fn_custom"] = custom.__dict__.copy() if kept else None
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave."""
        super().load_state_dict({key: value for key, value in state_dict.items() if key != "_scale_fn_custom"})
        custom = state_dict["_scale_fn_custom"]
        if custom is not None and self._scale_fn_custom is not None:
            self._scale_fn_custom.__dict__.update(custom)
        self._init_scale_fn()


def _flat(x: float) -> float:
    return 1.0


def _halving(x: float) -> float:
    return float(1 / 2.0 ** (x - 1))


def _exponential(gamma: float, x: float) -> float:
    return float(gamma**x)


class CosineAnnealingWarmRestarts(LRScheduler):
    """Cosine annealing that starts again after `T_0` epochs, then each time `T_mult` times as many (SGDR).

    `lr = eta_min + (initial_lr - eta_min) · (1 + cos(π · T_cur / T_i)) / 2` (Loshchilov and Hutter, 2017). `step` takes
    a fractional epoch too.

    Args:
        optimizer (Optimizer): the optimizer whose learning rates are set.
        T_0 (int): the number of epochs of the first period.
        T_mult (int, default: 1): the factor of the period after each restart.
        eta_min (float, default: 0.0): the lowest rate.
        last_epoch (int, default: -1): the number of epochs behind; -1 starts anew.

    Raises:
        ValueError: `T_0` is not positive, or `T_mult` below 1.

    Example:
        >>> optimizer = lucid.optim.SGD([lucid.zeros(1)], lr=1.0)
        >>> scheduler = lucid.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=4)
        >>> for _ in range(3):
        ...     optimizer.step()
        ...     scheduler.step()
        >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
        [0.1464]
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise errors.ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise errors.ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        if not isinstance(eta_min, (float, int)):
            raise errors.ValueError(f"Expected float or int eta_min, but got {eta_min} of type {type(eta_min)}")
        self.T_0 = T_0
        self.T_i: float = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates at `T_cur`."""
        self._warn_unless_stepping()
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Sets the rates of the next epoch, or of the one given."""
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        elif epoch < 0:
            raise errors.ValueError(f"Expected non-negative epoch, but got {epoch}")
        elif epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            n = int(math.log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**n
        self.last_epoch = math.floor(epoch)
        self._get_lr_called_within_step = True
        try:
            values = self.get_lr()
        finally:
            self._get_lr_called_within_step = False
        self._set(values)


class OneCycleLR(_WithMomentum):
    """One rise to `max_lr` and one fall far below the start, with the momentum against it (Smith and Topin, 2018).

    Args:
        optimizer (Optimizer): Whose rates are set.
        max_lr (float | list[float]): The highest rate, one or one per group.
        total_steps (int, optional): Steps of the cycle; or `epochs` and `steps_per_epoch`.
        epochs (int, optional): See there.
        steps_per_epoch (int, optional): See there.
        pct_start (float, default: 0.3): Share of the rise, a float.
        anneal_strategy (Literal['cos', 'linear'], default: "cos"): "cos" or "linear".
        cycle_momentum (bool, default: True): Move the momentum, or `betas[0]`, against the rate?
        base_momentum (float | list[float], default: 0.85): The lower momentum, one or one per group.
        max_momentum (float | list[float], default: 0.95): The upper momentum, likewise.
        div_factor (float, default: 25.0): `max_lr` over the first rate.
        final_div_factor (float, default: 10000.0): The first rate over the last one.
        three_phase (bool, default: False): Fall to the first rate as fast as it rose, and only then below it?
        last_epoch (int, default: -1): Where to go on; -1 starts anew.

    Raises:
        ValueError: neither `total_steps` nor `epochs` and `steps_per_epoch` are given, or they are not positive.

    Example:
        >>> optimizer = lucid.optim.SGD([lucid.zeros(1)], lr=1.0)
        >>> scheduler = lucid.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10, cycle_momentum=False)
        >>> for _ in range(3):
        ...     optimizer.step()
        ...     scheduler.step()
        >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
        [0.9505]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        if total_steps is not None:
            if total_steps <= 0 or not isinstance(total_steps, int):
                raise errors.ValueError(f"Expected positive integer total_steps, but got {total_steps}")
            self.total_steps = total_steps
        elif epochs is not None and steps_per_epoch is not None:
            if not isinstance(epochs, int) or epochs <= 0:
                raise errors.ValueError(f"Expected positive integer epochs, but got {epochs}")
            if not isinstance(steps_per_epoch, int) or steps_per_epoch <= 0:
                raise errors.ValueError(f"Expected positive integer steps_per_epoch, but got {steps_per_epoch}")
            self.total_steps = epochs * steps_per_epoch
        else:
            raise errors.ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        rise, last = float(pct_start * self.total_steps), self.total_steps - 1
        # End of each phase, and what it moves between.
        low, high = ("base_momentum", "max_momentum")
        phases: list[tuple[float, str, str, str, str]] = [(rise - 1, "initial_lr", "max_lr", high, low)]
        if three_phase:
            back = float(2 * pct_start * self.total_steps) - 2
            phases.append((back, "max_lr", "initial_lr", low, high))
            phases.append((last, "initial_lr", "min_lr", high, high))
        else:
            phases.append((last, "max_lr", "min_lr", low, high))
        names = ("end_step", "start_lr", "end_lr", "start_momentum", "end_momentum")
        self._schedule_phases: list[dict[str, Any]] = [dict(zip(names, phase, strict=True)) for phase in phases]
        if pct_start < 0 or pct_start > 1 or not isinstance(pct_start, float):
            raise errors.ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise errors.ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._anneal_func_type = anneal_strategy
        max_lrs = per_group("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for most, group in zip(max_lrs, optimizer.param_groups, strict=True):
                group["initial_lr"] = most / div_factor
                group["max_lr"] = most
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._start_momentum(optimizer, base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def _anneal(self, start: float, end: float, part: float) -> float:
        if self._anneal_func_type == "cos":
            return end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)
        return (end - start) * part + start

    def get_lr(self) -> list[Any]:
        """The rates at `last_epoch`; sets the momenta on the way."""
        self._warn_unless_stepping()
        step = self.last_epoch
        if step > self.total_steps:
            raise errors.ValueError(
                f"Tried to step {step} times. The specified number of total steps is {self.total_steps}"
            )
        begin = 0.0
        for phase in self._schedule_phases[:-1]:
            if step <= phase["end_step"]:
                break
            begin = phase["end_step"]
        else:
            phase = self._schedule_phases[-1]
        part = (step - begin) / (phase["end_step"] - begin)
        values = []
        for group in self.optimizer.param_groups:
            values.append(self._anneal(group[phase["start_lr"]], group[phase["end_lr"]], part))
            if self.cycle_momentum:
                momentum = self._anneal(group[phase["start_momentum"]], group[phase["end_momentum"]], part)
                self._set_momentum(group, momentum)
        return values
