"""OpenMP, as in `torch.backends.openmp`: it is not used."""

from __future__ import annotations

__all__ = ["is_available"]


def is_available() -> bool:
    """False: the CPU's threads are Lucid's own."""
    return False
