"""`Parameter`: a tensor that a module lists among its parameters.

Depends on the core's `Tensor` alone. A parameter shares storage with the tensor it was made from, and is a leaf.
"""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor, errors

__all__ = ["Buffer", "Parameter"]


class Parameter(Tensor):
    """A tensor that is a module's parameter: assigned as an attribute, it appears in `Module.parameters()`.

    Args:
        data: The tensor whose storage it shares; an empty one by default.
        requires_grad: Whether gradients are recorded, also inside `no_grad`. Default: True.

    What is computed from parameters is plain tensors.
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        if data is None:
            data = lucid.empty(0)
        if not isinstance(data, Tensor):
            raise errors.TypeError(f"expected a Tensor as a Parameter's data, got {type(data).__name__}")
        made: Parameter = Tensor._make_subclass(cls, data, requires_grad)
        return made

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        pass

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) not in memo:
            copied = type(self)(self.detach().clone(), self.requires_grad)
            if self.grad is not None:
                copied.grad = self.grad.detach().clone()
            memo[id(self)] = copied
        found: Parameter = memo[id(self)]
        return found

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.detach(), self.requires_grad)

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()


class Buffer(Tensor):
    """A tensor that, assigned as an attribute, becomes a module's buffer.

    Args:
        data: The tensor whose storage it shares; an empty one by default.
        persistent: Whether it is part of `state_dict()`. Default: True.
    """

    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        made: Buffer = Tensor._make_subclass(cls, lucid.empty(0) if data is None else data)
        made.persistent = persistent
        return made

    def __init__(self, data: Tensor | None = None, *, persistent: bool = True) -> None:
        pass

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _rebuild_buffer, (type(self), self.detach(), self.persistent)


def _rebuild(cls: type[Parameter], data: Tensor, requires_grad: bool) -> Parameter:
    return cls(data, requires_grad)


def _rebuild_buffer(cls: type[Buffer], data: Tensor, persistent: bool) -> Buffer:
    return cls(data, persistent=persistent)
