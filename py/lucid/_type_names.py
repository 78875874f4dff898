"""Functions on shapes and names that need no tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucid import errors
from lucid._C import Tensor
from lucid._size import Size


def broadcast_shapes(*shapes: int | Sequence[int]) -> Size:
    """The shape that tensors of these shapes broadcast to; a number stands for a shape of one dimension.

    Args:
        *shapes (int | Sequence[int]): the shapes, each a sequence of sizes or one size.

    Returns:
        Size: the shape that all broadcast to.

    Raises:
        RuntimeError: two sizes of a dimension differ and neither is 1.
        ValueError: a size is negative.
        RuntimeError: the shapes do not broadcast.

    Example:
        >>> lucid.broadcast_shapes((2, 1), (3,))
        lucid.Size([2, 3])
    """
    sizes: list[int] = []
    for number, shape in enumerate(shapes):
        given = (shape,) if isinstance(shape, int) else tuple(shape)
        sizes[:0] = [1] * (len(given) - len(sizes))
        for i in range(-1, -len(given) - 1, -1):
            if given[i] < 0:
                raise errors.ValueError("Attempting to broadcast a dimension with negative length!")
            if given[i] == 1 or given[i] == sizes[i]:
                continue
            if sizes[i] != 1:
                raise errors.RuntimeError(
                    f"Attempting to broadcast a dimension of length {given[i]} at {i}! Mismatching argument at index "
                    f"{number} had {given}; but expected shape should be broadcastable to {sizes}"
                )
            sizes[i] = given[i]
    return Size(sizes)


def typename(obj: Any, /) -> str:
    """What `tensor.type()` gives of a tensor; else the name of a class, a function, or the class of anything else.

    Args:
        obj (object): any object.

    Returns:
        str: the name of its type.

    Example:
        >>> lucid.typename(lucid.ones(1))
        'lucid.FloatTensor'
    """
    if isinstance(obj, Tensor):
        return obj.type()
    named = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(named, "__module__", None) or ""
    return named.__qualname__ if module in ("", "builtins") else f"{module}.{named.__qualname__}"
