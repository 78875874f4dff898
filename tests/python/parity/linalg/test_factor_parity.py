"""Factors in LAPACK's packed forms, products of reflections and decompositions of low rank against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import TABLE, within

DEVICES = pytest.mark.parametrize("device", ["cpu", "gpu"])
DTYPES = pytest.mark.parametrize("dtype", ["float64", "float32", "complex64", "complex128"])
TOLERANCES = {"float64": 1e-9, "float32": 2e-4, "complex64": 2e-4, "complex128": 1e-9}


def numbers(seed: int, dtype: str, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape)
    return (values + 1j * rng.standard_normal(shape) if dtype.startswith("complex") else values).astype(dtype)


def symmetric(seed: int, dtype: str, *shape: int, hermitian: bool = True) -> np.ndarray:
    values = numbers(seed, dtype, *shape)
    turned = np.swapaxes(values, -1, -2)
    return values + (turned.conj() if hermitian else turned)


def both(*values: np.ndarray, device: str = "cpu") -> list[tuple[Any, ...]]:
    """The numbers as tensors of each framework."""
    return [
        (torch, *(torch.from_numpy(x.copy()) for x in values)),
        (
            lucid,
            *(
                lucid.tensor(x.tolist(), dtype=getattr(lucid, x.dtype.name), device=device).reshape(x.shape)
                for x in values
            ),
        ),
    ]


def same(ours: Any, theirs: Any, tolerance: float) -> None:
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert str(ours.dtype).split(".")[-1] == str(theirs.dtype).split(".")[-1]
    ours = np.asarray(ours.detach().cpu().tolist()).reshape(tuple(theirs.shape))
    np.testing.assert_allclose(ours, theirs.detach().resolve_conj().numpy(), tolerance, tolerance)


def same_names(ours: Any, theirs: Any) -> None:
    """PyTorch's named tuples have no list of their fields."""
    assert hasattr(ours, "_fields") == (type(theirs) is not tuple)
    for i, field in enumerate(getattr(ours, "_fields", ())):
        assert getattr(theirs, field) is theirs[i]


def compare(f: Callable[..., Any], *values: np.ndarray, device: str = "cpu") -> None:
    theirs, ours = (f(*each) for each in both(*values, device=device))
    tolerance = TOLERANCES[values[0].dtype.name] * (1 if device == "cpu" else 5)
    if not isinstance(theirs, tuple):
        theirs, ours = (theirs,), (ours,)
    assert len(ours) == len(theirs)
    same_names(ours, theirs)
    for a, b in zip(ours, theirs, strict=True):
        same(a, b, tolerance)


def combinations() -> list[Any]:
    """MLX has no float64 and factors no complex matrices."""
    return [pytest.param(dtype, "cpu", id=f"{dtype}-cpu") for dtype in TOLERANCES] + [
        pytest.param("float32", "gpu", id="float32-gpu")
    ]


WHERE = pytest.mark.parametrize(("dtype", "device"), combinations())


# ---- symmetric matrices ----------------------------------------------------------------------------------------------


@WHERE
@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (3, 6, 6), (90, 90)])
def test_symmetric_matrices_are_factored_as_lapack_does(
    shape: tuple[int, ...], hermitian: bool, dtype: str, device: str
) -> None:
    """Small ones without blocks, the largest with; the system that they solve is that of the matrix."""
    a = symmetric(1, dtype, *shape, hermitian=hermitian)
    compare(lambda m, a: m.linalg.ldl_factor_ex(a, hermitian=hermitian), a, device=device)
    if shape[-1] < 50:
        compare(lambda m, a: m.linalg.ldl_factor(a, hermitian=hermitian), a, device=device)
    b = numbers(2, dtype, *shape[:-1], 3)
    x = lucid.tensor(b.tolist(), dtype=getattr(lucid, dtype), device=device)
    ours = both(a, device=device)[1][1]
    factors = lucid.linalg.ldl_factor(ours, hermitian=hermitian)
    solved = lucid.linalg.ldl_solve(factors.LD, factors.pivots, x, hermitian=hermitian)
    np.testing.assert_allclose(
        np.asarray((ours @ solved).tolist()), b, **within("float64 systems" if dtype == "float64" else "systems")
    )


