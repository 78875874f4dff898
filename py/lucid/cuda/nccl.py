"""NCCL's version, as `torch.cuda.nccl`. Groups of processes are `lucid.distributed`'s, with the backend "nccl"."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lucid import Tensor, errors

__all__ = ["is_available", "version"]


@functools.cache
def _library() -> Any:
    """NCCL's library: what is loaded or installed, or the one in NVIDIA's wheel; `None` without one."""
    found = importlib.util.find_spec("nvidia")
    folders = list(found.submodule_search_locations or ()) if found is not None else []
    wheels = [str(Path(folder) / "nccl" / "lib" / "libnccl.so.2") for folder in folders]
    for path in ("libnccl.so.2", *wheels):
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    return None


def version() -> tuple[int, ...]:
    """The version of NCCL.

    Returns:
        tuple of int: such as `(2, 30, 7)`.

    Raises:
        RuntimeError: there is no NCCL on this machine.

    Example:
        >>> version = lucid.cuda.nccl.version() if lucid.distributed.is_nccl_available() else None
    """
    library, number = _library(), ctypes.c_int()
    if library is None or library.ncclGetVersion(ctypes.byref(number)):
        raise errors.RuntimeError("cuda.nccl.version: there is no NCCL (libnccl.so.2) on this machine")
    # 2.9 and later count in steps of 10000, versions before in steps of 1000.
    step = 10000 if number.value >= 10000 else 1000
    return number.value // step, number.value % step // 100, number.value % 100


def is_available(tensors: Sequence[Tensor]) -> bool:
    """Could NCCL work on these tensors? It takes dense, contiguous ones of the GPU.

    Args:
        tensors (sequence of Tensor): tensors of any shapes.

    Returns:
        bool: whether there is NCCL, and all of them are such, on the process's one GPU.

    Example:
        >>> lucid.cuda.nccl.is_available([lucid.ones(1)])
        False
    """
    fit = all(t.is_cuda and not t.is_sparse and t.is_contiguous() for t in tensors)
    return fit and len(tensors) == 1 and _library() is not None


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "unique_id", "init_rank"):
            raise AttributeError(
                f"module 'lucid.cuda.nccl' has no attribute {name!r}: a process has one GPU; "
                "lucid.distributed has the collectives of several processes"
            )
        raise AttributeError(f"module 'lucid.cuda.nccl' has no attribute {name!r}")
