"""Evaluating what is pending on the GPU device. On the CPU nothing ever is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lucid import _C


def _tensors(value: Any) -> Iterator[_C.Tensor]:
    """The tensors in nested lists, tuples and dicts; in a module, its parameters and buffers."""
    stack = [value]
    while stack:
        v = stack.pop()
        if isinstance(v, _C.Tensor):
            yield v
        elif isinstance(v, Mapping):
            stack.extend(v.values())
        elif isinstance(v, (list, tuple, set)):
            stack.extend(v)
        elif callable(getattr(v, "parameters", None)) and callable(getattr(v, "buffers", None)):
            stack.extend([*v.parameters(), *v.buffers()])
        elif v is not None:
            raise TypeError(f"eval(): expected tensors, modules and collections of them, got {type(v).__name__}")


def eval(*values: Any, wait: bool = True) -> None:
    """Computes what is pending for all tensors in `values`, in one pass.

    Takes tensors, modules, and lists, tuples and dicts of them. Without `wait` the work is only started.

    Args:
        *values (object): tensors, modules, and lists, tuples and dicts of them.
        wait (bool, default: True): waits until all is computed.

    Example:
        >>> x = lucid.ones(2) + 1
        >>> lucid.eval(x)
    """
    _C._eval(list(_tensors(values)), wait)


def synchronize(device: Any = None) -> None:
    """Waits until the device has done all that was started.

    Args:
        device (lucid.device or str, optional): the device; all of them by default.

    Example:
        >>> lucid.synchronize()
    """
    _C._synchronize(device)
