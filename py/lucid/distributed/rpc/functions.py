"""Marks of functions that other processes call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["async_execution"]


def async_execution(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a function whose result is a future. It can be called as any; no other process does.

    Args:
        fn (callable): the function.

    Returns:
        callable: the same with the mark `_wrapped_async_rpc_function`.

    Example:
        >>> lucid.distributed.rpc.functions.async_execution(abs)(-1)
        1
    """

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    wrapper._wrapped_async_rpc_function = fn  # type: ignore[attr-defined]
    return wrapper
