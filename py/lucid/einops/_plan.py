"""Patterns of axes: parsed once, and planned once for each shape.

A pattern becomes two expressions; an expression is a list of groups of axes. `plan` turns the pattern, the input's
shape and the given lengths into the arguments of at most five ops. Both steps are cached. No tensor is touched here.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from lucid import errors

ELLIPSIS = "..."
Axis = str | int


class EinopsError(errors.RuntimeError):
    """A pattern that cannot be read, or that does not fit the tensor. PyPI's `einops` has a class of the same name."""


class Expression(NamedTuple):
    """One side of a pattern."""

    groups: tuple[tuple[Axis, ...], ...]
    """Per dimension its axes: names, `...`, and numbers as anonymous axes. `1` and `()` are the empty group."""

    names: frozenset[str]
    """The names, and `...` where it is there."""

    in_parentheses: bool
    """Whether `...` is in parentheses."""


def check_name(name: str, pattern: str, underscore: bool = False) -> None:
    """Raises `EinopsError` if `name` cannot name an axis."""
    if underscore and name == "_":
        return
    if not name.isidentifier():
        raise EinopsError(f"einops: axis name {name!r} in {pattern!r} is not an identifier")
    if name.startswith("_") or name.endswith("_"):
        raise EinopsError(f"einops: axis name {name!r} in {pattern!r} starts or ends with an underscore")


@functools.lru_cache(512)
def expression(text: str, underscore: bool = False) -> Expression:
    """Parses one side of a pattern.

    Args:
        text: axes separated by spaces, groups in parentheses.
        underscore: whether `_` stands for an axis without a name.

    Raises:
        EinopsError: the text is no list of axes.
    """
    groups: list[tuple[Axis, ...]] = []
    names: list[str] = []
    inner: list[Axis] | None = None
    in_parentheses = False
    for token in text.replace("(", " ( ").replace(")", " ) ").replace(ELLIPSIS, f" {ELLIPSIS} ").split():
        axes: list[Axis]
        if token == "(":
            if inner is not None:
                raise EinopsError(f"einops: parentheses in parentheses in {text!r}")
            inner = []
            continue
        if token == ")":
            if inner is None:
                raise EinopsError(f"einops: unbalanced parentheses in {text!r}")
            groups.append(tuple(inner))
            inner = None
            continue
        if token == ELLIPSIS:
            axes, in_parentheses = [ELLIPSIS], inner is not None
            names.append(token)
        elif token.isdecimal():
            if int(token) == 0:
                raise EinopsError(f"einops: an axis of length 0 in {text!r}")
            axes = [int(token)] if int(token) > 1 else []
        else:
            check_name(token, text, underscore)
            axes = [token]
            if token != "_":
                names.append(token)
        if inner is None:
            groups.append(tuple(axes))
        else:
            inner += axes
    if inner is not None:
        raise EinopsError(f"einops: unbalanced parentheses in {text!r}")
    if len(set(names)) != len(names):
        twice = sorted({n for n in names if names.count(n) > 1})
        raise EinopsError(f"einops: axes {twice} appear twice in {text!r}")
    return Expression(tuple(groups), frozenset(names), in_parentheses)


@functools.lru_cache(512)
def sides(pattern: str, op: str) -> tuple[Expression, Expression]:
    """Parses both sides of a pattern, and checks that `op` can do what it asks for."""
    if pattern.count("->") != 1:
        raise EinopsError(f"{op}: expected a pattern of the form 'axes -> axes', got {pattern!r}")
    left, right = (expression(side) for side in pattern.split("->"))
    if left.in_parentheses:
        raise EinopsError(f"{op}: '...' must not be in parentheses on the left side of {pattern!r}")
    if ELLIPSIS in right.names and ELLIPSIS not in left.names:
        raise EinopsError(f"{op}: '...' is on the right side of {pattern!r}, but not on the left")
    numbers = [any(isinstance(a, int) for g in e.groups for a in g) for e in (left, right)]
    if numbers[0] or (numbers[1] and op != "repeat"):
        raise EinopsError(f"{op}: a number other than 1 is no axis of {pattern!r}; name the axis and give its length")
    lost, new = left.names - right.names, right.names - left.names
    if op == "rearrange" and (lost or new):
        raise EinopsError(f"{op}: axes {sorted(lost | new)} are on one side of {pattern!r} only")
    if op == "reduce" and new:
        raise EinopsError(f"{op}: axes {sorted(new)} of {pattern!r} are on the right side only")
    if op == "repeat" and lost:
        raise EinopsError(f"{op}: axes {sorted(lost)} of {pattern!r} are on the left side only")
    return left, right


