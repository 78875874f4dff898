"""CSR tensors beside PyTorch's."""

from __future__ import annotations

import copy
import pickle
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
    with pytest.raises(NotImplementedError, match="single numbers"):
        lucid.sparse_csr_tensor([0, 1, 2], [0, 1], lucid.ones(2, 3))


#: Of a framework `m` and dense batches `d` (2, 3, 4) and `e` (2, 2, 2, 2) with zeros at other places in each matrix.
BATCHES = (
    *("d.to_sparse_csr()", "d.to_sparse_csc()", "d.to_sparse_bsr((1, 2))", "e.to_sparse_csr()", "e.to_sparse_csc()"),
    *("d.to_sparse_csr().crow_indices()", "d.to_sparse_csc().ccol_indices()", "d.to_sparse_csc().row_indices()"),
    *("d.to_sparse_bsr((1, 2)).values()", "d.to_sparse_csr().sin()", "d.to_sparse_csc() * 3", "-e.to_sparse_csr()"),
    *("d.to_sparse_csr()[1]", "d.to_sparse_csc()[0]", "e.to_sparse_csr()[1]"),
    *(
        "e.to_sparse_csr()[1, 0]",
        "d.to_sparse_bsr((3, 2))[1]",
        "d.to_sparse_csr().select(0, 1)",
        "d.to_sparse_csr().mT",
    ),
    *("d.to_sparse_csr().transpose(1, 2)", "d.to_sparse_csr().sum()", "d.to_sparse_csr().unbind(0)[1]"),
    *("d.to_sparse_csr().to_sparse()", "d.to_sparse_csr().to_sparse_csc()", "d.to_sparse_csr().half()"),
    *("d.to_sparse_csr().relu()", "d.to_sparse_csr().abs()"),
    "m.sparse_csr_tensor([[0, 1, 2], [0, 1, 2]], [[0, 1], [1, 0]], [[1.0, 2.0], [3.0, 4.0]], (2, 2, 3))",
    "m.sparse_csc_tensor([[0, 1, 2], [0, 1, 2]], [[0, 1], [1, 0]], [[1.0, 2.0], [3.0, 4.0]])",
    "m.sparse_bsr_tensor([[0, 1], [0, 1]], [[0], [1]], [[[[1.0, 2.0]]], [[[3.0, 4.0]]]])",
)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("text", BATCHES)
def test_batches(text: str, device: str) -> None:
    rng = np.random.default_rng(0)
    d = rng.uniform(0.5, 1, (2, 3, 4)).astype(np.float32)
    d[0, 1, 2:] = d[1, 0, :2] = 0
    e = rng.uniform(0.5, 1, (2, 2, 2, 2)).astype(np.float32)
    e.reshape(4, 4)[range(4), range(4)] = 0
    want = eval(text, {"m": torch, "d": torch.tensor(d), "e": torch.tensor(e)})
    given = {k: lucid.tensor(v, device=device) for k, v in (("d", d), ("e", e))}
    got = eval(text, {"m": lucid, **given})
    assert str(got.layout).rpartition(".")[2] == str(want.layout).rpartition(".")[2]
    assert tuple(got.shape) == tuple(want.shape) and got.dim() == want.dim() and got.numel() == want.numel()
    if want.layout != torch.strided:
        assert got._nnz() == want._nnz()
        if "_tensor" not in text:
            assert repr(got.cpu()).replace("lucid", "torch") == repr(want)
        want, got = want.to_dense(), got.to_dense()
    np.testing.assert_allclose(got.cpu().numpy(), want.numpy(), rtol=TABLE["few ops"].rtol)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_batches_have_gradients_copies_and_products(device: str) -> None:
    x = lucid.tensor([[[1.0, 0.0], [2.0, 3.0]], [[0.0, 4.0], [5.0, 6.0]]], device=device, requires_grad=True)
    y = lucid.randn(2, 2, 3, device=device)
    for made in (x.to_sparse_csr(), x.to_sparse_csc(), x.to_sparse_bsr(1)):
        (made * 2 @ y).sum().backward()
        want = 2 * y.sum(2)[:, None, :].expand(2, 2, 2) * (x != 0)
        np.testing.assert_allclose(x.grad.cpu().numpy(), want.detach().cpu().numpy(), rtol=TABLE["few ops"].rtol)
        x.grad = None
        for other in (copy.deepcopy(made.detach()), pickle.loads(pickle.dumps(made.detach()))):
            assert other.layout == made.layout and lucid.equal(other.to_dense(), made.to_dense())
    parts = ([[0, 1, 2], [0, 0, 2]], [[0, 1], [0, 1]], [[1.0, 2.0], [3.0, 4.0]])
    leaf = lucid.sparse_csr_tensor(*parts, device=device, requires_grad=True)
    leaf.to_dense().pow(2).sum().backward()
    assert leaf.grad.values().tolist() == [[2, 4], [6, 8]]
    # PyTorch adds the elements of the first matrix alone.
    twice = (x.detach().to_sparse_csr() + x.detach().to_sparse_csr()).to_dense()
    assert lucid.equal(twice, 2 * x.detach())
    assert (leaf.detach() - leaf.detach()).to_dense().abs().sum().item() == 0
    assert (leaf.detach() + x.detach()).layout == lucid.strided


