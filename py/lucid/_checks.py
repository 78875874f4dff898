"""Conditions that code checks on its way, under PyTorch's names: `_assert`, `_check` and its kin.

A message is a text, or a function that makes it, called only where the check fails.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, TypeAlias

from lucid import _C, errors
from lucid._C import Tensor
from lucid._warnings import warn

_Message: TypeAlias = str | Callable[[], object] | None


def _assert(condition: object, message: object) -> Any:
    """Raises AssertionError where the condition is not true; that of a tensor waits for its value."""
    if not isinstance(condition, (bool, Tensor)):
        from lucid import overrides

        # The proxies of `lucid.fx` record the check, and look at no value.
        if overrides.has_torch_function((condition,)):
            return overrides.handle_torch_function(_assert, (condition,), condition, message)
    if not condition:
        raise AssertionError(message)
    return None


def _assert_async(input: Tensor, assert_msg: str | None = None) -> None:
    """Raises RuntimeError where a tensor of one element is zero. The value is waited for.

    Difference from PyTorch: the error comes at once on every device, not at the device's next synchronisation.
    """
    if input.numel() != 1:
        kind = "no values" if input.numel() == 0 else "more than one value"
        raise errors.RuntimeError(f"Boolean value of Tensor with {kind} is ambiguous")
    if not input.item():
        raise errors.RuntimeError(assert_msg or "Expected Tensor with single nonzero value, but got zero")


def _check_with(error_type: type[BaseException], cond: bool, message: _Message) -> None:
    """Raises `error_type` with `message` where `cond` is not true.

    Raises:
        TypeError: `cond` is no bool. Of the elements of a tensor `_check_tensor_all` checks whether they are all true.
    """
    if not isinstance(cond, builtins.bool):
        of_tensors = " For tensors use lucid._check_tensor_all()." if isinstance(cond, Tensor) else ""
        raise errors.TypeError(f"cond must be a bool, but got {type(cond)}.{of_tensors}")
    if cond:
        return
    if not issubclass(error_type, Exception) or issubclass(error_type, Warning):
        raise AssertionError(f"error_type must be a subclass of Exception but not Warning, got {error_type}")
    if message is None:
        raise error_type("Expected cond to be True, but got False.")
    raise error_type(str(message() if callable(message) else message))


def _check(cond: bool, message: _Message = None) -> None:
    """Raises RuntimeError where `cond` is not true."""
    _check_with(errors.RuntimeError, cond, message)


def _check_index(cond: bool, message: _Message = None) -> None:
    """Raises IndexError where `cond` is not true."""
    _check_with(errors.IndexError, cond, message)


def _check_value(cond: bool, message: _Message = None) -> None:
    """Raises ValueError where `cond` is not true."""
    _check_with(errors.ValueError, cond, message)


def _check_type(cond: bool, message: _Message = None) -> None:
    """Raises TypeError where `cond` is not true."""
    _check_with(errors.TypeError, cond, message)


def _check_not_implemented(cond: bool, message: _Message = None) -> None:
    """Raises NotImplementedError where `cond` is not true."""
    _check_with(errors.NotImplementedError, cond, message)


def _check_is_size(i: int, message: _Message = None, *, max: int | None = None) -> None:
    """Raises RuntimeError where `i` is negative, or larger than `max`. Deprecated, as in PyTorch."""
    warn("`_check_is_size` is deprecated. Use `_check(i >= 0)`.", FutureWarning)
    _check(i >= 0, message)
    if max is not None:
        _check(i <= max, message)


def _check_tensor_all_with(error_type: type[BaseException], cond: Tensor, message: _Message = None) -> None:
    """Raises `error_type` with `message` where an element of a tensor of bools is not true. The values are waited for.

    Raises:
        TypeError: `cond` is no tensor, or one of another dtype.
    """
    if not isinstance(cond, Tensor):
        raise errors.TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype != _C.bool:
        raise errors.TypeError(f"cond tensor must have dtype lucid.bool, but got {cond.dtype}")
    _check_with(error_type, cond.all().item() is True, message)


def _check_tensor_all(cond: Tensor, message: _Message = None) -> None:
    """Raises RuntimeError where an element of a tensor of bools is not true."""
    _check_tensor_all_with(errors.RuntimeError, cond, message)
