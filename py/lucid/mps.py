"""Apple's GPU under PyTorch's name for it, as in `torch.mps`. `lucid.device("mps")` is `lucid.device("metal")`;
`lucid.metal` has more, kernels too.

Where MLX has no Metal, `is_available` is false, seeding does nothing, and all else raises `GpuNotAvailable` (a
`RuntimeError`).
"""

from __future__ import annotations

from lucid import _C
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


def manual_seed(seed: int) -> None:
    """Seeds the generator that all devices share; nothing where there is no Metal."""
    if is_available():
        _C.manual_seed(seed)


def seed() -> None:
    """Seeds the generator that all devices share with a number from the system; nothing where there is no Metal."""
    if is_available():
        _C.seed()


def get_rng_state(device: object = "mps") -> _C.Tensor:
    """The state of the generator that all devices share."""
    _MPS.need("get_rng_state", device)
    return _C.get_rng_state()


def set_rng_state(new_state: _C.Tensor, device: object = "mps") -> None:
    """Puts back a state of the generator that all devices share."""
    _MPS.need("set_rng_state", device)
    _C.set_rng_state(new_state)


class Event(_Event):
    """A moment in the GPU's work: `lucid.Event` by Metal's name."""

    _named = _MPS

    def __init__(self, enable_timing: bool = False) -> None:
        super().__init__(enable_timing)
