"""Collectives as events of the profiler: category `communication`, from the call until the result is waited for."""

from __future__ import annotations

import sys
from typing import Any

from lucid import _C, Tensor


def profiler() -> Any:
    """The profiler that records, or None. One that was never imported does not."""
    trace = sys.modules.get("lucid.profiler._trace")
    return None if trace is None else trace._running


class _Work:
    """An operation that was begun; the first `wait` ends its event."""

    def __init__(self, work: _C._Work, owner: Any, name: str, shapes: list[list[int]]) -> None:
        self._work, self._owner, self._name, self._shapes = work, owner, name, shapes
        self._recording, (self._start, self._thread) = owner._recording, _C._profile_now()

    def is_completed(self) -> bool:
        return self._work.is_completed()

    def wait(self, timeout: float | None = None) -> Any:
        made = self._work.wait(timeout)
        owner, self._owner = self._owner, None
        if owner is not None and owner is profiler() and owner._recording == self._recording:
            from lucid.profiler import OpEvent

            elapsed = _C._profile_now()[0] - self._start
            event = OpEvent(self._name, "communication", self._thread, self._start, elapsed, shapes=self._shapes)
            owner._user.append(event)
        return made


class Recorded:
    """A group of the engine's whose operations are told to the profiler that runs now."""

    def __init__(self, group: _C._Group, owner: Any) -> None:
        self._group, self._owner = group, owner
        self.rank, self.size, self.name = group.rank, group.size, group.name

    def begin(
        self,
        name: str,
        x: Tensor,
        how: str = "SUM",
        peer: int = 0,
        into: Tensor | None = None,
        timeout: float | None = None,
        now: bool = False,
    ) -> _Work | _C._Work:
        if now and self.size > 1:
            # An op, which the profiler sees as such.
            return self._group.begin(name, x, how, peer, into, timeout, True)
        begun = self._group.begin(name, x, how, peer, into, timeout)
        return _Work(begun, self._owner, name, [list(x.shape)])

    def apply(self, name: str, x: Tensor, *args: Any) -> Tensor:
        made: Tensor = self._group.apply(name, x, *args)
        return made

    def barrier(self, timeout: float | None = None) -> _Work:
        return _Work(self._group.barrier(timeout), self._owner, "barrier", [])
