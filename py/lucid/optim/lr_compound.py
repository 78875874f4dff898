"""Schedules made of schedules: one after the other, or all at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from lucid import errors
from lucid.optim.lr_scheduler import LRScheduler, rates, set_rate
from lucid.optim.optimizer import Optimizer

__all__ = ["ChainedScheduler", "SequentialLR"]


class _Compound(LRScheduler):
    """What both have: the schedulers' state within their own."""

    _schedulers: Sequence[LRScheduler]

    def _check(self, optimizer: Optimizer) -> None:
        from lucid.optim.lr_policies import ReduceLROnPlateau

        name = type(self).__name__
        for i, scheduler in enumerate(self._schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise errors.TypeError(f"{name} at index {i} should have `optimizer` as its attribute.")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise errors.ValueError(
                    f"{name} does not support `ReduceLROnPlateau` scheduler as it requires additional kwargs to be "
                    f"specified when calling `step`, but got one at index {i} in the given schedulers sequence."
                )
            if scheduler.optimizer is not optimizer:
                raise errors.ValueError(
                    f"{name} expects all schedulers to belong to the same optimizer, but got scheduler "
                    f"{type(scheduler).__name__} at index {i} has {scheduler.optimizer}, which is different from "
                    f"{type(optimizer).__name__}."
                )

    def state_dict(self) -> dict[str, Any]:
        """All attributes but the optimizer, with the schedulers' own state dicts."""
        state = super().state_dict()
        state["_schedulers"] = [scheduler.state_dict() for scheduler in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave."""
        self.__dict__.update({key: value for key, value in state_dict.items() if key != "_schedulers"})
        for own, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            own.load_state_dict(state)


class SequentialLR(_Compound):
    """One schedule after the other: the next one begins, at its own epoch 0, at each of `milestones`.

    Args:
        optimizer (Optimizer): The optimizer of all schedulers.
        schedulers (list[LRScheduler]): At least one.
        milestones (list[int]): One less than schedulers, rising.
        last_epoch (int, default: -1): Where to go on; -1 starts anew.

    Raises:
        ValueError: the schedulers are not of one optimizer, or the milestones do not fit.

    Example:
        >>> optimizer = lucid.optim.SGD([lucid.zeros(1)], lr=1.0)
        >>> constant = lucid.optim.lr_scheduler.ConstantLR(optimizer, factor=0.1, total_iters=2)
        >>> decay = lucid.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        >>> scheduler = lucid.optim.lr_scheduler.SequentialLR(optimizer, [constant, decay], milestones=[2])
        >>> for _ in range(3):
        ...     optimizer.step()
        ...     scheduler.step()
        >>> scheduler.get_last_lr()
        [0.5]
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: list[LRScheduler], milestones: list[int], last_epoch: int = -1
    ) -> None:
        if len(schedulers) < 1:
            raise errors.ValueError(f"{type(self).__name__} expects at least one scheduler, but got no scheduler.")
        self._schedulers = schedulers
        self._check(optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise errors.ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than the number of "
                f"milestone points, but got number of schedulers {len(schedulers)} and the number of milestones to be "
                f"equal to {len(milestones)}"
            )
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        # The schedulers have all set their first rates: back to the start, for the one whose turn it is.
        for group in optimizer.param_groups:
            set_rate(group, group["initial_lr"])
        self.recursive_undo()
        current = self._schedulers[bisect_right(milestones, 0)]
        current._initial_step()
        self._last_lr = current.get_last_lr()

    def recursive_undo(self, sched: Any = None) -> None:
        """Takes back the first step of all schedulers, through those made of schedulers."""
        sched = self if sched is None else sched
        if hasattr(sched, "_schedulers"):
            for inner in sched._schedulers:
                self.recursive_undo(inner)
        elif hasattr(sched, "last_epoch"):
            sched.last_epoch -= 1

    def step(self) -> None:  # type: ignore[override]
        """Sets the next rates."""
        self.last_epoch += 1
        turn = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[turn]
        if turn > 0 and self._milestones[turn - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Compound):
    """All schedules at once: each goes by the rates that the one before has set.

    Args:
        schedulers (Sequence[LRScheduler]): At least one.
        optimizer (Optimizer, optional): Theirs, by default the first one's.

    Raises:
        ValueError: there is no scheduler, or they are not of one optimizer.

    Example:
        >>> optimizer = lucid.optim.SGD([lucid.zeros(1)], lr=1.0)
        >>> constant = lucid.optim.lr_scheduler.ConstantLR(optimizer, factor=0.1, total_iters=2)
        >>> decay = lucid.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        >>> scheduler = lucid.optim.lr_scheduler.ChainedScheduler([constant, decay])
        >>> optimizer.step()
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.05]
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if len(schedulers) < 1:
            raise errors.ValueError(
                f"{type(self).__name__} expects at least one scheduler to be chained, but got no scheduler."
            )
        self._schedulers = schedulers
        optimizer = optimizer or schedulers[0].optimizer
        self._check(optimizer)
        self.optimizer = optimizer
        self._last_lr = rates(optimizer)

    def step(self) -> None:  # type: ignore[override]
        """Sets the next rates."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = rates(self.optimizer)
