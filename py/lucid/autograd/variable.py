"""`Variable`, which older code writes where a tensor is meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid import _C
from lucid._C import Tensor
from lucid._warnings import warn


class _VariableMeta(type):
    def __instancecheck__(cls, other: Any) -> bool:
        return isinstance(other, Tensor)


class _Engine:
    """What runs backward passes, as far as code asks it for something by name."""

    def queue_callback(self, callback: Callable[[], object]) -> None:
        """Calls `callback()` once the backward pass that runs in this thread has made all its gradients.

        To be called from one of the pass's hooks: a RuntimeError where none runs.
        """
        _C._queue_callback(callback)


class Variable(metaclass=_VariableMeta):
    """`Variable(data)` is a tensor over the memory of `data`, cut off from its history; every tensor is an instance.

    A TypeError where `data` is no tensor. `volatile`, which older code gives, has no effect, with a warning.

    Args:
        data (Tensor, optional): the tensor, of any shape.
        requires_grad (bool, default: False): records gradients.
        volatile (bool, default: False): has no effect.

    Example:
        >>> lucid.autograd.Variable(lucid.ones(1))
        tensor([1.])
    """

    _execution_engine = _Engine()

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = False, volatile: bool = False) -> Tensor:  # type: ignore[misc]
        if volatile:
            warn("volatile was removed and now has no effect. Use `with lucid.no_grad():` instead.")
        if data is None:
            data = _C.empty(0)
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        return data.detach().requires_grad_(requires_grad)
