"""Random chains of views and writes through any of them, against PyTorch, on both devices: values, strides, sharing."""

from __future__ import annotations

import math
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.python.property.draws import counting, devices, numbers, outcome, pair, same_error, shapes, strides


@st.composite
def view_of(draw: Any, shape: tuple[int, ...]) -> tuple[str, tuple[Any, ...]]:
    """A view method and arguments that suit a shape, mostly."""
    n = len(shape)
    names = ["reshape", "view", "unsqueeze", "flatten", "squeeze", "detach", "expand", "diagonal"]
    if n:
        names += ["transpose", "permute", "narrow", "select", "slice", "unfold", "movedim", "T"]
    name = draw(st.sampled_from(names))
    dim = st.integers(-n, n - 1) if n else st.just(0)
    if name in ("reshape", "view"):
        total = math.prod(shape)
        factors: list[int] = []
        rest = total
        while rest > 1 and len(factors) < 4:
            f = draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0]))
            factors.append(f)
            rest //= f
        sizes = [*factors, rest] if total else [*shape]
        if sizes and total and draw(st.booleans()):
            sizes[draw(st.integers(0, len(sizes) - 1))] = -1
        return name, (tuple(sizes),)
    if name == "unsqueeze":
        return name, (draw(st.integers(-n - 1, n)),)
    if name == "expand":
        lead = draw(st.lists(st.integers(1, 2), max_size=1))
        return name, ((*lead, *(draw(st.integers(1, 3)) if s == 1 else s for s in shape)),)
    if name in ("transpose", "movedim"):
        return name, (draw(dim), draw(dim))
    if name == "permute":
        return name, (tuple(draw(st.permutations(range(n)))),)
    if name == "diagonal":
        return name, (draw(st.integers(-2, 2)),)
    if name in ("narrow", "slice", "select", "unfold"):
        d = draw(st.integers(0, n - 1))
        size = shape[d]
        if name == "select":
            return name, (d, draw(st.integers(-size, max(size - 1, 0))))
        if name == "unfold":
            return name, (d, draw(st.integers(0, size)), draw(st.integers(1, 3)))
        start = draw(st.integers(0, size))
        if name == "narrow":
            return name, (d, start, draw(st.integers(0, size - start)))
        return name, (d, start, draw(st.integers(0, size + 1)), draw(st.integers(1, 3)))
    return name, ()


def see(t: Any, op: tuple[str, tuple[Any, ...]]) -> Any:
    name, args = op
    if name == "slice":
        d, start, stop, step = args
        return t[(slice(None),) * d + (slice(start, stop, step),)]
    value = getattr(t, name)
    return value(*args) if callable(value) else value


def overlaps(t: Any) -> bool:
    """Do two indices name one element?"""
    size = t.untyped_storage().nbytes() // t.element_size()
    places = torch.arange(size).as_strided(t.shape, t.stride(), t.storage_offset())
    return places.unique().numel() < t.numel()


WRITES = [
    lambda t: t.add_(1),
    lambda t: t.mul_(2),
    lambda t: t.zero_(),
    lambda t: t.fill_(5),
    lambda t: t.copy_(t.clone().flip(0) if t.ndim else t.clone()),
    lambda t: t.__setitem__(..., 3),
]


@given(shapes(3, 4, 1), devices, st.data())
def test_chains_of_views_and_writes(shape: tuple[int, ...], device: str, data: Any) -> None:
    theirs, ours = pair(counting(shape, "float32"), "float32", device)
    views = [(theirs, ours)]
    log: list[Any] = []
    for _ in range(data.draw(st.integers(1, 7))):
        at = data.draw(st.integers(0, len(views) - 1))
        t, u = views[at]
        if data.draw(st.integers(0, 2)) < 2:
            op = data.draw(view_of(tuple(t.shape)))
            if op[0] == "T" and t.ndim != 2:
                continue
            log.append((at, op))
            wanted, w = outcome(lambda t=t, op=op: see(t, op))
            got, g = outcome(lambda u=u, op=op: see(u, op))
            if wanted != "ok" or got != "ok":
                assert same_error(wanted, got), (log, w, g)
                continue
            assert tuple(g.shape) == tuple(w.shape), log
            if w.numel():
                assert (strides(g), g.storage_offset()) == (strides(w), w.storage_offset()), log
                assert g.is_contiguous() == w.is_contiguous(), log
            shares = w.untyped_storage().data_ptr() == theirs.untyped_storage().data_ptr()
            if w.numel():
                assert (g.untyped_storage() == ours.untyped_storage()) == shares, log
            views.append((w, g))
        else:
            n = data.draw(st.integers(0, len(WRITES) - 1))
            if overlaps(t):
                # Expanded ones are refused; others get one value, since PyTorch reads what it has just written.
                n = 2 if n in (0, 1, 4) else n
            log.append((at, f"write {n}"))
            wanted, w = outcome(lambda t=t, n=n: WRITES[n](t))
            got, g = outcome(lambda u=u, n=n: WRITES[n](u))
            if wanted != "ok" or got != "ok":
                assert same_error(wanted, got), (log, w, g)
        for i, (w, g) in enumerate(views):
            assert numbers(g) == numbers(w), (i, log)
