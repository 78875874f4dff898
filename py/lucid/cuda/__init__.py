"""NVIDIA's GPU by name, as in `torch.cuda`. The device itself is `lucid.device("cuda")`.

Where MLX computes on no such GPU, `is_available` is false, memory is 0, seeding and `empty_cache` do nothing. What
programs call beside `x.cuda()` (`synchronize`, `Stream`, `Event`, `set_device`) goes to the device that `x.cuda()` goes
to there, with the same one warning; all else raises `GpuNotAvailable` (a `RuntimeError`). There is one GPU, with index
0, and one queue.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lucid import _C, _tensor_types
from lucid._absent import teller
from lucid._gpu import Pass
from lucid._gpu import Stream as _Stream
from lucid._kernels import launch
from lucid.cuda import amp as amp
from lucid.cuda import graphs as graphs
from lucid.cuda._named import CUDA
from lucid.cuda._runtime import CudaError, check_error, cudart, cudaStatus
from lucid.cuda.graphs import (
    CUDAGraph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
    make_graphed_callables,
)
from lucid.cuda.memory import (
    CUDAPluggableAllocator,
    MemPool,
    caching_allocator_alloc,
    caching_allocator_delete,
    caching_allocator_disabled,
    caching_allocator_enable,
    change_current_allocator,
    empty_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    list_gpu_processes,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
    use_mem_pool,
)
from lucid.cuda.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from lucid.cuda.streams import Event, Stream
from lucid.errors import OutOfMemory

__all__ = [
    "CUDAGraph",
    "CUDAPluggableAllocator",
    "CudaError",
    "Event",
    "MemPool",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "amp",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "caching_allocator_disabled",
    "caching_allocator_enable",
    "change_current_allocator",
    "check_error",
    "cudaStatus",
    "cudart",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_allocator_backend",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "graph",
    "graph_pool_handle",
    "graphs",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "is_tf32_supported",
    "list_gpu_processes",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
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
    "run_kernel",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
    "use_mem_pool",
]


OutOfMemoryError = OutOfMemory

is_available = is_initialized = is_tf32_supported = CUDA.is_available
device_count = CUDA.device_count
current_device = CUDA.current_device
set_device = CUDA.set_device
set_stream = CUDA.set_stream
synchronize = CUDA.synchronize
get_device_name = CUDA.device_name


class device(Pass):
    """`with device(0):` as PyTorch's, of the GPU that the process computes on: a number chooses it as `set_device`
    does, another one later is an error. `None` and below 0 is any.

    Args:
        device (int, str or lucid.device): the GPU, or None.

    Example:
        >>> with lucid.cuda.device(-1):
        ...     pass
    """

    def __init__(self, device: Any) -> None:
        if device is not None and not (isinstance(device, int) and device < 0):
            CUDA.need("device", device)


class device_of(device):
    """`with device_of(tensor):` as PyTorch's: tensors of the GPU are all on the one.

    Args:
        obj (object): a tensor, or another object.

    Example:
        >>> with lucid.cuda.device_of(lucid.ones(1)):
        ...     pass
    """

    def __init__(self, obj: Any) -> None:
        super().__init__(None)


class StreamContext(Pass):
    """`with stream(s):` as PyTorch's: there is one queue.

    Args:
        stream (_Stream, optional): the queue, or None.

    Example:
        >>> with lucid.cuda.StreamContext(None):
        ...     pass
    """

    def __init__(self, stream: _Stream | None) -> None:
        self.stream = stream


def stream(stream: _Stream | None) -> StreamContext:
    """A block whose work goes to a queue: there is one.

    Args:
        stream (_Stream, optional): the queue, or None.

    Returns:
        StreamContext: the block.

    Example:
        >>> with lucid.cuda.stream(None):
        ...     pass
    """
    return StreamContext(stream)


def current_stream(device: Any = None) -> Stream:
    """The GPU's one queue.

    Args:
        device (int, str or lucid.device, optional): the GPU. Default: the process's own.

    Returns:
        Stream: the queue.

    Example:
        >>> if lucid.cuda.is_available():
        ...     lucid.cuda.current_stream().synchronize()
    """
    return Stream(device)


default_stream = current_stream


def init() -> None:
    """Sees to it that there is such a GPU; it is set up when MLX is."""
    CUDA.need("init")


def _lazy_call(callable: Any, **kwargs: Any) -> None:
    """Calls what PyTorch calls once CUDA is set up: now, where there is such a GPU, which MLX has set up."""
    if is_available():
        callable()


def ipc_collect() -> None:
    """Nothing: no memory of the GPU is shared between processes."""
    CUDA.need("ipc_collect")


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Does the GPU have bfloat16? All that MLX computes on do.

    Args:
        including_emulation (bool, default: True): without effect: MLX computes in bfloat16 on every GPU that it takes.

    Returns:
        bool: whether there is such a GPU.

    Example:
        >>> lucid.cuda.is_bf16_supported() == lucid.cuda.is_available()
        True
    """
    return is_available()


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The major and minor number of what the GPU can compute.

    Args:
        device (int, str or lucid.device, optional): the GPU. Default: the process's own.

    Returns:
        tuple of ints: major and minor.

    Example:
        >>> if lucid.cuda.is_available():
        ...     major, minor = lucid.cuda.get_device_capability()
    """
    CUDA.need("get_device_capability", device, True)
    major, minor = CUDA.info(device)["compute_capability"] or (0, 0)
    return int(major), int(minor)


def get_arch_list() -> list[str]:
    """What kernels are compiled for: while a program runs, for the GPU that there is.

    Returns:
        list of str: such as `["sm_90"]`; empty where there is no such GPU.

    Example:
        >>> bool(lucid.cuda.get_arch_list()) == lucid.cuda.is_available()
        True
    """
    return ["sm_{}{}".format(*get_device_capability())] if is_available() else []


@dataclass(frozen=True)
class _CudaDeviceProperties:
    """What MLX says of a GPU: its name, the numbers of what it can compute, and the bytes of its memory."""

    name: str
    major: int
    minor: int
    total_memory: int


def get_device_properties(device: Any = None) -> _CudaDeviceProperties:
    """What MLX says of the GPU: `name`, `major`, `minor` and `total_memory`.

    Args:
        device (int, str or lucid.device, optional): the GPU. Default: the process's own.

    Returns:
        object: with the attributes above.

    Example:
        >>> if lucid.cuda.is_available():
        ...     name = lucid.cuda.get_device_properties().name
    """
    CUDA.need("get_device_properties", device, True)
    total = int(CUDA.info(device)["total_memory"] or 0)
    return _CudaDeviceProperties(get_device_name(device), *get_device_capability(device), total)


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
    """Runs a kernel of CUDA C++ on the GPU, once. `lucid.metal.run_kernel` is the same for Metal.

    The source has a function `__global__ void kernel_name(...)`: a `const` pointer per input, in order, row-major, or a
    plain number, which an input of one element gives; and one other pointer for the output. `blockIdx`, `threadIdx` and
    their kin are CUDA's. The launch is lazy, as any op's. It has no gradient: an input that requires one is an error
    outside of `no_grad`. What the kernel reads or writes beyond its arrays is not checked.

    Args:
        source (str): CUDA C++.
        kernel_name (str): the function to launch.
        inputs (sequence of Tensor): on the GPU device, of any shapes; made contiguous where they are not.
        output_shape (sequence of int): the result's sizes.
        output_dtype (dtype, optional): the result's dtype. Default: the first input's.
        grid (int or sequence of int, optional): the number of threads (not of blocks) in up to three dimensions,
            rounded up to whole blocks, so that the kernel checks its index. Default: one for each element of the
            output.
        thread_group (int or sequence of int, optional): the size of a block. Default: 256.

    Returns:
        Tensor: of `output_shape`, on the GPU device.

    Raises:
        GpuNotAvailable: MLX computes on no NVIDIA GPU.
        ValueError: the source has no such function, or other parameters than the inputs and one output.

    Example:
        >>> source = '''
        ... __global__ void twice(const float* x, float* out) {
        ...     int i = blockIdx.x * blockDim.x + threadIdx.x;
        ...     if (i < 4) out[i] = 2 * x[i];
        ... }
        ... '''
        >>> if lucid.cuda.is_available():
        ...     y = lucid.cuda.run_kernel(source, "twice", [lucid.ones(4, device="gpu")], [4])
    """
    CUDA.need("run_kernel")
    return launch("cuda", source, kernel_name, inputs, output_shape, output_dtype, grid, thread_group)


#: Older names of dtypes on the GPU.
_TENSOR_TYPES = frozenset(
    f"{name}Tensor" for name in ("BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short")
)

if not TYPE_CHECKING:
    _tell = teller(__name__)

    def __getattr__(name: str) -> Any:
        # The profiler, which nvtx needs, is imported on first use.
        if name in ("comm", "nccl", "nvtx", "profiler", "sparse"):
            return importlib.import_module(f"lucid.cuda.{name}")
        if name == "default_generators":
            # The generator that all devices share, for each GPU.
            return (_C.default_generator,) * device_count()
        if name in _TENSOR_TYPES:
            globals()[name] = _tensor_types._of(name.removesuffix("Tensor"), "cuda")
            return globals()[name]
        return _tell(name)
