"""Apple's GPU by name: queries, waiting, and kernels in Metal's own language.

The device itself is `lucid.device("metal")`. Its memory is the machine's: every tensor there is where the CPU sees it
too, so that `numpy()` and DLPack show evaluated tensors without a copy, and `cpu()` and `to("metal")` copy large ones
only when one side is written to (docs/macos.md). Where MLX has no Metal, `is_available` is false and everything else
raises `GpuNotAvailable`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid import _C
from lucid._gpu import Event, Named, Stream
from lucid._kernels import launch

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


_METAL = Named("metal", "lucid.metal.is_available()")

is_available = _METAL.is_available


def synchronize() -> None:
    """Waits until the GPU has done all that was started."""
    _METAL.synchronize()


def empty_cache() -> None:
    """Gives memory kept for reuse back to the system."""
    _METAL.need("empty_cache")
    _METAL.empty_cache()


def manual_seed(seed: int) -> None:
    """Seeds the generator that all devices share: the same seed gives the same numbers on each.

    Args:
        seed (int): where the sequence of random numbers starts, from -2**63 to 2**64 - 1.

    Raises:
        GpuNotAvailable: there is no Apple GPU.

    Example:
        >>> if lucid.metal.is_available():
        ...     lucid.metal.manual_seed(0)
    """
    _METAL.need("manual_seed")
    _C.manual_seed(seed)


def memory_allocated() -> int:
    """Bytes in use by tensors on the GPU."""
    _METAL.need("memory_allocated")
    return _METAL.memory_allocated()


def max_memory_allocated() -> int:
    """The most bytes in use since the start or the last `reset_peak_memory_stats`."""
    _METAL.need("max_memory_allocated")
    return _METAL.max_memory_allocated()


reset_peak_memory_stats = _METAL.reset_peak_memory_stats


def get_cache_memory() -> int:
    """Bytes freed by tensors and kept for reuse."""
    _METAL.need("get_cache_memory")
    return int(_C.memory_stats("gpu")["cached"])


def get_device_name() -> str:
    """The GPU's name, such as "Apple M3 Max"."""
    return _METAL.device_name()


class MetalStream(Stream):
    """The GPU's queue of work, of which there is one: `lucid.Stream` by Metal's name.

    Args:
        device (device or int, optional): the GPU. Default: the process's own.
        priority (int, optional): another than 0 gives one warning that it has no effect.

    Example:
        >>> if lucid.metal.is_available():
        ...     lucid.metal.MetalStream().synchronize()
    """

    _named = _METAL

    def record_event(self, event: Event | None = None) -> Event:
        """`event`, or a new one that tells the time, recorded."""
        return super().record_event(MetalEvent() if event is None else event)


class MetalEvent(Event):
    """A moment in the GPU's work: `lucid.Event` by Metal's name.

    Args:
        enable_timing (bool, optional): whether `elapsed_time` can ask it. Default: True.

    Example:
        >>> if lucid.metal.is_available():
        ...     start, end = lucid.metal.MetalEvent(), lucid.metal.MetalEvent()
        ...     start.record(); end.record()
        ...     milliseconds = start.elapsed_time(end)
    """

    _named = _METAL

    def __init__(self, enable_timing: bool = True) -> None:
        super().__init__(enable_timing)


def shared_tensor(*size: Any, dtype: _C.dtype | None = None) -> _C.Tensor:
    """Zeros on the GPU, in memory that the CPU sees too.

    Args:
        *size (int): the sizes, as one sequence or as separate integers.
        dtype (_C.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Returns:
        Tensor: of shape `size`.

    Example:
        >>> if lucid.metal.is_available():
        ...     x = lucid.metal.shared_tensor(2)
    """
    _METAL.need("shared_tensor")
    return _C.zeros(*size, dtype=dtype, device="gpu")


def to_shared(tensor: _C.Tensor) -> _C.Tensor:
    """The tensor on the GPU, in memory that the CPU sees too; itself if it is there.

    Args:
        tensor (_C.Tensor): any shape.

    Returns:
        Tensor: the same elements on the GPU device.

    Example:
        >>> if lucid.metal.is_available():
        ...     x = lucid.metal.to_shared(lucid.ones(2))
    """
    _METAL.need("to_shared")
    return tensor.to("gpu")


def is_shared(tensor: _C.Tensor) -> bool:
    """Is it in memory that CPU and GPU both see? All of the Metal device's are.

    Args:
        tensor (_C.Tensor): any shape.

    Returns:
        bool: whether it is.

    Example:
        >>> if lucid.metal.is_available():
        ...     shared = lucid.metal.is_shared(lucid.ones(2))
    """
    _METAL.need("is_shared")
    return tensor.device.type == "metal"


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
    """Runs a kernel of Metal's language on the GPU, once. `lucid.cuda.run_kernel` is the same for CUDA.

    The source has a function `kernel void kernel_name(...)`: a `device const` pointer per input, in order, row-major;
    one `device` pointer for the output; and attributes such as `uint i [[thread_position_in_grid]]`. An input of fewer
    than 8 elements may be a `constant` pointer or reference. The launch is lazy, as any op's. It has no gradient: an
    input that requires one is an error outside of `no_grad`. What the kernel reads or writes beyond its arrays is not
    checked.

    Args:
        source (str): Metal Shading Language.
        kernel_name (str): the function to launch.
        inputs (sequence of Tensor): on the GPU device, of any shapes; made contiguous where they are not.
        output_shape (sequence of int): the result's sizes.
        output_dtype (dtype, optional): the result's dtype. Default: the first input's.
        grid (int or sequence of int, optional): the number of threads in up to three dimensions. Default: one for each
            element of the output.
        thread_group (int or sequence of int, optional): how many of them make a group. Default: up to 256.

    Returns:
        Tensor: of `output_shape`, on the GPU device.

    Raises:
        GpuNotAvailable: there is no Apple GPU.
        ValueError: the source has no such function, or other parameters than the inputs and one output.

    Example:
        >>> source = '''
        ... kernel void twice(device const float* x, device float* out, uint i [[thread_position_in_grid]]) {
        ...     out[i] = 2 * x[i];
        ... }
        ... '''
        >>> if lucid.metal.is_available():
        ...     y = lucid.metal.run_kernel(source, "twice", [lucid.ones(4, device="gpu")], [4])
    """
    _METAL.need("run_kernel")
    return launch("metal", source, kernel_name, inputs, output_shape, output_dtype, grid, thread_group)
