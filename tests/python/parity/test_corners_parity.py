"""Corners of single ops that PyTorch's own sample inputs found, against PyTorch on both devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch

DEVICES = ["cpu", "gpu"]
RNG = np.random.default_rng(5)
M = RNG.standard_normal((4, 5)).astype(np.float32)
K = RNG.standard_normal((2, 3, 4, 4)).astype(np.float32)
Z = (RNG.standard_normal(12) + 1j * RNG.standard_normal(12)).astype(np.complex64)
#: On the cuts of the inverse functions, where the sign of a zero decides.
CUTS = np.array(
    [0.5, -0.5, 2, -2, 0.5j, 2j, -2j, complex(0.5, -0.0), complex(2, -0.0), complex(-2, -0.0)], np.complex64
)

CASES: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "arange of fractions, int64": lambda m, t: m.arange(-0.9, 2.1, 2.0, dtype=m.int64, device=t(0).device),
    "arange by 0 as an integer": lambda m, t: m.arange(0, 1, 0.5, dtype=m.int64, device=t(0).device),
    "arange downwards, int32": lambda m, t: m.arange(2.1, -2.9, -1.0, dtype=m.int32, device=t(0).device),
    "addr of bool": lambda m, t: m.addr(t([[True, False]]), t([True]), t([False, True]), beta=3, alpha=2),
    "addr of bool, beta 0": lambda m, t: m.addr(t([[True, False]]), t([True]), t([False, True]), beta=0),
    "cov with weights of a wider dtype": lambda m, t: m.cov(t(M).to(m.float16), aweights=t(M[0]).abs()),
    "cov with counts": lambda m, t: m.cov(t(M), fweights=t([1, 2, 3, 1, 1]), aweights=t(M[0]).abs()),
    "cummax of bool": lambda m, t: m.cummax(t([False, True, False, True]), 0),
    "cummin of bool": lambda m, t: m.cummin(t([[True, True], [False, True]]), 0),
    "diff of order 0": lambda m, t: m.diff(t(M), 0, 0, t(M[:1]), t(M[:2])),
    "diag is a copy": lambda m, t: (lambda x: (x.diag().fill_(7.0), x, x.diag().stride()))(t(M)),
    "diag_embed is contiguous": lambda m, t: m.diag_embed(t(M), 1, 0, 2).stride(),
    "roll": lambda m, t: m.roll(t(M), (1, -2), (0, 1)),
    "gather by nothing": lambda m, t: m.gather(t(M[0]), 0, t(np.zeros((2, 0), np.int64))),
    "take_along_dim from the end": lambda m, t: m.take_along_dim(t(M), t([[-1, 0], [1, -2], [0, 0], [-5, 4]]), 1),
    "unfold of a number": lambda m, t: (t(3.0).unfold(0, 1, 1), t(3.0).unfold(0, 0, 1)),
    "linear of one feature": lambda m, t: m.nn.functional.linear(t(M), t(M[0])),
    "softsign of integers": lambda m, t: m.nn.functional.softsign(t([-3, 0, 2])),
    "tanhshrink of bytes": lambda m, t: m.nn.functional.tanhshrink(t(np.array([0, 3, 255], np.uint8))),
    "hardtanh of integers": lambda m, t: m.nn.functional.hardtanh(t([-3, 0, 2]), -1.5, 1.5),
    "avg_pool2d by a negative divisor": lambda m, t: m.nn.functional.avg_pool2d(t(K), 2, divisor_override=-3),
    "replicate what is cut away": lambda m, t: m.nn.functional.pad(t(K), (-4, 5, 2, -4), "replicate"),
    "unfold of no images": lambda m, t: m.nn.functional.unfold(t(K[:0]), 2),
    "multi_margin_loss of a number": lambda m, t: m.nn.functional.multi_margin_loss(t(0.3), t(0)),
    "multilabel_margin_loss of a number": lambda m, t: m.nn.functional.multilabel_margin_loss(t(0.3), t(0)),
    "rms_norm of large halves": lambda m, t: m.nn.functional.rms_norm(t(300 * M).to(m.float16), (5,)),
    "asinh, acosh and atanh": lambda m, t: (m.asinh(t(Z)), m.acosh(t(Z)), m.atanh(t(Z))),
    "asinh, acosh and atanh on their cuts": lambda m, t: (m.asinh(t(CUTS)), m.acosh(t(CUTS)), m.atanh(t(CUTS))),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES)
def test_values(case: str, device: str) -> None:
    def plain(out: Any) -> list[Any]:
        if isinstance(out, (tuple, list)) and out and not isinstance(out, (torch.Size, lucid.Size)):
            return [p for o in out for p in plain(o)]
        return [out.numpy(force=True) if hasattr(out, "numpy") else np.asarray(out)]

    theirs = plain(CASES[case](torch, torch.tensor))
    ours = plain(CASES[case](lucid, lambda a: lucid.tensor(a, device=device)))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=2e-3 if a.dtype == np.float16 else 2e-5, atol=1e-5)


REFUSED: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "roll of a number": lambda m, t: m.roll(t(1.0), 1, 0),
    "avg_pool2d by 0": lambda m, t: m.nn.functional.avg_pool2d(t(K), 2, divisor_override=0),
    "max_pool2d, huge stride": lambda m, t: m.nn.functional.max_pool2d(t(K), 2, 2**40),
    "max_pool2d, huge window": lambda m, t: m.nn.functional.max_pool2d(t(K), 2**62, dilation=2**62),
    "max_pool1d of no channels": lambda m, t: m.nn.functional.max_pool1d(t(np.zeros((0, 10), np.float32)), 1),
    "group_norm of no channels": lambda m, t: m.nn.functional.group_norm(t(np.zeros((1, 0, 2), np.float32)), 1),
    "cat of a tensor": lambda m, t: m.cat(t(M)),
    "stack of a tensor": lambda m, t: m.stack(t(M)),
    "gather out of range": lambda m, t: m.gather(t(M), 0, t([[7]])),
    "scatter out of range": lambda m, t: m.scatter(t(M), 0, t([[7]]), 1.0),
    "take out of range": lambda m, t: m.take(t(M), t([99])),
    "multi_margin_loss, reduction": lambda m, t: m.nn.functional.multi_margin_loss(t(M), t(M[0]), reduction="abc"),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str, device: str) -> None:
    with pytest.raises(Exception) as theirs:
        REFUSED[case](torch, torch.tensor)
    with pytest.raises(theirs.type):
        out = REFUSED[case](lucid, lambda a: lucid.tensor(a, device=device))
        out.tolist()


@pytest.mark.parametrize("dtype", ["int64", "int32"])
@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_scatter_of_wide_elements(dtype: str, reduce: str, include_self: bool) -> None:
    """Eight bytes at a time: MLX's own scatter has no such elements on a GPU."""
    at = RNG.integers(0, 3, (6, 4))
    src = (RNG.standard_normal((6, 4)) * 2**33).astype(np.int64)
    x = np.arange(12).reshape(3, 4)
    found = []
    for m, kw in ((torch, {}), (lucid, {"device": "cpu"}), (lucid, {"device": "gpu"})):
        d = getattr(m, dtype)
        s = m.tensor(src, **kw).to(d)
        y = (
            m.tensor(x, **kw)
            .to(d)
            .scatter_reduce(0, m.tensor(at[: len(src)], **kw), s, reduce, include_self=include_self)
        )
        found.append(y.numpy(force=True))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int64", "complex64", "int32", "float32"])
@pytest.mark.parametrize("accumulate", [False, True])
def test_writes_of_wide_elements_by_indices(dtype: str, accumulate: bool) -> None:
    found = []
    for m, kw in ((torch, {}), (lucid, {"device": "cpu"}), (lucid, {"device": "gpu"})):
        x = m.arange(60, **kw).to(getattr(m, dtype)).reshape(3, 4, 5)
        i, j = m.tensor([[0], [-1]], **kw), m.tensor([1, -2, 3], **kw)
        values = m.arange(30, **kw).to(getattr(m, dtype)).reshape(5, 2, 3).permute(1, 2, 0)
        y = x.index_put((i, j), values, accumulate=accumulate)
        x[1, :, m.tensor([0, 4], **kw)] = x[0, :, 1:3].clone()
        x.as_strided((2, 2), (7, 20), 3).copy_(y[0, :2, :2])
        found.append((y.numpy(force=True), x.numpy(force=True)))
    for ours in found[1:]:
        np.testing.assert_array_equal(ours[0], found[0][0])
        np.testing.assert_array_equal(ours[1], found[0][1])
