"""Questions about sizes that may be symbols in PyTorch: they are numbers here, and the answers are known."""

from __future__ import annotations

from typing import Any

__all__ = [
    "GuardOnDataDependentSymNode",
    "ShapeEnv",
    "free_symbols",
    "free_unbacked_symbols",
    "guard_or_false",
    "guard_or_true",
    "guard_size_oblivious",
    "is_concrete_bool",
    "is_concrete_int",
    "statically_known_true",
]


class GuardOnDataDependentSymNode(RuntimeError):
    """A size that is not known while a program is traced, in PyTorch. Nothing raises it."""


class ShapeEnv:
    """What `FakeTensorMode` is given for symbolic sizes: sizes are numbers, of which the mode warns where symbols are
    asked for.

    Args:
        assume_static_by_default (bool, default: False): True: sizes are numbers, of which nothing warns.
        **settings (object): what PyTorch's has besides, such as `duck_shape`; each is an attribute, and changes
            nothing: sizes are numbers.

    Example:
        >>> from lucid._subclasses.fake_tensor import FakeTensorMode
        >>> from lucid.fx.experimental.symbolic_shapes import ShapeEnv
        >>> with FakeTensorMode(shape_env=ShapeEnv(assume_static_by_default=True)):
        ...     lucid.ones(2, 3)
        FakeTensor(..., size=(2, 3))
    """

    def __init__(self, *, assume_static_by_default: bool = False, **settings: Any) -> None:
        self.assume_static_by_default = assume_static_by_default
        self.__dict__.update(settings)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"ShapeEnv has no attribute {name!r}: sizes are numbers, not symbols")


def guard_or_false(a: Any) -> bool:
    """Whether a condition holds.

    Args:
        a (bool): a condition.

    Returns:
        bool: the condition.

    Example:
        >>> lucid.fx.experimental.symbolic_shapes.guard_or_false(True)
        True
    """
    return bool(a)


def guard_or_true(a: Any) -> bool:
    """Whether a condition holds.

    Args:
        a (bool): a condition.

    Returns:
        bool: the condition.

    Example:
        >>> lucid.fx.experimental.symbolic_shapes.guard_or_true(False)
        False
    """
    return bool(a)


def guard_size_oblivious(expr: Any) -> bool:
    """Whether a condition holds.

    Args:
        expr (bool): a condition.

    Returns:
        bool: the condition.

    Example:
        >>> lucid.fx.experimental.symbolic_shapes.guard_size_oblivious(True)
        True
    """
    return bool(expr)


def statically_known_true(x: Any) -> bool:
    """Whether a condition holds.

    Args:
        x (bool): a condition.

    Returns:
        bool: whether it is known to hold.

    Example:
        >>> lucid.fx.experimental.symbolic_shapes.statically_known_true(True)
        True
    """
    return bool(x)


def is_concrete_int(a: Any) -> bool:
    """Whether a number is known: `True`.

    Args:
        a (object): a number.

    Returns:
        bool: whether its value is known.

    Example:
        >>> lucid.fx.experimental.symbolic_shapes.is_concrete_int(3)
        True
    """
    return True


def is_concrete_bool(a: Any) -> bool:
    """Whether a truth value is known: `True`.

    Args:
        a (object): a condition.

    Returns:
        bool: whether its value is known.

    Example:
        >>> lucid.fx.experimental.symbolic_shapes.is_concrete_bool(True)
        True
    """
    return True


def free_symbols(val: Any) -> set[Any]:
    """The symbols of a value: none.

    Args:
        val (object): a size, tensor or nest of these.

    Returns:
        set: always empty here.

    Example:
        >>> lucid.fx.experimental.symbolic_shapes.free_symbols(3)
        set()
    """
    return set()


def free_unbacked_symbols(x: Any) -> set[Any]:
    """The symbols of a value that are not known: none.

    Args:
        x (object): a size, tensor or nest of these.

    Returns:
        set: always empty here.

    Example:
        >>> lucid.fx.experimental.symbolic_shapes.free_unbacked_symbols(3)
        set()
    """
    return set()
