"""Intel's MKL, as in `torch.backends.mkl`: it is not used."""

from __future__ import annotations

__all__ = ["is_available"]


def is_available() -> bool:
    """False: products come from Accelerate or OpenBLAS."""
    return False
