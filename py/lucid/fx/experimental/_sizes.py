"""Sizes that remember where they come from: what `make_fx(tracing_mode="symbolic")` puts into its graph.

Such a size is an int, that of the example, so that whatever computes with it works. Sums, differences, products, floor
quotients and remainders of sizes remember how they were made; what a program decides by a size is decided for good.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

from lucid import Tensor
from lucid._recorder import Recorder
from lucid._size import Size
from lucid._wrapped import name_of
from lucid.utils import _pytree


class SymSize(int):
    """A size of a tensor, or what was computed from some.

    Attributes:
        made: the function that gives it, and its arguments: a tensor and a dimension, or sizes and numbers.
    """

    made: tuple[Any, ...]

    @classmethod
    def of(cls, value: int, *made: Any) -> int:
        """The size; 0 and 1 are numbers, as they mean something of their own where shapes are broadcast."""
        if made[0] == "size" and value < 2:
            return value
        found = cls(value)
        found.made = made
        return found

    def __reduce__(self) -> Any:
        return int, (int(self),)

    def __neg__(self) -> int:
        return SymSize.of(-int(self), operator.neg, self)

    def __pos__(self) -> int:
        return self

    def __index__(self) -> int:
        return int(self)


def _operator(name: str, function: Callable[[Any, Any], Any]) -> None:
    def forward(self: SymSize, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        return SymSize.of(function(int(self), int(other)), function, self, other)

    def reflected(self: SymSize, other: Any) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        return SymSize.of(function(int(other), int(self)), function, other, self)

    setattr(SymSize, f"__{name}__", forward)
    setattr(SymSize, f"__r{name}__", reflected)


for _name, _function in (
    ("add", operator.add),
    ("sub", operator.sub),
    ("mul", operator.mul),
    ("floordiv", operator.floordiv),
    ("mod", operator.mod),
):
    _operator(_name, _function)


class SymSizes(Size):
    """A shape of such sizes."""

    __slots__ = ()

    def __new__(cls, sizes: Any = ()) -> SymSizes:
        return tuple.__new__(cls, sizes)

    def __getitem__(self, key: Any) -> Any:
        found = tuple.__getitem__(self, key)
        return SymSizes(found) if isinstance(key, slice) else found

    def __add__(self, other: Any) -> Any:
        return SymSizes((*self, *other))

    def __iter__(self) -> Iterator[int]:
        return tuple.__iter__(self)

    def numel(self) -> int:
        """The product of the sizes."""
        total: int = 1
        for n in self:
            total = total * n
        return total


class SizeRecorder(Recorder):
    """A recorder that gives sizes which remember the tensor that they are of."""

    def _sizes_of(self, t: Tensor) -> SymSizes:
        """The shape of a tensor, of sizes that remember it where it depends on the inputs."""
        if not self._depends(t):
            return SymSizes(t.shape)
        return SymSizes(SymSize.of(n, "size", self._of(t), dim) for dim, n in enumerate(t.shape))

    def _is_sized(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return any(isinstance(leaf, SymSize) for leaf in _pytree.tree_leaves((args, kwargs)))

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = name_of(func)
        if name == "shape" and func.__name__ == "__get__":
            return self._sizes_of(args[0])
        if name == "size" and not (args[1:] and args[1] is None):
            where = args[1:] or tuple((kwargs or {}).values())
            found = self._sizes_of(args[0])
            return found[where[0]] if where else found
        if name in ("numel", "nelement"):
            t = args[0]
            return SymSize.of(t.numel(), "numel", self._of(t)) if self._depends(t) else t.numel()
        return super().__torch_function__(func, types, args, kwargs)
