"""Sparse tensors against PyTorch's: what they tell, how they print, what ops give, training with them."""

from __future__ import annotations

from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import TABLE, within

STEPS = 50
ROWS, WIDTH = 7, 3


@pytest.fixture(params=["cpu", "gpu"])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def dense(t: Any) -> np.ndarray:
    return np.asarray(t.detach().cpu().to_dense().tolist())


def close(ours: Any, theirs: Any, tolerance: float = TABLE["few ops"].rtol) -> None:
    np.testing.assert_allclose(dense(ours), dense(theirs), rtol=tolerance, atol=tolerance)


def same_parts(ours: Any, theirs: Any) -> None:
    """As many indices, in the same order, with the same values."""
    assert ours.is_sparse and theirs.is_sparse
    assert (tuple(ours.shape), ours._nnz()) == (tuple(theirs.shape), theirs._nnz())
    assert (ours.sparse_dim(), ours.dense_dim()) == (theirs.sparse_dim(), theirs.dense_dim())
    assert ours.is_coalesced() == theirs.is_coalesced()
    assert ours._indices().tolist() == theirs._indices().tolist()
    np.testing.assert_allclose(ours._values().tolist(), theirs._values().tolist(), **within("few ops"))


def made(framework: Any, device: str = "cpu", dtype: str = "float32") -> Any:
    """Four rows of a (5, 2) tensor, one of them twice."""
    values = [[1.0, -2.0], [0.5, 4.0], [-3.0, 0.25], [0.0, 7.0]]
    return framework.sparse_coo_tensor(
        framework.tensor([[3, 0, 3, 1]], device=device),
        framework.tensor(values, dtype=getattr(framework, dtype), device=device),
        (5, 2),
    )


def grid(framework: Any) -> Any:
    return framework.sparse_coo_tensor([[0, 1, 0, 2], [2, 0, 2, 1]], [1.0, 2.0, 3.0, 4.0])


OPS: dict[str, Any] = {
    "coalesce": lambda f, x: x.coalesce(),
    "twice coalesced": lambda f, x: x.coalesce().coalesce(),
    "times 2": lambda f, x: x * 2,
    "2 times": lambda f, x: 2 * x,
    "by 4": lambda f, x: x / 4,
    "by a tensor": lambda f, x: x / f.tensor(4.0, device=x.device),
    "negative": lambda f, x: -x,
    "sum": lambda f, x: x + (x * 3).coalesce(),
    "difference": lambda f, x: x - x * 0.5,
    "sum with alpha": lambda f, x: x.add(x * 2, alpha=-0.5),
    "abs": lambda f, x: x.abs(),
    "square": lambda f, x: x.square(),
    "power": lambda f, x: x**2,
    "sign": lambda f, x: x.sign(),
    "tanh": lambda f, x: x.tanh(),
    "relu": lambda f, x: x.relu(),
    "clone": lambda f, x: x.clone(),
    "detach": lambda f, x: x.detach(),
    "half": lambda f, x: x.to(f.float16),
    "float": lambda f, x: x.float(),
    "scaled in place": lambda f, x: x.clone().mul_(2),
    "divided in place": lambda f, x: x.clone().div_(2),
    "added in place": lambda f, x: x.clone().add_(x * 2),
    "zeroed": lambda f, x: x.clone().zero_(),
    "copied to": lambda f, x: (x * 2).copy_(x),
    "to_sparse": lambda f, x: x.to_sparse(),
}


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("make", [made, lambda f, device="cpu": grid(f).to(device)], ids=["rows", "elements"])
def test_ops(name: str, make: Any, device: str) -> None:
    theirs = OPS[name](torch, make(torch))
    ours = OPS[name](lucid, make(lucid, device=device))
    # PyTorch merges some of the indices that both terms of a sum have, we merge none.
    sums = ("sum", "difference", "sum with alpha", "added in place")
    same_parts(*((ours.coalesce(), theirs.coalesce()) if name in sums else (ours, theirs)))
    assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
    assert ours.device == lucid.device(device)


