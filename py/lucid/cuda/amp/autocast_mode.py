"""`lucid.amp.autocast` and what goes with it, for CUDA alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import lucid
from lucid import amp as _amp
from lucid.cuda.amp.common import _enabled

__all__ = ["autocast", "custom_bwd", "custom_fwd"]


class autocast(_amp.autocast):
    """`lucid.amp.autocast("cuda", …)`; off, with a warning, where there is no such GPU."""

    def __init__(self, enabled: bool = True, dtype: lucid.dtype = lucid.float16, cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype=dtype, enabled=_enabled("autocast", enabled), cache_enabled=cache_enabled)


def custom_fwd(fwd: Callable[..., Any] | None = None, *, cast_inputs: lucid.dtype | None = None) -> Any:
    """`lucid.amp.custom_fwd(…, device_type="cuda")`."""
    return functools.partial(_amp.custom_fwd, device_type="cuda")(fwd, cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., Any]) -> Any:
    """`lucid.amp.custom_bwd(…, device_type="cuda")`."""
    return _amp.custom_bwd(bwd, device_type="cuda")
