"""`lucid.Size`: what `tensor.shape` is."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any

from lucid import _C


def _index(i: int, n: Any) -> int:
    if not hasattr(n, "__index__"):
        raise TypeError(f"lucid.Size() takes an iterable of 'int' (item {i} is '{type(n).__name__}')")
    return operator.index(n)


@_C._left_alone
class Size(tuple[int, ...]):
    """The sizes of a tensor: a tuple of ints, whose slices and sums are sizes too.

    Args:
        sizes (Iterable[Any], optional): the size of each dimension.

    Returns:
        Size: a tuple of ints.

    Example:
        >>> lucid.Size([2, 3]).numel()
        6
    """

    __slots__ = ()

    def __new__(cls, sizes: Iterable[Any] = ()) -> Size:
        """Of integers, or of what stands for one: a tensor of one element, NumPy's integers. TypeError for others."""
        if isinstance(sizes, (tuple, list)) and all(type(n) is int for n in sizes):
            return tuple.__new__(cls, sizes)
        # One at a time: of an iterable without end, or a tensor of a million rows, the first that is no size ends it.
        return tuple.__new__(cls, (_index(i, n) for i, n in enumerate(sizes)))

    def numel(self) -> int:
        """The number of elements of a tensor of these sizes."""
        return math.prod(self)

    def __getitem__(self, index: Any) -> Any:
        item = tuple.__getitem__(self, index)
        return tuple.__new__(Size, item) if type(item) is tuple else item

    def __add__(self, other: Any) -> Any:
        return Size(tuple.__add__(self, tuple(other))) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return Size(tuple(other) + tuple(self)) if isinstance(other, tuple) else NotImplemented

    def __mul__(self, other: Any) -> Any:
        return Size(tuple.__mul__(self, other))

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"lucid.Size({list(self)})"

    def __reduce__(self) -> tuple[type[Size], tuple[Iterable[int]]]:
        return Size, (tuple(self),)