@DTYPES
def test_blocks_of_two_are_pivots_below_zero(dtype: str) -> None:
    """A matrix with zeros on its diagonal has no other factors."""
    a = np.array([[0, 2, 0], [2, 0, 0], [0, 0, 3]], dtype=dtype)
    compare(lambda m, a: m.linalg.ldl_factor_ex(a), a)
    compare(lambda m, a, b: m.linalg.ldl_solve(*m.linalg.ldl_factor(a), b), a, numbers(1, dtype, 3, 2))
    assert lucid.linalg.ldl_factor(lucid.tensor(a.tolist()).to(lucid.float64)).pivots.tolist()[0] < 0


def test_a_block_of_zeros_is_told_or_refused() -> None:
    a = np.array([[1.0, 0.0], [0.0, 0.0]])
    compare(lambda m, a: m.linalg.ldl_factor_ex(a)[2], a)
    for m, x in both(a):
        with pytest.raises(RuntimeError):
            m.linalg.ldl_factor(x)
        with pytest.raises(RuntimeError):
            m.linalg.ldl_factor_ex(x, check_errors=True)


@pytest.mark.parametrize("pivots", [[1, 9, 3], [0, 2, 3], [1, 2, -3], [-9, -9, 3], [1, 2, -(2**31)]])
@DEVICES
def test_pivots_that_no_factorization_gives_are_refused(pivots: list[int], device: str) -> None:
    """LAPACK would read and write beside the matrix."""
    a, b = lucid.eye(3, device=device), lucid.ones(3, 1, device=device)
    with pytest.raises(RuntimeError, match="pivots"):
        lucid.linalg.ldl_solve(a, lucid.tensor(pivots, dtype=lucid.int32, device=device), b)


def test_factors_of_symmetric_matrices_have_no_gradient() -> None:
    a = symmetric(1, "float64", 3, 3)
    for m, x in both(a):
        x.requires_grad_()
        factors = m.linalg.ldl_factor(x)
        assert factors.LD.requires_grad
        assert not factors.pivots.requires_grad
        with pytest.raises(RuntimeError):
            factors.LD.sum().backward()
        with pytest.raises(RuntimeError):
            m.linalg.ldl_solve(factors.LD.detach(), factors.pivots, x).sum().backward()
        with pytest.raises(RuntimeError):
            m.geqrf(x).a.sum().backward()


# ---- reflections -----------------------------------------------------------------------------------------------------


@WHERE
@pytest.mark.parametrize("shape", [(4, 3), (3, 3), (3, 5), (2, 70, 40), (4, 0), (0, 3)])
def test_reflections_make_the_matrix_again(shape: tuple[int, ...], dtype: str, device: str) -> None:
    a = numbers(1, dtype, *shape)
    compare(lambda m, a: m.geqrf(a), a, device=device)
    k = min(shape[-2:])

    def product(m: Any, a: Any) -> Any:
        packed, tau = a.geqrf()
        tall = packed[..., :k]
        return tall.orgqr(tau), m.linalg.householder_product(tall, tau), m.orgqr(tall[..., :1], tau[..., :1])

    if k > 0:
        compare(product, a, device=device)
        ours = both(a, device=device)[1][1]
        packed, tau = ours.geqrf()
        again = lucid.orgqr(packed[..., :k], tau) @ packed.triu()[..., :k, :]
        same(again, torch.from_numpy(a), 2e-4)


@WHERE
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_products_with_reflections(
    batch: tuple[int, ...], left: bool, transpose: bool, dtype: str, device: str
) -> None:
    a = numbers(1, dtype, *batch, 5, 3)
    c = numbers(2, dtype, *batch, *((5, 2) if left else (2, 5)))

    def product(m: Any, a: Any, c: Any) -> Any:
        packed, tau = m.geqrf(a)
        return m.ormqr(packed, tau, c, left, transpose), packed.ormqr(tau, c, left=left, transpose=transpose)

    compare(product, a, c, device=device)


