"""`Variable`, which older code writes where a tensor is meant."""

from __future__ import annotations

from typing import Any

from lucid import _C
from lucid._C import Tensor


class _VariableMeta(type):
    def __instancecheck__(cls, other: Any) -> bool:
        return isinstance(other, Tensor)


class Variable(metaclass=_VariableMeta):
    """`Variable(data)` is a tensor over the memory of `data`, cut off from its history; every tensor is an instance.

    A TypeError where `data` is no tensor. `volatile`, which older code gives, is not accepted, as in PyTorch.
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = False) -> Tensor:  # type: ignore[misc]
        if data is None:
            data = _C.empty(0)
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        return data.detach().requires_grad_(requires_grad)
