"""`lucid.amp`: automatic mixed precision, with PyTorch's names: `autocast`, and `GradScaler` for float16's range."""

from lucid.amp.autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from lucid.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