DENSE_RESULTS: dict[str, Any] = {
    "to_dense": lambda f, x: x.to_dense(),
    "sum": lambda f, x: x.sum(),
    "dense plus": lambda f, x: f.ones(5, 2, device=x.device) + x,
    "dense minus": lambda f, x: f.ones(5, 2, device=x.device) - x,
    "dense plus in place": lambda f, x: f.ones(5, 2, device=x.device).add_(x, alpha=-0.5),
    "norm": lambda f, x: f.nn.utils.get_total_norm([x]),
    "largest": lambda f, x: f.nn.utils.get_total_norm([x], float("inf")),
}


@pytest.mark.parametrize("name", DENSE_RESULTS)
def test_dense_results(name: str, device: str) -> None:
    ours = DENSE_RESULTS[name](lucid, made(lucid, device))
    assert not ours.is_sparse
    close(ours, DENSE_RESULTS[name](torch, made(torch)))


def test_factors_and_masks(device: str) -> None:
    table = np.arange(10.0, dtype=np.float32).reshape(5, 2)
    ours, theirs = lucid.tensor(table, device=device), torch.tensor(table)
    close(made(lucid, device) * ours, made(torch) * theirs)
    mask = made(torch).coalesce()
    same_parts(ours.sparse_mask(made(lucid, device).coalesce()), theirs.sparse_mask(mask))
    for dim in (None, 1, 2):
        arguments = () if dim is None else (dim,)
        same_parts(ours.to_sparse(*arguments), theirs.to_sparse(*arguments))


def test_tells_as_pytorch() -> None:
    for ours, theirs in ((made(lucid), made(torch)), (lucid.ones(2, 3), torch.ones(2, 3))):
        assert str(ours.layout) == str(theirs.layout).replace("torch", "lucid")
        assert (ours.is_sparse, ours.is_sparse_csr) == (theirs.is_sparse, theirs.is_sparse_csr)
        assert (ours.sparse_dim(), ours.dense_dim()) == (theirs.sparse_dim(), theirs.dense_dim())
        assert (ours.numel(), ours.ndim, len(ours)) == (theirs.numel(), theirs.ndim, len(theirs))
    assert made(lucid).layout is lucid.sparse_coo and lucid.ones(2).layout is lucid.strided
    once = made(lucid).coalesce()
    assert once.coalesce() is once and lucid.ones(2).to_dense().layout is lucid.strided
    assert once.indices().tolist() == [[0, 1, 3]] and tuple(once.values().shape) == (3, 2)


@pytest.mark.parametrize(
    "shown",
    [
        made,
        lambda f: made(f).coalesce(),
        grid,
        lambda f: made(f, dtype="float64"),
        lambda f: made(f).zero_(),
        lambda f: f.sparse_coo_tensor((4, 2)),
        lambda f: f.sparse_coo_tensor(f.tensor([[0, 2]]), f.tensor([1, 2])),
        lambda f: f.sparse_coo_tensor(f.arange(2000).reshape(1, -1), f.ones(2000)),
        lambda f: f.sparse_coo_tensor(f.tensor([[1]]), f.tensor([[1.5]]), (3, 1)) * 1e-9,
    ],
)
def test_prints_as_pytorch(shown: Any) -> None:
    assert repr(shown(lucid)).replace("lucid.", "torch.") == repr(shown(torch))


def index(framework: Any) -> Any:
    return framework.tensor([[1]])


