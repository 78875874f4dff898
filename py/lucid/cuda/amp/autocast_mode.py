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
    """Casts ops to a lower precision within a `with` block: `lucid.amp.autocast("cuda", …)` under its older name.

    Args:
        enabled (bool, optional): whether to cast; False, with a warning, where there is no NVIDIA GPU. Default: True.
        dtype (dtype, optional): the lower precision: `float16` or `bfloat16`. Default: `float16`.
        cache_enabled (bool, optional): whether casts of parameters are kept until the block ends. Default: True.

    Example:
        >>> with lucid.cuda.amp.autocast():
        ...     y = lucid.ones(2, 2) @ lucid.ones(2, 2)
    """

    def __init__(self, enabled: bool = True, dtype: lucid.dtype = lucid.float16, cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype=dtype, enabled=_enabled("autocast", enabled), cache_enabled=cache_enabled)


def custom_fwd(fwd: Callable[..., Any] | None = None, *, cast_inputs: lucid.dtype | None = None) -> Any:
    """Decorates a `forward` of `lucid.autograd.Function` for autocast: `lucid.amp.custom_fwd(device_type="cuda")`.

    Args:
        fwd (callable, optional): the static method; without it the result is a decorator.
        cast_inputs (dtype, optional): what floating point inputs are cast to; autocast is off inside then. Default:
            None, it runs under the caller's autocast.

    Returns:
        callable: the method, or a decorator.

    Example:
        >>> class Twice(lucid.autograd.Function):
        ...     @staticmethod
        ...     @lucid.cuda.amp.custom_fwd(cast_inputs=lucid.float32)
        ...     def forward(ctx, x):
        ...         return x * 2
        ...
        ...     @staticmethod
        ...     @lucid.cuda.amp.custom_bwd
        ...     def backward(ctx, grad):
        ...         return grad * 2
        >>> Twice.apply(lucid.ones(2))
        tensor([2., 2.])
    """
    return functools.partial(_amp.custom_fwd, device_type="cuda")(fwd, cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., Any]) -> Any:
    """Decorates a `backward` of `lucid.autograd.Function`: it runs under the autocast settings of its `forward`.

    Args:
        bwd (callable): the static method, whose `forward` has `custom_fwd`.

    Returns:
        callable: the decorated method.

    Example:
        >>> class Twice(lucid.autograd.Function):
        ...     @staticmethod
        ...     @lucid.cuda.amp.custom_fwd
        ...     def forward(ctx, x):
        ...         return x * 2
        ...
        ...     @staticmethod
        ...     @lucid.cuda.amp.custom_bwd
        ...     def backward(ctx, grad):
        ...         return grad * 2
        >>> x = lucid.ones(2, requires_grad=True)
        >>> Twice.apply(x).sum().backward()
        >>> x.grad
        tensor([2., 2.])
    """
    return _amp.custom_bwd(bwd, device_type="cuda")
