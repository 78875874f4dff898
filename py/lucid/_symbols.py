"""PyTorch's arithmetic of numbers that may be symbols in a traced program. Nothing is traced here: they are numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, TypeVar

from lucid.errors import TypeError

T = TypeVar("T")


def sym_int(a: Any) -> int:
    """Gives a number as an int, cut toward zero: `int(a)`.

    Args:
        a (number): any real number.

    Returns:
        int: the number without its fraction.

    Example:
        >>> lucid.sym_int(-2.5)
        -2
    """
    return int(a)


def sym_float(a: Any) -> float:
    """Gives a number as a float: `float(a)`.

    Args:
        a (number): any real number.

    Returns:
        float: the same number.

    Example:
        >>> lucid.sym_float(2)
        2.0
    """
    return float(a)


def sym_not(a: object) -> bool:
    """Gives `not a`.

    Args:
        a (object): any object.

    Returns:
        bool: whether it is false.

    Example:
        >>> lucid.sym_not(0)
        True
    """
    return not a


def sym_ite(b: bool, t: T, f: T) -> T:
    """Gives `t if b else f`.

    Args:
        b (bool): the condition.
        t (object): the result where it is true.
        f (object): the result where it is false, of the type of `t`.

    Returns:
        object: `t` or `f`.

    Raises:
        TypeError: `b` is no bool, or the types differ.

    Example:
        >>> lucid.sym_ite(True, 1, 2)
        1
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

    Args:
        a (int or float): one number.
        b (int or float): the other number.

    Returns:
        int or float: the greater one.

    Raises:
        TypeError: one is no number. PyTorch's is an AssertionError.

    Example:
        >>> lucid.sym_max(1, 2.0)
        2.0
    """
    return float(max(a, b)) if _numbers("sym_max", a, b) else max(a, b)


def sym_min(a: float, b: float) -> float:
    """The lesser number; a float where either is one.

    Args:
        a (int or float): one number.
        b (int or float): the other number.

    Returns:
        int or float: the lesser one.

    Raises:
        TypeError: one is no number. PyTorch's is an AssertionError.

    Example:
        >>> lucid.sym_min(1, 2.0)
        1.0
    """
    return float(min(a, b)) if _numbers("sym_min", a, b) else min(a, b)


def sym_sum(*args: Any) -> Any:
    """Adds numbers up.

    Args:
        args (number or sequence of number): the numbers, one by one or as one sequence.

    Returns:
        number: their sum, 0 without any.

    Example:
        >>> lucid.sym_sum([1, 2, 3])
        6
    """
    if len(args) == 1 and isinstance(args[0], Sequence):
        return sum(args[0])
    return sum(args)


def sym_sqrt(a: float) -> float:
    """Gives the square root: `math.sqrt(a)`.

    Args:
        a (number): from 0 on.

    Returns:
        float: its root.

    Raises:
        ValueError: `a` is negative.

    Example:
        >>> lucid.sym_sqrt(4)
        2.0
    """
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