ERRORS: list[Any] = [
    lambda f: made(f) + f.ones(5, 2),
    lambda f: made(f) + 1,
    lambda f: made(f).values(),
    lambda f: made(f).indices(),
    lambda f: f.ones(2).values(),
    lambda f: f.ones(2).indices(),
    lambda f: f.ones(2).coalesce(),
    lambda f: f.ones(2).is_coalesced(),
    lambda f: f.ones(2)._nnz(),
    lambda f: made(f).exp(),
    lambda f: made(f).cos(),
    lambda f: made(f).max(),
    lambda f: made(f) == made(f),
    lambda f: made(f).reshape(2, 5),
    lambda f: made(f).t(),
    lambda f: made(f).item(),
    lambda f: made(f).tolist(),
    lambda f: made(f).fill_(1.0),
    lambda f: made(f).copy_(f.ones(5, 2)),
    lambda f: f.ones(5, 2).copy_(made(f)),
    lambda f: bool(made(f)),
    lambda f: made(f) + made(f)[:3].to_dense().to_sparse(1),
    lambda f: f.sparse_coo_tensor(f.tensor([1]), f.ones(1, 2), (4, 2)),
    lambda f: f.sparse_coo_tensor(index(f), f.ones(2, 2), (4, 2)),
    lambda f: f.sparse_coo_tensor(index(f), f.ones(1, 2), (4, 2, 3)),
    lambda f: f.sparse_coo_tensor(index(f), f.ones(1, 3), (4, 2)),
    lambda f: f.sparse_coo_tensor(index(f), f.ones(1), (1,), check_invariants=True),
    lambda f: f.sparse_coo_tensor(-index(f), f.ones(1), (1,), check_invariants=True),
    lambda f: f.sparse_coo_tensor((-1, 2)),
    lambda f: f.ones(2, 2).to_sparse(3),
    lambda f: f.ones(2, 3).sparse_mask(made(f)),
]


@pytest.mark.parametrize("wrong", ERRORS)
def test_errors_are_of_pytorchs_kind(wrong: Any) -> None:
    with pytest.raises(Exception) as theirs:
        wrong(torch)
    with pytest.raises(Exception) as ours:
        wrong(lucid)
    kind = next(k for k in (IndexError, TypeError, ValueError, RuntimeError) if isinstance(theirs.value, k))
    assert isinstance(ours.value, kind), ours.value


def test_gradients_of_values() -> None:
    found = []
    for f in (lucid, torch):
        v = f.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], requires_grad=True)
        x = f.sparse_coo_tensor(f.tensor([[0, 2, 0]]), v, (3, 2))
        assert x.requires_grad and not x.is_leaf and not x.detach().requires_grad
        loss = (x * 3).to_dense().square().sum() + x.coalesce().values().pow(3).sum() + x.sum()
        loss.backward()
        found.append(np.asarray(v.grad.tolist()))
    np.testing.assert_allclose(*found, rtol=TABLE["few ops"].rtol)


# ---- tables ----------------------------------------------------------------------------------------------------------


class Table:
    """A table that a few indices of each step look into, in either framework."""

    def __init__(self, f: Any, device: str, layer: str = "embedding", dtype: str = "float32", **options: Any) -> None:
        draw = np.random.default_rng(0)
        self.f, self.device = f, device
        table = f.tensor(draw.standard_normal((ROWS, WIDTH)), dtype=getattr(f, dtype), device=device)
        self.target = f.tensor(draw.standard_normal(WIDTH), dtype=getattr(f, dtype), device=device)
        kind = f.nn.Embedding if layer == "embedding" else f.nn.EmbeddingBag
        self.layer = kind(ROWS, WIDTH, sparse=True, _weight=table, **options)
        self.weight = self.layer.weight

    def loss(self, step: int) -> Any:
        draw = np.random.default_rng(step + 1)
        at = self.f.tensor(draw.integers(0, ROWS - 1, (2, 2)), device=self.device)
        return ((self.layer(at) - self.target) ** 2).sum()

    def train(self, optimizer: Any, steps: range) -> None:
        for step in steps:
            optimizer.zero_grad()
            self.loss(step).backward()
            optimizer.step()


LAYERS: list[tuple[str, dict[str, Any]]] = [
    ("embedding", {}),
    ("embedding", {"padding_idx": 2}),
    ("embedding", {"max_norm": 1.0}),
    ("bag", {"mode": "sum"}),
    ("bag", {"mode": "mean"}),
    ("bag", {"mode": "mean", "padding_idx": 1}),
]


@pytest.mark.parametrize(("layer", "options"), LAYERS, ids=[f"{n} {o}" for n, o in LAYERS])
def test_gradients_of_tables(layer: str, options: dict[str, Any], device: str) -> None:
    ours, theirs = Table(lucid, device, layer, **options), Table(torch, "cpu", layer, **options)
    for step in range(3):
        ours.loss(step).backward()
        theirs.loss(step).backward()
        parts = (ours.weight.grad, theirs.weight.grad)
        same_parts(*(parts if step == 0 else (g.coalesce() for g in parts)))
    ours.weight.grad = theirs.weight.grad = None
    (ours.loss(0) + ours.weight.sum()).backward()
    (theirs.loss(0) + theirs.weight.sum()).backward()
    assert not ours.weight.grad.is_sparse
    close(ours.weight.grad, theirs.weight.grad)


