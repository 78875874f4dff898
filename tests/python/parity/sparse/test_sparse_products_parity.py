"""Products, sums, softmax and layouts of sparse tensors, with their gradients, against PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import within

Case = Callable[[Any, Any, Any], Any]


@pytest.fixture(params=["cpu", "gpu"])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def told(f: Any, device: str, run: Case) -> list[Any]:
    """Is the result sparse, what is it, and the values' and the dense factor's gradients; or the error's kinds."""
    indices = f.tensor([[0, 1, 1, 0], [2, 0, 2, 2]], device=device)
    values = f.tensor([3.0, 4.0, 5.0, 7.0], requires_grad=True, device=device)
    dense = (f.arange(12.0, device=device).reshape(3, 4) / 7).requires_grad_()
    try:
        made = run(f, f.sparse_coo_tensor(indices, values, (2, 3)), dense)
    except (IndexError, TypeError, ValueError, RuntimeError) as e:
        return [{k for k in (IndexError, TypeError, ValueError, RuntimeError) if isinstance(e, k)}]
    whole = made.to_dense() if made.is_sparse else made
    whole.pow(2).sum().backward()
    shown = [whole.detach(), values.grad, dense.grad]
    return [made.is_sparse, *(None if t is None else np.asarray(t.tolist()) for t in shown)]


