"""Incomplete gamma functions, `einsum`'s lists, variances of large numbers, complex statistics and rows in order,
against PyTorch, where the table's samples do not reach."""

from __future__ import annotations

from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import TABLE, within

DEVICES = pytest.mark.parametrize("device", ["cpu", "gpu"])
INF, NAN = float("inf"), float("nan")
GRID = [
    0.0,
    1e-6,
    1e-3,
    0.1,
    0.5,
    1.0,
    1.5,
    2.0,
    5.0,
    9.9,
    15.0,
    16.5,
    20.0,
    50.0,
    130.0,
    210.0,
    1e3,
    1e4,
    -1.0,
    INF,
    NAN,
]


@DEVICES
@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma_functions(name: str, device: str) -> None:
    a = np.repeat(GRID, len(GRID))
    x = np.tile(GRID, len(GRID))
    # Beside the grid, where the functions change: x within a few widths of a.
    middle = np.repeat([2.0, 10.0, 16.0, 17.0, 40.0, 150.0, 201.0, 1e4, 1e6], 7)
    around = middle + np.sqrt(middle) * np.tile([-3.0, -1.0, -0.1, 0.0, 0.1, 1.0, 3.0], 9)
    keep = around > 0
    a, x = np.concatenate([a, middle[keep]]), np.concatenate([x, around[keep]])
    wide = "float64" if device == "cpu" else "float32"
    wanted = getattr(torch, name)(*(torch.tensor(v.astype(wide)).double() for v in (a, x))).numpy()
    got = getattr(lucid, name)(*(lucid.tensor(v.astype(wide), device=device) for v in (a, x)))
    tolerance = within("float64 series" if device == "cpu" else "series")
    np.testing.assert_allclose(np.asarray(got.cpu().tolist()), wanted, **tolerance)


@DEVICES
def test_gradients_of_incomplete_gamma_functions(device: str) -> None:
    for name, sign in (("igamma", 1), ("igammac", -1)):
        a = lucid.tensor([0.5, 2.0, 30.0], device=device)
        x = lucid.tensor([0.7, 1.5, 25.0], device=device, requires_grad=True)
        getattr(lucid, name)(a, x).sum().backward()
        other = torch.tensor([0.7, 1.5, 25.0], requires_grad=True)
        torch.igamma(torch.tensor([0.5, 2.0, 30.0]), other).sum().backward()
        np.testing.assert_allclose(x.grad.cpu().tolist(), sign * other.grad.numpy(), rtol=TABLE["program"].rtol)
        with pytest.raises(NotImplementedError):
            getattr(lucid, name)(x, x).sum().backward()
        y = a.clone()
        assert getattr(y, name + "_")(x.detach()) is y


@DEVICES
def test_einsum_takes_lists(device: str) -> None:
    for calls in (
        lambda m, x, y: m.einsum(x, [0, 1], y, [1, 2], [0, 2]),
        lambda m, x, y: m.einsum(x, [0, 1], y, [1, 2]),
        lambda m, x, y: m.einsum(x, [1, 0]),
        lambda m, x, y: m.einsum(x, [..., 0], [0, ...]),
        lambda m, x, y: m.einsum(x, [30, 1], y, [1, 51], []),
        lambda m, x, y: m.einsum(x, (5, 6), y, (6, 7), (7, 5)),
    ):
        values = [np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4) - 5]
        theirs = calls(torch, *(torch.tensor(v) for v in values))
        ours = calls(lucid, *(lucid.tensor(v.astype(np.float32), device=device) for v in values))
        np.testing.assert_allclose(np.asarray(ours.cpu().tolist()), theirs.numpy())
    for bad in (lambda m, x: m.einsum(x, [0, 52]), lambda m, x: m.einsum(x, [0])):
        for m in (torch, lucid):
            with pytest.raises((ValueError, RuntimeError)):
                bad(m, m.ones(2, 3))


@DEVICES
def test_variances_of_large_numbers(device: str) -> None:
    for values in ([1e19, -1e19] * 20, [3e18, 1e18, -2e18], [1e-30, 3e-30], [INF, 1.0], [0.0, 0.0]):
        # The squares of variances on the gpu device are float32's: layers are normalised by them.
        for name in ("var", "std") if device == "cpu" or max(values) < 1e18 else ("std",):
            theirs = getattr(torch.tensor(values), name)()
            ours = getattr(lucid.tensor(values, device=device), name)()
            np.testing.assert_allclose(
                ours.item(), theirs.item(), rtol=TABLE["few ops"].rtol, err_msg=f"{name} of {values[:3]}"
            )


@DEVICES
def test_complex_statistics(device: str) -> None:
    numbers = np.array([[1 + 2j, 3 - 1j, 0.5j], [2 - 2j, -1 + 0j, 4 + 0.25j]], dtype=np.complex64)
    calls: list[Any] = [
        lambda m, z: m.var(z),
        lambda m, z: m.std(z, 1),
        lambda m, z: z.var(0, correction=0),
        lambda m, z: m.var_mean(z, 1)[0],
        lambda m, z: m.view_as_real(m.var_mean(z, 1)[1]),
        lambda m, z: m.view_as_real(m.logsumexp(z, 1)),
        lambda m, z: m.view_as_real(z.mean()),
    ]
    for call in calls:
        theirs, ours = torch.tensor(numbers).requires_grad_(), lucid.tensor(numbers, device=device).requires_grad_()
        wanted, got = call(torch, theirs), call(lucid, ours)
        np.testing.assert_allclose(
            np.asarray(got.detach().cpu().tolist()), wanted.detach().numpy(), **within("near zero")
        )
        wanted.sum().backward()
        got.sum().backward()
        grad = np.asarray(ours.grad.resolve_conj().cpu().tolist())
        np.testing.assert_allclose(grad, theirs.grad.resolve_conj().numpy(), **within("program"))


@DEVICES
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32"])
def test_distinct_rows(dtype: str, device: str) -> None:
    rng = np.random.default_rng(0)
    for shape in ((50, 1), (50, 3), (40, 9), (30, 70)):
        whole = rng.integers(0 if dtype in ("bool", "uint8") else -2, 2, shape)
        whole[:, 1:] *= rng.integers(0, 2, (shape[0], 1))
        theirs = torch.tensor(whole).to(getattr(torch, dtype))
        ours = lucid.tensor(whole, device=device).to(getattr(lucid, dtype))
        for dim in (0, 1):
            # PyTorch has no rows of truth values in order.
            wide = theirs.to(torch.uint8) if dtype == "bool" else theirs
            wanted = torch.unique(wide.double() if dtype == "float16" else wide, True, True, True, dim)
            got = lucid.unique(ours, True, True, True, dim)
            for w, g in zip(wanted, got, strict=True):
                np.testing.assert_array_equal(np.asarray(g.cpu().tolist()), w.numpy())


@DEVICES
def test_rows_at_the_ends_of_their_dtype(device: str) -> None:
    low, high = -(2**63), 2**63 - 1
    x = lucid.tensor([[high, low], [low, high], [0, low], [low, 0], [low, high]], device=device)
    assert lucid.unique(x, dim=0).tolist() == [[low, 0], [low, high], [0, low], [high, low]]
    y = lucid.tensor([[INF, -0.0], [-INF, 1.0], [0.0, 1.0], [-0.0, -1.0], [-1e-40, 5.0]], device=device)
    assert lucid._C.argsort_rows(y).tolist() in ([1, 4, 3, 2, 0], [1, 3, 4, 2, 0])
