"""The CPU under the names that the GPU's modules have, as in `torch.cpu`, for scripts that pick a module by device.

Ops on the CPU are done when they return: there is nothing to wait for, and nothing to choose.
"""

from __future__ import annotations

from lucid._gpu import Pass
from lucid._warnings import warn_without_effect

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "current_device",
    "current_stream",
    "device_count",
    "is_available",
    "is_initialized",
    "set_device",
    "stream",
    "synchronize",
]


class Event:
    """A moment in the CPU's work, which is done."""

    def query(self) -> bool:
        """Is all before it done? Yes."""
        return True

    def record(self, stream: Stream | None = None) -> None:
        """Nothing to note."""

    def wait(self, stream: Stream | None = None) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""


class Stream:
    """The order of the CPU's work, which is that of the calls; `priority` is looked at no more.

    Args:
        priority (int, default: -1): others than -1 and 0 give one warning that they have no effect.

    Example:
        >>> lucid.cpu.Stream().__class__.__name__
        'Stream'
    """

    def __init__(self, priority: int = -1) -> None:
        warn_without_effect("Stream", "the CPU's work is in the order of the calls", priority=priority not in (-1, 0))
        pass

    def record_event(self) -> None:
        """Nothing to note."""

    def wait_event(self, event: Event) -> None:
        """Nothing to wait for."""

    def wait_stream(self, stream: Stream) -> None:
        """Nothing to wait for."""


class StreamContext(Pass):
    """A block whose work is in `stream`'s order, which is any stream's; `None` is no stream.

    Args:
        stream (Stream, optional): the stream, or None.

    Example:
        >>> with lucid.cpu.StreamContext(None):
        ...     pass
    """

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream


_STREAM = Stream()


def current_stream(device: object = None) -> Stream:
    """The one order there is.

    Args:
        device (object, optional): there is one CPU, and one stream in any case.

    Returns:
        Stream: the stream.

    Example:
        >>> lucid.cpu.current_stream().__class__.__name__
        'Stream'
    """
    return _STREAM


def stream(stream: Stream | None) -> StreamContext:
    """`StreamContext(stream)`.

    Args:
        stream (Stream, optional): the stream, or None.

    Returns:
        StreamContext: the block.

    Example:
        >>> with lucid.cpu.stream(lucid.cpu.current_stream()):
        ...     pass
    """
    return StreamContext(stream)


def is_available() -> bool:
    """Is there a CPU? Yes."""
    return True


def is_initialized() -> bool:
    """Is it ready? Yes."""
    return True


def synchronize(device: object = None) -> None:
    """Nothing to wait for.

    Args:
        device (object, optional): there is one CPU, and one stream in any case.

    Example:
        >>> lucid.cpu.synchronize()
    """


def current_device() -> str:
    """The name of the CPU's device: "cpu"."""
    return "cpu"


def set_device(device: object) -> None:
    """Nothing to choose: there is one CPU.

    Args:
        device (object): there is one CPU in any case.

    Example:
        >>> lucid.cpu.set_device("cpu")
    """


def device_count() -> int:
    """How many CPU devices there are, whatever their cores: 1."""
    return 1
