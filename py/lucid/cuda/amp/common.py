"""Whether there is a GPU for mixed precision by CUDA's name."""

from __future__ import annotations

from lucid import _gpu
from lucid._warnings import warn

__all__ = ["amp_definitely_not_available"]


def amp_definitely_not_available() -> bool:
    """Is there no such GPU?"""
    return _gpu.kind() != "cuda"


def _enabled(name: str, enabled: bool) -> bool:
    """Off where there is no such GPU, with a warning, as in PyTorch."""
    older = f'`lucid.cuda.amp.{name}(args...)` is deprecated. Please use `lucid.amp.{name}("cuda", args...)` instead.'
    warn(older, FutureWarning)
    if enabled and amp_definitely_not_available():
        warn(f"lucid.cuda.amp.{name} is enabled, but CUDA is not available. Disabling.")
        return False
    return enabled
