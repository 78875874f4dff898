"""oneDNN, as in `torch.backends.mkldnn`: it is not used."""

from __future__ import annotations

__all__ = ["is_available"]


def is_available() -> bool:
    """False: the CPU's kernels are Lucid's own."""
    return False
