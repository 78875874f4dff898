"""Apple's GPU by name: queries, waiting, and kernels in Metal's own language.

The device itself is `lucid.device("metal")`. Its memory is the machine's: every tensor there lies where the CPU sees it
too, so that `numpy()` and DLPack show evaluated tensors without a copy, and `cpu()` and `to("metal")` copy large ones
only when one side is written to (docs/macos.md). Where MLX has no Metal, `is_available` is false and everything else
raises `GpuNotAvailable`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from lucid import _C
from lucid.errors import GpuNotAvailable

__all__ = [
    "MetalEvent",
    "MetalStream",
    "empty_cache",
    "get_cache_memory",
    "get_device_name",
    "is_available",
    "is_shared",
    "manual_seed",
    "max_memory_allocated",
    "memory_allocated",
    "reset_peak_memory_stats",
    "run_kernel",
    "shared_tensor",
    "synchronize",
    "to_shared",
]


def is_available() -> bool:
    """Does the installed MLX compute on an Apple GPU?"""
    try:
        return _C.device("gpu").type == "metal"
    except GpuNotAvailable:
        return False


def _need(op: str) -> None:
    if not is_available():
        kind = _C.device("gpu").type
        raise GpuNotAvailable(
            f"{op}: the installed MLX has no Metal device, its device is {kind!r}. Metal needs an Apple chip. "
            'lucid.metal.is_available() tells; device="gpu" names what there is'
        )


def synchronize() -> None:
    """Waits until the GPU has done all that was started."""
    _need("synchronize")
    _C._synchronize("gpu")


def empty_cache() -> None:
    """Gives memory kept for reuse back to the system."""
    _need("empty_cache")
    _C.empty_cache("gpu")


def manual_seed(seed: int) -> None:
    """Seeds the generator that all devices share: the same seed gives the same numbers on each."""
    _need("manual_seed")
    _C.manual_seed(seed)


def memory_allocated() -> int:
    """Bytes in use by tensors on the GPU."""
    _need("memory_allocated")
    return int(_C.memory_stats("gpu")["current"])


def max_memory_allocated() -> int:
    """The most bytes in use since the start or the last `reset_peak_memory_stats`."""
    _need("max_memory_allocated")
    return int(_C.memory_stats("gpu")["peak"])


def reset_peak_memory_stats() -> None:
    """Makes the current use the peak."""
    _need("reset_peak_memory_stats")
    _C.reset_peak_memory_stats("gpu")


def get_cache_memory() -> int:
    """Bytes freed by tensors and kept for reuse."""
    _need("get_cache_memory")
    return int(_C.memory_stats("gpu")["cached"])


def get_device_name() -> str:
    """The GPU's name, such as "Apple M3 Max"."""
    _need("get_device_name")
    return _C._metal_device_name()


class MetalStream:
    """The GPU's queue. There is one, on which all work runs in order: streams are equal, and `with` changes nothing."""

    def __init__(self) -> None:
        _need("MetalStream")

    def synchronize(self) -> None:
        """Waits until all that was started is done."""
        synchronize()

    def record_event(self, event: MetalEvent | None = None) -> MetalEvent:
        """`event`, or a new one, recorded."""
        event = MetalEvent() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: MetalEvent) -> None:
        """Nothing to wait for: what is recorded later runs later."""

    def __enter__(self) -> MetalStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MetalStream)

    def __hash__(self) -> int:
        return hash(MetalStream)


class MetalEvent:
    """A moment in the GPU's work. `record` waits for what was started, so that the time between two events is that of
    the work between them; what is pending and was not started (`eval`) is not part of it.
    """

    def __init__(self, enable_timing: bool = True) -> None:
        _need("MetalEvent")
        self._time: float | None = None

    def record(self, stream: MetalStream | None = None) -> None:
        """Waits for the work started so far and takes the time."""
        synchronize()
        self._time = time.perf_counter()

    def query(self) -> bool:
        """Was it recorded? Then all before it is done."""
        return self._time is not None

    def wait(self, stream: MetalStream | None = None) -> None:
        """Nothing to wait for: `record` has waited."""

    def synchronize(self) -> None:
        """As `wait`."""

    def elapsed_time(self, end_event: MetalEvent) -> float:
        """Milliseconds from this event to another. Both must be recorded."""
        if self._time is None or end_event._time is None:
            raise RuntimeError("elapsed_time: both events must be recorded first")
        return (end_event._time - self._time) * 1000.0


def shared_tensor(*size: Any, dtype: _C.dtype | None = None) -> _C.Tensor:
    """Zeros on the GPU, in memory that the CPU sees too."""
    _need("shared_tensor")
    return _C.zeros(*size, dtype=dtype, device="gpu")


def to_shared(tensor: _C.Tensor) -> _C.Tensor:
    """The tensor on the GPU, in memory that the CPU sees too; itself if it is there."""
    _need("to_shared")
    return tensor.to("gpu")


def is_shared(tensor: _C.Tensor) -> bool:
    """Does it lie in memory that CPU and GPU both see? All of the Metal device's do."""
    _need("is_shared")
    return tensor.device.type == "metal"


def _three(name: str, value: int | Sequence[int] | None) -> list[int] | None:
    if value is None:
        return None
    sizes = [value] if isinstance(value, int) else list(value)
    if not 1 <= len(sizes) <= 3 or any(n < 1 for n in sizes):
        raise ValueError(f"run_kernel: {name} must be one to three positive numbers, got {value!r}")
    return sizes + [1] * (3 - len(sizes))


def run_kernel(
    source: str,
    kernel_name: str,
    inputs: Sequence[_C.Tensor],
    output_shape: Sequence[int],
    output_dtype: _C.dtype | None = None,
    *,
    grid: int | Sequence[int] | None = None,
    thread_group: int | Sequence[int] | None = None,
) -> _C.Tensor:
    """One launch of a kernel in Metal's language; returns its output, evaluated when needed as any op's.

    `source` has a function `kernel void kernel_name(...)`: a `device const` pointer per input, in order, row-major; one
    `device` pointer for the output; and attributes such as `uint i [[thread_position_in_grid]]`. An input of fewer than
    8 elements may be a `constant` pointer or reference. `grid` is the number of threads, one per output element if not
    given; `thread_group` that of one group, up to 256. The output's dtype is the first input's if not given.

    There is no gradient: an input that requires one is an error outside of `no_grad`. What the kernel reads or writes
    beyond its arrays is not checked.
    """
    _need("run_kernel")
    if output_dtype is None:
        if not inputs:
            raise ValueError("run_kernel: without inputs, output_dtype must be given")
        output_dtype = inputs[0].dtype
    sizes = (_three("grid", grid), _three("thread_group", thread_group))
    return _C._metal_run_kernel(source, kernel_name, list(inputs), list(output_shape), output_dtype, *sizes)
