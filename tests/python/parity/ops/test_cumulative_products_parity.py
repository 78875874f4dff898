"""Running products, sums and what is made of them against PyTorch, at zeros and infinities: values, gradients, and
gradients of gradients."""

from __future__ import annotations

from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import TABLE, within

DEVICES = pytest.mark.parametrize("device", ["cpu", "gpu"])
INF, NAN = float("inf"), float("nan")
VECTORS = [
    [1.5, -2.0, 3.0, 0.5, -1.0],
    [1.5, 0.0, 3.0, 0.5, -1.0],
    [0.0, 2.0, 3.0, 0.5, 4.0],
    [1.5, -2.0, 3.0, 0.5, 0.0],
    [1.5, 0.0, 3.0, 0.0, -1.0],
    [0.0, 0.0, 3.0, -2.0, 0.5],
    [0.0, 0.0, 0.0, 0.0, 2.0],
    [0.0],
    [2.0],
]


def orders(m: Any, f: Any, values: Any, dtype: Any, device: str) -> list[np.ndarray]:
    """The result, its gradient, and the gradient of that, each weighted by ascending numbers."""
    x = m.tensor(values, dtype=dtype, device=device).requires_grad_()
    found = [f(m, x)]
    for _ in range(2):
        y = found[-1]
        weights = m.arange(1, y.numel() + 1, device=device).to(dtype).reshape(y.shape) / 3
        (g,) = m.autograd.grad((y * weights).sum(), x, create_graph=True)
        found.append(g)
        if not g.requires_grad:
            break
    return [np.asarray(t.detach().cpu().tolist()) for t in found]


def check(f: Any, values: Any, device: str, orders_wanted: int = 3) -> None:
    theirs = orders(torch, f, values, torch.float64, "cpu")
    wide = lucid.float64 if device == "cpu" else lucid.float32
    ours = orders(lucid, f, values, wide, device)
    tolerance = TABLE["float64" if device == "cpu" else "near zero"].rtol
    for order, (w, g) in enumerate(zip(theirs[:orders_wanted], ours, strict=False)):
        np.testing.assert_allclose(g, w, tolerance, tolerance, err_msg=f"order {order} of {values}")


@DEVICES
@pytest.mark.parametrize("values", VECTORS, ids=str)
def test_products_with_zeros(values: list[float], device: str) -> None:
    check(lambda m, x: x.cumprod(0), values, device)
    check(lambda m, x: x.prod(0), values, device)
    check(lambda m, x: x.prod(), values, device)


@DEVICES
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_products_of_rows_with_zeros(dim: int, device: str) -> None:
    rows = [[1.5, 0.0, 2.0], [0.0, 3.0, -1.0], [2.0, 0.5, 0.0], [0.0, 1.0, 1.5]]
    check(lambda m, x: x.cumprod(dim), rows, device)
    check(lambda m, x: x.prod(dim), rows, device)
    check(lambda m, x: x.t().prod(dim, keepdim=True), rows, device)
    check(lambda m, x: x.prod(), rows, device)


@DEVICES
def test_products_whose_parts_overflow(device: str) -> None:
    """From its end this overflows; the gradient does not."""
    values = [1e-18, 1e-18, 1e25, 1e20]
    x = lucid.tensor(values, device=device).requires_grad_()
    x.prod().backward()
    np.testing.assert_allclose(np.asarray(x.grad.cpu().tolist()), 1e9 / np.array(values), rtol=TABLE["few ops"].rtol)


@DEVICES
def test_complex_products_with_zeros(device: str) -> None:
    numbers = np.array([1 + 2j, 0, -0.5 + 1j, 2j], dtype=np.complex64)
    found = []
    for m in (torch, lucid):
        where = {} if m is torch else {"device": device}
        for f in (lambda x: x.cumprod(0), lambda x: x.prod()):
            z = m.tensor(numbers, **where).requires_grad_()
            m.view_as_real(f(z)).sum().backward()
            found.append(np.asarray(z.grad.resolve_conj().cpu().tolist()))
    for w, g in zip(found[:2], found[2:], strict=True):
        np.testing.assert_allclose(g, w, **within("near zero"))


@DEVICES
@pytest.mark.parametrize(
    "values",
    [
        [-INF, -INF, 1.0, 2.0],
        [1.0, INF, 2.0, INF],
        [1.0, -INF, 3.0],
        [1.0, NAN, 2.0],
        [-INF, -INF],
        [INF, -INF, 0.0],
        [500.0, -500.0, 501.0, 1000.0],
        [-1000.0, -1000.5, -2000.0],
    ],
    ids=str,
)
def test_logcumsumexp_at_infinities(values: list[float], device: str) -> None:
    check(lambda m, x: m.logcumsumexp(x, 0), values, device, 2)


@DEVICES
def test_logcumsumexp_refuses_integers(device: str) -> None:
    with pytest.raises(NotImplementedError):
        torch.logcumsumexp(torch.tensor([1, 2]), 0)
    with pytest.raises(lucid.LucidError):
        lucid.logcumsumexp(lucid.tensor([1, 2], device=device), 0)


@DEVICES
def test_a_long_recurrence(device: str) -> None:
    """Lengths that are no powers of two, against the loop."""
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 5, 8, 17, 100):
        a, b = rng.uniform(-1, 1, (2, n)).astype(np.float32), rng.standard_normal((2, n)).astype(np.float32)
        wanted = np.zeros((2, n))
        last = np.zeros(2)
        for i in range(n):
            last = b[:, i] + a[:, i] * last
            wanted[:, i] = last
        got = lucid._C.linear_recurrence(lucid.tensor(a, device=device), lucid.tensor(b, device=device), 1)
        np.testing.assert_allclose(np.asarray(got.cpu().tolist()), wanted, **within("near zero"))