class Plan(NamedTuple):
    """The arguments of the ops, in their order; `None` where an op would change nothing."""

    split: tuple[int, ...] | None
    reduced: tuple[int, ...] | None
    permuted: tuple[int, ...] | None
    inserted: tuple[int, ...] | None
    expanded: tuple[int, ...] | None
    merged: tuple[int, ...] | None


def _length(group: tuple[Axis, ...], size: int, lengths: dict[Axis, int], where: str) -> None:
    """Solves `product of the group's axes = size` for the one unknown axis, or checks it."""
    unknown = [a for a in group if a not in lengths]
    known = math.prod(lengths[a] for a in group if a in lengths)
    if len(unknown) > 1:
        raise EinopsError(f"{where}: the lengths of {unknown} are not known; give all but one")
    if not unknown:
        if known != size:
            raise EinopsError(f"{where}: the axes {list(group)} have {known} elements, the dimension has {size}")
        return
    if known == 0 or size % known:
        raise EinopsError(f"{where}: a dimension of {size} cannot be divided into axes {list(group)} by {known}")
    lengths[unknown[0]] = size // known


@functools.lru_cache(4096)
def plan(op: str, pattern: str, shape: tuple[int, ...], given: tuple[tuple[str, int], ...]) -> Plan:
    """Plans the ops for a pattern, a shape and lengths of axes.

    Raises:
        EinopsError: the pattern cannot be read or does not fit the shape.
    """
    left, right = sides(pattern, op)
    where = f"{op}({pattern!r}) of a tensor of shape {list(shape)}"
    lengths: dict[Axis, int] = {}
    for name, length in given:
        if name not in left.names | right.names:
            raise EinopsError(f"{where}: the pattern has no axis {name!r}")
        if isinstance(length, bool) or not isinstance(length, int) or length < 0:
            raise EinopsError(
                f"{where}: the length of axis {name!r} is {length!r}, expected an int that is not negative"
            )
        lengths[name] = length
    groups = list(left.groups)
    filled: tuple[str, ...] = ()
    if ELLIPSIS in left.names:
        more = len(shape) - (len(groups) - 1)
        if more < 0:
            raise EinopsError(f"{where}: the pattern needs at least {len(groups) - 1} dimensions")
        filled = tuple(f"{ELLIPSIS}{i}" for i in range(more))
        at = groups.index((ELLIPSIS,))
        groups[at : at + 1] = [(name,) for name in filled]
    elif len(groups) != len(shape):
        raise EinopsError(f"{where}: the pattern has {len(groups)} dimensions, the tensor {len(shape)}")
    for group, size in zip(groups, shape, strict=True):
        _length(group, size, lengths, where)
    axes = [a for group in groups for a in group]

    # Each number on the right is an axis of its own, and an axis that only the right names needs a length.
    out: list[tuple[Axis, ...]] = []
    fresh = 0
    for group in right.groups:
        named: list[Axis] = []
        for a in group:
            if a == ELLIPSIS:
                named += filled
                continue
            if isinstance(a, int):
                lengths[f"#{fresh}"], a, fresh = a, f"#{fresh}", fresh + 1
            elif a not in lengths:
                raise EinopsError(f"{where}: the length of the new axis {a!r} is not given")
            named.append(a)
        if group == (ELLIPSIS,) and not right.in_parentheses:
            out += [(a,) for a in named]
        else:
            out.append(tuple(named))
    order = [a for group in out for a in group]

    split = tuple(lengths[a] for a in axes)
    reduced = tuple(i for i, a in enumerate(axes) if a not in order)
    kept = [a for a in axes if a in order]
    permuted = tuple(kept.index(a) for a in order if a in kept)
    expanded = tuple(lengths[a] for a in order)
    inserted = tuple(lengths[a] if a in kept else 1 for a in order)
    merged = tuple(math.prod(lengths[a] for a in group) for group in out)
    return Plan(
        split if split != shape else None,
        reduced or None,
        permuted if permuted != tuple(range(len(permuted))) else None,
        inserted if len(kept) != len(order) else None,
        expanded if expanded != inserted else None,
        merged if merged != expanded else None,
    )
