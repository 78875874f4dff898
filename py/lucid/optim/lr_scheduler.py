"""`LRScheduler` and the schedules that depend on the epoch alone.

A schedule sets `lr` of the optimizer's groups at each `step`, from the rate before it where that can be done, so that
schedules can be chained. `lr_decay`, `lr_policies` and `lr_compound` hold the rest.
"""

from __future__ import annotations

import types
import weakref
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from lucid import Tensor, errors
from lucid._public_names import NamedInErrors
from lucid._warnings import warn
from lucid.optim.optimizer import Optimizer

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "NoamScheduler",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]

_DOCS = "https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"
EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. Please use "
    "`scheduler.step()` to step the scheduler. During the deprecation, if epoch is different from None, the closed "
    "form is used instead of the new chainable form, where available."
)


def check_optimizer(optimizer: Any) -> None:
    """A TypeError for what is no optimizer."""
    if not isinstance(optimizer, Optimizer):
        raise errors.TypeError(f"{type(optimizer).__name__} is not an Optimizer")


def rates(optimizer: Optimizer, key: str = "lr") -> list[Any]:
    """One option of every group; tensors as copies."""
    values = (group[key] for group in optimizer.param_groups)
    return [value.clone() if isinstance(value, Tensor) else value for value in values]


def set_rate(group: dict[str, Any], value: Any) -> None:
    """Sets a group's rate, in place where it is a tensor."""
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(float(value))
    else:
        group["lr"] = value


def per_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """An option as one value per group."""
    if not isinstance(value, (list, tuple)):
        return [value] * len(optimizer.param_groups)
    if len(value) != len(optimizer.param_groups):
        raise errors.ValueError(
            f"{name} must have the same length as optimizer.param_groups. "
            f"{name} has {len(value)} values, param_groups has {len(optimizer.param_groups)}."
        )
    return list(value)


def _track_steps(optimizer: Optimizer) -> None:
    """Lets the optimizer note that it has stepped, for the warning about the order of calls."""
    if hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        return
    function = optimizer.step.__func__  # type: ignore[attr-defined]
    held = weakref.ref(optimizer)

    @wraps(function)
    def step(*args: Any, **kwargs: Any) -> Any:
        own = held()
        own._opt_called = True  # type: ignore[union-attr]
        return function(own, *args, **kwargs)

    step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = step  # type: ignore[method-assign]


def _with_verbose(init: Callable[..., None]) -> Callable[..., None]:
    """The constructor with `verbose=`, as PyTorch had it before 2.7: a scheduler tells each rate that it sets."""

    @wraps(init)
    def wrapped(self: LRScheduler, *args: Any, verbose: bool | str = False, **kwargs: Any) -> None:
        if verbose != "deprecated" and verbose:
            self.verbose = True
        init(self, *args, **kwargs)

    return wrapped


