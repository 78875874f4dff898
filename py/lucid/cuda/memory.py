"""The GPU's memory: what is in use, kept and free."""

from __future__ import annotations

from typing import Any, NoReturn

from lucid import errors
from lucid._warnings import warn, warn_without_effect
from lucid.cuda._allocator import (
    CUDAPluggableAllocator,
    MemPool,
    caching_allocator_alloc,
    caching_allocator_delete,
    caching_allocator_disabled,
    caching_allocator_enable,
    change_current_allocator,
    get_per_process_memory_fraction,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    list_gpu_processes,
    memory_snapshot,
    memory_stats_as_nested_dict,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_host_memory_stats,
    set_per_process_memory_fraction,
    use_mem_pool,
)
from lucid.cuda._named import CUDA

__all__ = [
    "CUDAPluggableAllocator",
    "MemPool",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "caching_allocator_disabled",
    "caching_allocator_enable",
    "change_current_allocator",
    "empty_cache",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "list_gpu_processes",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
    "use_mem_pool",
]

empty_cache = CUDA.empty_cache
memory_allocated = CUDA.memory_allocated
max_memory_allocated = CUDA.max_memory_allocated
memory_reserved = CUDA.memory_reserved
max_memory_reserved = CUDA.max_memory_reserved
memory_stats = CUDA.memory_stats
reset_peak_memory_stats = reset_max_memory_allocated = CUDA.reset_peak_memory_stats
mem_get_info = CUDA.memory_info


def get_allocator_backend() -> str:
    """Whose allocator the GPU's memory comes from.

    Returns:
        str: "mlx".

    Example:
        >>> lucid.cuda.get_allocator_backend()
        'mlx'
    """
    return "mlx"


def _older(name: str, new: str) -> None:
    warn(f"`lucid.cuda.{name}` has been renamed to `lucid.cuda.{new}`", FutureWarning)


def memory_cached(device: Any = None) -> int:
    """`memory_reserved` by its older name, with PyTorch's warning.

    Args:
        device (int, str or lucid.device, optional): the GPU. Default: the process's own.

    Returns:
        int: bytes.

    Example:
        >>> lucid.cuda.memory_cached() >= 0
        True
    """
    _older("memory_cached", "memory_reserved")
    return memory_reserved(device)


def max_memory_cached(device: Any = None) -> int:
    """`max_memory_reserved` by its older name, with PyTorch's warning.

    Args:
        device (int, str or lucid.device, optional): the GPU. Default: the process's own.

    Returns:
        int: bytes.

    Example:
        >>> lucid.cuda.max_memory_cached() >= 0
        True
    """
    _older("max_memory_cached", "max_memory_reserved")
    return max_memory_reserved(device)


def reset_max_memory_cached(device: Any = None) -> None:
    """`reset_peak_memory_stats` by an older name, with PyTorch's warning.

    Args:
        device (int, str or lucid.device, optional): the GPU. Default: the process's own.

    Raises:
        GpuNotAvailable: there is no such GPU.

    Example:
        >>> if lucid.cuda.is_available():
        ...     lucid.cuda.reset_max_memory_cached()
    """
    _older("reset_max_memory_cached", "reset_peak_memory_stats")
    reset_peak_memory_stats(device)


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """What `memory_stats` tells, as a table for people.

    Args:
        device (int, str or lucid.device, optional): the GPU. Default: the process's own.
        abbreviated (bool, default: False): leaves out what is 0.

    Returns:
        str: a line for each number, which are those of `memory_stats`.

    Example:
        >>> print(lucid.cuda.memory_summary().splitlines()[0])
        Memory of the GPU device
    """
    shown = {name: n for name, n in memory_stats(device).items() if n or not abbreviated}
    width = max(map(len, shown), default=0)
    return "\n".join(["Memory of the GPU device", *(f"  {name:{width}}  {n:>16,}" for name, n in shown.items())])


_NO_HISTORY = "MLX's allocator keeps no history; lucid.profiler.profile(profile_memory=True) has what each op allocated"


def _record_memory_history(enabled: str | bool | None = "all", *args: Any, **kwargs: Any) -> None:
    """Has PyTorch's allocator record what it does. Here one warning says that none is recorded."""
    warn_without_effect("cuda.memory._record_memory_history", _NO_HISTORY, enabled=bool(enabled))


def _refuse(name: str) -> NoReturn:
    raise errors.NotImplementedError(f"cuda.memory.{name}: {_NO_HISTORY}")


def _snapshot(device: Any = None, augment_with_fx_traces: bool = False) -> NoReturn:
    """What PyTorch's allocator has recorded.

    Raises:
        NotImplementedError: always.
    """
    _refuse("_snapshot")


def _dump_snapshot(filename: str = "dump_snapshot.pickle", augment_with_fx_traces: bool = False) -> NoReturn:
    """Writes what PyTorch's allocator has recorded.

    Raises:
        NotImplementedError: always: no file is written.
    """
    _refuse("_dump_snapshot")
