"""CSC and BSR matrices against PyTorch: parts, conversions, functions, products, gradients, refusals."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import lucid
import pytest
import torch

DENSE = [[0.0, 1.0, 0.0, -2.0], [0.0, 0.0, 0.0, 3.0], [4.0, 0.0, 0.0, 0.0], [0.0, 0.0, 5.0, 0.0]]
MAKE = {"csc": "x.to_sparse_csc()", "bsr": "x.to_sparse_bsr((2, 2))", "wide": "x.to_sparse_bsr((1, 4))"}


def facts(t: Any) -> Any:
    if not hasattr(t, "layout"):
        return t
    layout = str(t.layout).split(".")[-1]
    if layout == "strided":
        return layout, tuple(t.shape), t.tolist()
    if layout == "sparse_coo":
        return layout, tuple(t.shape), t.to_dense().tolist()
    names = ("ccol_indices", "row_indices") if layout == "sparse_csc" else ("crow_indices", "col_indices")
    return layout, tuple(t.shape), *(getattr(t, n)().tolist() for n in (*names, "values"))


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_parts_and_conversions(make: str, device: str) -> None:
    ours, theirs = (eval(make, {"x": m.tensor(DENSE)}) for m in (lucid, torch))
    if device == "gpu":
        ours = eval(make, {"x": lucid.tensor(DENSE, device="gpu")})
    assert facts(ours) == facts(theirs) and ours._nnz() == theirs._nnz()
    assert (ours.ndim, len(ours), ours.numel(), ours.is_sparse) == (2, 4, 16, False)
    for back in ("to_dense()", "to_sparse()", "to_sparse_csr()", "to_sparse_csc()", "clone()"):
        made = eval(f"ours.{back}")
        if "bsr" in make and back in ("to_sparse_csr()", "to_sparse_csc()"):
            # PyTorch does not convert blocks to single columns and rows.
            assert made.layout != ours.layout and made.to_dense().tolist() == DENSE
        else:
            assert facts(made) == facts(eval(f"theirs.{back}")), back
    assert facts(ours.to_sparse_bsr((2, 1))) == facts(torch.tensor(DENSE).to_sparse_bsr((2, 1)))
    coo, csr = lucid.tensor(DENSE).to_sparse(), lucid.tensor(DENSE).to_sparse_csr()
    assert facts(eval(make, {"x": coo})) == facts(eval(make, {"x": csr})) == facts(theirs)
    for again in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), saved(lucid, lucid, ours)):
        assert facts(again) == facts(theirs)
    assert repr(ours.cpu()) == repr(theirs).replace("torch.", "lucid.")


def saved(writer: Any, reader: Any, x: Any) -> Any:
    file = io.BytesIO()
    writer.save({"x": x}, file)
    file.seek(0)
    return reader.load(file)["x"]


@pytest.mark.parametrize("make", [*MAKE.values(), "x.to_sparse_csr()"])
def test_files(make: str) -> None:
    ours, theirs = (eval(make, {"x": m.tensor(DENSE)}) for m in (lucid, torch))
    assert facts(saved(torch, lucid, theirs)) == facts(theirs) == facts(saved(lucid, torch, ours))
    # Parts that do not fit one another are refused, not read.
    broken = torch.sparse_csc_tensor([0, 2], [0, 1], [1.0, 2.0], (1, 1), check_invariants=False)
    with pytest.raises(lucid.serialization.UnpicklingError, match="range"):
        saved(torch, lucid, broken)


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "product": lambda m, x: x @ m.arange(8.0).reshape(4, 2),
    "vector": lambda m, x: x @ m.arange(4.0),
    "scaled": lambda m, x: (x * 2).to_dense(),
    "sin": lambda m, x: x.sin().to_dense(),
    "sum": lambda m, x: x.sum(),
    "layer": lambda m, x: m.nn.functional.linear(m.arange(24.0).reshape(2, 3, 4), x, m.ones(4)),
    "row": lambda m, x: x.to_dense()[1],
    "asked": lambda m, x: x.to_dense().to_sparse(layout=m.sparse_bsr, blocksize=(1, 2)).values(),
    "transposed": lambda m, x: x.t().to_dense(),
    "double": lambda m, x: x.to(m.float64).values(),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("make", ["x.to_sparse_csc()", "x.to_sparse_bsr((2, 2))"])
def test_programs(make: str, name: str) -> None:
    ours, theirs = (PROGRAMS[name](m, eval(make, {"x": m.tensor(DENSE)})) for m in (lucid, torch))
    torch.testing.assert_close(torch.tensor(ours.tolist(), dtype=theirs.dtype), theirs)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_gradients_go_to_the_values(device: str) -> None:
    factor = lucid.arange(4.0, device=device)
    for make, parts in (
        (lucid.sparse_csc_tensor, ([0, 1, 2, 2], [0, 1], [2.0, 3.0], (2, 3))),
        (lucid.sparse_bsr_tensor, ([0, 1, 2], [0, 1], [[[2.0, 1.0]], [[3.0, 4.0]]], (2, 4))),
    ):
        x = make(*parts, requires_grad=True, device=device)
        (x @ factor[: x.shape[1]]).square().sum().backward()
        leaf = x.to_dense().detach().requires_grad_()
        (leaf @ factor[: x.shape[1]]).square().sum().backward()
        places = (x.to_dense() != 0).cpu()
        assert x.grad.to_dense().cpu()[places].tolist() == leaf.grad.cpu()[places].tolist()
        y = lucid.tensor(DENSE, device=device, requires_grad=True)
        (y.to_sparse_csc() if make is lucid.sparse_csc_tensor else y.to_sparse_bsr((2, 2))).values().sum().backward()
        assert y.grad is not None and y.grad.sum().item() == (5 if make is lucid.sparse_csc_tensor else 16)


def test_refusals() -> None:
    for name, parts in (
        ("sparse_csc_tensor", ([0, 2], [0], [1.0], (1, 1))),
        ("sparse_csc_tensor", ([0, 1], [3], [1.0], (2, 1))),
        ("sparse_csc_tensor", ([0, 1], [0], [[1.0]], (2, 1))),
        ("sparse_bsr_tensor", ([0, 1], [0], [[[1.0, 2.0]]], (1, 3))),
        ("sparse_bsr_tensor", ([0, 1], [2], [[[1.0, 2.0]]], (1, 4))),
        ("sparse_bsr_tensor", ([0, 1], [0], [1.0], (1, 2))),
    ):
        with pytest.raises(RuntimeError):
            getattr(torch, name)(*parts, check_invariants=True)
        with pytest.raises(RuntimeError, match=name):
            getattr(lucid, name)(*parts)
    with pytest.raises(RuntimeError, match="divisible"):
        lucid.eye(3).to_sparse_bsr((2, 2))
    with pytest.raises(RuntimeError, match="matrix"):
        lucid.ones(2).to_sparse_csc()
    with pytest.raises(NotImplementedError, match="no rule"):
        lucid.eye(2).to_sparse_csc().exp()
    assert "layout=lucid.sparse_csc" in repr(lucid.eye(2).to_sparse_csc())