def gradients(f: Callable[..., Any], *values: np.ndarray) -> None:
    """Values, gradients and second gradients are PyTorch's."""
    found = []
    for m, *x in both(*values):
        for each in x:
            each.requires_grad_()
        y = f(m, *x)
        weights = m.arange(1, y.numel() + 1).to(y.dtype).reshape(y.shape) / y.numel()
        total = (y * weights).sum()
        first = m.autograd.grad(total.real if y.is_complex() else total, x, create_graph=True)
        scalar = sum((g * g.conj()).real.sum() if g.is_complex() else (g * g).sum() for g in first)
        found.append([y, *first, *m.autograd.grad(scalar, x)])
    for theirs, ours in zip(*found, strict=True):
        same(ours, theirs, TOLERANCES[values[0].dtype.name] * (1 if values[0].dtype == np.float64 else 20))


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@pytest.mark.parametrize("shape", [(4, 3), (3, 3), (2, 4, 2)])
def test_gradients_of_products_of_reflections(shape: tuple[int, ...], dtype: str) -> None:
    a, tau = numbers(1, dtype, *shape), numbers(2, dtype, *shape[:-2], shape[-1])
    gradients(lambda m, a, tau: m.linalg.householder_product(a, tau), a, tau)
    c = numbers(3, dtype, *shape[:-2], shape[-2], 2)
    gradients(lambda m, a, tau, c: m.ormqr(a, tau, c), a, tau, c)
    gradients(lambda m, a, tau, c: m.ormqr(a, tau, c.mT, False, True), a, tau, c)


def test_a_factor_of_zero_is_no_reflection_and_has_a_gradient() -> None:
    a, tau = numbers(1, "float64", 4, 3), np.array([0.5, 0.0, 0.7])
    gradients(lambda m, a, tau: m.linalg.householder_product(a, tau), a, tau)


# ---- other forms -----------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::UserWarning")
@WHERE
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 3), (3, 5)])
def test_lu_and_what_is_made_of_it(shape: tuple[int, ...], dtype: str, device: str) -> None:
    a = numbers(1, dtype, *shape)
    compare(lambda m, a: m.lu_unpack(*m.linalg.lu_factor(a)), a, device=device)
    compare(lambda m, a: m.lu_unpack(*m.linalg.lu_factor(a), unpack_data=False), a, device=device)
    compare(lambda m, a: m.lu_unpack(*m.linalg.lu_factor(a), unpack_pivots=False), a, device=device)
    compare(lambda m, a: a.lu(), a, device=device)
    compare(lambda m, a: a.lu(get_infos=True), a, device=device)
    compare(lambda m, a: (a * 0).lu(get_infos=True) + (a * 0).lu(), a, device=device)
    compare(lambda m, a: tuple(m.lu(a, get_infos=True)), a, device=device)
    if shape[-1] == shape[-2]:
        b = numbers(2, dtype, *shape[:-1], 2)
        compare(lambda m, a, b: (m.lu_solve(b, *a.lu()), b.lu_solve(*a.lu())), a, b, device=device)


@pytest.mark.filterwarnings("ignore:torch.triangular_solve:UserWarning")
@WHERE
@pytest.mark.parametrize("flags", [(), (False,), (True, True), (False, True, True)])
def test_triangular_solve_gives_a_copy_too(flags: tuple[bool, ...], dtype: str, device: str) -> None:
    a = numbers(1, dtype, 2, 3, 3) + 3 * np.eye(3, dtype=dtype)
    b = numbers(2, dtype, 3, 2)
    compare(lambda m, a, b: m.triangular_solve(b, a, *flags), a, b, device=device)
    compare(lambda m, a, b: b.triangular_solve(a, *flags), a, b, device=device)


