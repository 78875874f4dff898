"""Single ops on inputs that PyTorch's own samples showed to differ, against PyTorch on both devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import TABLE, within

DEVICES = ["cpu", "gpu"]
RNG = np.random.default_rng(5)
M = RNG.standard_normal((4, 5)).astype(np.float32)
K = RNG.standard_normal((2, 3, 4, 4)).astype(np.float32)
Z = (RNG.standard_normal(12) + 1j * RNG.standard_normal(12)).astype(np.complex64)
#: On the cuts of the inverse functions, where the sign of a zero decides.
CUTS = np.array(
    [0.5, -0.5, 2, -2, 0.5j, 2j, -2j, complex(0.5, -0.0), complex(2, -0.0), complex(-2, -0.0)], np.complex64
)

W = np.arange(5) ** 2
W6 = np.arange(-6, 6)
NAN_AND_TIES = np.array([1, np.nan, 2, 3, 3], np.float32)

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
    "gradient of integers": lambda m, t: m.gradient(t(W), spacing=2, edge_order=2),
    "gradient at integer coordinates": lambda m, t: m.gradient(t(W), spacing=[t([0, 1, 3, 4, 7])]),
    "gradient by a complex spacing": lambda m, t: m.gradient(t(M), spacing=1j, dim=-1),
    "gradient by a tensor of one element": lambda m, t: m.gradient(t(M), spacing=t(2.0)),
    "gradient by 0": lambda m, t: m.gradient(t(M), spacing=0),
    "gradient along nothing": lambda m, t: [m.gradient(t(M), dim=()), m.gradient(t(1.0))],
    "ldexp by powers beyond the dtype": lambda m, t: [
        m.ldexp(t(np.array([1e-30, 0.0, 1e30, 1.5, np.inf, np.nan], np.float32)), t([200, 1000, -200, 2, -1000, 3])),
        m.ldexp(t([1, 3]), t([120, -140])),
        m.ldexp(t(np.array([6e-8, 3.0], np.float16)), t([40, -20])),
    ],
    "unravel_index": lambda m, t: [m.unravel_index(t([3, -1, 7]), (2, 3)), m.unravel_index(t(4), 6)],
    "unravel_index of no elements": lambda m, t: m.unravel_index(t(np.zeros(0, np.int64)), (2, 0)),
    "segments by length": lambda m, t: m.segment_reduce(t(M), "mean", lengths=t([1, 0, 3])),
    "segments of rows": lambda m, t: m.segment_reduce(t(M), "min", offsets=t([[0, 2, 5]] * 4), axis=1),
    "segments, not checked": lambda m, t: m.segment_reduce(t(M), "sum", lengths=t([1, 2]), unsafe=True),
    "segments with NaN": lambda m, t: m.segment_reduce(t(NAN_AND_TIES), "max", lengths=t([2, 3]), initial=1.5),
    "logcumsumexp of complex numbers": lambda m, t: [m.logcumsumexp(t(Z.reshape(3, 4)), d) for d in (0, 1)],
    "silu of complex numbers": lambda m, t: m.nn.functional.silu(t(Z)),
    "rms_norm of complex numbers": lambda m, t: m.nn.functional.rms_norm(t(Z.reshape(3, 4)), (4,), t(Z[:4])),
    "l1_loss of complex numbers": lambda m, t: m.nn.functional.l1_loss(t(Z), t(Z[::-1].copy())),
    "normalize complex numbers": lambda m, t: m.nn.functional.normalize(t(Z.reshape(3, 4))),
    "pairwise_distance of complex numbers": lambda m, t: [
        m.nn.functional.pairwise_distance(t(Z.reshape(3, 4)), t(Z[::-1].copy().reshape(3, 4)), p=p)
        for p in (0, 1, 2, 3)
    ],
    "conv1d of complex numbers": lambda m, t: m.nn.functional.conv1d(
        t(Z.reshape(1, 2, 6)), t(Z.reshape(4, 1, 3)), t(Z[:4]), 2, 1, 2, 2
    ),
    "conv1d of integers": lambda m, t: m.nn.functional.conv1d(
        t(W6.reshape(1, 2, 6)), t(W6.reshape(4, 1, 3)), t(W6[:4]), 2, 1, 2, 2
    ),
    "conv2d of bytes": lambda m, t: m.nn.functional.conv2d(
        t(np.arange(100, 136, dtype=np.uint8).reshape(1, 1, 6, 6)),
        t(W6.astype(np.uint8).reshape(2, 1, 3, 2)),
        None,
        (2, 1),
    ),
    "conv3d of integers": lambda m, t: m.nn.functional.conv3d(
        t(np.arange(36).reshape(1, 1, 3, 4, 3)), t(W6.reshape(1, 1, 2, 3, 2)), padding=1
    ),
    "conv_transpose1d of complex numbers": lambda m, t: m.nn.functional.conv_transpose1d(
        t(Z.reshape(1, 2, 6)), t(Z.reshape(2, 2, 3)), t(Z[:4]), 2, 1, 1, 2, 3
    ),
    "conv_transpose1d of integers": lambda m, t: m.nn.functional.conv_transpose1d(
        t(W6.reshape(1, 2, 6)), t(W6.reshape(2, 2, 3)), t(W6[:4]), 2, 1, 1, 2, 3
    ),
    "conv_transpose2d of integers": lambda m, t: m.nn.functional.conv_transpose2d(
        t(np.arange(36).reshape(1, 2, 6, 3)), t(W6.reshape(2, 1, 2, 3)), None, (3, 2), (1, 2), (1, 1)
    ),
    "linspace between complex ends": lambda m, t: [m.linspace(1, 2 - 1j, n, device=t(0).device) for n in (0, 1, 2, 5)],
    "logspace between complex ends": lambda m, t: [
        m.logspace(0, 1 + 1j, 4, base, device=t(0).device) for base in (10.0, 2, -2.0)
    ],
    "clamp beyond a dtype": lambda m, t: t(np.array([1, 200], np.uint8)).clamp(-1, 300),
    "sum_to_size of a byte": lambda m, t: [t(x).sum_to_size(()) for x in (np.uint8(3), True, 1.5)],
    "bilinear of bytes": lambda m, t: m.nn.functional.bilinear(
        *(t(np.ones(s, np.uint8)) for s in (3, 4, (5, 3, 4), 5))
    ),
    "local_response_norm of integers": lambda m, t: m.nn.functional.local_response_norm(
        t(30 * W.reshape(1, 5, 1)), 3, 1.0
    ),
    "adaptive_max_pool2d of uneven windows": lambda m, t: m.nn.functional.adaptive_max_pool2d(t(K), (3, 5), True),
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
        np.testing.assert_allclose(a, b, **within("float16 rounding" if a.dtype == np.float16 else "near zero"))


REFUSED: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "gradient of bytes": lambda m, t: m.gradient(t(np.arange(5, dtype=np.uint8))),
    "gradient, dimension twice": lambda m, t: m.gradient(t(M), dim=(0, 0)),
    "gradient, no such dimension": lambda m, t: m.gradient(t(M), dim=2),
    "gradient of order 3": lambda m, t: m.gradient(t(M), edge_order=3),
    "gradient of too few": lambda m, t: m.gradient(t(M[:1])),
    "gradient, one number for two dimensions": lambda m, t: m.gradient(t(M), spacing=[1.0]),
    "gradient, coordinates outside a list": lambda m, t: m.gradient(t(M), spacing=t([1.0, 2.0])),
    "gradient, numbers and coordinates": lambda m, t: m.gradient(t(M), spacing=[t([1.0, 2.0, 3.0, 4.0]), 1.0]),
    "unravel_index of fractions": lambda m, t: m.unravel_index(t([3.0]), (2, 3)),
    "unravel_index of truths": lambda m, t: m.unravel_index(t([True]), (2, 3)),
    "unravel_index, negative size": lambda m, t: m.unravel_index(t([3]), (2, -3)),
    "segments that do not cover": lambda m, t: m.segment_reduce(t(M), "max", lengths=t([1, 2])),
    "segments of negative length": lambda m, t: m.segment_reduce(t(M), "max", lengths=t([-1, 5])),
    "segments, no lengths": lambda m, t: m.segment_reduce(t(M), "max"),
    "segments by indices": lambda m, t: m.segment_reduce(t(M), "max", indices=t([0, 0, 1, 1])),
    "segments, another reduction": lambda m, t: m.segment_reduce(t(M), "median", lengths=t([4])),
    "segments, another axis": lambda m, t: m.segment_reduce(t(M), "max", lengths=t([5]), axis=1),
    "linspace, complex as real": lambda m, t: m.linspace(0, 1j, 3, dtype=m.float32),
    "clamp, least beyond the dtype": lambda m, t: t(np.array([1, 200], np.uint8)).clamp(300),
    "full of what does not fit": lambda m, t: m.full((2,), 300, dtype=m.uint8),
    "full of a complex number": lambda m, t: m.full((2,), 1j, dtype=m.int64),
    "full_like of a complex number": lambda m, t: m.full_like(t(M), 1j),
    "fill_ by a complex number": lambda m, t: t(M).fill_(1j),
    "fill_ by what does not fit": lambda m, t: t(np.array([1], np.uint8)).fill_(300),
    "group_norm of no elements": lambda m, t: m.nn.functional.group_norm(t(np.zeros((1, 2, 0), np.float32)), 1),
    "max_unpool3d by 0": lambda m, t: m.nn.functional.max_unpool3d(
        t(np.ones((1, 1, 1, 1, 1), np.float32)), t(np.zeros((1, 1, 1, 1, 1), np.int64)), 2, 0
    ),
    "adaptive_avg_pool2d of a matrix": lambda m, t: m.nn.functional.adaptive_avg_pool2d(t(M), (2, 2)),
    "adaptive_max_pool3d of a matrix": lambda m, t: m.nn.functional.adaptive_max_pool3d(t(M), (2, 2, 2)),
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
    np.testing.assert_allclose(found[1], found[0], rtol=TABLE["few ops"].rtol)
    np.testing.assert_allclose(found[2], found[0], rtol=TABLE["few ops"].rtol)


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


@pytest.mark.parametrize("device", DEVICES)
def test_adaptive_pools_beyond_memory_are_refused(device: str) -> None:
    x = lucid.ones(1, 1, 8, 8, device=device)
    F = lucid.nn.functional
    for pool in (F.adaptive_max_pool2d, F.adaptive_avg_pool2d):
        with pytest.raises(lucid.errors.OutOfMemory, match="2147483647"):
            pool(x, (2**31 - 1, 2**31 - 1))


#: Numbers at the bounds, equal numbers and NaN: where gradients are shared out by rule.
BOUNDS = [np.array(v, np.float32).ravel() for v in np.meshgrid([1, 2, 3], [1, 2, 3], [1, 2, 3])]
NANS = np.array([1, np.nan, np.nan, 2, 3], np.float32), np.array([np.nan, 1, np.nan, 2, 1], np.float32)
TIES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray[Any, Any], ...]]] = {
    "clamp between tensors": (lambda m, x, low, high: x.clamp(low, high), tuple(BOUNDS)),
    "clamp from a tensor on": (lambda m, x, low: x.clamp(low), (*BOUNDS[:2],)),
    "clamp up to a tensor": (lambda m, x, high: x.clamp(max=high), (*BOUNDS[:2],)),
    "clamp with NaN": (lambda m, x, low: x.clamp_min(low), NANS),
    "clamp between numbers": (lambda m, x: x.clamp(1, 3), (np.array([1, 2, 3, 0.5, 4, np.nan], np.float32),)),
    "clamp between numbers the wrong way round": (lambda m, x: x.clamp(3, 1), (BOUNDS[0],)),
    "clamp_max": (lambda m, x: x.clamp_max(2), (BOUNDS[0],)),
    "fmax": (lambda m, x, y: m.fmax(x, y), NANS),
    "fmin": (lambda m, x, y: m.fmin(x, y), NANS),
    "maximum": (lambda m, x, y: m.maximum(x, y), NANS),
    "minimum": (lambda m, x, y: m.minimum(x, y), NANS),
    "nextafter": (lambda m, x, y: m.nextafter(x, y), (BOUNDS[0], BOUNDS[1])),
    "segments, largest": (
        lambda m, x: m.segment_reduce(x, "max", lengths=m.tensor([2, 3]).to(x.device)),
        (np.array([1, 1, 3, 2, 3], np.float32),),
    ),
    "segments, smallest, with a first number": (
        lambda m, x: m.segment_reduce(x, "min", lengths=m.tensor([3, 0, 2]).to(x.device), initial=1.5),
        (np.array([2, 1, 1, 3, 2], np.float32),),
    ),
    "segments, products with zeros": (
        lambda m, x: m.segment_reduce(x, "prod", lengths=m.tensor([3, 2]).to(x.device), initial=2.0),
        (np.array([2, 0, 3, 0, 0], np.float32),),
    ),
    "logcumsumexp of complex numbers": (lambda m, x: m.logcumsumexp(x, 0).abs(), (Z,)),
    "conv1d of complex numbers": (
        lambda m, x, w: m.nn.functional.conv1d(x.reshape(1, 2, 6), w.reshape(2, 2, 3), padding=1).abs(),
        (Z, Z[::-1].copy()),
    ),
    "pairwise_distance of complex numbers": (
        lambda m, x, y: m.nn.functional.pairwise_distance(x, y, keepdim=True),
        (Z, Z[::-1].copy()),
    ),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", TIES)
def test_gradients(case: str, device: str) -> None:
    call, inputs = TIES[case]
    found = []
    for m, kw in ((torch, {}), (lucid, {"device": device})):
        leaves = [m.tensor(a, requires_grad=True, **kw) for a in inputs]
        y = call(m, *leaves)
        weights = m.tensor(np.cos(np.arange(y.numel())).astype(np.float32), **kw).reshape(y.shape)
        y.backward(weights)
        found.append([y.numpy(force=True), *(x.grad.numpy(force=True) for x in leaves)])
    for ours, theirs in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(ours, theirs, **within("near zero"))