CASES: dict[str, Case] = {
    "mm": lambda f, x, d: f.mm(x, d),
    "matmul": lambda f, x, d: x @ d,
    "mv": lambda f, x, d: f.mv(x, d[:, 0]),
    "matmul of a vector": lambda f, x, d: x @ d[:, 1],
    "dense by sparse": lambda f, x, d: f.mm(d.t(), x.t()),
    "vector by sparse": lambda f, x, d: d[:, 0] @ x.t(),
    "sparse by sparse": lambda f, x, d: f.mm(x, x.t()),
    "addmm": lambda f, x, d: f.addmm(f.ones(2, 4, device=d.device), x, d),
    "sparse.mm": lambda f, x, d: f.sparse.mm(x, d),
    "sparse.addmm": lambda f, x, d: f.sparse.addmm(f.ones(2, 4, device=d.device), x, d, beta=2, alpha=3),
    "spmm": lambda f, x, d: f.spmm(x, d),
    "dsmm": lambda f, x, d: f.dsmm(x, d),
    "t": lambda f, x, d: x.t(),
    "transpose": lambda f, x, d: x.transpose(-1, 0),
    "permute": lambda f, x, d: x.coalesce().permute(1, 0),
    "times itself": lambda f, x, d: x * x,
    "times another": lambda f, x, d: (
        x * f.sparse_coo_tensor([[0, 1, 1], [1, 2, 0]], [1.0, 2.0, 3.0], (2, 3)).to(d.device)
    ),
    "times dense": lambda f, x, d: x * d[:2, :3].detach(),
    "times a row": lambda f, x, d: x * f.arange(3.0, device=d.device),
    "sum": lambda f, x, d: f.sparse.sum(x),
    "sum of rows": lambda f, x, d: f.sparse.sum(x, 1),
    "sum of columns": lambda f, x, d: f.sparse.sum(x, [0]),
    "sum of both": lambda f, x, d: f.sparse.sum(x, (0, 1)),
    "softmax": lambda f, x, d: f.sparse.softmax(x, 1),
    "softmax of columns": lambda f, x, d: f.sparse.softmax(x, 0),
    "log_softmax": lambda f, x, d: f.sparse.log_softmax(x, 1),
    "to_sparse with its layout": lambda f, x, d: d.to_sparse(layout=f.sparse_coo),
    "to_sparse_coo": lambda f, x, d: d.to_sparse_coo(),
    "other sizes": lambda f, x, d: f.mm(x, d.t()),
    "other dtypes": lambda f, x, d: f.mm(x, d.long()),
    "softmax along no dimension": lambda f, x, d: f.sparse.softmax(x, 5),
    "sum along no dimension": lambda f, x, d: f.sparse.sum(x, 5),
    "sum of a dense tensor": lambda f, x, d: f.sparse.sum(d),
    "blocks of COO": lambda f, x, d: d.to_sparse(layout=f.sparse_coo, blocksize=(1, 1)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore")
def test_values_gradients_and_errors(name: str, device: str) -> None:
    ours, theirs = told(lucid, device, CASES[name]), told(torch, "cpu", CASES[name])
    if isinstance(theirs[0], set):
        assert theirs[0] <= ours[0], (ours, theirs)
        return
    assert ours[0] == theirs[0]
    for a, b in zip(ours[1:], theirs[1:], strict=True):
        assert (a is None) == (b is None), name
        if a is not None:
            np.testing.assert_allclose(a, b, **within("program"))


def test_batches_of_matrices(device: str) -> None:
    rng = np.random.default_rng(0)
    left = rng.standard_normal((2, 3, 4)).astype(np.float32) * (rng.random((2, 3, 4)) > 0.5)
    right = rng.standard_normal((2, 4, 5)).astype(np.float32)
    made = lucid.bmm(lucid.tensor(left, device=device).to_sparse(), lucid.tensor(right, device=device))
    np.testing.assert_allclose(made.tolist(), left @ right, **within("near zero"))
    other_way = lucid.bmm(
        lucid.tensor(right, device=device).mT, lucid.tensor(left, device=device).to_sparse().transpose(1, 2)
    )
    np.testing.assert_allclose(other_way.mT.tolist(), left @ right, **within("near zero"))


def test_products_of_many_elements(device: str) -> None:
    rng = np.random.default_rng(1)
    a, b = (
        rng.integers(-2, 3, (n, m)).astype(np.float32) * (rng.random((n, m)) > 0.7) for n, m in ((17, 23), (23, 11))
    )
    x, y = (lucid.tensor(v, device=device).to_sparse() for v in (a, b))
    product = x @ y
    assert product.is_sparse and product.is_coalesced()
    np.testing.assert_allclose(product.to_dense().tolist(), a @ b, **within("near zero"))
    joined = lucid.cat([x, x * 2])
    np.testing.assert_allclose(joined.to_dense().tolist(), np.concatenate([a, 2 * a]))
    empty = lucid.sparse_coo_tensor((17, 23), device=device)
    assert (empty @ y)._nnz() == 0 and (empty * x)._nnz() == 0
    assert (empty @ y.to_dense()).abs().sum().item() == 0


def test_rows_of_values(device: str) -> None:
    """Dimensions that are not indexed: sums over them, and softmax along them and across."""
    shown = []
    for f, on in ((lucid, device), (torch, "cpu")):
        values = f.arange(12.0, device=on).reshape(3, 2, 2).cos()
        x = f.sparse_coo_tensor(f.tensor([[0, 2, 0], [1, 0, 0]], device=on), values, (3, 2, 2, 2))
        made = [f.sparse.sum(x, d) for d in (0, 2, (1, 3), (0, 1), (0, 1, 2))]
        made += [f.sparse.softmax(x, d) for d in (0, 1, 2, 3)]
        made += [f.sparse.log_softmax(x, 1, dtype=f.float32), x.transpose(0, 1)]
        shown.append([np.asarray((t.to_dense() if t.is_sparse else t).tolist()) for t in made])
    for a, b in zip(*shown, strict=True):
        np.testing.assert_allclose(a, b, **within("program"))


def test_negative_dimensions(device: str) -> None:
    """Gradients too, which PyTorch has wrong."""
    grads = []
    for dim in (1, -1):
        values = lucid.tensor([3.0, 4.0, 5.0], requires_grad=True, device=device)
        x = lucid.sparse_coo_tensor(lucid.tensor([[0, 1, 1], [2, 0, 2]], device=device), values, (2, 3))
        lucid.sparse.softmax(x, dim).to_dense().pow(2).sum().backward()
        grads.append(values.grad.tolist())
        assert x.transpose(-1, -2).shape == (3, 2)
    assert grads[0] == grads[1]


def test_softmax_gives_no_warning_of_what_it_is_made_of() -> None:
    lucid.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            lucid.sparse.softmax(lucid.eye(3).to_sparse(), 0)
            lucid.sparse.log_softmax(lucid.eye(3).to_sparse(1), 1)
    finally:
        lucid.set_warn_always(False)


def test_diagonals() -> None:
    for rows, offsets, shape in (
        (np.arange(9).reshape(3, 3), [0, -1, -2], (3, 3)),
        (np.arange(9).reshape(3, 3), [0, 1, 2], (5, 5)),
        (np.arange(4).reshape(2, 2), [0, -1], (5, 5)),
        (np.arange(5), 1, (4, 3)),
    ):
        ours = lucid.sparse.spdiags(lucid.tensor(rows), lucid.tensor(offsets), shape)
        theirs = torch.sparse.spdiags(torch.tensor(rows), torch.tensor(offsets), shape)
        assert repr(ours).replace("lucid", "torch") == repr(theirs)
    for offsets, shape in (([0, 0, 1], (3, 3)), ([0, 1], (3, 3)), ([0, 1, 2], (3,)), ([0.0, 1.0, 2.0], (3, 3))):
        for f in (lucid, torch):
            with pytest.raises(RuntimeError):
                f.sparse.spdiags(f.ones(3, 3), f.tensor(offsets), shape)


def test_the_switch_of_the_checks() -> None:
    switch = lucid.sparse.check_sparse_tensor_invariants
    assert not switch.is_enabled()
    with switch():
        assert switch.is_enabled()
        with switch(False):
            assert not switch.is_enabled()
    assert not switch.is_enabled()
    switch(True)(lambda: None)()
    with pytest.raises(RuntimeError), switch(False):
        lucid.sparse_coo_tensor([[7]], [1.0], (2,))
