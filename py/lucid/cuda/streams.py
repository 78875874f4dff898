"""The GPU's one queue and moments in its work, by CUDA's names."""

from __future__ import annotations

from lucid._gpu import Event as _Event
from lucid._gpu import Stream as _Stream
from lucid.cuda._named import CUDA

__all__ = ["Event", "Stream"]


class Stream(_Stream):
    """The GPU's queue of work, of which there is one: `lucid.Stream` by CUDA's name.

    Args:
        device (device or int, optional): the GPU. Default: the process's own.
        priority (int, optional): another than 0 gives one warning that it has no effect.

    Example:
        >>> if lucid.cuda.is_available():
        ...     lucid.cuda.Stream().synchronize()
    """

    _named = CUDA


class Event(_Event):
    """A moment in the GPU's work: `lucid.Event` by CUDA's name.

    Args:
        enable_timing (bool, optional): whether `elapsed_time` can ask it. Default: False.
        blocking (bool, optional): `synchronize` lets other threads run in any case.
        interprocess (bool, optional): True gives one warning: no other process can wait for the event.

    Example:
        >>> if lucid.cuda.is_available():
        ...     start, end = lucid.cuda.Event(enable_timing=True), lucid.cuda.Event(enable_timing=True)
        ...     start.record(); end.record()
        ...     milliseconds = start.elapsed_time(end)
    """

    _named = CUDA
