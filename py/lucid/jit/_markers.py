"""Decorators that steer PyTorch's script compiler. Each returns its function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from lucid import errors

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def _marker(fn: Any, name: str) -> Any:
    """A decorator that may be used with and without parentheses, and that returns its function."""
    if callable(fn):
        return fn
    if not isinstance(fn, bool):
        raise errors.RuntimeError(f"Argument to @lucid.jit.{name} must be a bool or a function but got {fn}")
    return lambda given: given


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Marks a function that PyTorch's script compiler leaves as Python. Here it stays what it is. Also used as
    `@ignore()`.

    Args:
        drop (callable or bool, optional): the function, or a bool as PyTorch takes it. Default: False.
        kwargs (object): PyTorch's others; ignored.

    Returns:
        callable: the function itself, or a decorator that returns its function.

    Raises:
        RuntimeError: `drop` is neither a function nor a bool.

    Example:
        >>> @lucid.jit.ignore
        ... def log(x):
        ...     return float(x)
        >>> log(lucid.tensor(2.0))
        2.0
    """
    return _marker(drop, "ignore")


def unused(fn: F) -> F:
    """Marks a method that PyTorch's script compiler leaves out. Here it stays what it is, and can be called.

    Args:
        fn (callable): the method.

    Returns:
        callable: `fn` itself.

    Example:
        >>> lucid.jit.unused(abs)(-1)
        1
    """
    return fn


def export(fn: F) -> F:
    """Marks a method that PyTorch's script compiler compiles besides `forward`. Here it stays what it is.

    Args:
        fn (callable): the method.

    Returns:
        callable: `fn` itself.

    Example:
        >>> class Net(lucid.nn.Module):
        ...     @lucid.jit.export
        ...     def encode(self, x):
        ...         return x * 2
        >>> Net().encode(3)
        6
    """
    return fn


def interface(obj: T) -> T:
    """Marks a class as an interface of modules for PyTorch's script compiler. Here it stays what it is.

    Args:
        obj (type): the class.

    Returns:
        type: `obj` itself.

    Raises:
        RuntimeError: `obj` is no class.

    Example:
        >>> @lucid.jit.interface
        ... class Layer:
        ...     def forward(self, x): ...
        >>> Layer.__name__
        'Layer'
    """
    if not isinstance(obj, type):
        raise errors.RuntimeError("interface must be applied to a class")
    return obj


def script_method(fn: F) -> F:
    """Marks a method of a `ScriptModule` that PyTorch compiles. Here it stays what it is.

    Args:
        fn (callable): the method.

    Returns:
        callable: `fn` itself.

    Example:
        >>> class Net(lucid.jit.ScriptModule):
        ...     @lucid.jit.script_method
        ...     def forward(self, x):
        ...         return x + 1
        >>> Net()(lucid.ones(1))
        tensor([2.])
    """
    return fn


def script_if_tracing(fn: F) -> F:
    """Marks a function that PyTorch compiles while it traces. Here it stays what it is.

    Args:
        fn (callable): the function.

    Returns:
        callable: `fn` itself.

    Example:
        >>> lucid.jit.script_if_tracing(abs)(-1)
        1
    """
    return fn


_script_if_tracing = script_if_tracing


def _overload(func: F) -> F:
    """Marks a signature of an overloaded function, as `typing.overload`. Returns the function."""
    return func


def _overload_method(func: F) -> F:
    """Marks a signature of an overloaded method, as `typing.overload`. Returns the method."""
    return func
