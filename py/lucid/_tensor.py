"""PyTorch's file of the class `Tensor`."""

from __future__ import annotations

from typing import Any

from lucid import Tensor as Tensor


def _convert(ret: Any, cls: Any) -> Any:
    """A result whose tensors, also those in tuples and lists, are of a class."""
    if cls is Tensor:
        return ret
    if isinstance(ret, Tensor) and not isinstance(ret, cls):
        return ret.as_subclass(cls)
    if isinstance(ret, (tuple, list)):
        parts = [_convert(r, cls) for r in ret]
        return type(ret)(*parts) if hasattr(ret, "_fields") else type(ret)(parts)
    return ret
