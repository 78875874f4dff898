"""`lucid.amp`: automatic mixed precision, with PyTorch's names: `autocast`, and `GradScaler` for float16's range."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lucid._absent import teller
from lucid.amp.autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from lucid.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]

if not TYPE_CHECKING:
    __getattr__ = teller(__name__)