@WHERE
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 3), (3, 5)])
def test_svd_under_its_old_name(shape: tuple[int, ...], dtype: str, device: str) -> None:
    """V is not transposed; without vectors there are zeros in their place."""
    a = numbers(1, dtype, *shape)
    compare(lambda m, a: m.svd(a, compute_uv=False), a, device=device)
    compare(lambda m, a: (m.svd(a).S, a.svd(some=False).S), a, device=device)
    u, s, v = both(a, device=device)[1][1].svd(False)
    assert (u.shape[-1], v.shape[-1]) == (shape[-2], shape[-1])
    k = min(shape[-2:])
    same((u[..., :k] * s.unsqueeze(-2)) @ v[..., :k].mH, torch.from_numpy(a), 2e-4 if dtype != "float64" else 1e-9)


def test_results_have_pytorchs_names_and_out_takes_them() -> None:
    a = symmetric(1, "float64", 3, 3)
    calls: list[Callable[[Any], Any]] = [
        lambda m: m.geqrf,
        lambda m: m.linalg.ldl_factor,
        lambda m: m.linalg.ldl_factor_ex,
        lambda m: m.svd,
    ]
    for pick in calls:
        found = []
        for m, x in both(a):
            plain = pick(m)(x)
            places = tuple(m.empty_like(part) for part in plain)
            written = pick(m)(x, out=places)
            for part, place, result in zip(plain, places, written, strict=True):
                assert m.equal(part, place)
                assert m.equal(result, place)
            found.append(written)
        same_names(found[1], found[0])
    ours = both(a)[1][1]
    place = lucid.empty(3, 3, dtype=lucid.float64)
    packed, tau = lucid.geqrf(ours)
    lucid.orgqr(packed, tau, out=place)
    assert lucid.equal(place, lucid.linalg.householder_product(packed, tau))


REFUSED: list[Callable[[Any], Any]] = [
    lambda m: m.linalg.householder_product(m.ones(3, 4), m.ones(3)),
    lambda m: m.linalg.householder_product(m.ones(4, 3), m.ones(4)),
    lambda m: m.linalg.householder_product(m.ones(4, 3), m.ones(2, 3)),
    lambda m: m.linalg.householder_product(m.ones(4), m.ones(3)),
    lambda m: m.linalg.householder_product(m.ones(4, 3), m.ones(3, dtype=m.float64)),
    lambda m: m.ormqr(m.ones(4, 3), m.ones(3), m.ones(3, 2)),
    lambda m: m.ormqr(m.ones(4, 3), m.ones(3), m.ones(2, 4, 2)),
    lambda m: m.ormqr(m.ones(4, 3), m.ones(3), m.ones(4, 2), left=False),
    lambda m: m.geqrf(m.ones(4)),
    lambda m: m.linalg.ldl_factor(m.ones(2, 3)),
    lambda m: m.linalg.ldl_solve(m.ones(3, 3), m.ones(3), m.ones(3, 1)),
    lambda m: m.linalg.ldl_solve(m.ones(3, 3), m.ones(2, dtype=m.int32), m.ones(3, 1)),
    lambda m: m.linalg.ldl_solve(m.ones(3, 3), m.ones(3, dtype=m.int32), m.ones(2, 1)),
    lambda m: m.linalg.ldl_solve(m.ones(3, 3), m.ones(3, dtype=m.int32), m.ones(3)),
    lambda m: m.lu_unpack(m.ones(3, 3), m.ones(3, dtype=m.int64)),
    lambda m: m.lu_unpack(m.ones(3, 3), m.ones(2, 3, dtype=m.int32)),
    lambda m: m.triangular_solve(m.ones(3, 2), m.ones(2, 2)),
    lambda m: m.triangular_solve(m.ones(3, 2), m.ones(3, 2)),
    lambda m: m.linalg.pinv(m.ones(3, 2), hermitian=True),
    lambda m: m.pca_lowrank(m.ones(3, 2), q=3),
    lambda m: m.pca_lowrank(m.ones(3, 2), niter=-1),
]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_what_is_refused_raises_pytorchs_kind(case: int) -> None:
    with pytest.raises((RuntimeError, ValueError, IndexError, TypeError)) as theirs:
        REFUSED[case](torch)
    with pytest.raises(theirs.type):
        REFUSED[case](lucid)


