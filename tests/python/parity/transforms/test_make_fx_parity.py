"""`make_fx` and the ops of `lucid.ops.aten` that have no public name, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch
from lucid.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.proxy_tensor import make_fx as torch_make_fx

FUNCTIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "chain": lambda m, x, y: ((x + 1) * y).sin().sum(),
    "results": lambda m, x, y: (x.exp(), [y * 2]),
    "several": lambda m, x, y: m.topk(x, 2)[0] + 1,
    "product": lambda m, x, y: m.mm(x, y),
    "shapes": lambda m, x, y: m.cat([x, y]).permute(1, 0).relu(),
    "layers": lambda m, x, y: m.nn.functional.linear(x, y).softmax(1)[:, 0],
    "dict": lambda m, x, y: {"a": x - y, "b": m.where(x > 0, x, y)},
}
X, Y = [[1.0, -2.0], [3.0, 0.5]], [[0.5, 1.0], [-1.0, 2.0]]


def ops(graph: Any) -> list[str]:
    return [str(n.target).split(".")[1] for n in graph.nodes if n.op == "call_function" and "aten" in str(n.target)]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_graphs_are_those_of_pytorch(name: str, device: str) -> None:
    f = FUNCTIONS[name]
    ours = make_fx(lambda x, y: f(lucid, x, y))(lucid.tensor(X, device=device), lucid.tensor(Y, device=device))
    theirs = torch_make_fx(lambda x, y: f(torch, x, y))(torch.tensor(X), torch.tensor(Y))
    assert ops(ours.graph) == ops(theirs.graph)
    names = [[n.name for n in g.graph.nodes if n.op == "placeholder"] for g in (ours, theirs)]
    assert names[0] == names[1] == ["x_1", "y_1"]
    got = ours(lucid.tensor(Y, device=device), lucid.tensor(X, device=device))
    want = theirs(torch.tensor(Y), torch.tensor(X))
    for a, b in zip(torch.utils._pytree.tree_leaves(want), lucid.utils._pytree.tree_leaves(got), strict=True):
        torch.testing.assert_close(torch.tensor(b.tolist()), a)


def test_constants_containers_and_tables() -> None:
    model = lucid.nn.Sequential(lucid.nn.Linear(2, 3), lucid.nn.ReLU())
    traced = make_fx(lambda x: model(x) + lucid.ones(3))(lucid.ones(1, 2))
    assert [n.target for n in traced.graph.nodes if n.op == "get_attr"] == [
        "_param_constant0",
        "_param_constant1",
        "_tensor_constant0",
    ]
    assert traced._param_constant0 is model[0].weight
    x = lucid.randn(4, 2)
    assert lucid.equal(traced(x), model(x) + 1)
    nested = make_fx(lambda d, k: d["a"][0] * k)({"a": [lucid.ones(2)]}, 3)
    assert nested({"a": [lucid.full((2,), 2.0)]}, 3).tolist() == [6, 6]
    written = make_fx(lambda x: x.clone().add_(1).mul_(2))(lucid.ones(2))
    assert ops(written.graph) == ["clone", "add_", "mul_"] and written(lucid.zeros(2)).tolist() == [2, 2]
    table = {lucid.ops.aten.silu: lambda x, inplace=False: x * lucid.sigmoid(x)}
    assert ops(make_fx(lucid.nn.functional.silu, table)(lucid.ones(1)).graph) == ["sigmoid", "mul"]
    with pytest.raises(RuntimeError, match="backward"):
        make_fx(lucid.func.grad(lambda x: (x**2).sum()))(lucid.ones(2))
    with pytest.raises(ValueError, match="Unexpected tracing type"):
        make_fx(lambda x: x, tracing_mode="other")


#: Functions of tensors (2, 3, 4) and (6, 12) that read sizes.
SIZED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "views": lambda m, x, w: (m.nn.functional.linear(x.view(x.shape[0], -1), w) + x.size(0)).reshape(
        x.shape[0] * 2, -1
    ),
    "sizes": lambda m, x, w: (x.sum(), x.shape[1], x.numel() - 1),
    "factories": lambda m, x, w: x + m.arange(x.size(1), device=x.device).unsqueeze(1) + x.new_ones(x.shape[0], 1, 4),
    "batches": lambda m, x, w: m.softmax(x @ x.transpose(1, 2), dim=-1) @ x,
    "layers": lambda m, x, w: m.nn.functional.linear(x.flatten(0, 1), w[:, : x.shape[2]]).view(*x.shape[:2], 6),
    "parts": lambda m, x, w: x[:, : x.size(1) // 2 + 1].expand(-1, -1, x.size(-1)),
}


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("name", SIZED)
def test_symbolic_sizes(name: str, device: str) -> None:
    f, rng = SIZED[name], np.random.default_rng(0)
    x, w, other = (rng.standard_normal(s).astype(np.float32) for s in ((2, 3, 4), (6, 12), (5, 3, 4)))
    if name != "views":
        other = rng.standard_normal((5, 7, 4)).astype(np.float32)

    def run(m: Any, make: Any, where: str) -> tuple[Any, Any]:
        first, second, third = (m.tensor(v, device=where) for v in (x, w, other))
        traced = make(lambda a, b: f(m, a, b), tracing_mode="symbolic")(first, second)
        return traced, traced(third, second)

    (ours, got), (theirs, want) = run(lucid, make_fx, device), run(torch, torch_make_fx, "cpu")
    # A contiguous tensor's sizes are the same numbers, asked of the input or of a view of it.
    # Whole slices of a key are calls in PyTorch's graph, and what is a view of a copy is a view.
    left_out = ("sym_size", "sym_numel", "slice")
    computed = [
        [o.removeprefix("_unsafe_") for o in ops(traced.graph) if o not in left_out] for traced in (ours, theirs)
    ]
    assert computed[0] == computed[1] and "sym_size" in ops(ours.graph)
    plain = f(lucid, *(lucid.tensor(v, device=device) for v in (other, w)))
    for a, b, c in zip(*map(torch.utils._pytree.tree_leaves, (want, got, plain)), strict=True):
        if isinstance(a, int):
            assert a == b == c
        else:
            torch.testing.assert_close(torch.tensor(b.tolist()), a)
            assert lucid.allclose(b, c)


M = "m.tensor([[1.0, -2.0, 0.5], [3.0, 0.25, -1.0]])"
ATEN = (
    f"sym_size.int({M}, 1)",
    f"sym_stride.int({M}, 0)",
    f"sym_numel.default({M})",
    f"sym_storage_offset.default({M}[1])",
    f"_softmax.default({M}, 1, False)",
    f"_log_softmax.default({M}, 0, False)",
    f"_to_copy.default({M}, dtype=m.int64)",
    f"_unsafe_view.default({M}, [3, 2])",
    f"_reshape_alias.default({M}, [3, 2], [2, 1])",
    f"alias.default({M})",
    f"lift_fresh_copy.default({M})",
    f"slice.Tensor({M}, 1, -2, 9)",
    f"slice.Tensor({M}, 1, 0, 3, 2)",
    f"slice.Tensor({M}, 0, 2, 1)",
    f"index.Tensor({M}, [None, m.tensor([2, 0])])",
    f"_local_scalar_dense.default({M}[0, 1])",
    f"_adaptive_avg_pool2d.default({M}[None, None], [1, 2])",
    f"upsample_nearest2d.default({M}[None, None], [4, 6])",
    f"upsample_bilinear2d.default({M}[None, None], [4, 6], True)",
    f"threshold_backward.default({M}, {M}, 0.25)",
    f"sigmoid_backward.default({M}, {M})",
    f"tanh_backward.default({M}, {M})",
    f"gelu_backward.default({M}, {M}, approximate='tanh')",
    f"nll_loss_forward.default({M}, m.tensor([2, 1]), None, 1, -100)",
    f"nll_loss_forward.default({M}, m.tensor([2, 1]), m.tensor([1.0, 2.0, 3.0]), 1, 1)",
    f"nll_loss_forward.default({M}, m.tensor([2, 1]), None, 0, -100)",
)


@pytest.mark.parametrize("text", ATEN)
def test_ops_without_public_names(text: str) -> None:
    theirs, ours = (eval(f"m.ops.aten.{text}", {"m": m}) for m in (torch, lucid))
    pairs = zip(*([r] if not isinstance(r, tuple) else r for r in (theirs, ours)), strict=True)
    for a, b in pairs:
        if not isinstance(a, torch.Tensor):
            assert a == b
            continue
        assert str(a.dtype).split(".")[1] == str(b.dtype).split(".")[1]
        torch.testing.assert_close(torch.tensor(b.tolist(), dtype=a.dtype).reshape(tuple(b.shape)), a)


def test_dynamo_names() -> None:
    import lucid._dynamo as dynamo

    f = dynamo.optimize()(lambda x: x * 2)
    assert f(lucid.ones(2)).tolist() == [2, 2]
    assert dynamo.explain(lambda x: x + 1, lucid.ones(1)).graph_count == 1
    for mark in (dynamo.nonstrict_trace, dynamo.dont_skip_tracing, dynamo.disable_nested_graph_breaks):
        assert mark(len) is len
    with dynamo.error_on_graph_break(False):
        dynamo.skip_frame()
    with pytest.raises(NotImplementedError), dynamo.error_on_graph_break(True):
        pass
    with pytest.raises(RuntimeError):
        dynamo.optimize_assert()(lambda x: x.sum().item())(lucid.ones(1))
    dynamo.reset_code_caches()
    x, weights = lucid.ones(3, 2), lucid.stack([lucid.eye(2), 2 * lucid.eye(2)])
    made = lucid.nn.functional.grouped_mm(x, weights, offs=lucid.tensor([1, 3], dtype=lucid.int32))
    assert made.tolist() == [[1, 1], [2, 2], [2, 2]]
