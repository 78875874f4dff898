"""CUDA's runtime as programs call it through PyTorch: what there is of it without PyTorch's bindings."""

from __future__ import annotations

from typing import Any

from lucid import errors
from lucid.cuda._named import CUDA

__all__ = ["CudaError", "check_error", "cudaStatus", "cudart"]


class cudaStatus:
    """What calls of CUDA's runtime return: `SUCCESS`, or a number that `check_error` raises.

    Example:
        >>> lucid.cuda.cudaStatus.SUCCESS
        0
    """

    SUCCESS: int = 0
    ERROR_NOT_READY: int = 34


class CudaError(RuntimeError):
    """An error that CUDA's runtime returned, by its number."""

    def __init__(self, code: int) -> None:
        super().__init__(f"CUDA's runtime returned error {code}")


def check_error(res: int) -> None:
    """Raises what a call of CUDA's runtime returned, unless it is `cudaStatus.SUCCESS`.

    Args:
        res (int): what it returned.

    Raises:
        CudaError: it is an error.

    Example:
        >>> lucid.cuda.check_error(0)
    """
    if int(res) != cudaStatus.SUCCESS:
        raise CudaError(int(res))


class _Runtime:
    """The functions of the runtime. What MLX does by itself, or has no part in, says so."""

    cudaError = cudaStatus

    def cudaMemGetInfo(self, device: Any = None) -> tuple[int, int]:
        """The free and the total bytes of the GPU."""
        free, total = CUDA.memory_info(device)
        return int(free), int(total)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cuda"):
            raise AttributeError(name)

        def function(*args: Any, **kwargs: Any) -> Any:
            raise errors.NotImplementedError(
                f"cuda.cudart().{name}: MLX calls CUDA's runtime itself and shows none of it; lucid.profiler.profile "
                "profiles a block"
            )

        return function


def cudart() -> Any:
    """CUDA's runtime. `cudaMemGetInfo` is what MLX tells; other functions say that they are not there.

    Returns:
        object: with the functions as attributes.

    Raises:
        GpuNotAvailable: MLX computes on no NVIDIA GPU.

    Example:
        >>> if lucid.cuda.is_available():
        ...     free, total = lucid.cuda.cudart().cudaMemGetInfo(0)
    """
    CUDA.need("cudart")
    return _Runtime()
