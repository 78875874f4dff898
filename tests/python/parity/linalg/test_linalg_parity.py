"""`lucid.linalg` against PyTorch: gradients of decompositions through functions that do not depend on signs, singular
and empty matrices, modes, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import TABLE, within

DEVICES = pytest.mark.parametrize("device", ["cpu", "gpu"])
INF, NAN = float("inf"), float("nan")


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def both(values: Any, device: str) -> tuple[Any, Any]:
    """The same numbers as a tensor of each framework, in the widest dtype that the device has."""
    ours = lucid.tensor(values, dtype=lucid.float64 if device == "cpu" else lucid.float32, device=device)
    return torch.tensor(values, dtype=torch.float64), ours


def same(ours: Any, theirs: Any, device: str) -> None:
    tolerance = TABLE["float64 factors" if device == "cpu" else "factors"].rtol
    assert tuple(ours.shape) == tuple(theirs.shape)
    ours = np.asarray(ours.detach().cpu().tolist()).reshape(tuple(theirs.shape))
    np.testing.assert_allclose(ours, theirs.detach().numpy(), tolerance, tolerance)


def of_svd(m: Any, a: Any) -> Any:
    u, s, vh = m.linalg.svd(a, full_matrices=False)
    return (u * s.square().unsqueeze(-2)) @ vh + (u @ vh) * s.sum(-1, keepdim=True).unsqueeze(-1)


def of_full_svd(m: Any, a: Any) -> Any:
    u, s, vh = m.linalg.svd(a)
    k = s.shape[-1]
    return (u[..., :k] * s.exp().unsqueeze(-2)) @ vh[..., :k, :]


def of_eigh(m: Any, a: Any) -> Any:
    w, v = m.linalg.eigh(a + a.mT)
    return (v * w.exp().unsqueeze(-2)) @ v.mT + w.unsqueeze(-1)


def of_upper_eigh(m: Any, a: Any) -> Any:
    w, v = m.linalg.eigh(a + a.mT, UPLO="U")
    return (v * w.tanh().unsqueeze(-2)) @ v.mT


def of_lu(m: Any, a: Any) -> Any:
    p, lower, upper = m.linalg.lu(a)
    return (lower.sin() @ upper.cos()) + (p @ lower).mean()


def of_lu_solve(m: Any, a: Any) -> Any:
    lu, pivots = m.linalg.lu_factor(a)
    return m.linalg.lu_solve(lu, pivots, a.cos())


def of_qr(m: Any, a: Any) -> Any:
    q, r = m.linalg.qr(a)
    return q.sin() @ r.cos()


SQUARE: list[Callable[[Any, Any], Any]] = [
    of_svd,
    of_full_svd,
    of_eigh,
    of_upper_eigh,
    of_lu,
    of_lu_solve,
    of_qr,
    lambda m, a: m.linalg.cholesky(a @ a.mT + m.eye(a.shape[-1], dtype=a.dtype, device=a.device)),
    lambda m, a: m.linalg.eigvalsh(a),
    lambda m, a: m.linalg.pinv(a),
    lambda m, a: m.linalg.matrix_exp(a),
    lambda m, a: m.linalg.matrix_power(a, -3),
    lambda m, a: m.linalg.solve(a, a[..., 0]),
    lambda m, a: m.linalg.inv_ex(a)[0],
    lambda m, a: m.linalg.det(a),
    lambda m, a: m.linalg.slogdet(a)[1],
]
RECTANGULAR: list[Callable[[Any, Any], Any]] = [
    of_svd,
    of_full_svd,
    of_lu,
    of_qr,
    lambda m, a: m.linalg.svdvals(a),
    lambda m, a: m.linalg.pinv(a),
    lambda m, a: m.linalg.norm(a, "nuc", dim=(-2, -1)),
    lambda m, a: m.linalg.lstsq(a, a.sin()[..., :2])[0],
]


def compare(f: Callable[[Any, Any], Any], values: Any, device: str, second: bool = True) -> None:
    found = []
    for m, a in zip((torch, lucid), both(values, device), strict=True):
        a.requires_grad_()
        y = f(m, a)
        weights = m.arange(1, y.numel() + 1, device=a.device).to(a.dtype).reshape(y.shape) / y.numel()
        (g,) = m.autograd.grad((y * weights).sum(), a, create_graph=second)
        results = [y, g]
        if second:
            results += m.autograd.grad((g * g.detach().cos()).sum(), a)
        found.append(results)
    for theirs, ours in zip(*found, strict=True):
        same(ours, theirs, device)


@DEVICES
@pytest.mark.parametrize("case", range(len(SQUARE)))
def test_square_matrices(case: int, device: str) -> None:
    values = numbers(case, 2, 3, 3) + 2 * np.eye(3)
    compare(SQUARE[case], values, device, second=device == "cpu")


@DEVICES
@pytest.mark.parametrize("case", range(len(RECTANGULAR)))
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5), (3, 3)])
def test_rectangular_matrices(case: int, shape: tuple[int, ...], device: str) -> None:
    compare(RECTANGULAR[case], numbers(case, *shape), device, second=device == "cpu")


SINGULAR = [
    [[1.0, 2.0], [2.0, 4.0]],
    [[0.0, 0.0], [0.0, 3.0]],
    [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [5.0, 7.0, 9.0]],
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]],
    [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]],
]


@DEVICES
@pytest.mark.parametrize("values", SINGULAR, ids=range(len(SINGULAR)))
def test_determinants_of_singular_matrices_have_gradients(values: Any, device: str) -> None:
    """The gradient is the matrix of cofactors; beside a matrix that is not singular as well."""
    a = np.array(values)
    n = len(a)
    cofactors = np.array(
        [[(-1) ** (i + j) * np.linalg.det(np.delete(np.delete(a, i, 0), j, 1)) for j in range(n)] for i in range(n)]
    )
    for batch in (False, True):
        x = both([values, np.eye(n).tolist()] if batch else values, device)[1].requires_grad_()
        (g,) = lucid.autograd.grad(lucid.det(x).sum(), x)
        wanted = np.stack([cofactors, np.eye(n)]) if batch else cofactors
        np.testing.assert_allclose(np.asarray(g.cpu().tolist()), wanted, **within("decomposition"))


def test_second_gradients_of_a_singular_determinant() -> None:
    values = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [5.0, 7.0, 9.0]]
    compare(lambda m, a: m.linalg.det(a - a.detach() + m.tensor(values, dtype=a.dtype)), values, "cpu")


@DEVICES
def test_logarithms_of_singular_determinants_have_infinite_gradients(device: str) -> None:
    for x in both(SINGULAR[0], device):
        m: Any = lucid if isinstance(x, lucid.Tensor) else torch
        x.requires_grad_()
        (g,) = m.autograd.grad(m.linalg.slogdet(x)[1], x)
        assert not np.isfinite(np.asarray(g.cpu().tolist())).any()


CALLS: list[Callable[[Any, Any], Any]] = [
    lambda m, a: m.linalg.qr(a, mode="complete")[1],
    lambda m, a: m.linalg.qr(a, "r")[1],
    lambda m, a: m.linalg.svdvals(a),
    lambda m, a: m.linalg.matrix_rank(a),
    lambda m, a: m.linalg.pinv(a),
    lambda m, a: m.linalg.matrix_norm(a, "nuc"),
    lambda m, a: m.norm(a, p="nuc"),
    lambda m, a: a.norm("nuc"),
    lambda m, a: m.linalg.norm(a, 2),
    lambda m, a: m.linalg.vector_norm(a, 3.5),
    lambda m, a: m.linalg.vander(a, N=3),
    lambda m, a: m.linalg.lstsq(a, a, driver="gelsd").singular_values,
    lambda m, a: m.linalg.lstsq(a, a[:, :1], driver="gelsd").residuals,
    lambda m, a: m.linalg.lu(a).U,
]


@DEVICES
@pytest.mark.parametrize("shape", [(4, 2), (2, 4), (3, 3), (1, 1)])
@pytest.mark.parametrize("case", range(len(CALLS)))
def test_values(case: int, shape: tuple[int, int], device: str) -> None:
    theirs, ours = both(numbers(case, *shape), device)
    same(CALLS[case](lucid, ours), CALLS[case](torch, theirs), device)


@DEVICES
def test_complete_bases(device: str) -> None:
    for shape in ((4, 2), (2, 5, 3), (3, 0)):
        _, a = both(numbers(0, *shape), device)
        q, r = lucid.linalg.qr(a, mode="complete")
        u, s, vh = lucid.linalg.svd(a)
        m, n = shape[-2:]
        for basis, size in ((q, m), (u, m), (vh, n)):
            assert tuple(basis.shape) == (*shape[:-2], size, size)
            eye = np.broadcast_to(np.eye(size), tuple(basis.shape))
            np.testing.assert_allclose(
                np.asarray((basis @ basis.mT).cpu().tolist()).reshape(eye.shape), eye, **within("decomposition")
            )
        assert tuple(r.shape) == tuple(a.shape) and tuple(s.shape) == (*shape[:-2], min(m, n))
        np.testing.assert_allclose(np.asarray((q @ r - a).cpu().tolist()), 0, **within("near zero"))


@DEVICES
def test_singular_values_that_are_equal_have_gradients(device: str) -> None:
    for x in both(np.eye(3).tolist(), device):
        m: Any = lucid if isinstance(x, lucid.Tensor) else torch
        x.requires_grad_()
        for f in (lambda a, m=m: m.linalg.svdvals(a).sum(), lambda a, m=m: m.linalg.svd(a)[1].sum()):
            (g,) = m.autograd.grad(f(x), x)
            np.testing.assert_allclose(np.asarray(g.cpu().tolist()), np.eye(3), **within("near zero"))


REFUSED: list[Callable[[Any, Any], Any]] = [
    lambda m, a: m.linalg.cholesky(-m.linalg.matrix_power(a, 0)),
    lambda m, a: m.linalg.inv(a * 0),
    lambda m, a: m.linalg.solve(a * 0, a),
    lambda m, a: m.linalg.lu_factor(a * 0),
    lambda m, a: m.linalg.cholesky_ex(a * 0, check_errors=True),
    lambda m, a: m.linalg.inv_ex(a * 0, check_errors=True),
    lambda m, a: m.linalg.svd(a / 0),
    lambda m, a: m.linalg.svdvals(a * NAN),
    lambda m, a: m.linalg.qr(a, mode="x"),
    lambda m, a: m.linalg.svd(a[0]),
    lambda m, a: m.linalg.cholesky(a[:2]),
    lambda m, a: m.linalg.matrix_power(a[:2], 2),
    lambda m, a: m.linalg.cross(a[:, :2], a[:, :2]),
    lambda m, a: m.linalg.matrix_norm(a, "x"),
    lambda m, a: m.linalg.matrix_norm(a, 3),
    lambda m, a: m.linalg.matrix_norm(a, dim=(0, 0)),
    lambda m, a: m.linalg.norm(a, dim=(0, 1, 2)),
    lambda m, a: m.linalg.vector_norm(a[:0], INF),
    lambda m, a: m.linalg.solve(a, a[:2]),
    lambda m, a: m.linalg.lstsq(a, a, driver="x"),
    lambda m, a: m.linalg.vander(a, N=1),
    lambda m, a: m.linalg.eigh(a, UPLO="X"),
    lambda m, a: m.linalg.multi_dot([a]),
    lambda m, a: m.vander(a),
]


@DEVICES
@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_refused_as_in_pytorch(case: int, device: str) -> None:
    theirs, ours = both(numbers(0, 3, 3), device)
    with pytest.raises(Exception) as wanted:
        REFUSED[case](torch, theirs)
    kind = RuntimeError if isinstance(wanted.value, RuntimeError) else type(wanted.value)
    with pytest.raises(kind) as got:
        REFUSED[case](lucid, ours)
    assert isinstance(got.value, lucid.LucidError)


@DEVICES
def test_what_the_ex_forms_say(device: str) -> None:
    _, a = both(np.stack([np.eye(2), np.zeros((2, 2)), [[1.0, 2.0], [2.0, 1.0]]]), device)
    assert lucid.linalg.cholesky_ex(a).info.tolist() == [0, 1, 2]
    inverse, info = lucid.linalg.inv_ex(a)
    assert info.tolist() == [0, 1, 0] and info.dtype == lucid.int32
    assert inverse[0].tolist() == [[1.0, 0.0], [0.0, 1.0]] and inverse[1].isnan().all().item()
    assert lucid.linalg.lu_factor_ex(a).info.tolist() == [0, 1, 0]
    result, info = lucid.linalg.solve_ex(a, a)
    assert info.tolist() == [0, 1, 0]
    np.testing.assert_allclose(result[2].tolist(), np.eye(2), **within("few ops"))


def test_a_triangle_with_a_zero() -> None:
    for device in ("cpu", "gpu"):
        a = lucid.tensor([[1.0, 5.0], [0.0, 0.0]], device=device)
        x = lucid.linalg.solve_triangular(a, lucid.ones(2, 1, device=device), upper=True)
        assert not x.isfinite().all().item()


def test_pivots_out_of_range_are_refused() -> None:
    for device in ("cpu", "gpu"):
        with pytest.raises(RuntimeError, match="Pivots"):
            lucid.linalg.lu_solve(
                lucid.eye(2, device=device), lucid.tensor([1, 3], device=device), lucid.eye(2, device=device)
            )


def test_every_name_is_there() -> None:
    for name in lucid.linalg.__all__:
        assert callable(getattr(lucid.linalg, name))
        assert name in ("dot", "inner", "outer") or hasattr(torch.linalg, name), name