def test_gradients_as_results_and_second_ones() -> None:
    found = []
    for f in (lucid, torch):
        table = Table(f, "cpu")
        (g,) = f.autograd.grad(table.loss(0), [table.weight], create_graph=True)
        assert g.is_sparse and table.weight.grad is None
        found.append(dense(g))
        (second,) = f.autograd.grad(g.to_dense().square().sum(), [table.weight])
        found.append(dense(second))
    np.testing.assert_allclose(found[0], found[2], rtol=TABLE["few ops"].rtol)
    np.testing.assert_allclose(found[1], found[3], rtol=TABLE["few ops"].rtol)


def test_refusals_of_tables() -> None:
    for f in (lucid, torch):
        at, table = f.tensor([[0, 1]]), f.ones(3, 2, requires_grad=True)
        with pytest.raises(ValueError):
            f.nn.functional.embedding_bag(at, table, mode="max", sparse=True)
        with pytest.raises(RuntimeError, match="scale_grad_by_freq not supported with sparse gradients"):
            f.nn.functional.embedding(at, table, scale_grad_by_freq=True, sparse=True).sum().backward()


OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SparseAdam", {}),
    ("SparseAdam", {"lr": 0.1, "betas": (0.5, 0.9), "eps": 1e-4}),
    ("SparseAdam", {"lr": 0.01, "maximize": True}),
    ("SGD", {"lr": 0.05}),
    ("SGD", {"lr": 0.01, "maximize": True}),
    ("SGD", {"lr": 0.02, "momentum": 0.9}),
    ("SGD", {"lr": 0.02, "momentum": 0.9, "dampening": 0.3}),
    ("SGD", {"lr": 0.02, "momentum": 0.9, "nesterov": True}),
    ("SGD", {"lr": 0.001, "momentum": 0.5, "maximize": True}),
    ("Adagrad", {}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.5, "eps": 1e-6}),
    ("Adagrad", {"lr": 0.01, "maximize": True}),
]
IDS = [f"{name} {options}" for name, options in OPTIMIZERS]


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=IDS)
def test_trajectories(name: str, options: dict[str, Any], device: str) -> None:
    ours, theirs = Table(lucid, device), Table(torch, "cpu")
    a = getattr(lucid.optim, name)([ours.weight], **options)
    b = getattr(torch.optim, name)([theirs.weight], **options)
    ours.train(a, range(STEPS))
    theirs.train(b, range(STEPS))
    close(ours.weight, theirs.weight, 2e-5)


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=IDS)
def test_trajectories_in_float64(name: str, options: dict[str, Any]) -> None:
    ours, theirs = Table(lucid, "cpu", dtype="float64"), Table(torch, "cpu", dtype="float64")
    ours.train(getattr(lucid.optim, name)([ours.weight], **options), range(STEPS))
    theirs.train(getattr(torch.optim, name)([theirs.weight], **options), range(STEPS))
    close(ours.weight, theirs.weight, 1e-9)


def converted(state: Any, f: Any) -> Any:
    if isinstance(state, dict):
        return {key: converted(value, f) for key, value in state.items()}
    if isinstance(state, list):
        return [converted(value, f) for value in state]
    if not hasattr(state, "is_sparse"):
        return state
    if state.is_sparse:
        parts = (f.tensor(state._indices().tolist()), f.tensor(state._values().tolist()))
        return f.sparse_coo_tensor(*parts, tuple(state.shape))
    return f.tensor(state.tolist())


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=IDS)
def test_state_dicts_are_interchangeable(name: str, options: dict[str, Any]) -> None:
    ours, theirs = Table(lucid, "cpu"), Table(torch, "cpu")
    a = getattr(lucid.optim, name)([ours.weight], **options)
    b = getattr(torch.optim, name)([theirs.weight], **options)
    ours.train(a, range(5))
    theirs.train(b, range(5))
    own, other = a.state_dict(), b.state_dict()
    assert own["param_groups"] == other["param_groups"]
    for key, state in other["state"].items():
        assert list(own["state"][key]) == list(state)
        assert {k: type(v).__name__ for k, v in own["state"][key].items()} == {
            k: type(v).__name__ for k, v in state.items()
        }
    a.load_state_dict(converted(other, lucid))
    b.load_state_dict(converted(own, torch))
    ours.train(a, range(5, 10))
    theirs.train(b, range(5, 10))
    close(ours.weight, theirs.weight)


