"""Window functions against PyTorch's, and against SciPy's where PyTorch has none."""

from __future__ import annotations

from typing import Any

import lucid
import lucid.signal.windows as ours
import numpy as np
import pytest
import scipy.signal.windows
import torch
import torch.signal.windows as theirs

from tests.python.tolerances import within

CASES: dict[str, list[dict[str, Any]]] = {
    "bartlett": [{}],
    "blackman": [{}],
    "cosine": [{}],
    "exponential": [{}, {"tau": 3.5}, {"center": 2, "sym": False}],
    "gaussian": [{}, {"std": 0.9}],
    "general_cosine": [{"a": [0.46, 0.23, 0.31]}, {"a": (1.0,)}],
    "general_hamming": [{}, {"alpha": 0.3}],
    "hamming": [{}],
    "hann": [{}],
    "kaiser": [{}, {"beta": 0}, {"beta": 5.5}],
    "nuttall": [{}],
}
ROWS = [(name, case, sym) for name, cases in CASES.items() for case in cases for sym in (True, False)]
ROWS = [(name, {"sym": sym, **case}, M) for name, case, sym in ROWS for M in (0, 1, 2, 7, 32)]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize(("name", "case", "M"), ROWS, ids=lambda x: str(x))
def test_values(name: str, case: dict[str, Any], M: int, device: str) -> None:
    for dtype in ("float32", "float64") if device == "cpu" else ("float32",):
        got = getattr(ours, name)(M, **case, dtype=getattr(lucid, dtype), device=device)
        want = getattr(theirs, name)(M, **case, dtype=getattr(torch, dtype))
        assert got.dtype is getattr(lucid, dtype)
        assert got.device.type == lucid.device(device).type
        np.testing.assert_allclose(
            got.cpu().numpy(), want.numpy(), **within("windows" if dtype == "float32" else "float64 rounding")
        )


@pytest.mark.parametrize("sym", [True, False])
def test_general_gaussian_is_scipys(sym: bool) -> None:
    for M in (1, 2, 9, 16):
        got = ours.general_gaussian(M, p=1.5, sig=3.0, sym=sym, dtype=lucid.float64)
        np.testing.assert_allclose(got.numpy(), scipy.signal.windows.general_gaussian(M, 1.5, 3.0, sym=sym))


def test_requires_grad_is_pytorchs() -> None:
    for name in CASES:
        extra = {"a": [0.5, 0.5]} if name == "general_cosine" else {}
        got = getattr(ours, name)(5, requires_grad=True, **extra)
        want = getattr(theirs, name)(5, requires_grad=True, **extra)
        assert (got.requires_grad, got.is_leaf) == (want.requires_grad, want.is_leaf), name


@pytest.mark.parametrize(
    ("name", "case"),
    [
        *((name, {"M": -1}) for name in CASES if name != "general_cosine"),
        ("hann", {"M": 3, "dtype": "int64"}),
        ("hann", {"M": 3, "layout": "sparse_coo"}),
        ("gaussian", {"M": 3, "std": 0}),
        ("exponential", {"M": 3, "tau": -1}),
        ("exponential", {"M": 3, "center": 1.0}),
        ("kaiser", {"M": 3, "beta": -1}),
        ("general_cosine", {"M": 3, "a": []}),
        ("general_cosine", {"M": 3, "a": 4}),
    ],
)
def test_bad_arguments(name: str, case: dict[str, Any]) -> None:
    said = []
    for framework, module in ((torch, theirs), (lucid, ours)):
        given = {k: getattr(framework, v) if isinstance(v, str) else v for k, v in case.items()}
        with pytest.raises((ValueError, TypeError)) as e:
            getattr(module, name)(**given)
        said.append(e)
    assert issubclass(said[1].type, said[0].type)
    # PyTorch names the window that the asked one is a case of.
    here = str(said[1].value).replace("lucid.", "torch.").replace(name, "general_cosine")
    assert here == str(said[0].value).replace(name, "general_cosine")


def test_a_length_that_is_no_int() -> None:
    for length in (2.5, "3", True, None):
        with pytest.raises(TypeError, match="expected M to be an int"):
            ours.hann(length)  # type: ignore[arg-type]
