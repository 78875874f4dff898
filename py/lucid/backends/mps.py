"""Apple's GPU, as in `torch.backends.mps`: is it what MLX computes on?"""

from __future__ import annotations

import sys

from lucid.mps import is_available as is_available

__all__ = ["is_available", "is_built"]


def is_built() -> bool:
    """Is this Lucid one for Apple's GPU? Those for macOS are."""
    return sys.platform == "darwin"
