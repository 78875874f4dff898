"""What random tensors print, against PyTorch, character by character."""

from __future__ import annotations

import math
from typing import Any

import lucid
import numpy as np
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from tests.python.property.draws import dtypes, pair, shapes

# Ranges that decide between the notations, and what sits at their ends.
ELEMENTS = st.one_of(
    st.integers(-5, 5).map(float),
    st.integers(-2000, 2000).map(float),
    st.floats(-10, 10, width=32),
    st.floats(width=32),
    st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan, 1e8, 1e8 + 8, 1e-4, 9e-5, 1000.0, 1001.0, 1e30, 0.5]),
)


@st.composite
def tensors(draw: Any) -> tuple[Any, Any]:
    dtype = draw(dtypes)
    shape = draw(st.one_of(shapes(3, 4), st.sampled_from([(30,), (2, 25), (1200,), (40, 30), (3, 20, 20), (0, 3)])))
    pool = draw(st.lists(ELEMENTS, min_size=1, max_size=6))
    seed = draw(st.integers(0, 99))
    flat = np.random.default_rng(seed).choice(np.array(pool), shape)
    if not dtype.startswith(("float", "bfloat", "complex")):
        flat = np.where(np.isfinite(flat), flat, 0).clip(-120, 120).astype(np.int64)
        flat = np.abs(flat) if dtype == "uint8" else flat
    if dtype.startswith("complex"):
        other = np.random.default_rng(seed + 1).choice(np.array(pool), shape)
        with np.errstate(all="ignore"):
            flat = flat.astype(np.complex64) + 1j * other.astype(np.float32).astype(np.complex64)
    with np.errstate(all="ignore"):
        return pair(flat, dtype, "cpu")


def as_ours(text: str) -> str:
    return text.replace("torch.", "lucid.")


@given(tensors())
def test_default_options(both: Any) -> None:
    theirs, ours = both
    assert repr(ours) == as_ours(repr(theirs))
    assert str(ours) == as_ours(str(theirs))
    assert f"{ours}" == as_ours(f"{theirs}")


options = st.fixed_dictionaries(
    {},
    optional={
        "profile": st.sampled_from(["default", "short", "full"]),
        "precision": st.integers(0, 8),
        "threshold": st.sampled_from([0, 1, 10, 1000, math.inf]),
        "edgeitems": st.integers(0, 5),
        "linewidth": st.integers(1, 200),
        "sci_mode": st.sampled_from([True, False, None]),
    },
)


@given(tensors(), options)
def test_options(both: Any, chosen: dict[str, Any]) -> None:
    theirs, ours = both
    torch.set_printoptions(profile="default")
    with torch._tensor_str.printoptions(**chosen):
        wanted = as_ours(repr(theirs))
    with lucid.printoptions(**chosen):
        got = repr(ours)
    assert got == wanted


@given(st.floats(width=32), st.sampled_from(["", ".2f", "e", "10.3f", "+", "g", "x"]))
@example(1.5, "x")
def test_formats_of_one_number(value: float, spec: str) -> None:
    def text(t: Any) -> str:
        try:
            return format(t, spec)
        except (ValueError, TypeError) as e:
            return type(e).__name__

    theirs, ours = pair(value, "float32", "cpu")
    assert text(ours) == text(theirs)


def test_parts_of_a_model() -> None:
    for requires_grad in (True, False):
        theirs = torch.nn.Parameter(torch.ones(2), requires_grad=requires_grad)
        ours = lucid.nn.Parameter(lucid.ones(2), requires_grad=requires_grad)
        assert repr(ours) == repr(theirs)
