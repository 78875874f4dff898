"""`lucid.amp.GradScaler` for CUDA alone."""

from __future__ import annotations

from lucid import amp as _amp
from lucid.cuda.amp.common import _enabled

__all__ = ["GradScaler"]


class GradScaler(_amp.GradScaler):
    """Scales losses so that float16 gradients do not underflow: `lucid.amp.GradScaler("cuda", …)` under its older name.

    Args:
        init_scale (float, optional): the first factor. Default: 65536.
        growth_factor (float, optional): what the factor is multiplied by after `growth_interval` steps without an
            overflow. Default: 2.
        backoff_factor (float, optional): what it is multiplied by after an overflow. Default: 0.5.
        growth_interval (int, optional): see `growth_factor`. Default: 2000.
        enabled (bool, optional): whether to scale; False, with a warning, where there is no NVIDIA GPU. Default: True.

    Example:
        >>> scaler = lucid.cuda.amp.GradScaler(enabled=False)
        >>> weight = lucid.nn.Parameter(lucid.ones(2))
        >>> optimizer = lucid.optim.SGD([weight], lr=0.5)
        >>> scaler.scale(weight.sum()).backward()
        >>> scaler.step(optimizer)
        >>> scaler.update()
        >>> weight.detach()
        tensor([0.5000, 0.5000])
    """

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
