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
    """Tells whether this machine runs macOS, of a version or a newer one.

    Args:
        major (int): such as 14.
        minor (int): such as 0.

    Returns:
        bool: False on other systems.

    Example:
        >>> lucid.backends.mps.is_macos_or_newer(1000, 0)
        False
    """
    if sys.platform != "darwin":
        return False
    found = [int(n) for n in platform.mac_ver()[0].split(".")[:2]]
    return found >= [major, minor]
