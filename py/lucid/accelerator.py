"""The GPU by no maker's name, as in `torch.accelerator`: is there one, waiting for it, its memory.

An accelerator is a GPU, Apple's or NVIDIA's. Where MLX offers none, `device="gpu"` is MLX's CPU stream, and
`is_available` is false, so that scripts that ask take the `cpu`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lucid import _C
from lucid._absent import teller
from lucid._gpu import ANY, Pass, Stream

__all__ = [
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "current_stream",
    "device_count",
    "device_index",
    "empty_cache",
    "get_memory_info",
    "is_available",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_peak_memory_stats",
    "set_device_idx",
    "set_device_index",
    "set_stream",
    "synchronize",
]

is_available = ANY.is_available
device_count = ANY.device_count
current_device_index = current_device_idx = ANY.current_device
set_device_index = set_device_idx = ANY.set_device
set_stream = ANY.set_stream
synchronize = ANY.synchronize
empty_cache = ANY.empty_cache
memory_allocated = ANY.memory_allocated
max_memory_allocated = ANY.max_memory_allocated
memory_reserved = ANY.memory_reserved
max_memory_reserved = ANY.max_memory_reserved
memory_stats = ANY.memory_stats
reset_peak_memory_stats = ANY.reset_peak_memory_stats
get_memory_info = ANY.memory_info


def current_accelerator(check_available: bool = False) -> _C.device | None:
    """The GPU's device, `metal` or `cuda`; `None` where there is none, whether that is to be checked or not.

    Args:
        check_available (bool, default: False): without effect: what there is, is known either way.

    Returns:
        lucid.device: the device, or None.

    Example:
        >>> device = lucid.accelerator.current_accelerator()
        >>> device is None or device.type in ("metal", "cuda")
        True
    """
    return _C.device("gpu") if is_available() else None


def current_stream(device: object = None) -> Stream:
    """The GPU's one queue.

    Args:
        device (int, str or lucid.device, optional): the GPU. Default: the process's own.

    Returns:
        Stream: the queue.

    Example:
        >>> if lucid.accelerator.is_available():
        ...     lucid.accelerator.current_stream().synchronize()
    """
    return Stream(device)


class device_index(Pass):
    """`with device_index(0):` as PyTorch's: there is one GPU, with index 0. `None` is any.

    Args:
        device (int, optional): 0 or None.

    Example:
        >>> with lucid.accelerator.device_index(None):
        ...     pass
    """

    def __init__(self, device: int | None, /) -> None:
        if device is not None:
            ANY.need("device_index", device)


if not TYPE_CHECKING:
    __getattr__ = teller(__name__)