# ---- low rank --------------------------------------------------------------------------------------------------------


def of_rank(seed: int, dtype: str, *shape: int, rank: int = 3) -> np.ndarray:
    return numbers(seed, dtype, *shape[:-1], rank) @ numbers(seed + 1, dtype, *shape[:-2], rank, shape[-1])


@WHERE
@pytest.mark.parametrize("shape", [(20, 12), (12, 20), (2, 9, 9)])
def test_matrices_of_low_rank_are_found_whole(shape: tuple[int, ...], dtype: str, device: str) -> None:
    a = of_rank(1, dtype, *shape)
    ours = both(a, device=device)[1][1]
    lucid.manual_seed(3)
    for q in (3, 6):
        u, s, v = lucid.svd_lowrank(ours, q=q)
        assert u.shape == (*shape[:-1], q)
        assert v.shape == (*shape[:-2], shape[-1], q)
        tolerance = TABLE["float64" if dtype == "float64" else "solve"].rtol
        same((u * s.unsqueeze(-2)) @ v.mH, torch.from_numpy(a), tolerance)
        wanted = torch.linalg.svdvals(torch.from_numpy(a))[..., :3]
        np.testing.assert_allclose(np.asarray(s.tolist())[..., :3], wanted.numpy(), **within("eigenvalues"))
    m = lucid.ones(1, shape[-1], dtype=ours.dtype, device=device)
    u, s, v = lucid.svd_lowrank(ours, q=6, niter=1, M=m)
    same((u * s.unsqueeze(-2)) @ v.mH, torch.from_numpy(a - np.ones((1, shape[-1]), dtype)), tolerance)


@pytest.mark.parametrize("center", [False, True])
def test_principal_components_are_those_of_the_centred_matrix(center: bool) -> None:
    a = of_rank(1, "float64", 20, 8) + 5.0
    lucid.manual_seed(1)
    u, s, v = lucid.pca_lowrank(both(a)[1][1], q=5, center=center)
    wanted = a - a.mean(0) if center else a
    np.testing.assert_allclose(np.asarray(((u * s) @ v.mT).tolist()), wanted, **within("float64 factors"))
    assert [len(part.shape) for part in lucid.pca_lowrank(lucid.ones(4, 3))] == [2, 1, 2]


def test_gradients_of_low_rank() -> None:
    """Where the rank is found whole, that of the product is the projection on what the product can become."""
    a = of_rank(1, "float64", 8, 6)
    found = []
    for m, x in both(a):
        m.manual_seed(0)
        x.requires_grad_()
        u, s, v = m.svd_lowrank(x, q=3)
        y = (u * s.square()) @ v.mT
        (g,) = m.autograd.grad((y * m.arange(1, 49, dtype=m.float64).reshape(8, 6)).sum(), x)
        found.append(g)
    same(found[1], found[0], 1e-6)


# ---- pseudoinverses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 4)])
def test_gradients_of_pseudoinverses_of_symmetric_matrices(shape: tuple[int, ...], dtype: str) -> None:
    """The gradient belongs to the whole matrix, not to the half that is read."""
    eye = 5 * np.eye(shape[-1], dtype=dtype)
    gradients(lambda m, a: m.linalg.pinv(a, hermitian=True), symmetric(1, dtype, *shape) + eye)
    gradients(lambda m, a: m.linalg.pinv(a + a.mH, hermitian=True), numbers(2, dtype, *shape) + eye)


@WHERE
def test_the_lower_half_alone_is_read_of_symmetric_matrices(dtype: str, device: str) -> None:
    """Of a diagonal that is not real, the real part."""
    a = numbers(1, dtype, 2, 3, 3)
    compare(lambda m, a: m.linalg.pinv(a, hermitian=True), a, device=device)
