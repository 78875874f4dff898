"""`lucid.amp` for CUDA alone, as in `torch.cuda.amp`, where it is deprecated for `lucid.amp.autocast("cuda")`."""

from lucid.cuda.amp.autocast_mode import autocast, custom_bwd, custom_fwd
from lucid.cuda.amp.common import amp_definitely_not_available
from lucid.cuda.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd"]
