"""Apple's GPU, as in `torch.backends.mps`: is it what MLX computes on?"""

from __future__ import annotations

import platform
import sys

from lucid.mps import is_available as is_available

__all__ = ["is_available", "is_built", "is_macos_or_newer"]


def is_built() -> bool:
    """Is this Lucid one for Apple's GPU? Those for macOS are."""
    return sys.platform == "darwin"


def is_macos_or_newer(major: int, minor: int) -> bool:
    """Is this macOS of that version or a newer one?"""
    if sys.platform != "darwin":
        return False
    found = [int(n) for n in platform.mac_ver()[0].split(".")[:2]]
    return found >= [major, minor]
