"""How this Lucid computes, as `torch.__config__`."""

from __future__ import annotations

__all__ = ["parallel_info", "show"]


def show() -> str:
    """Returns a text: the version, the libraries of both devices, and the Python that it was built for.

    Example:
        >>> print(lucid.__config__.show().splitlines()[0].split()[0])
        Lucid
    """
    import lucid
    from lucid import _gpu, version

    gpu = lucid.device("gpu").type
    blas = "Accelerate" if _is_macos() else "OpenBLAS (scipy-openblas32) and own SIMD kernels"
    return "\n".join(
        [
            f"Lucid {version.__version__}:",
            f"  - gpu: MLX, as {gpu!r}" + ("" if _gpu.kind() in ("metal", "cuda") else " (MLX's CPU stream)"),
            f"  - cpu: {blas}",
            f"  - {lucid.get_num_threads()} threads",
            "  - MKL, oneDNN, OpenMP: not used",
            "",
        ]
    )


def parallel_info() -> str:
    """Returns a text: how many threads the CPU device uses."""
    import os

    import lucid

    return f"threads of the cpu device: {lucid.get_num_threads()}\nprocessors: {os.cpu_count()}\n"


def _is_macos() -> bool:
    import sys

    return sys.platform == "darwin"