def test_bad_batches() -> None:
    uneven = lucid.tensor([[[1.0, 0.0]], [[1.0, 1.0]]])
    for convert in (uneven.to_sparse_csr, uneven.to_sparse_csc, lambda: uneven.to_sparse_bsr((1, 1))):
        with pytest.raises(RuntimeError, match="same number of specified elements"):
            convert()
    good = ([[0, 1], [0, 1]], [[0], [0]], [[1.0], [2.0]])
    for bad, size in (
        (([[0, 1]], *good[1:]), None),
        ((good[0], [[0]], good[2]), None),
        ((*good[:2], [[[1.0]], [[2.0]]]), None),
        (([[0, 2], [0, 1]], *good[1:]), None),
        (good, (2, 1)),
        (good, (2, 1, 0)),
        (good, (3, 1, 1)),
    ):
        with pytest.raises(RuntimeError, match="sparse_csr_tensor"):
            lucid.sparse_csr_tensor(*bad, size)
    x = lucid.sparse_csr_tensor(*good)
    for call in (lambda: x + 1, lambda: x * lucid.ones(2, 1, 1), lambda: x.transpose(0, 1), x.ccol_indices):
        with pytest.raises(RuntimeError):
            call()
    with pytest.raises(RuntimeError, match="divisible"):
        lucid.ones(2, 3, 4).to_sparse_bsr((2, 2))
    with pytest.raises(NotImplementedError, match="no rule"):
        x.exp()


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_products_by_other_reductions(reduce: str, device: str) -> None:
    results = []
    for m, where in ((lucid, device), (torch, "cpu")):
        crow, col = (m.tensor(part, device=where) for part in PARTS[:2])
        values = m.tensor(PARTS[2], device=where, requires_grad=True)
        dense = m.tensor(np.linspace(-1, 2, 8).reshape(4, 2), device=where, dtype=m.float32, requires_grad=True)
        made = m.sparse.mm(m.sparse_csr_tensor(crow, col, values, PARTS[3]), dense, reduce)
        (made * m.tensor([1.0, 2.0], device=where)).sum().backward()
        results.append((made, values.grad, dense.grad))
    for ours, theirs in zip(*results, strict=True):
        same(ours, theirs)
    zero = lucid.zeros(3, 2)
    product = lucid.ops.aten._sparse_addmm(zero, lucid.sparse_csr_tensor(*PARTS[:3], PARTS[3]), lucid.ones(4, 2))
    assert product.tolist() == [[-1.0, -1.0], [0.0, 0.0], [3.0, 3.0]]


def test_reductions_that_are_refused() -> None:
    csr, dense = lucid.sparse_csr_tensor(*PARTS[:3], PARTS[3]), lucid.ones(4, 2)
    with pytest.raises(RuntimeError, match="reduce type of prod has not been enabled"):
        lucid.sparse.mm(csr, dense, "prod")
    with pytest.raises(NotImplementedError, match="CSR layout"):
        lucid.sparse.mm(csr.to_dense().to_sparse(), dense, "mean")
