"""Small helpers of the modules' arguments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["tuple_of"]


def tuple_of(value: Any, n: int) -> tuple[int, ...]:
    """One number per dimension, from a number or a sequence."""
    if isinstance(value, Iterable):
        return tuple(value)
    return (value,) * n
