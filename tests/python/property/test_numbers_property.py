"""Promotion, broadcasting and reductions of random tensors, against PyTorch on both devices."""

from __future__ import annotations

from typing import Any

import lucid
import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.python import tolerances
from tests.python.property.draws import DTYPES, devices, dtypes, numbers, on, outcome, pair, plain, same_error, shapes

BINARY = ["add", "sub", "mul", "true_divide", "maximum", "minimum", "eq", "lt", "where", "atan2", "remainder"]
REDUCTIONS = [
    "sum",
    "mean",
    "prod",
    "amax",
    "amin",
    "any",
    "all",
    "var",
    "argmax",
    "argmin",
    "logsumexp",
    "max",
    "cumsum",
]


def values(shape: tuple[int, ...], seed: int, floating: bool) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(shape) if floating else rng.integers(0, 5, shape)


def close(got: Any, wanted: Any, dtype: str, factor: float = 1.0) -> None:
    rtol, atol = tolerances.forward(dtype)
    g, w = np.asarray(numbers(got), dtype=object), np.asarray(numbers(wanted), dtype=object)
    if rtol == 0:
        assert g.tolist() == w.tolist()
        return
    clean = lambda a: np.array([np.nan if x == "nan" else x for x in a.reshape(-1)], dtype=complex)  # noqa: E731
    np.testing.assert_allclose(clean(g), clean(w), rtol * factor, atol * factor)


@st.composite
def operands(draw: Any) -> tuple[Any, str, Any]:
    """A tensor's shape and dtype, or a Python number."""
    if draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from([True, 2, -1, 1.5, 0.25, 2j])), "", None
    return draw(shapes(3, 3)), draw(dtypes), draw(st.integers(0, 99))


@given(st.sampled_from(BINARY), operands(), operands(), devices)
def test_binary_functions(name: str, a: Any, b: Any, device: str) -> None:
    device = "cpu" if {"float64", "complex128"} & {a[1], b[1]} else device
    theirs, ours = [], []
    for given_, dtype, seed in (a, b):
        if not dtype:
            theirs.append(given_)
            ours.append(given_)
            continue
        t, u = pair(values(given_, seed, dtype.startswith(("float", "bfloat", "complex"))), dtype, device)
        theirs.append(t)
        ours.append(u)
    if not isinstance(theirs[0], torch.Tensor) and (name != "where" or not isinstance(theirs[1], torch.Tensor)):
        return
    if name == "where":
        condition = pair(np.array([True]), "bool", device)
        wanted, w = outcome(lambda: torch.where(condition[0], *theirs))
        got, g = outcome(lambda: lucid.where(condition[1], *ours))
    else:
        wanted, w = outcome(lambda: getattr(torch, name)(*theirs))
        got, g = outcome(lambda: getattr(lucid, name)(*ours))
    if wanted != "ok" or got != "ok":
        # Lucid has a few combinations that PyTorch has not; what PyTorch has, Lucid must have.
        assert got == "ok" or same_error(wanted, got) or wanted in ("NotImplementedError", "TypeError"), (w, g)
        return
    if plain(w.dtype) in ("complex32", "bcomplex32"):
        # Not dtypes here: complex64 stands in for them.
        w = w.to(torch.complex64)
    assert (plain(g.dtype), tuple(g.shape)) == (plain(w.dtype), tuple(w.shape))
    close(g, w, plain(w.dtype))


@given(st.sampled_from(DTYPES), st.sampled_from(DTYPES))
def test_promotion(a: str, b: str) -> None:
    wanted = plain(torch.promote_types(getattr(torch, a), getattr(torch, b)))
    if wanted in ("complex32", "bcomplex32"):
        wanted = "complex64"
    assert plain(lucid.promote_types(getattr(lucid, a), getattr(lucid, b))) == wanted


@given(shapes(), shapes(), st.data())
def test_broadcast_shapes(a: tuple[int, ...], b: tuple[int, ...], data: Any) -> None:
    if data.draw(st.booleans()):
        b = tuple(1 if data.draw(st.booleans()) else n for n in a)[data.draw(st.integers(0, len(a))) :]
    wanted, w = outcome(lambda: torch.zeros(a) + torch.zeros(b))
    got, g = outcome(lambda: lucid.zeros(a) + lucid.zeros(b))
    assert wanted == got, (w, g)
    if wanted == "ok":
        assert tuple(g.shape) == tuple(w.shape)


@given(st.sampled_from(REDUCTIONS), shapes(4, 4), dtypes, devices, st.integers(0, 99), st.data())
def test_reductions(name: str, shape: tuple[int, ...], dtype: str, device: str, seed: int, data: Any) -> None:
    t, u = pair(values(shape, seed, dtype.startswith(("float", "bfloat"))), dtype, on(dtype, device))
    n = len(shape)
    arguments: dict[str, Any] = {}
    if name == "cumsum" or name == "logsumexp" or data.draw(st.booleans()):
        arguments["dim"] = data.draw(st.integers(-n - 1, n)) if n else data.draw(st.sampled_from([0, -1, 1]))
        if name != "cumsum" and data.draw(st.booleans()):
            arguments["keepdim"] = True
    wanted, w = outcome(lambda: getattr(torch, name)(t, **arguments))
    got, g = outcome(lambda: getattr(lucid, name)(u, **arguments))
    if wanted != "ok" or got != "ok":
        # Of complex tensors there is arithmetic only.
        assert (
            got == "ok" or same_error(wanted, got) or wanted == "NotImplementedError" or dtype.startswith("complex")
        ), (w, g)
        return
    if not isinstance(w, torch.Tensor):
        w, g = w[0], g[0]
    assert (plain(g.dtype), tuple(g.shape)) == (plain(w.dtype), tuple(w.shape))
    # Small numbers in few bits tie, and PyTorch leaves open which of equal elements it names.
    if name in ("argmax", "argmin"):
        return
    close(g, w, plain(w.dtype), 4)
