"""The GPU's one queue and moments in its work, by CUDA's names."""

from __future__ import annotations

from lucid._gpu import Event as _Event
from lucid._gpu import Stream as _Stream
from lucid.cuda._named import CUDA

__all__ = ["Event", "Stream"]


class Stream(_Stream):
    """The GPU's queue, of which there is one: `lucid.Stream` by CUDA's name."""

    _named = CUDA


class Event(_Event):
    """A moment in the GPU's work: `lucid.Event` by CUDA's name."""

    _named = CUDA
