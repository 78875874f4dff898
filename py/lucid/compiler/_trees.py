"""Arguments and results as flat lists of leaves, with a hashable description of the containers around them."""

from __future__ import annotations

import collections
from typing import Any

from lucid._C import Tensor

#: Types whose values are compared, and given back as they were.
CONSTANTS = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))


def flatten(value: Any, leaves: list[Any]) -> Any:
    """Adds the leaves of a tree to a list, and gives what it is a tree of."""
    kind = type(value)
    if kind is tuple or kind is list:
        return (kind, tuple([flatten(v, leaves) for v in value]))
    if kind is dict or kind is collections.OrderedDict:
        return (kind, tuple(value), tuple([flatten(v, leaves) for v in value.values()]))
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return (kind, tuple([flatten(v, leaves) for v in value]))
    leaves.append(value)
    return None


def unflatten(tree: Any, leaves: Any) -> Any:
    """The tree of the leaves that an iterator gives."""
    if tree is None:
        return next(leaves)
    kind = tree[0]
    if len(tree) == 3:
        return kind(zip(tree[1], [unflatten(t, leaves) for t in tree[2]], strict=True))
    parts = [unflatten(t, leaves) for t in tree[1]]
    return kind(*parts) if hasattr(kind, "_fields") else kind(parts)


def constant(value: Any) -> Any:
    """A hashable that two equal constants have in common; numbers that differ in type or sign do not."""
    return (type(value), repr(value) if isinstance(value, (float, complex)) else value)


def is_constant(value: Any) -> bool:
    """Is it a value that cannot change, and that says all of itself?"""
    return type(value) in CONSTANTS


def split(leaves: list[Any]) -> tuple[list[Tensor], list[Any], list[tuple[str, Any]]]:
    """The tensors of leaves; per leaf what it is, tensors by number; and the leaves that have to be looked into."""
    tensors: list[Tensor] = []
    kinds: list[Any] = []
    others: list[tuple[str, Any]] = []
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            same = next((i for i, t in enumerate(tensors) if t is leaf), len(tensors))
            if same == len(tensors):
                tensors.append(leaf)
            kinds.append(("tensor", type(leaf), same))
        elif is_constant(leaf):
            kinds.append(constant(leaf))
        else:
            kinds.append(("other", type(leaf)))
            others.append((f"argument {len(kinds) - 1}", leaf))
    return tensors, kinds, others
