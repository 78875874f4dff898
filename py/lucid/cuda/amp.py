"""`lucid.amp` for CUDA alone, as in `torch.cuda.amp`, where it is deprecated for `lucid.amp.autocast("cuda")`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import lucid
from lucid import _gpu
from lucid import amp as _amp
from lucid._warnings import warn

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


def _enabled(name: str, enabled: bool) -> bool:
    """Off where there is no such GPU, with a warning, as in PyTorch."""
    older = f'`lucid.cuda.amp.{name}(args...)` is deprecated. Please use `lucid.amp.{name}("cuda", args...)` instead.'
    warn(older, FutureWarning)
    if enabled and _gpu.kind() != "cuda":
        warn(f"lucid.cuda.amp.{name} is enabled, but CUDA is not available. Disabling.")
        return False
    return enabled


class autocast(_amp.autocast):
    """`lucid.amp.autocast("cuda", …)`; off, with a warning, where there is no such GPU."""

    def __init__(self, enabled: bool = True, dtype: lucid.dtype = lucid.float16, cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype=dtype, enabled=_enabled("autocast", enabled), cache_enabled=cache_enabled)


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


def custom_fwd(fwd: Callable[..., Any] | None = None, *, cast_inputs: lucid.dtype | None = None) -> Any:
    """`lucid.amp.custom_fwd(…, device_type="cuda")`."""
    return functools.partial(_amp.custom_fwd, device_type="cuda")(fwd, cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., Any]) -> Any:
    """`lucid.amp.custom_bwd(…, device_type="cuda")`."""
    return _amp.custom_bwd(bwd, device_type="cuda")
