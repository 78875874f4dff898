"""Scans with a function that is associative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.utils import _pytree

__all__ = ["associative_scan"]

Leaves = list[Tensor]


def _part(leaves: Leaves, dim: int, part: slice) -> Leaves:
    key = (*[slice(None)] * dim, part)
    return [t[key] for t in leaves]


def _scan(combine: Callable[[Leaves, Leaves], Leaves], leaves: Leaves, dim: int) -> Leaves:
    """Pairs are combined, their scan is every second result, and the others follow from it: 2 log₂ n combinations."""
    n = leaves[0].shape[dim]
    if n < 2:
        return leaves
    pairs = combine(_part(leaves, dim, slice(0, n - 1, 2)), _part(leaves, dim, slice(1, None, 2)))
    odd = _scan(combine, pairs, dim)
    if n == 2:
        even = _part(leaves, dim, slice(0, 1))
    else:
        before = odd if n % 2 else _part(odd, dim, slice(0, -1))
        rest = combine(before, _part(leaves, dim, slice(2, None, 2)))
        even = [lucid.cat([a, b], dim) for a, b in zip(_part(leaves, dim, slice(0, 1)), rest, strict=True)]
    out = []
    for a, b in zip(even, odd, strict=True):
        if a.shape[dim] > b.shape[dim]:
            # One more place, which is cut off again.
            b = lucid.cat([b, a.narrow(dim, 0, 1)], dim)
        both = lucid.stack([a, b], dim + 1).flatten(dim, dim + 1)
        out.append(both.narrow(dim, 0, n))
    return out


def associative_scan(
    combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    """All prefixes of a sequence, combined: `y_0 = x_0`, `y_i = combine_fn(y_{i-1}, x_i)`.

    Args:
        combine_fn: An associative function of two elements, each of the structure of `xs`; gives one more.
        xs: A tensor, or tensors in lists, tuples and dicts, of one size along `dim`.
        dim: The dimension of the sequence.
        reverse: Whether the last element is the first.
        combine_mode: `pointwise`: `combine_fn` is given many elements at once, along `dim`. `generic`: one at a time,
            by `vmap`.

    Returns:
        What has the structure and the shapes of `xs`.

    Raises:
        ValueError: for another mode, no tensors, or sizes that differ.

    Example:
        >>> from lucid._higher_order_ops.associative_scan import associative_scan
        >>> associative_scan(lambda a, b: a + b, lucid.arange(5), 0)
        tensor([ 0,  1,  3,  6, 10])
    """
    if combine_mode not in ("pointwise", "generic"):
        raise errors.ValueError(f"associative_scan: combine_mode '{combine_mode}'; 'pointwise' or 'generic'")
    leaves, structure = _pytree.tree_flatten(xs)
    if not leaves or not all(isinstance(t, Tensor) for t in leaves):
        raise errors.ValueError("associative_scan: xs must be tensors, at least one")
    if not all(-t.ndim <= dim < t.ndim for t in leaves):
        raise errors.ValueError(f"associative_scan: dim {dim} of tensors with {[t.ndim for t in leaves]} dimensions")
    # A negative dimension may be another one of each tensor; they are scanned along the first.
    moved = [t.movedim(dim, 0) for t in leaves]
    if len({t.shape[0] for t in moved}) > 1:
        raise errors.ValueError(f"associative_scan: sizes {[t.shape[0] for t in moved]} along dim {dim}; one is needed")
    pointwise = combine_mode == "pointwise"
    # Elements that are combined at once keep their place, so that `combine_fn` may name dimensions.
    alike = pointwise and all(t.ndim == leaves[0].ndim for t in leaves)
    own, at = (leaves, dim % leaves[0].ndim) if alike else (moved, 0)

    def one(*given: Tensor) -> tuple[Tensor, ...]:
        n = len(given) // 2
        a, b = (_pytree.tree_unflatten(list(part), structure) for part in (given[:n], given[n:]))
        made, same = _pytree.tree_flatten(combine_fn(a, b))
        if same != structure:
            raise errors.ValueError("associative_scan: combine_fn gives another structure than that of xs")
        return tuple(made)

    together = one if pointwise else lucid.vmap(one)

    def combine(a: Leaves, b: Leaves) -> Leaves:
        made = list(together(*a, *b))
        if [t.shape for t in made] != [t.shape for t in b]:
            raise errors.ValueError("associative_scan: combine_fn gives other shapes than those of xs")
        return made

    given = [t.flip(at) for t in own] if reverse else list(own)
    out = _scan(combine, given, at)
    out = [t.flip(at) for t in out] if reverse else out
    if own is moved:
        out = [t.movedim(0, dim) for t in out]
    return _pytree.tree_unflatten(out, structure)
