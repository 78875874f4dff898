"""Names of PyTorch's allocator of CUDA memory. MLX has one of its own: what it counts is told, the rest says so."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NoReturn

from lucid import errors
from lucid._absent import CUDA as _WHY
from lucid.cuda._named import CUDA

__all__ = [
    "CUDAPluggableAllocator",
    "MemPool",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "caching_allocator_disabled",
    "caching_allocator_enable",
    "change_current_allocator",
    "get_per_process_memory_fraction",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "list_gpu_processes",
    "memory_snapshot",
    "memory_stats_as_nested_dict",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_host_memory_stats",
    "set_per_process_memory_fraction",
    "use_mem_pool",
]


def _refused(name: str) -> errors.NotImplementedError:
    return errors.NotImplementedError(f"cuda.{name}: {_WHY}")


def _nested(counts: dict[str, int]) -> dict[str, Any]:
    """Names with dots as dictionaries within dictionaries."""
    made: dict[str, Any] = {}
    for name, count in counts.items():
        *path, last = name.split(".")
        inner = made
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = count
    return made


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """What `memory_stats` tells, with a dictionary for each part of a name.

    Args:
        device (int, str or lucid.device, optional): the GPU. Default: the process's own.

    Returns:
        dict: such as `{"allocated_bytes": {"all": {"current": 0, "peak": 0}}, …}`; empty where there is no GPU.

    Raises:
        RuntimeError: `device` is another device.

    Example:
        >>> type(lucid.cuda.memory_stats_as_nested_dict())
        <class 'dict'>
    """
    return _nested(CUDA.memory_stats(device))


def host_memory_stats() -> OrderedDict[str, int]:
    """What PyTorch counts of pinned memory: nothing, since MLX pins none.

    Returns:
        OrderedDict: empty.

    Example:
        >>> len(lucid.cuda.host_memory_stats())
        0
    """
    return OrderedDict()


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """What `host_memory_stats` tells, with a dictionary for each part of a name.

    Returns:
        dict: empty.

    Example:
        >>> lucid.cuda.host_memory_stats_as_nested_dict()
        {}
    """
    return _nested(host_memory_stats())


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Resets sums of what was allocated: MLX keeps none, so that there is nothing to reset.

    Args:
        device (int, str or lucid.device, optional): the GPU. Default: the process's own.

    Raises:
        GpuNotAvailable: there is no such GPU.

    Example:
        >>> if lucid.cuda.is_available():
        ...     lucid.cuda.reset_accumulated_memory_stats()
    """
    CUDA.need("reset_accumulated_memory_stats", device)


def reset_accumulated_host_memory_stats() -> None:
    """Resets sums of pinned memory: MLX pins none.

    Example:
        >>> lucid.cuda.reset_accumulated_host_memory_stats()
    """


def reset_peak_host_memory_stats() -> None:
    """Resets the peak of pinned memory: MLX pins none.

    Example:
        >>> lucid.cuda.reset_peak_host_memory_stats()
    """


