"""CSR tensors beside PyTorch's."""

from __future__ import annotations

import warnings
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import TABLE

PARTS = ([0, 2, 2, 3], [0, 2, 1], [1.0, -2.0, 3.0], (3, 4))


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def same(ours: Any, theirs: Any) -> None:
    if theirs.layout is torch.sparse_csr:
        assert ours.layout is lucid.sparse_csr and ours.is_sparse_csr and not ours.is_sparse
        for part in ("crow_indices", "col_indices", "values"):
            same(getattr(ours, part)(), getattr(theirs, part)())
        assert tuple(ours.shape) == tuple(theirs.shape)
        return
    if theirs.layout is torch.sparse_coo:
        assert ours.is_coalesced() == theirs.is_coalesced()
        ours, theirs = ours.to_dense(), theirs.to_dense()
    np.testing.assert_allclose(ours.detach().cpu().numpy(), theirs.detach().numpy(), rtol=TABLE["few ops"].rtol)


PROGRAMS: dict[str, Any] = {
    "itself": lambda t, x: x,
    "dense": lambda t, x: x.to_dense(),
    "coo": lambda t, x: x.to_sparse(),
    "matmul": lambda t, x: x @ t.arange(8.0).reshape(4, 2).to(x.values().device),
    "mv": lambda t, x: x @ t.arange(4.0).to(x.values().device),
    "sparse product": lambda t, x: (x @ x.to_dense().t().to_sparse_csr()).to_dense(),
    "add": lambda t, x: x + x,
    "number": lambda t, x: x * 3,
    # PyTorch has no quotient of this layout.
    "divided": lambda t, x: x / 2 if t is lucid else x * 0.5,
    "unary": lambda t, x: t.sin(x).neg(),
    "relu": lambda t, x: t.relu(x),
    "sum": lambda t, x: x.sum(),
    "from dense": lambda t, x: (x.to_dense() * 2).to_sparse_csr(),
    "addmm": lambda t, x: t.addmm(t.ones(3, 2).to(x.values().device), x, t.ones(4, 2).to(x.values().device)),
    "sampled": lambda t, x: t.sparse.sampled_addmm(
        x, t.arange(6.0).reshape(3, 2).to(x.values().device), t.ones(2, 4).to(x.values().device), beta=0.5, alpha=2
    ),
    "mm": lambda t, x: t.sparse.mm(x, t.ones(4, 2).to(x.values().device)),
}


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_agree(name: str, device: str) -> None:
    made = PROGRAMS[name](lucid, lucid.sparse_csr_tensor(*PARTS, device=device))
    same(made, PROGRAMS[name](torch, torch.sparse_csr_tensor(*PARTS)))


def test_gradients_go_to_values_and_factors() -> None:
    values, factor = lucid.tensor(PARTS[2], requires_grad=True), lucid.ones(4, 2, requires_grad=True)
    (lucid.sparse_csr_tensor(PARTS[0], PARTS[1], values, PARTS[3]) @ factor).square().sum().backward()
    v, f = torch.tensor(PARTS[2], requires_grad=True), torch.ones(4, 2, requires_grad=True)
    dense = torch.zeros(3, 4).index_put((torch.tensor([0, 0, 2]), torch.tensor([0, 2, 1])), v)
    (dense @ f).square().sum().backward()
    same(values.grad, v.grad)
    same(factor.grad, f.grad)
    leaf = lucid.sparse_csr_tensor(*PARTS, requires_grad=True)
    leaf.to_dense().square().sum().backward()
    assert leaf.grad.values().tolist() == [2, -4, 6] and leaf.grad.is_sparse_csr


@pytest.mark.parametrize(
    "parts",
    [
        ([0, 1], [0], [1.0, 2.0], (1, 2)),
        ([0, 2, 1], [0, 1], [1.0, 2.0], (2, 2)),
        ([1, 2], [0, 1], [1.0, 2.0], (1, 2)),
        ([0, 1], [5], [1.0], (1, 2)),
        ([0, 1], [-1], [1.0], (1, 2)),
        ([0, 2], [1, 0], [1.0, 2.0], (1, 2)),
        ([0, 2], [1, 1], [1.0, 2.0], (1, 2)),
        ([0, 1], [0], [1.0], (3, 2)),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts: Any) -> None:
    with pytest.raises(RuntimeError):
        torch.sparse_csr_tensor(*parts, check_invariants=True)
    with pytest.raises(RuntimeError, match="sparse_csr_tensor"):
        lucid.sparse_csr_tensor(*parts)


def test_other_functions_say_so() -> None:
    x = lucid.sparse_csr_tensor(*PARTS)
    with pytest.raises(NotImplementedError, match="cos"):
        lucid.cos(x)
    with pytest.raises(RuntimeError, match="to_dense"):
        x + 1
    with pytest.raises(RuntimeError, match="matrix"):
        lucid.ones(2).to_sparse_csr()
    assert repr(x).startswith("tensor(crow_indices=tensor([0, 2, 2, 3])") and len(x) == 3
    assert lucid.sparse_csr_tensor([0, 1], [2], [1.0]).shape == (1, 3)
    assert lucid.zeros(2, 3).to_sparse_csr().values().numel() == 0


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_gradients_of_sampled_products(device: str) -> None:
    x = lucid.sparse_csr_tensor(*PARTS, device=device, requires_grad=True)
    a, b = (lucid.arange(6.0, device=device).reshape(s).requires_grad_() for s in ((3, 2), (2, 3)))
    c = lucid.cat([b, b[:, :1]], 1)
    lucid.sparse.sampled_addmm(x, a, c, beta=3.0).values().pow(2).sum().backward()
    dense = (torch.tensor(t.detach().cpu().numpy()).requires_grad_() for t in (x.to_dense(), a, b))
    y, d, e = dense
    pattern = (y != 0).float()
    ((pattern * (d @ torch.cat([e, e[:, :1]], 1)) + 3.0 * y).pow(2)).sum().backward()
    np.testing.assert_allclose(a.grad.cpu().numpy(), d.grad.numpy(), rtol=TABLE["few ops"].rtol)
    np.testing.assert_allclose(b.grad.cpu().numpy(), e.grad.numpy(), rtol=TABLE["few ops"].rtol)
    wanted = y.grad[x.row_indices().cpu().numpy(), x.col_indices().cpu().numpy()].numpy()
    np.testing.assert_allclose(x.values().grad.cpu().numpy(), wanted, rtol=TABLE["few ops"].rtol)


def test_bad_sampled_products_and_batches() -> None:
    x = lucid.sparse_csr_tensor(*PARTS)
    for a, b in (((3, 2), (3, 4)), ((2, 2), (2, 4)), ((3,), (3, 4))):
        with pytest.raises(RuntimeError, match="sampled_addmm"):
            lucid.sparse.sampled_addmm(x, lucid.ones(a), lucid.ones(b))
    with pytest.raises(RuntimeError, match="same dtype"):
        lucid.sparse.sampled_addmm(x, lucid.ones(3, 2).double(), lucid.ones(2, 4))
    with pytest.raises(RuntimeError, match="layout sparse_csr"):
        lucid.sparse.sampled_addmm(x.to_dense(), lucid.ones(3, 2), lucid.ones(2, 4))
    with pytest.raises(NotImplementedError, match="convert each"):
        lucid.ones(2, 3, 4).to_sparse_csr()
    with pytest.raises(NotImplementedError, match="list of matrices"):
        lucid.sparse_csr_tensor([[0, 1], [0, 1]], [[0], [0]], lucid.ones(2, 1), (2, 1, 1))