class LRScheduler(NamedInErrors):
    """Base of schedules: a subclass gives `get_lr`, the rates of the groups at `last_epoch`.

    Every scheduler takes `verbose=True` too, which prints each rate as it is set (PyTorch had it until 2.7).

    Args:
        optimizer (Optimizer): Whose rates are set. Making a scheduler sets them at once.
        last_epoch (int, default: -1): Where to go on, with `initial_lr` in the groups; -1 starts anew.

    Raises:
        TypeError: `optimizer` is none.

    Example:
        >>> optimizer = lucid.optim.SGD([lucid.zeros(1)], lr=1.0)
        >>> class Halving(lucid.optim.lr_scheduler.LRScheduler):
        ...     def get_lr(self):
        ...         return [rate * 0.5 ** self.last_epoch for rate in self.base_lrs]
        >>> scheduler = Halving(optimizer)
        >>> optimizer.step()
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.5]
    """

    _get_lr_called_within_step = False
    _is_initial = False
    _last_lr: list[Any]
    verbose = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        init = cls.__dict__.get("__init__")
        # Constructors of programs that take it themselves do what they like with it.
        if init is not None and cls.__module__.startswith("lucid."):
            cls.__init__ = _with_verbose(init)  # type: ignore[method-assign]

    @_with_verbose
    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                rate = group["lr"]
                group.setdefault("initial_lr", rate.clone() if isinstance(rate, Tensor) else rate)
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming scheduler with "
                    "last_epoch >= 0; load the optimizer's state first, or start with last_epoch=-1"
                )
        self.base_lrs: list[Any] = rates(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        _track_steps(optimizer)
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[Any]:
        """The rates set last, one per group."""
        return self._last_lr

    def get_lr(self) -> list[Any]:
        """The rates to set next; `get_last_lr` tells what was set."""
        raise NotImplementedError

    def step(self, epoch: int | None = None) -> None:
        """Sets the next rates. To be called after the optimizer's step; `epoch` is deprecated."""
        if self._step_count == 1:
            if not hasattr(self.optimizer.step, "_wrapped_by_lr_sched"):
                warn(
                    "Seems like `optimizer.step()` has been overridden after learning rate scheduler initialization. "
                    "Please, make sure to call `optimizer.step()` before `lr_scheduler.step()`. "
                    f"See more details at {_DOCS}"
                )
            elif not getattr(self.optimizer, "_opt_called", False):
                warn(
                    "Detected call of `lr_scheduler.step()` before `optimizer.step()`. You should call them in the "
                    "opposite order: `optimizer.step()` before `lr_scheduler.step()`.  Failure to do this will result "
                    "in skipping the first value of the learning rate schedule. "
                    f"See more details at {_DOCS}"
                )
        self._step_count += 1
        if epoch is not None:
            warn(EPOCH_DEPRECATION_WARNING)
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        self._get_lr_called_within_step = True
        try:
            self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
            closed = getattr(self, "_get_closed_form_lr", None)
            values = self.get_lr() if epoch is None or closed is None else closed()
        finally:
            self._get_lr_called_within_step = False
        self._set(values)

    def _set(self, values: list[Any]) -> None:
        for group, rate in zip(self.optimizer.param_groups, values, strict=True):
            set_rate(group, rate)
        self._last_lr = rates(self.optimizer)
        if self.verbose:
            for i, rate in enumerate(self._last_lr):
                print(f"Epoch {self.last_epoch:5d}: adjusting learning rate of group {i} to {float(rate):.4e}.")

    def _warn_unless_stepping(self) -> None:
        if not self._get_lr_called_within_step:
            warn("To get the last learning rate computed by the scheduler, please use `get_last_lr()`.")

    def _scaled(self, factor: float) -> list[Any]:
        return [group["lr"] * factor for group in self.optimizer.param_groups]


class _LRScheduler(LRScheduler):
    """`LRScheduler` by the name that it had, for programs that derive from it."""


class _ByFunction(LRScheduler):
    """A schedule by functions of the epoch, one per group. State dicts hold those that are objects, not functions."""

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | list[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        self.optimizer = optimizer
        if isinstance(lr_lambda, (list, tuple)):
            if len(lr_lambda) != len(optimizer.param_groups):
                raise errors.ValueError(f"Expected {len(optimizer.param_groups)} lr_lambdas, but got {len(lr_lambda)}")
            self.lr_lambdas = list(lr_lambda)
        else:
            self.lr_lambdas = [lr_lambda] * len(optimizer.param_groups)
        self._check_functions()
        super().__init__(optimizer, last_epoch)

    def _check_functions(self) -> None:
        """Refuses what cannot be called, where PyTorch does."""

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the optimizer, and of functions only those that are callable objects."""
        state = super().state_dict()
        plain = types.FunctionType
        state["lr_lambdas"] = [None if isinstance(f, plain) else f.__dict__.copy() for f in self.lr_lambdas]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave; functions stay as they are."""
        self.__dict__.update({key: value for key, value in state_dict.items() if key != "lr_lambdas"})
        for own, loaded in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=False):
            if loaded is not None:
                own.__dict__.update(loaded)


class LambdaLR(_ByFunction):
    """`lr = initial_lr · lr_lambda(epoch)`; `lr_lambda` is one function, or one per group.

    Args:
        optimizer (Optimizer): the optimizer whose learning rates are set.
        lr_lambda (callable or list of callables): takes the epoch, and returns the factor; one function, or one
            for each group.
        last_epoch (int, default: -1): the number of epochs behind; -1 starts anew.

    Example:
        >>> optimizer = lucid.optim.SGD([lucid.zeros(1)], lr=1.0)
        >>> scheduler = lucid.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
        >>> for _ in range(3):
        ...     optimizer.step()
        ...     scheduler.step()
        >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
        [0.125]
    """

    def get_lr(self) -> list[Any]:
        """The rates at `last_epoch`."""
        self._warn_unless_stepping()
        return [base * f(self.last_epoch) for f, base in zip(self.lr_lambdas, self.base_lrs, strict=True)]


class MultiplicativeLR(_ByFunction):
    """`lr = lr · lr_lambda(epoch)` at each step; `lr_lambda` is one function, or one per group.

    Args:
        optimizer (Optimizer): the optimizer whose learning rates are set.
        lr_lambda (callable or list of callables): takes the epoch, and returns the factor; one function, or one
            for each group.
        last_epoch (int, default: -1): the number of epochs behind; -1 starts anew.

    Example:
        >>> optimizer = lucid.optim.SGD([lucid.zeros(1)], lr=1.0)
        >>> scheduler = lucid.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.5)
        >>> for _ in range(3):
        ...     optimizer.step()
        ...     scheduler.step()
        >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
        [0.125]
    """

    def _check_functions(self) -> None:
        for function in self.lr_lambdas:
            if not callable(function):
                raise errors.TypeError(f"lr_lambda should be a function, but got {type(function).__name__}")

    def get_lr(self) -> list[Any]:
        """The rates at `last_epoch`."""
        self._warn_unless_stepping()
        if self._is_initial:
            return rates(self.optimizer)
        groups = self.optimizer.param_groups
        return [group["lr"] * f(self.last_epoch) for f, group in zip(self.lr_lambdas, groups, strict=True)]


class StepLR(LRScheduler):
    """Multiplies the rate by `gamma` every `step_size` epochs.

    Args:
        optimizer (Optimizer): the optimizer whose learning rates are set.
        step_size (int): the number of epochs between two changes.
        gamma (float, default: 0.1): the factor.
        last_epoch (int, default: -1): the number of epochs behind; -1 starts anew.

    Example:
        >>> optimizer = lucid.optim.SGD([lucid.zeros(1)], lr=1.0)
        >>> scheduler = lucid.optim.lr_scheduler.StepLR(optimizer, step_size=2)
        >>> for _ in range(3):
        ...     optimizer.step()
        ...     scheduler.step()
        >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
        [0.1]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates at `last_epoch`."""
        self._warn_unless_stepping()
        if self.last_epoch == 0 or self.last_epoch % self.step_size != 0:
            return rates(self.optimizer)
        return self._scaled(self.gamma)

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Multiplies the rate by `gamma` at each of `milestones`.

    Args:
        optimizer (Optimizer): the optimizer whose learning rates are set.
        milestones (Iterable[int]): the epochs of the changes.
        gamma (float, default: 0.1): the factor.
        last_epoch (int, default: -1): the number of epochs behind; -1 starts anew.

    Example:
        >>> optimizer = lucid.optim.SGD([lucid.zeros(1)], lr=1.0)
        >>> scheduler = lucid.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1, 2])
        >>> for _ in range(3):
        ...     optimizer.step()
        ...     scheduler.step()
        >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
        [0.01]
    """

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates at `last_epoch`."""
        self._warn_unless_stepping()
        if self.last_epoch not in self.milestones:
            return rates(self.optimizer)
        return self._scaled(self.gamma ** self.milestones[self.last_epoch])

    def _get_closed_form_lr(self) -> list[Any]:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [base * self.gamma**passed for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """Multiplies the rate by `factor` until epoch `total_iters`, where it returns to what it was.

    Args:
        optimizer (Optimizer): the optimizer whose learning rates are set.
        factor (float, default: 0.3333333333333333): the factor at first, within 0 to 1.
        total_iters (int, default: 5): the epoch at which the factor ends.
        last_epoch (int, default: -1): the number of epochs behind; -1 starts anew.

    Raises:
        ValueError: `factor` is not within 0 to 1.

    Example:
        >>> optimizer = lucid.optim.SGD([lucid.zeros(1)], lr=1.0)
        >>> scheduler = lucid.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=5)
        >>> for _ in range(3):
        ...     optimizer.step()
        ...     scheduler.step()
        >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
        [0.5]
    """

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if factor > 1.0 or factor < 0:
            raise errors.ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates at `last_epoch`."""
        self._warn_unless_stepping()
        if self.last_epoch == 0:
            return self._scaled(self.factor)
        if self.last_epoch != self.total_iters:
            return rates(self.optimizer)
        return self._scaled(1.0 / self.factor)

    def _get_closed_form_lr(self) -> list[Any]:
        over = self.last_epoch >= self.total_iters
        return [base * (self.factor + over * (1 - self.factor)) for base in self.base_lrs]


class ExponentialLR(LRScheduler):
    """Multiplies the rate by `gamma` every epoch.

    Args:
        optimizer (Optimizer): the optimizer whose learning rates are set.
        gamma (float): the factor.
        last_epoch (int, default: -1): the number of epochs behind; -1 starts anew.

    Example:
        >>> optimizer = lucid.optim.SGD([lucid.zeros(1)], lr=1.0)
        >>> scheduler = lucid.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        >>> for _ in range(3):
        ...     optimizer.step()
        ...     scheduler.step()
        >>> [round(rate, 4) for rate in scheduler.get_last_lr()]
        [0.125]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates at `last_epoch`."""
        self._warn_unless_stepping()
        return rates(self.optimizer) if self._is_initial else self._scaled(self.gamma)

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


# At the end, since they build on the classes above.
from lucid.optim.lr_compound import ChainedScheduler, SequentialLR  # noqa: E402
from lucid.optim.lr_decay import CosineAnnealingLR, LinearLR, NoamScheduler, PolynomialLR  # noqa: E402
from lucid.optim.lr_policies import (  # noqa: E402
    CosineAnnealingWarmRestarts,
    CyclicLR,
    OneCycleLR,
    ReduceLROnPlateau,
)
