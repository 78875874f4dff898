"""Graphs for sizes that vary: one recording of a call, and shadows of it at other sizes, become one template.

A shadow is the same call with arguments that are cut or repeated along the dimensions that vary. What differs between
the recordings has to be a polynomial of the sizes; a template holds between the smallest and the largest size that was
recorded. Only calls without effects have shadows: what writes to tensors or steps an optimizer is recorded per shape.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import lucid
from lucid import _C
from lucid._C import Tensor
from lucid.compiler._state import Walk, trusted

#: Sizes that vary per graph; further ones are fixed.
MOST_SYMBOLS = 4
#: Templates' graphs that are kept per function.
MOST_INSTANCES = 256

_SIZE_NAMES = frozenset(("shape", "size", "numel", "nelement", "len", "__len__"))


class NotDynamic(Exception):
    """Why a call has no graph for sizes that vary."""


def facts(t: Tensor) -> tuple[Any, ...]:
    """What a template depends on of an argument, beside its sizes."""
    return (
        t.dtype,
        t.device,
        t.ndim,
        t.requires_grad,
        t.is_leaf,
        t.is_contiguous(),
        t.storage_offset() == 0,
        not t.is_leaf or t.grad is None,
        _C._has_hooks(t),
        type(t),
    )


def resized(t: Tensor, sizes: dict[int, int]) -> Tensor:
    """A tensor with other sizes along some dimensions: the first elements, or all of them again and again."""
    made = t.detach()
    for dim, size in sizes.items():
        index = lucid.arange(size, device=t.device) % t.shape[dim]
        made = made.index_select(dim, index)
    made = made.clone(memory_format=lucid.contiguous_format)
    return made.requires_grad_(True) if t.requires_grad else made


@contextlib.contextmanager
def same_random_numbers() -> Iterator[None]:
    """Leaves the generators as they were."""
    with lucid.random.fork_rng():
        yield


def symbols_of(tensors: Sequence[Tensor]) -> tuple[list[int], list[list[int | None]]]:
    """The distinct sizes from 2 on, and per tensor and dimension the number of its size among them."""
    sizes: list[int] = []
    places: list[list[int | None]] = []
    for t in tensors:
        of: list[int | None] = []
        for n in t.shape:
            if n < 2:
                of.append(None)
                continue
            if n not in sizes:
                sizes.append(n)
            of.append(sizes.index(n))
        places.append(of)
    return sizes, places


def samples(current: Sequence[int], ranges: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The sizes to record at, beside the current ones: the ends of each range, and uneven ones between."""
    low = [a for a, _ in ranges]
    found = [list(low)]
    for i, (a, b) in enumerate(ranges):
        for n in (b, a + max(1, (b - a) // 2) | 1, a + max(1, (b - a) // 3)):
            row = list(low)
            row[i] = max(a, min(n, b))
            found.append(row)
    found.append([max(a, min(a + 1 + 2 * i, b)) for i, (a, b) in enumerate(ranges)])
    found.append([max(a, min(a + 3 + i, b)) for i, (a, b) in enumerate(ranges)])
    distinct: list[list[int]] = []
    for row in found:
        if row not in distinct and row != list(current):
            distinct.append(row)
    return distinct


def _codes(walk: Walk) -> Iterator[types.CodeType]:
    for value in walk.kept:
        if isinstance(value, types.FunctionType) and not trusted(value.__module__):
            stack = [value.__code__]
            while stack:
                code = stack.pop()
                yield code
                stack += [c for c in code.co_consts if isinstance(c, types.CodeType)]


def compares_sizes(walk: Walk) -> str | None:
    """The function of the program's own, if any, that reads sizes and may take single ones for special."""
    import dis

    for code in _codes(walk):
        if not _SIZE_NAMES & {*code.co_names}:
            continue
        for step in dis.get_instructions(code):
            equal = step.opname == "COMPARE_OP" and any(sign in step.argrepr for sign in ("==", "!="))
            special = step.opname == "BINARY_OP" and step.argrepr.rstrip("=") in ("%", ">>", "<<", "&", "|", "^")
            if equal or special or step.opname == "CONTAINS_OP":
                return code.co_qualname if hasattr(code, "co_qualname") else code.co_name
    return None


class Family:
    """A template with what the calls need that it is for.

    Attributes:
        places: per argument and dimension the symbol of its size, or the size that it has to have (negative: symbols).
        template: gives the graph.
        base: the recording.
    """

    def __init__(self, places: list[list[int]], template: _C._GraphTemplate, base: Any) -> None:
        self.places = places
        self.template = template
        self.base = base

    def sizes(self, tensors: Sequence[Tensor]) -> list[int] | None:
        """The symbols' sizes in a call; `None` where it does not fit."""
        ranges = self.template.ranges()
        found: list[int | None] = [None] * len(ranges)
        for t, places in zip(tensors, self.places, strict=True):
            for n, place in zip(t.shape, places, strict=True):
                if place >= 0:
                    if n != place:
                        return None
                    continue
                symbol = -1 - place
                if found[symbol] is None:
                    found[symbol] = n
                if found[symbol] != n:
                    return None
        whole = [n for n in found if n is not None]
        inside = len(whole) == len(ranges) and all(a <= n <= b for n, (a, b) in zip(whole, ranges, strict=True))
        return whole if inside else None

    def instance(self, sizes: list[int]) -> Any:
        """What runs calls of these sizes."""
        return self.base.resized(self.template.at(sizes))


def generalise(
    record: Callable[[list[Tensor]], Any], base: Any, tensors: list[Tensor], walk: Walk, fixed: Sequence[int] = ()
) -> Family:
    """The family of a call that was recorded.

    Args:
        record: records the call with other tensors in the place of its arguments'.
        base: the recording.
        tensors: the call's.
        walk: what the function reaches.
        fixed: sizes that do not vary.

    Raises:
        NotDynamic: There is none.
    """
    if not tensors:
        raise NotDynamic("the call has no tensors for arguments")
    if base.hosts or base.effects or base.released or base.raw is None:
        raise NotDynamic("the call runs a backward pass, or steps an optimizer")
    raw = base.raw
    given = set(raw.roots(raw.inputs()))
    if given & set(raw.written()):
        raise NotDynamic("the call writes to tensors that it is given, or reaches")
    if not all(t.is_contiguous() and (not t.is_leaf or t.grad is None) for t in tensors):
        raise NotDynamic("an argument is not contiguous, or has a gradient")
    if len({t._storage_key() for t in tensors}) < len(tensors):
        raise NotDynamic("arguments share their memory")
    special = compares_sizes(walk)
    if special is not None:
        raise NotDynamic(f"{special} compares sizes with ==, in or %, so that single sizes may be special")
    current, places = symbols_of(tensors)
    current = [n if n not in fixed else 0 for n in current]

    def shadow(sizes: dict[int, int]) -> Any:
        # Symbols by number of `current`.
        changed = []
        for t, of in zip(tensors, places, strict=True):
            dims = {d: sizes[s] for d, s in enumerate(of) if s is not None and s in sizes and t.shape[d] != sizes[s]}
            changed.append(resized(t, dims))
        with same_random_numbers():
            made = record(changed)
        if not base.alike(made):
            raise NotDynamic("calls of other sizes return other things")
        return made.raw

    def varies(symbol: int) -> bool:
        try:
            shadow({symbol: current[symbol] + 1})
        except (NotDynamic, lucid.errors.LucidError, ValueError, TypeError, IndexError, AssertionError):
            return False
        return True

    free = [s for s, n in enumerate(current) if n >= 2 and varies(s)][:MOST_SYMBOLS]
    reason = "no size varies alone"
    while free:
        here = [current[s] for s in free]
        ranges = [(2, max(2 * n, 16)) for n in here]
        try:
            rows = [(here, raw)]
            rows += [(row, shadow(dict(zip(free, row, strict=True)))) for row in samples(here, ranges)]
            template = _C._GraphTemplate(rows)
            # What it gives for the sizes at hand has to run.
            template.at(here)
        except (NotDynamic, lucid.errors.LucidError, ValueError, TypeError, IndexError, AssertionError) as error:
            reason = str(error)
            free.pop()
            continue
        number = {s: i for i, s in enumerate(free)}
        where = [
            [-1 - number[s] if s in number else n for n, s in zip(t.shape, of, strict=True)]
            for t, of in zip(tensors, places, strict=True)
        ]
        return Family(where, template, base)
    raise NotDynamic(reason)
