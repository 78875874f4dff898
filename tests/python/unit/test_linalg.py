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
