"""Schedules that decay the rate by a formula of the epoch."""

from __future__ import annotations

import math
from typing import Any

from lucid import errors
from lucid.optim.lr_scheduler import LRScheduler, rates
from lucid.optim.optimizer import Optimizer

__all__ = ["CosineAnnealingLR", "LinearLR", "NoamScheduler", "PolynomialLR"]


class LinearLR(LRScheduler):
    """Moves the rate's factor from `start_factor` to `end_factor`, evenly over `total_iters` epochs.

    Args:
        optimizer (Optimizer): the optimizer whose learning rates are set.
        start_factor (float, default: 0.3333333333333333): the factor at epoch 0, positive and at most 1.
        end_factor (float, default: 1.0): the factor from `total_iters` on, within 0 to 1.
        total_iters (int, default: 5): the number of epochs of the change.
        last_epoch (int, default: -1): the number of epochs behind; -1 starts anew.

    Raises:
        ValueError: a factor is out of its range.

    Example:
        >>> optimizer = lucid.optim.SGD([lucid.zeros(1)], lr=1.0)
        >>> scheduler = lucid.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.5, total_iters=5)
        >>> for _ in range(3):
        ...     optimizer.step()
        ...     scheduler.step()
        >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
        [0.8]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if start_factor > 1.0 or start_factor <= 0:
            raise errors.ValueError(
                "Starting multiplicative factor expected to be greater than 0 and less or equal to 1."
            )
        if end_factor > 1.0 or end_factor < 0:
            raise errors.ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates at `last_epoch`."""
        self._warn_unless_stepping()
        if self.last_epoch == 0:
            return self._scaled(self.start_factor)
        if self._is_initial or self.last_epoch > self.total_iters:
            return rates(self.optimizer)
        way = self.end_factor - self.start_factor
        return self._scaled(1.0 + way / (self.total_iters * self.start_factor + (self.last_epoch - 1) * way))

    def _get_closed_form_lr(self) -> list[Any]:
        way = (self.end_factor - self.start_factor) * min(self.total_iters, self.last_epoch) / self.total_iters
        return [base * (self.start_factor + way) for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """`lr = eta_min + (initial_lr - eta_min) · (1 - epoch / total_iters)^power`, then `eta_min`.

    `eta_min` is 0 at first and not in PyTorch.

    Args:
        optimizer (Optimizer): the optimizer whose learning rates are set.
        total_iters (int, default: 5): the number of epochs of the decay.
        power (float, default: 1.0): the exponent.
        last_epoch (int, default: -1): the number of epochs behind; -1 starts anew.
        eta_min (float, default: 0.0): the lowest rate.

    Example:
        >>> optimizer = lucid.optim.SGD([lucid.zeros(1)], lr=1.0)
        >>> scheduler = lucid.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=4)
        >>> for _ in range(3):
        ...     optimizer.step()
        ...     scheduler.step()
        >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
        [0.25]
    """

    eta_min = 0.0

    def __init__(
        self,
        optimizer: Optimizer,
        total_iters: int = 5,
        power: float = 1.0,
        last_epoch: int = -1,
        *,
        eta_min: float = 0.0,
    ) -> None:
        self.total_iters = total_iters
        self.power = power
        if eta_min != 0:
            # Else states are those of PyTorch's.
            self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates at `last_epoch`."""
        self._warn_unless_stepping()
        if self._is_initial or self.last_epoch > self.total_iters:
            return rates(self.optimizer)
        now, before = (1.0 - epoch / self.total_iters for epoch in (self.last_epoch, self.last_epoch - 1))
        factor = (now / before) ** self.power
        if self.eta_min == 0:
            return self._scaled(factor)
        return [self.eta_min + (group["lr"] - self.eta_min) * factor for group in self.optimizer.param_groups]

    def _get_closed_form_lr(self) -> list[Any]:
        left = (1.0 - min(self.total_iters, self.last_epoch) / self.total_iters) ** self.power
        return [self.eta_min + (base - self.eta_min) * left for base in self.base_lrs]


class CosineAnnealingLR(LRScheduler):
    """`lr = eta_min + (initial_lr - eta_min) · (1 + cos(π · epoch / T_max)) / 2` (Loshchilov and Hutter, 2017).

    Args:
        optimizer (Optimizer): the optimizer whose learning rates are set.
        T_max (int): the number of epochs of half a period.
        eta_min (float, default: 0.0): the lowest rate.
        last_epoch (int, default: -1): the number of epochs behind; -1 starts anew.

    Example:
        >>> optimizer = lucid.optim.SGD([lucid.zeros(1)], lr=1.0)
        >>> scheduler = lucid.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
        >>> for _ in range(3):
        ...     optimizer.step()
        ...     scheduler.step()
        >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
        [0.1464]
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates at `last_epoch`."""
        self._warn_unless_stepping()
        if self._is_initial:
            return rates(self.optimizer)
        if self._step_count == 1 and self.last_epoch > 0:
            return self._get_closed_form_lr()
        groups = self.optimizer.param_groups
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            # The rate is at its minimum, where a factor cannot bring it up again.
            rise = (1 - math.cos(math.pi / self.T_max)) / 2
            pairs = zip(self.base_lrs, groups, strict=True)
            return [group["lr"] + (base - self.eta_min) * rise for base, group in pairs]
        now, before = (1 + math.cos(math.pi * e / self.T_max) for e in (self.last_epoch, self.last_epoch - 1))
        return [now / before * (group["lr"] - self.eta_min) + self.eta_min for group in groups]

    def _get_closed_form_lr(self) -> list[Any]:
        height = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]


class NoamScheduler(LRScheduler):
    """The Transformer's warm-up (Vaswani et al., 2017), which PyTorch has not.

    `lr = initial_lr · factor · d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5)`, steps counted from 1.

    Args:
        optimizer (Optimizer): Whose rates are set.
        d_model (int, optional): The model's width; `model_size=` by another name.
        warmup_steps (int, default: 4000): Steps over which the rate rises.
        factor (float, default: 1.0): Default: 1.
        last_epoch (int, default: -1): Where to go on; -1 starts anew.
        model_size (int, optional): another name of `d_model`.

    Raises:
        ValueError: a size is not positive.

    Example:
        >>> optimizer = lucid.optim.SGD([lucid.zeros(1)], lr=1.0)
        >>> scheduler = lucid.optim.lr_scheduler.NoamScheduler(optimizer, d_model=16, warmup_steps=4)
        >>> for _ in range(3):
        ...     optimizer.step()
        ...     scheduler.step()
        >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
        [0.125]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        d_model: int | None = None,
        warmup_steps: int = 4000,
        factor: float = 1.0,
        last_epoch: int = -1,
        *,
        model_size: int | None = None,
    ) -> None:
        if (d_model is None) == (model_size is None):
            raise errors.TypeError("NoamScheduler expects the model's width as d_model, or as model_size")
        model_size = d_model if d_model is not None else model_size
        assert model_size is not None
        if model_size <= 0:
            raise errors.ValueError(f"Expected positive d_model, but got {model_size}")
        if warmup_steps <= 0:
            raise errors.ValueError(f"Expected positive warmup_steps, but got {warmup_steps}")
        self.model_size = model_size
        self.warmup_steps = warmup_steps
        self.factor = factor
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates at `last_epoch`."""
        self._warn_unless_stepping()
        return self._get_closed_form_lr()

    def _get_closed_form_lr(self) -> list[Any]:
        step = self.last_epoch + 1
        scale = self.factor * self.model_size**-0.5 * min(step**-0.5, step * self.warmup_steps**-1.5)
        return [base * scale for base in self.base_lrs]


# Programs look for these classes in `lr_scheduler`, which is where PyTorch has them.
for _schedule in (LinearLR, PolynomialLR, CosineAnnealingLR, NoamScheduler):
    _schedule.__module__ = "lucid.optim.lr_scheduler"