def get_per_process_memory_fraction(device: Any = None) -> float:
    """Which part of the GPU's memory the process may take.

    Args:
        device (int, str or lucid.device, optional): the GPU. Default: the process's own.

    Returns:
        float: 1, since no limit can be set.

    Raises:
        GpuNotAvailable: there is no such GPU.

    Example:
        >>> if lucid.cuda.is_available():
        ...     assert lucid.cuda.get_per_process_memory_fraction() == 1.0
    """
    CUDA.need("get_per_process_memory_fraction", device)
    return 1.0


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Sets which part of the GPU's memory the process may take: all of it, no other limit can be set.

    Args:
        fraction (float): the part, from 0 to 1.
        device (int, str or lucid.device, optional): the GPU. Default: the process's own.

    Raises:
        TypeError: `fraction` is no float.
        ValueError: it is not from 0 to 1.
        GpuNotAvailable: there is no such GPU.
        NotImplementedError: it is below 1.

    Example:
        >>> if lucid.cuda.is_available():
        ...     lucid.cuda.set_per_process_memory_fraction(1.0)
    """
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    CUDA.need("set_per_process_memory_fraction", device)
    if fraction < 1:
        raise _refused("set_per_process_memory_fraction")


def caching_allocator_enable(value: bool = True) -> None:
    """Has freed memory kept for later, which MLX's allocator always does.

    Args:
        value (bool, default: True): whether it is kept.

    Raises:
        NotImplementedError: `value` is false.

    Example:
        >>> lucid.cuda.caching_allocator_enable()
    """
    if not value:
        raise _refused("caching_allocator_enable(False)")


def caching_allocator_disabled() -> bool:
    """Is freed memory given back at once? It is kept, and `empty_cache` gives it back.

    Returns:
        bool: False.

    Example:
        >>> lucid.cuda.caching_allocator_disabled()
        False
    """
    return False


class CUDAPluggableAllocator:
    """An allocator of a shared library, which MLX takes none of.

    Args:
        path_to_so_file (str): the library.
        alloc_fn_name (str): its function that allocates.
        free_fn_name (str): its function that frees.

    Raises:
        NotImplementedError: always.

    Example:
        >>> try:
        ...     lucid.cuda.memory.CUDAPluggableAllocator("alloc.so", "alloc", "free")
        ... except NotImplementedError:
        ...     print("MLX's allocator")
        MLX's allocator
    """

    def __init__(self, path_to_so_file: str, alloc_fn_name: str, free_fn_name: str) -> None:
        raise _refused("CUDAPluggableAllocator")


class MemPool:
    """A pool of memory beside others: MLX has one.

    Args:
        allocator (object, optional): whose memory it has.
        use_on_oom (bool, default: False): whether others may take of it.
        no_split (bool, default: False): whether blocks stay whole.

    Raises:
        NotImplementedError: always.

    Example:
        >>> try:
        ...     lucid.cuda.MemPool()
        ... except NotImplementedError:
        ...     print("one pool")
        one pool
    """

    def __init__(self, allocator: Any = None, use_on_oom: bool = False, no_split: bool = False) -> None:
        raise _refused("MemPool")


def caching_allocator_alloc(size: int, device: Any = None, stream: Any = None) -> NoReturn:
    """Memory of PyTorch's allocator by its address, of which MLX's gives none out.

    Args:
        size (int): bytes.
        device (int, str or lucid.device, optional): the GPU.
        stream (object, optional): the queue whose work uses the memory.

    Raises:
        NotImplementedError: always.

    Example:
        >>> try:
        ...     lucid.cuda.caching_allocator_alloc(8)
        ... except NotImplementedError:
        ...     print("MLX's allocator")
        MLX's allocator
    """
    raise _refused("caching_allocator_alloc")


def caching_allocator_delete(mem_ptr: int) -> NoReturn:
    """Frees what `caching_allocator_alloc` gave, which gives nothing.

    Args:
        mem_ptr (int): the address.

    Raises:
        NotImplementedError: always.

    Example:
        >>> try:
        ...     lucid.cuda.caching_allocator_delete(0)
        ... except NotImplementedError:
        ...     print("MLX's allocator")
        MLX's allocator
    """
    raise _refused("caching_allocator_delete")


def change_current_allocator(allocator: Any) -> NoReturn:
    """Has another allocator give the GPU's memory, which is MLX's.

    Args:
        allocator (object): the other one.

    Raises:
        NotImplementedError: always.

    Example:
        >>> try:
        ...     lucid.cuda.memory.change_current_allocator(None)
        ... except NotImplementedError:
        ...     print("MLX's allocator")
        MLX's allocator
    """
    raise _refused("change_current_allocator")


def use_mem_pool(pool: MemPool, device: Any = None) -> NoReturn:
    """A block that allocates from a pool: MLX has one.

    Args:
        pool (MemPool): what gives the memory.
        device (int, str or lucid.device, optional): the GPU.

    Raises:
        NotImplementedError: always.

    Example:
        >>> try:
        ...     lucid.cuda.use_mem_pool(None)
        ... except NotImplementedError:
        ...     print("one pool")
        one pool
    """
    raise _refused("use_mem_pool")


def memory_snapshot(mempool_id: Any = None, include_traces: bool = True) -> NoReturn:
    """The blocks of PyTorch's allocator: MLX's tells of none.

    Args:
        mempool_id (object, optional): the pool whose blocks are meant.
        include_traces (bool, default: True): whether to tell what was done with them.

    Raises:
        NotImplementedError: always.

    Example:
        >>> try:
        ...     lucid.cuda.memory_snapshot()
        ... except NotImplementedError:
        ...     print("MLX's allocator")
        MLX's allocator
    """
    raise _refused("memory_snapshot")


def list_gpu_processes(device: Any = None) -> NoReturn:
    """Which processes have memory on the GPU: `nvidia-smi` tells.

    Args:
        device (int, str or lucid.device, optional): the GPU.

    Raises:
        NotImplementedError: always.

    Example:
        >>> try:
        ...     lucid.cuda.list_gpu_processes()
        ... except NotImplementedError:
        ...     print("nvidia-smi tells")
        nvidia-smi tells
    """
    raise errors.NotImplementedError("cuda.list_gpu_processes: MLX knows this process alone; nvidia-smi lists all")
