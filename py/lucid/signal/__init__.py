"""Signal processing, as `torch.signal`: window functions in `lucid.signal.windows`."""

from __future__ import annotations

from lucid.signal import windows as windows

__all__ = ["windows"]
