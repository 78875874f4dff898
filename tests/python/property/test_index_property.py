"""Random index expressions, read and written, against PyTorch on both devices."""

from __future__ import annotations

from typing import Any

import lucid
import numpy as np
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from tests.python.property.draws import counting, devices, numbers, outcome, pair, same_error, shapes, strides


@st.composite
def expressions(draw: Any, shape: tuple[int, ...], advanced: bool = True) -> list[Any]:
    """Parts of a key: plain objects, or ("ints", list) and ("mask", list) for index tensors."""
    parts: list[Any] = []
    dim = 0
    kinds = ["int", "slice", "none", "ellipsis", "all"] + (["ints", "mask", "bool", "list"] if advanced else [])
    common = draw(st.sampled_from([(2,), (1,), (2, 2), (0,), ()]))
    for _ in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(kinds))
        size = shape[dim] if dim < len(shape) else None
        beyond = draw(st.integers(0, 30)) == 0
        if kind == "ellipsis" and ... in parts:
            # PyTorch takes several; here, as in NumPy, that is an error.
            continue
        if kind == "none":
            parts.append(None)
        elif kind == "bool":
            parts.append(draw(st.booleans()))
        elif kind == "ellipsis":
            parts.append(...)
            dim = max(dim, len(shape) - draw(st.integers(0, len(shape))))
        elif size is None and not beyond:
            break
        else:
            n = size or 1
            if kind == "slice":
                end = st.none() | st.integers(-n - 2, n + 2)
                parts.append(slice(draw(end), draw(end), draw(st.none() | st.integers(1, 3))))
            elif kind == "all":
                parts.append(slice(None))
            elif kind == "mask":
                rank = draw(st.integers(1, max(1, min(2, len(shape) - dim))))
                sizes = shape[dim : dim + rank]
                bits = draw(st.lists(st.booleans(), min_size=int(np.prod(sizes)), max_size=int(np.prod(sizes))))
                parts.append(("mask", np.array(bits, dtype=bool).reshape(sizes).tolist(), sizes))
                dim += rank - 1
            elif size == 0 and kind in ("int", "ints", "list"):
                parts.append(slice(None))
            elif kind == "int":
                parts.append(draw(st.integers(-n, n - 1)) if not beyond else n + 1)
            else:
                count = int(np.prod(common))
                values = draw(st.lists(st.integers(-n, n - 1), min_size=count, max_size=count))
                if beyond and values:
                    values[0] = n
                parts.append((kind, np.array(values, dtype=np.int64).reshape(common).tolist(), common))
            dim += 1
    return parts


def key(parts: list[Any], package: Any, device: str) -> Any:
    """The key for one framework."""
    made = []
    for p in parts:
        if isinstance(p, tuple):
            kind, values, sizes = p
            if kind == "list":
                made.append(values)
                continue
            dtype = package.bool if kind == "mask" else package.int64
            t = package.tensor(values, dtype=dtype).reshape(sizes)
            made.append(t.to(device) if package is lucid else t)
        else:
            made.append(p)
    return tuple(made)


@st.composite
def cases(draw: Any, advanced: bool = True) -> tuple[tuple[int, ...], list[Any]]:
    shape = draw(shapes())
    return shape, draw(expressions(shape, advanced))


@given(cases(), devices)
@example(((2, 3), [..., ("ints", [0, 1], (2,))]), "gpu")
def test_reading(case: Any, device: str) -> None:
    shape, parts = case
    theirs, ours = pair(counting(shape, "float32"), "float32", device)
    wanted, w = outcome(lambda: theirs[key(parts, torch, "cpu")])
    got, g = outcome(lambda: ours[key(parts, lucid, device)])
    if wanted != "ok" or got != "ok":
        assert same_error(wanted, got), (w, g)
        return
    assert tuple(g.shape) == tuple(w.shape)
    assert numbers(g) == numbers(w)


@given(cases(advanced=False), devices)
def test_basic_keys_give_views_with_strides(case: Any, device: str) -> None:
    shape, parts = case
    theirs, ours = pair(counting(shape, "float32"), "float32", device)
    wanted, w = outcome(lambda: theirs[key(parts, torch, "cpu")])
    got, g = outcome(lambda: ours[key(parts, lucid, device)])
    if wanted != "ok" or got != "ok":
        assert same_error(wanted, got), (w, g)
        return
    assert tuple(g.shape) == tuple(w.shape)
    if w.numel():
        assert (strides(g), g.storage_offset()) == (strides(w), w.storage_offset())
    w.fill_(-1)
    g.fill_(-1)
    assert numbers(ours) == numbers(theirs)


@given(cases(), devices, st.sampled_from(["number", "full", "row", "wrong"]), st.data())
def test_writing(case: Any, device: str, value: str, data: Any) -> None:
    shape, parts = case
    theirs, ours = pair(counting(shape, "float32"), "float32", device)
    wanted, target = outcome(lambda: theirs[key(parts, torch, "cpu")])
    sizes = tuple(target.shape) if wanted == "ok" else (2,)
    if any(isinstance(p, tuple) and p[0] in ("ints", "list") for p in parts):
        # Places that are named twice may get either value.
        value = "number"
    if value == "number":
        w: Any = 7.0
        g: Any = 7.0
    else:
        sizes = {"full": sizes, "row": sizes[-1:], "wrong": (*sizes, 3)}[value]
        w, g = pair(-1.0 - np.arange(int(np.prod(sizes))).reshape(sizes), "float32", device)
    wanted, a = outcome(lambda: theirs.__setitem__(key(parts, torch, "cpu"), w))
    got, b = outcome(lambda: ours.__setitem__(key(parts, lucid, device), g))
    if wanted != "ok" or got != "ok":
        assert same_error(wanted, got), (a, b)
    assert numbers(ours) == numbers(theirs)
