"""`Join`: a block in which processes may have different numbers of inputs, as `torch.distributed.algorithms.join`."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any

import lucid
from lucid import errors
from lucid.distributed._state import resolve
from lucid.nn.data_parallel import DistributedDataParallel

__all__ = ["Join", "JoinHook", "Joinable"]


class JoinHook:
    """What a process that has no inputs any more does for the sake of the others."""

    def main_hook(self) -> None:
        """Called for each pass of a process that has inputs, to take part in its messages."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called when no process has inputs any more.

        Args:
            is_last_joiner: whether this process is among those that went on longest.
        """


class Joinable(ABC):
    """A class whose objects take part in `Join`: each pass begins with `Join.notify_join_context(self)`."""

    @abstractmethod
    def __init__(self) -> None:
        super().__init__()
        self._join: Join | None = None

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """The hook of one block, with the arguments that `Join` was given."""

    @property
    @abstractmethod
    def join_device(self) -> Any:
        """The device of its messages."""

    @property
    @abstractmethod
    def join_process_group(self) -> Any:
        """The group of its messages."""


class Join:
    """A block in which processes may have different numbers of inputs.

    One that has left its loop calls the hooks of the joinables for each pass of the others, until all have left theirs.
    A `DistributedDataParallel` module has hooks of its own, in its method `join`; one alone may be given here, too.

    Args:
        joinables (list): objects of `Joinable`, or one `DistributedDataParallel` module.
        enable (bool, default: True): whether the block does anything.
        throw_on_early_termination (bool, default: False): whether it is an error on all processes when one has no
            inputs any more.
        kwargs (object): arguments of the hooks.

    Raises:
        ValueError: there are no joinables, or their groups differ.
        NotImplementedError: a `DistributedDataParallel` module among others.
        TypeError: an object that is neither.
        RuntimeError: a process has no inputs any more, with `throw_on_early_termination`.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.distributed.algorithms.join import Join
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> model = lucid.nn.parallel.DistributedDataParallel(lucid.nn.Linear(2, 1))
        >>> with Join([model]):
        ...     for batch in (lucid.ones(1, 2), lucid.zeros(1, 2)):
        ...         model(batch).sum().backward()
        >>> dist.destroy_process_group()
    """

    def __init__(
        self, joinables: list[Any], enable: bool = True, throw_on_early_termination: bool = False, **kwargs: Any
    ) -> None:
        if len(joinables) == 0:
            raise errors.ValueError("The join context manager requires at least one joinable")
        self._joinables, self._enable, self._throw = joinables, enable, throw_on_early_termination
        self._inner: Any = None
        modules = [j for j in joinables if isinstance(j, DistributedDataParallel)]
        if modules:
            if len(joinables) > 1:
                raise errors.NotImplementedError(
                    "Join: a DistributedDataParallel module joins alone; nest `with model.join():` in the others' block"
                )
            self._inner = modules[0].join(
                enable=enable, throw_on_early_termination=throw_on_early_termination, **kwargs
            )
            return
        for j in joinables:
            if not isinstance(j, Joinable):
                raise errors.TypeError(f"Join: expected objects of Joinable, got {type(j).__name__}")
        self._hooks = [j.join_hook(**kwargs) for j in joinables]
        groups = {id(resolve(j.join_process_group, "Join")) for j in joinables}
        if len(groups) > 1:
            raise errors.ValueError("Using join context manager with multiple process groups")
        self._group = resolve(joinables[0].join_process_group, "Join")

    def __enter__(self) -> None:
        if self._inner is not None:
            self._inner.__enter__()
            return
        for j in self._joinables:
            j._join = self if self._enable else None

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._inner is not None:
            self._inner.__exit__(kind, value, trace)
            return
        try:
            if self._enable and kind is None:
                self._shadow()
        finally:
            for j in self._joinables:
                j._join = None

    def _count(self, going: bool) -> int:
        """The number of processes that have inputs; each of the group asks at once."""
        assert self._group is not None
        number = lucid.tensor([int(going)], dtype=lucid.int64)
        work = self._group.native.begin("all_reduce", number, "SUM", 0, None, self._group.timeout)
        return int(work.wait().item())

    def _shadow(self) -> None:
        """The passes of the others, once this process has left its loop."""
        last, passes = True, 0
        while self._count(going=False):
            if self._throw:
                raise errors.RuntimeError(_ENDED_EARLY)
            last, passes = False, passes + 1
            if passes == 1000:
                warnings.warn("Detected uneven input skew of greater than 1000.", stacklevel=3)
            for hook in self._hooks:
                hook.main_hook()
        for hook in self._hooks:
            hook.post_hook(last)

    @staticmethod
    def notify_join_context(joinable: Joinable) -> Any:
        """Tells the processes without inputs that this one begins a pass. The first joinable of a block does it.

        Args:
            joinable: the object whose pass begins.

        Returns:
            None: outside of a block, and for what is not its first joinable; else the message, which has arrived.
        """
        join = getattr(joinable, "_join", None)
        if join is None or join._joinables[0] is not joinable:
            return None
        going = join._count(going=True)
        if join._throw and going < join._group.size():
            raise errors.RuntimeError(_ENDED_EARLY)
        return going


_ENDED_EARLY = "Detected at least one rank that exhausted inputs. Throwing across all ranks."
