"""Tensor operations written as patterns of named axes: `rearrange`, `reduce`, `repeat`, `einsum`, `pack`, `unpack`.

The syntax is that of PyPI's `einops`, which is not needed. A pattern is parsed once and planned once for each shape; a
call records views (`reshape`, `permute`, `expand`) and at most one reduction, so that autograd, `vmap` and autocast
work as for these ops. PyPI's `einops` takes Lucid's tensors too, in whichever order the two are imported.

Reference:
    A. Rogozhnikov, "Einops: Clear and Reliable Tensor Manipulations with Einstein-like Notation", ICLR 2022.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import lucid
from lucid import errors
from lucid._C import Tensor
from lucid.einops._plan import ELLIPSIS, EinopsError, check_name, expression, plan

if TYPE_CHECKING:
    from lucid.einops import layers as layers

__all__ = ["EinopsError", "asnumpy", "einsum", "pack", "parse_shape", "rearrange", "reduce", "repeat", "unpack"]

Reduction = str | Callable[[Tensor, tuple[int, ...]], Tensor]
_REDUCTIONS = ("min", "max", "sum", "mean", "prod", "any", "all")


def __getattr__(name: str) -> Any:
    if name == "layers":
        import importlib

        return importlib.import_module("lucid.einops.layers")
    raise AttributeError(f"module 'lucid.einops' has no attribute {name!r}")


def _tensor(op: str, x: Tensor | Sequence[Tensor]) -> Tensor:
    """The tensor, or the stack of a list of tensors along a new first dimension."""
    if isinstance(x, Tensor):
        return x
    if isinstance(x, (list, tuple)) and x and all(isinstance(t, Tensor) for t in x):
        return lucid.stack(list(x))
    raise errors.TypeError(f"{op}: expected a tensor or a list of tensors, got {type(x).__name__}")


def _reduced(x: Tensor, reduction: Reduction, dims: tuple[int, ...]) -> Tensor:
    if not isinstance(reduction, str):
        return reduction(x, dims)
    if reduction == "min":
        return x.amin(dims)
    if reduction == "max":
        return x.amax(dims)
    if reduction == "mean" and not (x.dtype.is_floating_point or x.dtype.is_complex):
        raise errors.NotImplementedError(f"reduce: mean of {x.dtype} is not defined; cast to a floating dtype first")
    if reduction == "prod":
        # prod takes one dimension.
        kept = [i for i in range(x.ndim) if i not in dims]
        return x.permute(*kept, *dims).reshape(*(x.shape[i] for i in kept), -1).prod(-1)
    made: Tensor = getattr(x, reduction)(dims)
    return made


def _apply(op: str, x: Tensor, pattern: str, lengths: dict[str, int], reduction: Reduction | None = None) -> Tensor:
    if not isinstance(pattern, str):
        raise errors.TypeError(f"{op}: expected the pattern to be a str, got {type(pattern).__name__}")
    try:
        steps = plan(op, pattern, tuple(x.shape), tuple(lengths.items()))
    except TypeError as e:  # a length that cannot be hashed, such as a list
        raise EinopsError(f"{op}: expected lengths that are ints, got {lengths}") from e
    if steps.split is not None:
        x = x.reshape(steps.split)
    if steps.reduced is not None and reduction is not None:
        x = _reduced(x, reduction, steps.reduced)
    if steps.permuted is not None:
        x = x.permute(steps.permuted)
    if steps.inserted is not None:
        x = x.reshape(steps.inserted)
    if steps.expanded is not None:
        x = x.expand(steps.expanded)
    return x if steps.merged is None else x.reshape(steps.merged)


def rearrange(tensor: Tensor | Sequence[Tensor], pattern: str, **axes_lengths: int) -> Tensor:
    """Reorders, splits and merges the dimensions of a tensor.

    Args:
        tensor (Tensor | Sequence[Tensor]): a tensor of any shape, or a list of tensors of one shape, which is
            stacked along a new first dimension.
        pattern (str): both sides name the same axes: `"b (h w) c -> b c h w"`. Parentheses group axes into one
            dimension, `...` stands for any dimensions, `1` and `()` for a dimension of size 1.
        **axes_lengths (int): the lengths of axes that the shape does not determine.

    Returns:
        A tensor of the pattern's right side; a view of the input wherever `reshape` gives one.

    Raises:
        EinopsError: the pattern cannot be read or does not fit the shape.
        TypeError: `tensor` is neither a tensor nor a list of tensors.

    Example:
        >>> from lucid.einops import rearrange
        >>> rearrange(lucid.zeros(2, 12, 3), "b (h w) c -> b c h w", h=4).shape
        lucid.Size([2, 3, 4, 3])
    """
    return _apply("rearrange", _tensor("rearrange", tensor), pattern, axes_lengths)


def reduce(tensor: Tensor | Sequence[Tensor], pattern: str, reduction: Reduction, **axes_lengths: int) -> Tensor:
    """Reduces over the axes that only the left side names, and rearranges the others.

    Args:
        tensor (Tensor | Sequence[Tensor]): a tensor of any shape, or a list of tensors of one shape, which is
            stacked along a new first dimension.
        pattern (str): such as `"b c (h k) -> b c h"` with `k=2`, which reduces over pairs.
        reduction (Reduction): `"min"`, `"max"`, `"sum"`, `"mean"`, `"prod"`, `"any"`, `"all"`, or a function that
            takes the tensor and a tuple of dimensions.
        **axes_lengths (int): the lengths of axes that the shape does not determine.

    Returns:
        A tensor of the pattern's right side. Gradients of `"min"` and `"max"` are shared evenly between ties.

    Raises:
        EinopsError: the pattern or the reduction cannot be read, or the pattern does not fit the shape.
        NotImplementedError: `"mean"` of integers or bools.
        TypeError: `tensor` is neither a tensor nor a list of tensors.

    Example:
        >>> from lucid.einops import reduce
        >>> reduce(lucid.arange(8.0), "(n k) -> n", "mean", k=2)
        tensor([0.5000, 2.5000, 4.5000, 6.5000])
    """
    if not callable(reduction) and reduction not in _REDUCTIONS:
        raise EinopsError(f"reduce: unknown reduction {reduction!r}; expected one of {_REDUCTIONS} or a function")
    return _apply("reduce", _tensor("reduce", tensor), pattern, axes_lengths, reduction)


def repeat(tensor: Tensor | Sequence[Tensor], pattern: str, **axes_lengths: int) -> Tensor:
    """Repeats a tensor along new axes, and rearranges the others.

    Args:
        tensor (Tensor | Sequence[Tensor]): a tensor of any shape, or a list of tensors of one shape, which is
            stacked along a new first dimension.
        pattern (str): the right side names all axes of the left one, and new ones or numbers: `"h -> (h k)"`, `"h
            -> h 3"`.
        **axes_lengths (int): the lengths of the new axes, and of those that the shape does not determine.

    Returns:
        A tensor of the pattern's right side; an expanded view where no new axis is grouped with another.

    Raises:
        EinopsError: the pattern cannot be read or does not fit the shape, or the length of a new axis is not given.
        TypeError: `tensor` is neither a tensor nor a list of tensors.

    Example:
        >>> from lucid.einops import repeat
        >>> repeat(lucid.tensor([1, 2]), "n -> (n k)", k=2)
        tensor([1, 1, 2, 2])
    """
    return _apply("repeat", _tensor("repeat", tensor), pattern, axes_lengths)


@functools.lru_cache(512)
def _letters(pattern: str) -> str:
    """An `einsum` equation of letters for a pattern of names."""
    if pattern.count("->") != 1:
        raise errors.ValueError(f"einsum: expected one '->' in the pattern, got {pattern!r}")
    if "(" in pattern:
        raise errors.NotImplementedError(f"einsum: groups of axes are not supported, got {pattern!r}")
    names: dict[str, str] = {}
    equation = []
    operands, result = pattern.split("->")
    for side in (*operands.split(","), result):
        text = ""
        for axis in side.split():
            if axis == ELLIPSIS:
                text += axis
                continue
            check_name(axis, pattern)
            if axis not in names:
                if len(names) == 52:
                    raise EinopsError("einsum: more than 52 axes")
                at = len(names)
                names[axis] = chr(ord("a") + at) if at < 26 else chr(ord("A") + at - 26)
            text += names[axis]
        equation.append(text)
    return ",".join(equation[:-1]) + "->" + equation[-1]


def einsum(*tensors_and_pattern: Any) -> Tensor:
    """Sums products of tensors over the axes that the right side does not name.

        einsum(a, b, "i k, k j -> i j")[i, j] = sum_k a[i, k] b[k, j]

    Differences from PyPI's `einops`: the pattern may come first, as in `lucid.einsum`.

    Args:
        *tensors_and_pattern (object): the tensors, and after (or before) them the pattern: for each tensor its
            axes, separated by commas, then `->` and the axes of the result. Names may have several letters; `...`
            broadcasts.

    Returns:
        A tensor of the pattern's right side, in the promoted dtype.

    Raises:
        EinopsError: the name of an axis cannot be read.
        NotImplementedError: the pattern has groups.
        ValueError: there is no tensor, no pattern, or no `->` in it.
        RuntimeError: the pattern does not fit the shapes.

    Example:
        >>> from lucid.einops import einsum
        >>> einsum(lucid.ones(2, 3), lucid.ones(3), "row col, col -> row")
        tensor([3., 3.])
    """
    given = list(tensors_and_pattern)
    first = bool(given) and isinstance(given[0], str)
    pattern = given.pop(0 if first else -1) if given else None
    if not isinstance(pattern, str) or not given:
        raise errors.ValueError("einsum: expected at least one tensor, and after the tensors a pattern that is a str")
    return lucid.einsum(_letters(pattern), *given)


@functools.lru_cache(512)
def _packing(pattern: str, op: str) -> tuple[int, int]:
    """How many axes are before and after the `*`."""
    axes = pattern.split()
    if len(set(axes)) != len(axes):
        raise EinopsError(f"{op}: an axis appears twice in {pattern!r}")
    if "*" not in axes:
        raise EinopsError(f"{op}: there is no * in {pattern!r}")
    for axis in axes:
        if axis != "*":
            check_name(axis, pattern)
    return axes.index("*"), len(axes) - axes.index("*") - 1


def pack(tensors: Sequence[Tensor], pattern: str) -> tuple[Tensor, list[lucid.Size]]:
    """Concatenates tensors whose dimensions at the place of `*` differ, these flattened into one.

    Args:
        tensors (Sequence[Tensor]): at least one tensor, each with the named axes of the pattern and any number of
            dimensions for `*`.
        pattern (str): names and one `*`: `"batch * channel"`.

    Returns:
        The packed tensor, with one dimension for `*`, and per tensor the shape that `*` had, for `unpack`.

    Raises:
        EinopsError: the pattern cannot be read, there is no tensor, or one has too few dimensions.
        RuntimeError: the named axes of two tensors differ.

    Example:
        >>> from lucid.einops import pack
        >>> packed, shapes = pack([lucid.zeros(2, 5), lucid.zeros(2, 3, 4, 5)], "b * c")
        >>> packed.shape, shapes
        (lucid.Size([2, 13, 5]), [lucid.Size([]), lucid.Size([3, 4])])
    """
    before, after = _packing(pattern, "pack")
    if not tensors:
        raise EinopsError(f"pack({pattern!r}): expected at least one tensor")
    flat, shapes = [], []
    for i, t in enumerate(tensors):
        if t.ndim < before + after:
            least = f"expected at least {before + after} dimensions"
            raise EinopsError(f"pack({pattern!r}): {least}, tensor {i} has shape {list(t.shape)}")
        end = t.ndim - after
        packed = lucid.Size(t.shape[before:end])
        shapes.append(packed)
        flat.append(t.reshape(*t.shape[:before], math.prod(packed), *t.shape[end:]))
    return lucid.cat(flat, before), shapes


def unpack(tensor: Tensor, packed_shapes: Sequence[Sequence[int]], pattern: str) -> list[Tensor]:
    """Splits a packed tensor: the inverse of `pack`.

    Args:
        tensor (Tensor): a tensor with the pattern's dimensions.
        packed_shapes (Sequence[Sequence[int]]): per result the shape at the place of `*`; one of them may have one
            -1.
        pattern (str): names and one `*`, as given to `pack`.

    Returns:
        The tensors, views of the packed one wherever `reshape` gives one.

    Raises:
        EinopsError: the pattern cannot be read, or the shapes do not fit the tensor.

    Example:
        >>> from lucid.einops import unpack
        >>> [t.shape for t in unpack(lucid.zeros(2, 13), [(), (3, 4)], "b *")]
        [lucid.Size([2]), lucid.Size([2, 3, 4])]
    """
    before, after = _packing(pattern, "unpack")
    where = f"unpack({pattern!r}) of a tensor of shape {list(tensor.shape)} into {[list(s) for s in packed_shapes]}"
    if tensor.ndim != before + 1 + after:
        raise EinopsError(f"{where}: expected {before + 1 + after} dimensions")
    shapes = [tuple(s) for s in packed_shapes]
    total = tensor.shape[before]
    sizes = [math.prod(s) for s in shapes]
    open_ = [i for i, s in enumerate(shapes) if -1 in s]
    if sum(s.count(-1) for s in shapes) > 1 or any(n < -1 for s in shapes for n in s):
        raise EinopsError(f"{where}: at most one size may be -1, and none below")
    if open_:
        at = open_[0]
        known = -sizes[at]
        left = total - sum(sizes) + sizes[at]
        if left < 0 or known == 0 or left % known:
            raise EinopsError(f"{where}: {left} elements cannot fill the shape with -1")
        shapes[at] = tuple(left // known if n == -1 else n for n in shapes[at])
        sizes[at] = left
    if sum(sizes) != total:
        raise EinopsError(f"{where}: the shapes have {sum(sizes)} elements, the dimension {total}")
    parts = tensor.split(sizes, before) if sizes else ()
    outer = tensor.shape[:before], tensor.shape[before + 1 :]
    return [p.reshape(*outer[0], *s, *outer[1]) for p, s in zip(parts, shapes, strict=True)]


def parse_shape(x: Tensor, pattern: str) -> dict[str, int]:
    """Names the sizes of a tensor.

    Args:
        x (Tensor): a tensor, or anything with a `shape`.
        pattern (str): one name for each dimension; `_` skips one, `...` any number of them.

    Returns:
        The sizes by name.

    Raises:
        EinopsError: the pattern cannot be read, has groups, or does not fit the shape.

    Example:
        >>> from lucid.einops import parse_shape
        >>> parse_shape(lucid.zeros(2, 3, 5), "batch _ width")
        {'batch': 2, 'width': 5}
    """
    shape = tuple(x.shape)
    groups = list(expression(pattern, underscore=True).groups)
    where = f"parse_shape({pattern!r}) of shape {list(shape)}"
    if any(len(g) > 1 for g in groups):
        raise EinopsError(f"{where}: groups of axes are not supported")
    if (ELLIPSIS,) in groups:
        at = groups.index((ELLIPSIS,))
        groups[at : at + 1] = [("_",)] * max(len(shape) - len(groups) + 1, 0)
    if len(groups) != len(shape):
        raise EinopsError(f"{where}: the number of dimensions differs")
    found = {}
    for group, size in zip(groups, shape, strict=True):
        axis = group[0] if group else 1
        if isinstance(axis, int):
            if axis != size:
                raise EinopsError(f"{where}: a dimension has {size} elements, the pattern says {axis}")
        elif axis != "_":
            found[axis] = size
    return found


def asnumpy(tensor: Tensor) -> Any:
    """Copies a tensor to the host and gives it as a NumPy array.

    Args:
        tensor (Tensor): a tensor of any shape, on any device.

    Returns:
        An array of the same shape and dtype, without gradient.

    Raises:
        ImportError: NumPy is not installed.

    Example:
        >>> from lucid.einops import asnumpy
        >>> asnumpy(lucid.ones(2)).tolist()
        [1.0, 1.0]
    """
    return tensor.detach().cpu().numpy()
