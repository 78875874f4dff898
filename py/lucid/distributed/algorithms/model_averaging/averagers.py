"""Averages of the parameters of all processes, every few steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.distributed._state import resolve

__all__ = ["ModelAverager", "PeriodicModelAverager"]


def _parameters(given: Iterable[Any]) -> list[Tensor]:
    """Parameters, or those of an optimizer's groups."""
    listed = list(given)
    if listed and isinstance(listed[0], dict):
        return [p for group in listed for p in group["params"]]
    return listed


class ModelAverager(ABC):
    """What averages parameters of several processes.

    Args:
        process_group (ProcessGroup, optional): the group; default: all processes of the job.

    Raises:
        ValueError: this process is not in the group.

    Example:
        >>> from lucid.distributed.algorithms.model_averaging import averagers
        >>> issubclass(averagers.PeriodicModelAverager, averagers.ModelAverager)
        True
    """

    def __init__(self, process_group: Any = None) -> None:
        found = resolve(process_group, type(self).__name__)
        if found is None:
            raise errors.ValueError(f"{type(self).__name__}: this process is not in the group")
        self.process_group = found
        self.step = 0

    @abstractmethod
    def average_parameters(self, params: Iterable[Any]) -> None:
        """Averages parameters in place."""


class PeriodicModelAverager(ModelAverager):
    """Averages parameters over the processes each `period` steps, after a warm-up in which nothing happens.

    Args:
        period (int): how many steps lie between two averages.
        warmup_steps (int, default: 0): how many steps come before the first one, during which gradients are averaged
            as usual.
        process_group (ProcessGroup, optional): the group; default: all processes of the job.

    Raises:
        ValueError: a period below 1, or a negative number of steps.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> weight = lucid.nn.Parameter(lucid.ones(2))
        >>> averager = PeriodicModelAverager(period=2)
        >>> averager.average_parameters([weight])
        >>> averager.step, weight.detach()
        (1, tensor([1., 1.]))
        >>> dist.destroy_process_group()
    """

    def __init__(self, period: int, warmup_steps: int = 0, process_group: Any = None) -> None:
        super().__init__(process_group)
        if warmup_steps < 0:
            raise errors.ValueError("Arg ``warmup_steps`` must be a non-negative number.")
        if period < 1:
            raise errors.ValueError("Arg ``period`` must be a positive value.")
        self.period, self.warmup_steps = period, warmup_steps

    def average_parameters(self, params: Iterable[Any]) -> None:
        """Averages parameters in place where it is time, and counts the step.

        Args:
            params (Iterable[Parameter] or Iterable[dict]): the parameters, or an optimizer's groups. Those without a
                gradient stay as they are.
        """
        if self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == 0:
            group = self.process_group
            with lucid.no_grad():
                for p in _parameters(params):
                    if p.grad is not None and group.size() > 1:
                        total = group.native.begin("all_reduce", p.detach(), "SUM", 0, None, group.timeout).wait()
                        p.copy_(total / group.size())
        self.step += 1