DENSE_ONLY = ["Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "ASGD", "Adadelta", "Adafactor", "Muon"]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in DENSE_ONLY),
        ("SGD", {"lr": 0.1, "weight_decay": 0.1}),
        ("SGD", {"lr": 0.1, "fused": True}),
        ("Adagrad", {"weight_decay": 0.1}),
        ("Adagrad", {"fused": True}),
    ],
)
def test_optimizers_that_refuse(name: str, options: dict[str, Any]) -> None:
    messages = []
    for f in (lucid, torch):
        table = Table(f, "cpu")
        before = dense(table.weight)
        optimizer = getattr(f.optim, name)([table.weight], **options)
        table.loss(0).backward()
        with pytest.raises(RuntimeError) as raised:
            optimizer.step()
        messages.append(str(raised.value))
        np.testing.assert_array_equal(dense(table.weight), before)
    if not options:
        assert messages[0].replace("AdamW", "Adam") == messages[1]


def test_sparse_adam_refuses_as_pytorch() -> None:
    for f in (lucid, torch):
        p = f.ones(3, 2, requires_grad=True)
        optimizer = f.optim.SparseAdam([p])
        p.sum().backward()
        with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients"):
            optimizer.step()
        with pytest.raises(ValueError, match="SparseAdam does not support complex parameters"):
            f.optim.SparseAdam([f.zeros(2, dtype=f.complex64)])
        with pytest.raises(ValueError, match="SparseAdam requires dense parameter tensors"):
            f.optim.SparseAdam([made(f)])
        for wrong in ({"lr": 0.0}, {"eps": 0.0}, {"betas": (1.0, 0.9)}, {"betas": (0.9, -0.1)}, {"lr": -1.0}):
            with pytest.raises(ValueError, match="Invalid"):
                f.optim.SparseAdam([p], **wrong)


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0, float("inf")])
def test_clipping(norm_type: float, device: str) -> None:
    ours, theirs = Table(lucid, device), Table(torch, "cpu")
    for table in (ours, theirs):
        table.loss(0).backward()
        table.loss(1).backward()
    total = lucid.nn.utils.clip_grad_norm_([ours.weight], 0.5, norm_type)
    close(total, torch.nn.utils.clip_grad_norm_([theirs.weight], 0.5, norm_type))
    close(ours.weight.grad, theirs.weight.grad)


def test_scaled_gradients(device: str) -> None:
    ours, theirs = Table(lucid, device), Table(torch, "cpu")
    a, b = lucid.optim.SparseAdam([ours.weight], lr=0.1), torch.optim.SparseAdam([theirs.weight], lr=0.1)
    scalers = [(lucid.amp.GradScaler(device), ours, a), (torch.amp.GradScaler("cpu"), theirs, b)]
    for scaler, table, optimizer in scalers:
        for step in range(6):
            optimizer.zero_grad()
            scale = float("inf") if step == 3 else 1.0
            scaler.scale(table.loss(step) * scale).backward()
            scaler.step(optimizer)
            scaler.update()
    close(ours.weight, theirs.weight)
    assert scalers[0][0].get_scale() == scalers[1][0].get_scale() == 2.0**15


def test_zeroed_gradients_leave_nothing_to_step() -> None:
    found = []
    for f in (lucid, torch):
        table = Table(f, "cpu")
        optimizer = f.optim.SparseAdam([table.weight], lr=0.1)
        table.train(optimizer, range(3))
        optimizer.zero_grad(set_to_none=False)
        assert table.weight.grad._nnz() == 0
        optimizer.step()
        table.loss(3).backward()
        optimizer.step()
        found.append(dense(table.weight))
    np.testing.assert_allclose(*found, **within("few ops"))
