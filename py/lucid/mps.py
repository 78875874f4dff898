"""Apple's GPU under PyTorch's name for it, as in `torch.mps`. `lucid.device("mps")` is `lucid.device("metal")`;
`lucid.metal` has more, kernels too.

Where MLX has no Metal, `is_available` is false, seeding does nothing, and all else raises `GpuNotAvailable` (a
`RuntimeError`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lucid._absent import teller
from lucid._gpu import Event as _Event
from lucid._gpu import Named

__all__ = [
    "Event",
    "current_allocated_memory",
    "device_count",
    "driver_allocated_memory",
    "empty_cache",
    "get_rng_state",
    "is_available",
    "manual_seed",
    "recommended_max_memory",
    "seed",
    "set_rng_state",
    "synchronize",
]

_MPS = Named("metal", "lucid.mps.is_available()")

is_available = _MPS.is_available
device_count = _MPS.device_count
manual_seed = _MPS.manual_seed
seed = _MPS.seed
get_rng_state = _MPS.get_rng_state
set_rng_state = _MPS.set_rng_state


def synchronize() -> None:
    """Waits until the GPU has done all that was started."""
    _MPS.synchronize()


def empty_cache() -> None:
    """Gives memory kept for reuse back to the system."""
    _MPS.need("empty_cache")
    _MPS.empty_cache()


def current_allocated_memory() -> int:
    """Bytes in use by tensors."""
    _MPS.need("current_allocated_memory")
    return _MPS.memory_allocated()


def driver_allocated_memory() -> int:
    """Bytes in use by tensors or kept for reuse."""
    _MPS.need("driver_allocated_memory")
    return _MPS.memory_reserved()


def recommended_max_memory() -> int:
    """The bytes of the memory that CPU and GPU share."""
    _MPS.need("recommended_max_memory")
    return _MPS.memory_info()[1]


class Event(_Event):
    """A moment in the GPU's work: `lucid.Event` by PyTorch's name for Metal.

    Args:
        enable_timing (bool, optional): whether `elapsed_time` can ask it. Default: False.

    Example:
        >>> if lucid.mps.is_available():
        ...     start, end = lucid.mps.Event(True), lucid.mps.Event(True)
        ...     start.record(); end.record()
        ...     milliseconds = start.elapsed_time(end)
    """

    _named = _MPS

    def __init__(self, enable_timing: bool = False) -> None:
        super().__init__(enable_timing)


if not TYPE_CHECKING:
    __getattr__ = teller(__name__)
