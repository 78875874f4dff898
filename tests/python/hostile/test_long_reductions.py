"""Reductions of 20 million elements agree with double precision: nothing is added up one after the other in float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import lucid
import numpy as np
import pytest

from tests.python.tolerances import TABLE, within

F = lucid.nn.functional
N = 20_000_000
# Sums in double precision of elements that are float32.
EXACT = {"dtype": np.float64}


class Data:
    """The elements, and what is needed of them more than once, in pieces, so that no double array is made of all."""

    def __init__(self) -> None:
        self.a = np.random.default_rng(0).random(N, dtype=np.float32) + np.float32(0.5)
        self.sum = self.a.sum(**EXACT)
        self.mean = self.sum / N
        self.square = self.over(lambda d: d * d)
        self.deviation = self.over(lambda d: (d - self.mean) ** 2)
        self.log = np.log(self.over(np.exp))
        self.pairs = self.a.reshape(N // 2, 2)

    def over(self, f: Callable[[Any], Any], step: int = 1 << 20) -> Any:
        """The sum of `f` of all elements in double precision."""
        return sum(f(self.a[i : i + step].astype(np.float64)).sum() for i in range(0, N, step))


@pytest.fixture(scope="module")
def data() -> Iterator[Data]:
    yield Data()


@pytest.fixture(scope="module", params=["cpu", "gpu"])
def x(request: pytest.FixtureRequest, data: Data) -> Iterator[Any]:
    yield lucid.from_numpy(data.a).to(request.param)


# What is computed of x, and what of the data it is to be.
CASES: dict[str, tuple[Callable[[Any], Any], Callable[[Data], Any]]] = {
    "ones": (lambda x: lucid.ones(N, device=x.device).sum(), lambda d: N),
    "expanded": (lambda x: lucid.ones(1, device=x.device).expand(N).sum(), lambda d: N),
    "sum": (lambda x: x.sum(), lambda d: d.sum),
    "sum of temporaries": (lambda x: (x * 2).sum(), lambda d: 2 * d.sum),
    "mean": (lambda x: x.mean(), lambda d: d.mean),
    "nansum": (lambda x: x.nansum(), lambda d: d.sum),
    "nanmean": (lambda x: x.nanmean(), lambda d: d.mean),
    "var": (lambda x: x.var(), lambda d: d.deviation / (N - 1)),
    "std": (lambda x: x.std(), lambda d: (d.deviation / (N - 1)) ** 0.5),
    "var_mean": (lambda x: lucid.stack(lucid.var_mean(x)), lambda d: [d.deviation / (N - 1), d.mean]),
    "norm": (lambda x: x.norm(), lambda d: d.square**0.5),
    "norm of order 1": (lambda x: lucid.linalg.vector_norm(x, 1), lambda d: d.sum),
    "norm of order 3": (lambda x: lucid.linalg.vector_norm(x, 3), lambda d: d.over(lambda a: a**3) ** (1 / 3)),
    "logsumexp": (lambda x: x.logsumexp(0), lambda d: d.log),
    "cumsum": (lambda x: x.cumsum(0)[-1], lambda d: d.sum),
    "logcumsumexp": (lambda x: x.logcumsumexp(0)[-1], lambda d: d.log),
    "softmax": (lambda x: x.softmax(0)[:4] * N, lambda d: np.exp(d.a[:4] - d.log, dtype=np.float64) * N),
    "log_softmax": (lambda x: x.log_softmax(0)[:4], lambda d: d.a[:4] - d.log),
    "mse_loss": (lambda x: F.mse_loss(x, lucid.zeros_like(x)), lambda d: d.square / N),
    "l1_loss": (lambda x: F.l1_loss(x, lucid.zeros_like(x)), lambda d: d.mean),
    "rows": (lambda x: x.reshape(2, -1).sum(1), lambda d: d.a.reshape(2, -1).sum(1, **EXACT)),
    "columns": (lambda x: x.reshape(-1, 2).sum(0), lambda d: d.pairs.sum(0, **EXACT)),
    "transposed": (lambda x: x.reshape(-1, 2).t().sum(1), lambda d: d.pairs.sum(0, **EXACT)),
    "kept": (lambda x: x.reshape(-1, 2).sum(0, True), lambda d: d.pairs.sum(0, keepdims=True, **EXACT)),
    "trapezoid": (lambda x: lucid.trapezoid(x), lambda d: d.sum - (float(d.a[0]) + float(d.a[-1])) / 2),
    "nll_loss": (lambda x: F.nll_loss(x.reshape(-1, 2), zeros(x)), lambda d: -d.pairs[:, 0].mean(**EXACT)),
    "average pool": (lambda x: F.adaptive_avg_pool1d(x.reshape(1, 1, N), 1).reshape(()), lambda d: d.mean),
    "complex": (lambda x: lucid.view_as_real(lucid.complex(x, x).sum()), lambda d: [d.sum, d.sum]),
    "product": (lambda x: (x * 0 - 1).prod(), lambda d: 1.0),
    "any": (lambda x: (x > 0).sum(), lambda d: N),
}


def zeros(x: Any) -> Any:
    """Classes for pairs."""
    return lucid.zeros(N // 2, dtype=lucid.int64, device=x.device)


@pytest.mark.parametrize("name", CASES)
def test_long_reductions_agree_with_double_precision(name: str, x: Any, data: Data) -> None:
    ours, exact = CASES[name]
    np.testing.assert_allclose(ours(x).cpu().numpy(), exact(data), rtol=TABLE["rounding"].rtol)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_long_sums_of_16_bit_floats_are_rounded_once(dtype: str, x: Any) -> None:
    half = lucid.full((N // 2,), 2.0**-8, device=x.device, dtype=getattr(lucid, dtype))
    want = lucid.tensor(N // 2 * 2.0**-8, dtype=getattr(lucid, dtype)).item()
    assert half.sum().item() == want and half.mean().item() == 2.0**-8


def test_long_norms_agree_with_double_precision(x: Any, data: Data) -> None:
    scale = (data.deviation / N + 1e-5) ** -0.5
    want = (data.a[:4] - data.mean) * scale
    np.testing.assert_allclose(F.layer_norm(x, (N,))[:4].cpu().numpy(), want, **within("few ops"))
    got = F.batch_norm(x.reshape(N, 1), None, None, training=True)[:4, 0]
    np.testing.assert_allclose(got.cpu().numpy(), want, **within("few ops"))
    got = F.rms_norm(x, (N,), eps=0.0)[:4]
    np.testing.assert_allclose(got.cpu().numpy(), data.a[:4] / (data.square / N) ** 0.5, rtol=TABLE["rounding"].rtol)


def test_long_sums_in_backward(x: Any, data: Data) -> None:
    w = lucid.ones(2, device=x.device, requires_grad=True)
    (x.reshape(-1, 2) * w).sum().backward()
    np.testing.assert_allclose(w.grad.cpu().numpy(), data.pairs.sum(0, **EXACT), rtol=TABLE["rounding"].rtol)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("classes", [10, 1500])
def test_log_softmax_of_large_logits_is_rounded_once(classes: int, dtype: str, device: str) -> None:
    """The logarithm of the sum is not rounded by itself: of logits of 1000 that cost 0.3 in float16."""
    kind = getattr(lucid, dtype)
    logits = lucid.randn(16, classes).mul(2).add(1000).to(kind)
    exact = logits.double().log_softmax(-1)
    got = logits.to(device).log_softmax(-1).cpu()
    np.testing.assert_allclose(got.double().numpy(), exact.numpy(), **within(f"one rounding of {dtype}"))
    target = lucid.arange(16) % classes
    loss = F.cross_entropy(logits.to(device), target.to(device)).item()
    assert abs(loss - F.cross_entropy(logits.double(), target).item()) < {"bfloat16": 4e-2}.get(dtype, 5e-3)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("length", [4, 2000])
def test_log_softmax_of_infinities_is_pytorchs(length: int, dtype: str, device: str) -> None:
    torch = pytest.importorskip("torch")
    inf, nan = float("inf"), float("nan")
    rows = [[0.0, -inf, 1.0, 2.0], [inf, 0.0, 1.0, 2.0], [-inf] * 4, [nan, 0.0, 1.0, 2.0], [inf, -inf, 0.0, nan]]
    rows = [row * (length // 4) for row in rows]
    want = torch.tensor(rows, dtype=getattr(torch, dtype)).log_softmax(-1).double()
    got = lucid.tensor(rows, dtype=getattr(lucid, dtype), device=device).log_softmax(-1).cpu().double()
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=TABLE["half reductions"].rtol, equal_nan=True)
