"""Sparse tensors and sparse gradients: what they cost, what they share, and what refuses them."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import lucid
import pytest
from lucid import optim

from tests.python.tolerances import TABLE


def rows(device: str = "cpu") -> lucid.Tensor:
    """Row 2 twice and row 0 once, of (4, 2)."""
    values = lucid.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], device=device)
    return lucid.sparse_coo_tensor(lucid.tensor([[2, 0, 2]], device=device), values, (4, 2))


OPTIMIZERS: list[Any] = [
    lambda p: optim.SparseAdam(p, lr=0.1),
    lambda p: optim.SGD(p, lr=0.1),
    lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    lambda p: optim.Adagrad(p, lr=0.1),
]


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_untouched_rows_stay_bit_by_bit(make: Any, device: str) -> None:
    layer = lucid.nn.Embedding(50, 3, sparse=True, device=device)
    optimizer = make([layer.weight])
    before = layer.weight.detach().clone()
    for step in range(4):
        optimizer.zero_grad()
        layer(lucid.tensor([7, 7, 30 + step], device=device)).square().sum().backward()
        optimizer.step()
    changed = (layer.weight.detach() != before).any(1).nonzero().reshape(-1).tolist()
    assert changed == [7, 30, 31, 32, 33]
    for state in optimizer.state[layer.weight].values():
        if isinstance(state, lucid.Tensor) and state.ndim == 2:
            nonzero = state.to_dense().ne(0).any(1).nonzero().reshape(-1).tolist()
            assert nonzero == changed


def peak_of_a_step(make: Any, count: int, calls: list[int]) -> tuple[int, int, dict[str, int]]:
    """Bytes that a step needed at most beyond what it began with, its allocations, and its ops by name."""
    lucid.manual_seed(0)
    layer = lucid.nn.Embedding(count, 16, padding_idx=1, sparse=True)
    optimizer = make([layer.weight])
    at = lucid.tensor([[3, 9, 3, 1], [0, 9, 5, 8]])
    for _ in range(3):
        calls.clear()
        optimizer.zero_grad()
        # What other tests left in cycles must not go between the two looks.
        gc.collect()
        lucid.reset_peak_memory_stats("cpu")
        before = lucid.memory_stats("cpu")
        with lucid.profile() as counts:
            layer(at).square().sum().backward()
            optimizer.step()
        after = lucid.memory_stats("cpu")
    ops = {name: c["calls"] for name, c in counts.ops.items()}
    return after["peak"] - before["current"], after["allocations"] - before["allocations"], ops


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_the_cost_of_a_step_does_not_grow_with_the_table(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    step = lucid._C._optimizer_step
    monkeypatch.setattr(
        lucid._C, "_optimizer_step", lambda batches, *rest: calls.append(len(batches)) or step(batches, *rest)
    )
    small = peak_of_a_step(make, 10, calls)
    assert calls == [1]
    large = peak_of_a_step(make, 200_000, calls)
    assert calls == [1]
    # The table has 12.8 MB; rows, gradients, moments and indices of 8 look-ups are a few kB.
    assert large[0] == small[0] < 100_000
    assert large[1:] == small[1:]


def test_a_used_row_is_renormed_alone() -> None:
    lucid.manual_seed(0)
    peaks = []
    for count in (10, 100_000):
        layer = lucid.nn.Embedding(count, 16, max_norm=0.5)
        with lucid.no_grad():
            layer.weight.fill_(1.0)
        lucid.reset_peak_memory_stats("cpu")
        before = lucid.memory_stats("cpu")["current"]
        layer(lucid.tensor([3, 9, 3]))
        peaks.append(lucid.memory_stats("cpu")["peak"] - before)
        assert layer.weight[3].norm().item() == pytest.approx(0.5, rel=TABLE["few ops"].rtol)
        assert layer.weight[4].tolist() == [1.0] * 16
    assert peaks[0] == peaks[1]


def test_parts_are_shared_with_what_is_detached(device: str) -> None:
    x = rows(device)
    seen = x.detach()
    x.mul_(2)
    assert seen._values().tolist() == [[2.0, 4.0], [6.0, 8.0], [10.0, 12.0]]
    seen._values().zero_()
    assert x.to_dense().sum().item() == 0
    own = rows(device)
    other = own.clone()
    own._values().fill_(1.0)
    own.zero_()
    assert (own._nnz(), other._nnz(), other._values()[0].tolist()) == (0, 3, [1.0, 2.0])


def test_moves_and_casts() -> None:
    x = rows().to("gpu")
    assert x.device == lucid.device("gpu") and x._indices().device == x._values().device == x.device
    back = x.cpu()
    assert back.is_sparse and back.to_dense().tolist() == rows().to_dense().tolist()
    assert back.half().dtype is lucid.float16 and back.half()._values().dtype is lucid.float16
    assert back.double().to_dense().dtype is lucid.float64
    with pytest.raises(lucid.errors.DeviceMismatch):
        rows() + rows("gpu")
    with pytest.raises(lucid.errors.DeviceMismatch):
        lucid.ones(4, 2) + rows("gpu")
    with pytest.raises(lucid.errors.DeviceMismatch):
        lucid.sparse_coo_tensor(lucid.tensor([[0]]), lucid.ones(1), (2,)) * lucid.tensor(2.0, device="gpu")


def test_copies_and_pickles() -> None:
    weight = lucid.ones(4, 2, requires_grad=True)
    lucid.nn.functional.embedding(lucid.tensor([1, 1]), weight, sparse=True).sum().backward()
    twin = copy.deepcopy(weight)
    assert twin.grad is not None and twin.grad.is_sparse
    weight.grad.zero_()
    assert twin.grad.to_dense().tolist()[1] == [2.0, 2.0]
    # A parameter's copy has no gradient, as in PyTorch.
    layer = lucid.nn.Embedding(4, 2, sparse=True)
    layer(lucid.tensor([1, 1])).sum().backward()
    assert layer.weight.grad.is_sparse and copy.deepcopy(layer).weight.grad is None
    for x in (rows(), rows().coalesce()):
        read = pickle.loads(pickle.dumps(x))
        assert read.is_sparse and read.is_coalesced() == x.is_coalesced()
        assert read.to_dense().tolist() == x.to_dense().tolist()
    assert pickle.loads(pickle.dumps(lucid.sparse_coo)) is lucid.sparse_coo


def test_indices_are_always_checked() -> None:
    for index in (4, -1):
        with pytest.raises(RuntimeError, match="index"):
            lucid.sparse_coo_tensor(lucid.tensor([[index]]), lucid.ones(1, 2), (4, 2))


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x.exp(),
        lambda x: x @ lucid.ones(2, 2),
        lambda x: x[0],
        lambda x: x.sum(0, keepdim=True),
        lambda x: lucid.cat([x, x], 1),
        lambda x: lucid.where(x.to_dense() > 0, x, 0.0),
        lambda x: x.argmax(),
        lambda x: x.softmax(1),
        lambda x: x.sort(),
        lambda x: lucid.nn.functional.linear(x, lucid.ones(3, 2)),
        lambda x: x.numpy(),
        lambda x: x.__dlpack__(),
        lambda x: x.data_ptr(),
        lambda x: x.normal_(),
        lambda x: x.index_add_(0, lucid.tensor([0]), lucid.ones(1, 2)),
        lambda x: lucid.zeros(4, 2).index_copy_(0, lucid.arange(4), x),
        lambda x: lucid.func.vmap(lambda r: r * 2)(x),
        lambda x: x.requires_grad_(),
        lambda x: lucid._C._optimizer_step([("sgd", {}, [[x], [x]])]),
    ],
)
def test_what_is_for_dense_tensors_refuses(use: Any) -> None:
    with pytest.raises((RuntimeError, TypeError, BufferError)) as raised:
        use(rows())
    assert not isinstance(raised.value, SystemError) and "panic" not in str(raised.value)


def test_roots_and_targets_are_dense() -> None:
    v = lucid.ones(1, 2, requires_grad=True)
    x = lucid.sparse_coo_tensor(lucid.tensor([[1]]), v, (3, 2))
    with pytest.raises(RuntimeError, match="to_dense"):
        x.backward(rows())
    with pytest.raises(RuntimeError, match="values of a sparse tensor"):
        lucid.autograd.grad(x.sum(), [x])
    with pytest.raises(RuntimeError, match="history"):
        x.mul_(2)


def test_hooks_see_sparse_gradients() -> None:
    layer = lucid.nn.Embedding(4, 2, sparse=True)
    seen: list[bool] = []
    layer.weight.register_hook(lambda g: seen.append(g.is_sparse) or g * 2)
    layer(lucid.tensor([1, 1])).sum().backward()
    assert seen == [True] and layer.weight.grad.to_dense()[1].tolist() == [4.0, 4.0]
    with lucid.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="nan values"):
        (layer(lucid.tensor([1])) * float("nan")).sum().backward()


def test_vmap_over_look_ups() -> None:
    table = lucid.arange(8.0).reshape(4, 2)
    tables = lucid.stack([table, table * 10])
    at = lucid.tensor([[0, 2], [3, 1]])
    look = lambda i, w: lucid.nn.functional.embedding(i, w, padding_idx=1)  # noqa: E731
    assert lucid.func.vmap(look, in_dims=(0, None))(at, table).tolist() == look(at, table).tolist()
    both = lucid.func.vmap(look)(at, tables)
    assert both.tolist() == [look(at[0], tables[0]).tolist(), look(at[1], tables[1]).tolist()]
    grads = lucid.func.vmap(lucid.func.grad(lambda w, i: look(i, w).sum()))(tables, at)
    assert grads[:, :, 0].tolist() == [[1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
