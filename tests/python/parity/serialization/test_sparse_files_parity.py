"""Sparse tensors in files: read and written as PyTorch does it, and nothing in a file that does not fit is taken."""

from __future__ import annotations

import io
from typing import Any

import lucid
import pytest
import torch
from lucid import serialization as ser

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant", "ignore:Validating sparse", "ignore:Sparse CSR")


@pytest.fixture(params=["cpu", "gpu"])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def written(save: Any, what: Any) -> io.BytesIO:
    file = io.BytesIO()
    save(what, file)
    file.seek(0)
    return file


def parts(t: Any) -> list[Any]:
    return [list(t.shape), t.is_coalesced(), t._indices().tolist(), t._values().tolist(), str(t.dtype).split(".")[1]]


def samples(f: Any, **where: Any) -> dict[str, Any]:
    twice = f.sparse_coo_tensor([[0, 1, 1], [2, 0, 0]], [1.0, 2.0, 3.0], (2, 3), **where)
    return {
        "twice": twice,
        "coalesced": twice.coalesce(),
        "rows": f.sparse_coo_tensor([[3, 0]], f.ones(2, 4, dtype=f.float16, **where), (5, 4), **where),
        "whole numbers": f.sparse_coo_tensor([[1]], [7], (2,), **where),
        "nothing": f.sparse_coo_tensor(f.zeros(2, 0, dtype=f.int64, **where), f.zeros(0, **where), (3, 4), **where),
    }


def test_written_here(device: str) -> None:
    ours = samples(lucid, device=device)
    file = written(lucid.save, {"layout": lucid.sparse_coo, **ours})
    for load, f in ((lucid.load, lucid), (torch.load, torch)):
        file.seek(0)
        back = load(file)
        assert back.pop("layout") is f.sparse_coo
        assert {k: parts(v) for k, v in back.items()} == {k: parts(v) for k, v in ours.items()}
    file.seek(0)
    assert all(v.device == lucid.device(device) for k, v in lucid.load(file).items() if k != "layout")


def test_written_by_pytorch() -> None:
    theirs = samples(torch)
    back = lucid.load(written(torch.save, {"layout": torch.sparse_coo, **theirs}))
    assert back.pop("layout") is lucid.sparse_coo
    assert {k: parts(v) for k, v in back.items()} == {k: parts(v) for k, v in theirs.items()}


def test_gradients_and_optimizers_go_through_files(device: str) -> None:
    layer = lucid.nn.Embedding(10, 3, sparse=True).to(device)
    layer(lucid.tensor([1, 2, 1], device=device)).sum().backward()
    back = lucid.load(written(lucid.save, layer.weight.grad))
    assert back.is_sparse and back.to_dense().tolist() == layer.weight.grad.to_dense().tolist()
    layer.weight.grad = back
    lucid.optim.SparseAdam(layer.parameters()).step()


def as_file(indices: torch.Tensor, values: torch.Tensor, size: Any, coalesced: bool = False) -> io.BytesIO:
    """What PyTorch would write of a sparse tensor with these parts, could it have them."""

    class Parts:
        def __reduce__(self) -> Any:
            data = (indices, values, size, coalesced)
            return torch._utils._rebuild_sparse_tensor, (torch.sparse_coo, data)

    return written(torch.save, Parts())


ONES, AT = torch.ones(2), torch.tensor([[0, 1]])
WRONG: dict[str, tuple[Any, ...]] = {
    "an index out of range": (AT + 5, ONES, torch.Size([3])),
    "a negative index": (AT - 1, ONES, torch.Size([3])),
    "too few values": (AT, ONES[:1].clone(), torch.Size([3])),
    "too many dimensions": (AT, ONES, torch.Size([3, 3])),
    "indices that are no integers": (AT.float(), ONES, torch.Size([3])),
    "values without end": (AT, torch.ones(1).expand(2**40), torch.Size([3])),
    "indices without end": (AT[:, :1].expand(1, 2**40), ONES, torch.Size([3])),
    "sparse values": (AT, ONES.to_sparse(), torch.Size([3])),
    "a size of something else": (AT, ONES, "abc"),
    "no values": (AT, None, torch.Size([3])),
}


@pytest.mark.parametrize("what", WRONG)
def test_parts_that_do_not_fit(what: str) -> None:
    with pytest.raises(ser.UnpicklingError, match=r"sparse tensor|size"):
        lucid.load(as_file(*WRONG[what]))


def test_a_wrong_word_that_indices_are_unique_is_not_taken() -> None:
    back = lucid.load(as_file(torch.tensor([[1, 1]]), ONES, torch.Size([3]), coalesced=True))
    assert back.coalesce()._values().tolist() == [2.0] and back.to_dense().tolist() == [0.0, 2.0, 0.0]
