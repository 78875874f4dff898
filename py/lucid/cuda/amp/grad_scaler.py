"""`lucid.amp.GradScaler` for CUDA alone."""

from __future__ import annotations

from lucid import amp as _amp
from lucid.cuda.amp.common import _enabled

__all__ = ["GradScaler"]


class GradScaler(_amp.GradScaler):
    """`lucid.amp.GradScaler("cuda", …)`; off, with a warning, where there is no such GPU."""

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        enabled = _enabled("GradScaler", enabled)
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
