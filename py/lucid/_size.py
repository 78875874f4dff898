"""`lucid.Size`: what `tensor.shape` is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from lucid import _C


@_C._left_alone
class Size(tuple[int, ...]):
    """The sizes of a tensor: a tuple of ints, whose slices and sums are sizes too."""

    __slots__ = ()

    def numel(self) -> int:
        """The number of elements of a tensor of these sizes."""
        return math.prod(self)

    def __getitem__(self, index: Any) -> Any:
        item = tuple.__getitem__(self, index)
        return Size(item) if type(item) is tuple else item

    def __add__(self, other: Any) -> Any:
        return Size(tuple.__add__(self, tuple(other))) if isinstance(other, tuple) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return Size(tuple(other) + tuple(self)) if isinstance(other, tuple) else NotImplemented

    def __repr__(self) -> str:
        return f"lucid.Size({list(self)})"

    def __reduce__(self) -> tuple[type[Size], tuple[Iterable[int]]]:
        return Size, (tuple(self),)
