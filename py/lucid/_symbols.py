"""PyTorch's arithmetic of numbers that may be symbols in a traced program. Nothing is traced here: they are numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, TypeVar

from lucid.errors import TypeError

T = TypeVar("T")


def sym_int(a: Any) -> int:
    """`int(a)`: cut toward zero."""
    return int(a)


def sym_float(a: Any) -> float:
    """`float(a)`."""
    return float(a)


def sym_not(a: object) -> bool:
    """`not a`."""
    return not a


def sym_ite(b: bool, t: T, f: T) -> T:
    """`t if b else f`; both are of one type.

    Raises:
        TypeError: `b` is no bool, or the types differ.
    """
    if not isinstance(b, bool) or type(t) is not type(f):
        got = ", ".join(type(x).__name__ for x in (b, t, f))
        raise TypeError(f"sym_ite(): expected a bool and two values of one type, got {got}")
    return t if b else f


def _numbers(op: str, a: Any, b: Any) -> bool:
    """Is one of two numbers no integer? The result is a float then, whichever it is."""
    for x in (a, b):
        if not isinstance(x, Real):
            raise TypeError(f"{op}(): expected an int or a float, got {type(x).__name__}")
    return not (isinstance(a, Integral) and isinstance(b, Integral))


def sym_max(a: float, b: float) -> float:
    """The greater number; a float where either is one.

    Raises:
        TypeError: one is no number. PyTorch's is an AssertionError.
    """
    return float(max(a, b)) if _numbers("sym_max", a, b) else max(a, b)


def sym_min(a: float, b: float) -> float:
    """The lesser number; a float where either is one.

    Raises:
        TypeError: one is no number. PyTorch's is an AssertionError.
    """
    return float(min(a, b)) if _numbers("sym_min", a, b) else min(a, b)


def sym_sum(*args: Any) -> Any:
    """The sum of the numbers, or of a sequence of them."""
    if len(args) == 1 and isinstance(args[0], Sequence):
        return sum(args[0])
    return sum(args)


def sym_sqrt(a: float) -> float:
    """`math.sqrt(a)`."""
    return math.sqrt(a)


class _NoSymbol(type):
    """The class of classes without instances."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{cls.__name__}: sizes are numbers; there are no symbols to make")


class SymInt(metaclass=_NoSymbol):
    """A symbol for an int of a traced program of PyTorch, for `isinstance` and annotations: nothing is one.

    Raises:
        TypeError: on construction.
    """


class SymFloat(metaclass=_NoSymbol):
    """A symbol for a float of a traced program of PyTorch, for `isinstance` and annotations: nothing is one.

    Raises:
        TypeError: on construction.
    """


class SymBool(metaclass=_NoSymbol):
    """A symbol for a bool of a traced program of PyTorch, for `isinstance` and annotations: nothing is one.

    Raises:
        TypeError: on construction.
    """
