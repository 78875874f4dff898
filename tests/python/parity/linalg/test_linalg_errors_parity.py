"""Matrices that cannot be factored: PyTorch's `LinAlgError`, which is a `RuntimeError`, on both devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import pytest
import torch

REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "inv": lambda m, x: m.linalg.inv(x),
    "inverse": lambda m, x: x.inverse(),
    "inv_ex": lambda m, x: m.linalg.inv_ex(x, check_errors=True),
    "solve": lambda m, x: m.linalg.solve(x, x),
    "solve_ex": lambda m, x: m.linalg.solve_ex(x, x, check_errors=True),
    "cholesky": lambda m, x: m.linalg.cholesky(x),
    "cholesky_ex": lambda m, x: m.linalg.cholesky_ex(x, check_errors=True),
    "matrix_power": lambda m, x: m.linalg.matrix_power(x, -2),
    "tensorsolve": lambda m, x: m.linalg.tensorsolve(x, x[0]),
    "tensorinv": lambda m, x: m.linalg.tensorinv(x, ind=1),
    "one of a batch": lambda m, x: m.linalg.inv(m.stack([m.eye(2, device=x.device), x])),
    "backward of inv": lambda m, x: m.linalg.inv((x + 0).requires_grad_()).sum().backward(),
}


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("name", REFUSED)
def test_singular(name: str, device: str) -> None:
    for m, x in ((lucid, lucid.zeros(2, 2, device=device)), (torch, torch.zeros(2, 2))):
        with pytest.raises(m.linalg.LinAlgError) as caught:
            REFUSED[name](m, x)
        assert isinstance(caught.value, RuntimeError)
        with pytest.raises(RuntimeError, match=r"U\[1,1\] is zero") as caught:
            m.linalg.lu_factor(x)
        assert not isinstance(caught.value, m.linalg.LinAlgError)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_not_finite(device: str) -> None:
    # PyTorch gives NaN, an error or, with some builds of MKL, ends the process: not compared.
    x = lucid.full((2, 2), float("nan"), device=device)
    for name in ("svd", "svdvals", "eigh", "eigvalsh", "eig", "pinv", "matrix_rank"):
        with pytest.raises(lucid.linalg.LinAlgError, match="failed to converge"):
            getattr(lucid.linalg, name)(x)
    assert lucid.errors.LinAlgError is lucid.linalg.LinAlgError
    assert issubclass(lucid.linalg.LinAlgError, lucid.errors.RuntimeError)
