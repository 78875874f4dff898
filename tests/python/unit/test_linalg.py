"""Determinants, inverses and systems: what the table's samples cannot say."""

from __future__ import annotations

from typing import Any

import lucid
import numpy as np
import pytest
from lucid import _C

from tests.python.tolerances import TABLE, within

DEVICES = ["cpu", "gpu"]


def matrices(*shape: int, dtype: Any = None, device: str = "cpu", seed: int = 0) -> lucid.Tensor:
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return lucid.tensor(values.tolist(), dtype=dtype, device=device).reshape(shape)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("a", "b"), [((3, 3), (3, 2)), ((2, 3, 3), (3, 1)), ((3, 3), (4, 3, 2)), ((2, 1, 2, 2), (3, 2, 5))]
)
def test_solve(a: Any, b: Any, device: str) -> None:
    left, right = matrices(*a, device=device), matrices(*b, device=device, seed=1)
    x = _C.solve_matrices(left, right)
    wanted = np.linalg.solve(np.asarray(left.tolist()), np.asarray(right.tolist()))
    np.testing.assert_allclose(x.tolist(), wanted, **within("solve"))
    np.testing.assert_allclose(
        (left @ x).tolist(), (right + lucid.zeros_like(left @ x)).tolist(), **within("decomposition")
    )


def test_gradients_of_solve_and_of_slices() -> None:
    a = matrices(2, 3, 3, dtype=lucid.float64).requires_grad_()
    b = matrices(3, 2, dtype=lucid.float64, seed=1).requires_grad_()
    assert lucid.autograd.gradcheck(_C.solve_matrices, (a, b))
    assert lucid.autograd.gradgradcheck(_C.solve_matrices, (a, b))
    positive = (a.detach() @ a.detach().mT + lucid.eye(3, dtype=lucid.float64)).requires_grad_()
    assert lucid.autograd.gradcheck(lucid.logdet, (positive,))
    assert lucid.autograd.gradgradcheck(lucid.logdet, (positive,))


@pytest.mark.parametrize("device", DEVICES)
def test_singular_matrices(device: str) -> None:
    singular = lucid.tensor([[1.0, 2.0], [2.0, 4.0]], device=device)
    both = lucid.stack([lucid.eye(2, device=device), singular])
    assert lucid.det(singular).item() == 0
    assert lucid.det(both).tolist() == [1.0, 0.0]
    sign, log = lucid.slogdet(singular)
    assert (sign.item(), log.item()) == (0.0, -np.inf)
    assert lucid.logdet(singular).item() == -np.inf
    assert np.isnan(lucid.logdet(lucid.tensor([[-1.0]], device=device)).item())
    for call in (lambda: lucid.inverse(singular), lambda: both.inverse(), lambda: _C.solve_matrices(both, both)):
        with pytest.raises(RuntimeError, match="singular"):
            call()


@pytest.mark.parametrize("device", DEVICES)
def test_wrong_matrices_are_refused(device: str) -> None:
    for bad in (lucid.ones(2, 3, device=device), lucid.ones(3, device=device), lucid.ones((), device=device)):
        for call in (lucid.det, lucid.inverse, lucid.slogdet, lucid.logdet):
            with pytest.raises(lucid.ShapeMismatch):
                call(bad)
    with pytest.raises(lucid.DtypeMismatch):
        lucid.det(lucid.ones(2, 2, dtype=lucid.int64, device=device))
    with pytest.raises(lucid.DtypeMismatch):
        lucid.inverse(lucid.eye(2, dtype=lucid.float16, device=device))
    with pytest.raises(lucid.ShapeMismatch):
        _C.solve_matrices(lucid.eye(2, device=device), lucid.ones(3, 1, device=device))


def test_batches_of_vmap() -> None:
    a = matrices(4, 3, 3)
    np.testing.assert_allclose(
        lucid.func.vmap(lucid.det)(a).tolist(), lucid.det(a).tolist(), rtol=TABLE["few ops"].rtol
    )
    b = matrices(3, 2, seed=2)
    got = lucid.func.vmap(lambda m: _C.solve_matrices(m, b))(a)
    np.testing.assert_allclose(got.tolist(), _C.solve_matrices(a, b).tolist(), rtol=TABLE["program"].rtol)


# The CPU device has LAPACK's routines in four dtypes, each of them a function of its own.
LAPACK = pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
SIZES = pytest.mark.parametrize("n", [1, 2, 5, 11])


