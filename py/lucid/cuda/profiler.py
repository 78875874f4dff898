"""Marks of CUDA's profiler, as `torch.cuda.profiler`: MLX shows none of CUDA's runtime, which each of these says.

`lucid.profiler.profile` profiles a block.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from lucid.cuda._runtime import check_error, cudart

__all__ = ["profile", "start", "stop"]


def start() -> None:
    """Starts CUDA's profiler: raises an error.

    Raises:
        GpuNotAvailable: MLX computes on no NVIDIA GPU.
        NotImplementedError: it does.
    """
    check_error(cudart().cudaProfilerStart())


def stop() -> None:
    """Stops CUDA's profiler: raises an error.

    Raises:
        GpuNotAvailable: MLX computes on no NVIDIA GPU.
        NotImplementedError: it does.
    """
    check_error(cudart().cudaProfilerStop())


@contextlib.contextmanager
def profile() -> Iterator[None]:
    """A block that CUDA's profiler sees: raises an error.

    Raises:
        GpuNotAvailable: MLX computes on no NVIDIA GPU.
        NotImplementedError: it does.
    """
    start()
    try:
        yield
    finally:
        stop()
