"""Nested tuples, lists, dicts and named tuples, taken apart into their leaves and put together again.

As in PyTorch, subclasses (`lucid.Size`, say) are leaves, and so is `None`.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Spec:
    """How leaves are nested. `kind` is `None` for a leaf; `context` is what else the container needs to be made
    again."""

    kind: type | None
    context: Any
    children: tuple[Spec, ...]

    @property
    def leaves(self) -> int:
        """How many there are."""
        return 1 if self.kind is None else sum(c.leaves for c in self.children)

    def __str__(self) -> str:
        if self.kind is None:
            return "*"
        inner = ", ".join(map(str, self.children))
        if self.kind is tuple:
            return f"({inner},)" if len(self.children) == 1 else f"({inner})"
        if self.kind is list:
            return f"[{inner}]"
        if isinstance(self.context, tuple) and self.kind in (dict, OrderedDict, defaultdict):
            pairs = zip(self.context[0], self.children, strict=True)
            return "{" + ", ".join(f"{k!r}: {c}" for k, c in pairs) + "}"
        return f"{self.kind.__name__}({inner})"


LEAF = Spec(None, None, ())


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and isinstance(getattr(kind, "_fields", None), tuple)


def _opened(tree: Any) -> tuple[Any, list[Any]] | None:
    """The context and the children of a container; `None` for a leaf."""
    kind = type(tree)
    if kind in (tuple, list, deque):
        return (tree.maxlen if kind is deque else None), list(tree)
    if kind in (dict, OrderedDict, defaultdict):
        return (tuple(tree), tree.default_factory if kind is defaultdict else None), list(tree.values())
    if _is_named_tuple(kind):
        return None, list(tree)
    return None


def flatten(tree: Any) -> tuple[list[Any], Spec]:
    """The leaves, from left to right, and how they were nested."""
    opened = _opened(tree)
    if opened is None:
        return [tree], LEAF
    context, children = opened
    leaves: list[Any] = []
    specs = []
    for child in children:
        found, spec = flatten(child)
        leaves += found
        specs.append(spec)
    return leaves, Spec(type(tree), context, tuple(specs))


def unflatten(leaves: Iterable[Any], spec: Spec) -> Any:
    """The inverse of `flatten`."""
    return _built(iter(leaves), spec)


def _built(leaves: Iterator[Any], spec: Spec) -> Any:
    if spec.kind is None:
        return next(leaves)
    children = [_built(leaves, s) for s in spec.children]
    if spec.kind is deque:
        return deque(children, maxlen=spec.context)
    if spec.kind in (dict, OrderedDict, defaultdict):
        keys, factory = spec.context
        pairs = dict(zip(keys, children, strict=True))
        if spec.kind is defaultdict:
            return defaultdict(factory, pairs)
        return dict(pairs) if spec.kind is dict else OrderedDict(pairs)
    return spec.kind(children) if spec.kind in (tuple, list) else spec.kind(*children)


def broadcast(tree: Any, spec: Spec) -> list[Any] | None:
    """The leaves of `tree`, each repeated for all leaves of `spec` that it stands for; `None` where they do not fit."""
    opened = _opened(tree)
    if opened is None:
        return [tree] * spec.leaves
    context, children = opened
    if type(tree) is not spec.kind or context != spec.context or len(children) != len(spec.children):
        return None
    out: list[Any] = []
    for child, inner in zip(children, spec.children, strict=True):
        found = broadcast(child, inner)
        if found is None:
            return None
        out += found
    return out


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with `function` applied to each leaf."""
    leaves, spec = flatten(tree)
    return unflatten([function(x) for x in leaves], spec)