def of(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    parts = rng.standard_normal((2, *shape))
    return (parts[0] + 1j * parts[1] if dtype.startswith("complex") else parts[0]).astype(dtype)


def bounds(dtype: str) -> dict[str, float]:
    return within("decomposition" if dtype in ("float32", "complex64") else "float64 factors")


@LAPACK
@SIZES
@pytest.mark.parametrize("half", ["L", "U"])
def test_eigenvalues_ascend_and_each_has_its_vector(dtype: str, n: int, half: str) -> None:
    whole = of(dtype, 3, n, n)
    whole = whole + whole.conj().swapaxes(-1, -2)
    # Of the other half nothing is read.
    read = (
        np.tril(whole) + np.triu(np.full_like(whole, 99), 1) if half == "L" else np.triu(whole) + np.tril(whole * 7, -1)
    )
    values, vectors = lucid.linalg.eigh(lucid.tensor(read), UPLO=half)
    w, v = values.numpy(), vectors.numpy()
    assert (np.diff(w) >= 0).all()
    np.testing.assert_allclose(whole @ v, v * w[:, None, :], **bounds(dtype))
    np.testing.assert_allclose(v.conj().swapaxes(-1, -2) @ v, np.broadcast_to(np.eye(n), v.shape), **bounds(dtype))
    np.testing.assert_allclose(w, np.linalg.eigvalsh(whole), **bounds(dtype))
    np.testing.assert_allclose(lucid.linalg.eigvalsh(lucid.tensor(read), UPLO=half).numpy(), w, **bounds(dtype))


@LAPACK
@SIZES
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_triangular_systems(dtype: str, n: int, upper: bool, unit: bool, left: bool) -> None:
    """The flags say what is read: neither the other half is, nor with `unitriangular` the diagonal."""
    given = of(dtype, n, n) / 4 + 2 * np.eye(n, dtype=dtype)
    matrix = np.triu(given) if upper else np.tril(given)
    if unit:
        np.fill_diagonal(matrix, 1)
    right = of(dtype, n, 3, seed=1) if left else of(dtype, 3, n, seed=1)
    a, b = lucid.tensor(given), lucid.tensor(right)
    x = lucid.linalg.solve_triangular(a, b, upper=upper, left=left, unitriangular=unit).numpy()
    np.testing.assert_allclose(matrix @ x if left else x @ matrix, right, **bounds(dtype))


@LAPACK
@SIZES
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_factors_of_either_half(dtype: str, n: int, upper: bool) -> None:
    a = of(dtype, n, n)
    whole = a @ a.conj().T + n * np.eye(n, dtype=dtype)
    factor = lucid.linalg.cholesky(lucid.tensor(whole), upper=upper).numpy()
    assert (np.tril(factor, -1) if upper else np.triu(factor, 1)).any() == 0
    product = factor.conj().T @ factor if upper else factor @ factor.conj().T
    np.testing.assert_allclose(product, whole, **bounds(dtype))
    rebuilt = lucid.cholesky_solve(lucid.tensor(whole), lucid.tensor(factor), upper=upper).numpy()
    np.testing.assert_allclose(rebuilt, np.eye(n), **bounds(dtype))


@LAPACK
@SIZES
def test_systems_and_their_transposes(dtype: str, n: int) -> None:
    a, b = of(dtype, n, n) + 3 * np.eye(n, dtype=dtype)[::-1], of(dtype, n, 2, seed=1)
    x = lucid.linalg.solve(lucid.tensor(a), lucid.tensor(b)).numpy()
    np.testing.assert_allclose(a @ x, b, **bounds(dtype))
    lu, pivots = lucid.linalg.lu_factor(lucid.tensor(a))
    for left, adjoint in [(True, False), (True, True), (False, False), (False, True)]:
        right = lucid.tensor(b if left else b.T.copy())
        y = lucid.linalg.lu_solve(lu, pivots, right, left=left, adjoint=adjoint).numpy()
        matrix = a.conj().T if adjoint else a
        np.testing.assert_allclose(matrix @ y if left else y @ matrix, right.numpy(), **bounds(dtype))


PARTS = {
    "qr": lambda a: lucid.linalg.qr(a),
    "eigh": lambda a: lucid.linalg.eigh(a),
    "eig": lambda a: lucid.linalg.eig(a),
    "svd": lambda a: lucid.linalg.svd(a),
    "slogdet": lambda a: lucid.linalg.slogdet(a),
    "lu_factor": lambda a: lucid.linalg.lu_factor_ex(a),
    "cholesky": lambda a: lucid.linalg.cholesky_ex(a),
}


# The gradient of general eigenvalues solves complex systems, which MLX does not.
@pytest.mark.parametrize(("name", "device"), [(n, d) for n in PARTS for d in DEVICES if (n, d) != ("eig", "gpu")])
def test_a_decomposition_is_one_step_and_one_node(name: str, device: str) -> None:
    base = lucid.randn(2, 3, 3)
    a = (base @ base.mT + 3 * lucid.eye(3)).to(device).requires_grad_()
    recorder = _C._GraphRecorder([a], False)
    made = PARTS[name](a)
    graph = recorder.finish()[0]
    steps = [row for row in graph.steps() if len(row["outputs"]) > 1]
    assert len(steps) == 1 and steps[0]["op"].endswith("_parts")
    assert sum(row["op"] == "copy" for row in graph.steps()) == 0
    assert str(graph).count("_parts(") == 1 and "_parts" in graph.to_dot() and "_parts" in graph.to_svg()
    differentiable = [t for t in made if t.grad_fn is not None]
    assert len({t.grad_fn for t in differentiable}) == 1
    assert [t.output_nr for t in differentiable] == [i for i, t in enumerate(made) if t.grad_fn is not None]
    # What nothing used has no gradient to give, nor has a sign; together they are the sum.
    each = [
        lucid.autograd.grad(t.abs().sum(), a, retain_graph=True, materialize_grads=True)[0] for t in differentiable
    ]
    whole = lucid.autograd.grad(sum(t.abs().sum() for t in differentiable), a)[0]
    lucid.testing.assert_close(sum(each), whole, **within("decomposition"))
