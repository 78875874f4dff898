"""Selective checkpointing against PyTorch's: values, gradients, what runs again, what is refused."""

from __future__ import annotations

import functools
import gc
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn.functional
import lucid.utils.checkpoint
import pytest
import torch
import torch.utils.checkpoint
from lucid.overrides import TorchFunctionMode
from lucid.utils._selective import op_of
from torch.utils._python_dispatch import TorchDispatchMode

DEVICES = ["cpu", "gpu"]
#: PyTorch's ops by the names of Lucid's.
ATEN = {
    **{name: getattr(torch.ops.aten, name).default for name in ("mm", "sin", "tanh", "sigmoid", "exp", "bmm", "relu")},
    "addmm": torch.ops.aten.addmm.default,
    "mul": torch.ops.aten.mul.Tensor,
    "add": torch.ops.aten.add.Tensor,
    "sum": torch.ops.aten.sum.default,
    "add_": torch.ops.aten.add_.Tensor,
    "t": torch.ops.aten.t.default,
}


def ops(m: Any, names: list[str]) -> list[Any]:
    return [ATEN[n] if m is torch else getattr(lucid, n, None) or getattr(lucid.Tensor, n) for n in names]


class OurCalls(TorchFunctionMode):
    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls[op_of(func).__name__] += 1
        return func(*args, **(kwargs or {}))


class TheirCalls(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls[func._schema.name.removeprefix("aten::")] += 1
        return func(*args, **(kwargs or {}))


def checkpointed(m: Any, f: Callable[..., Any], kept: Any, *args: Any, mutation: bool = False, **options: Any) -> Any:
    ckpt = m.utils.checkpoint
    context_fn = functools.partial(ckpt.create_selective_checkpoint_contexts, kept, allow_cache_entry_mutation=mutation)
    return ckpt.checkpoint(f, *args, use_reentrant=False, context_fn=context_fn, **options)


def backward(m: Any, root: Any) -> None:
    """A mode that is asked about `backward` would not see what runs within."""
    if m is torch:
        root.backward()
    else:
        lucid._C._backward([root], None, False, False, None)


def inputs(m: Any, device: str) -> tuple[Any, Any]:
    x = (m.arange(9.0, device=device).reshape(3, 3) / 10).requires_grad_()
    return x, (m.arange(9.0, device=device).reshape(3, 3).T / 7 - 0.5).requires_grad_()


def outcome(f: Callable[[], Any]) -> Any:
    try:
        found = f()
        return [[f"{v:.4g}" for v in t.detach().cpu().flatten().tolist()] for t in found]
    except Exception as e:
        return "refused: " + next(c.__name__ for c in type(e).__mro__ if c.__module__ == "builtins")


def quiet(m: Any, x: Any) -> Any:
    with m.no_grad():
        return x.sin()


def inner(m: Any, x: Any, w: Any) -> Any:
    return m.utils.checkpoint.checkpoint(lambda x: x.mm(w).sin().exp(), x, use_reentrant=False)


FUNCTIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "mm": lambda m, x, w: m.sigmoid(m.mm(m.mm(x, w), w)) * w,
    "unary": lambda m, x, w: x.sin().tanh().sin() * x.exp().sin(),
    "results that are saved": lambda m, x, w: x.exp().sigmoid().tanh(),
    "transposed": lambda m, x, w: x.t().mm(w.t()).sin().mm(x),
    "a view is kept": lambda m, x, w: x.mm(w).t().sin(),
    "twice": lambda m, x, w: (lambda y: y.mm(y).sin() + y)(x.sin()),
    "written": lambda m, x, w: x.mm(w).add_(1).sin().mm(w),
    "without recording": lambda m, x, w: x.mm(w) * quiet(m, x),
    "detached": lambda m, x, w: x.mm(w) * x.sin().detach(),
    "addmm": lambda m, x, w: m.addmm(x, x, w).sin(),
    "checkpointed within": lambda m, x, w: inner(m, x.sin(), w).sin(),
    "unused": lambda m, x, w: (x.mm(w), x.sin())[1],
}
REFUSED = "refused: RuntimeError"
KEPT = [[], ["mm"], ["sin"], ["sin", "mm"], ["exp", "tanh", "sigmoid"], ["addmm", "mul", "t"], ["add", "add_", "mm"]]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kept", KEPT, ids="+".join)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients(name: str, kept: list[str], device: str) -> None:
    def run(m: Any, d: str) -> Any:
        x, w = inputs(m, d)
        y = checkpointed(m, lambda x, w: FUNCTIONS[name](m, x, w), ops(m, kept), x, w)
        (y * y).sum().backward()
        return [y, x.grad, x.grad if w.grad is None else w.grad]

    def plainly(m: Any, d: str) -> Any:
        x, w = inputs(m, d)
        y = FUNCTIONS[name](m, x, w)
        (y * y).sum().backward()
        return [y, x.grad, x.grad if w.grad is None else w.grad]

    ours = outcome(lambda: run(lucid, device))
    assert ours == outcome(lambda: run(torch, "cpu"))
    # What is kept must not be written.
    assert ours == (outcome(lambda: plainly(lucid, device)) if name != "written" or "mm" not in kept else REFUSED)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("kept", [[], ["sin"], ["tanh"], ["sin", "tanh"], ["sin", "exp", "tanh"]], ids="+".join)
def test_what_runs_again(kept: list[str], early: bool, device: str) -> None:
    """Each op's gradient is made of other ones, so that PyTorch's count is of the second run alone."""

    def f(x: Any, w: Any) -> Any:
        return x.sin().tanh().sin() * w.exp().sin()

    def run(m: Any, d: str, calls: Any) -> Any:
        x, w = inputs(m, d)
        with calls:
            y = checkpointed(m, f, ops(m, kept), x, w, early_stop=early)
            first = {n: calls.calls[n] for n in ("sin", "tanh", "exp")}
            backward(m, y.sum())
        return first, {n: calls.calls[n] - first[n] for n in first}

    ours = run(lucid, device, OurCalls())
    assert ours == run(torch, "cpu", TheirCalls())
    assert ours[0] == {"sin": 3, "tanh": 1, "exp": 1}
    assert all(ours[1][n] == 0 for n in kept)


@pytest.mark.parametrize("device", DEVICES)
def test_products_do_not_run_again(device: str) -> None:
    x, w = inputs(lucid, device)
    calls = OurCalls()
    with calls:
        y = checkpointed(lucid, lambda x: (x @ w).sin() @ w + lucid.nn.functional.linear(x, w), [lucid.matmul], x)
        before = calls.calls.copy()
        backward(lucid, y.sum())
    assert (before["matmul"], calls.calls["matmul"]) == (2, 2)
    # The sum is not needed, and the linear op's results are not.
    assert calls.calls["sin"] == 2


@pytest.mark.parametrize("device", DEVICES)
def test_arguments_of_kept_ops_are_not_kept(device: str) -> None:
    x, w = inputs(lucid, device)
    seen = []

    def f(x: Any) -> Any:
        y = x.sin()
        seen.append(weakref.ref(y))
        z = y.mm(w)
        seen.append(weakref.ref(z))
        return z.exp()

    y = checkpointed(lucid, f, [lucid.mm], x)
    gc.collect()
    assert [r() is None for r in seen] == [True, True]
    y.sum().backward()
    want = x.detach().requires_grad_()
    want.sin().mm(w).exp().sum().backward()
    assert x.grad.allclose(want.grad)


POLICIES: dict[str, Callable[..., Any]] = {
    "all": lambda m, P, ctx, op, *a, **k: P.MUST_SAVE,
    "prefer": lambda m, P, ctx, op, *a, **k: P.PREFER_SAVE,
    "none": lambda m, P, ctx, op, *a, **k: P.MUST_RECOMPUTE,
    "offloaded": lambda m, P, ctx, op, *a, **k: P.MUST_CPU_OFFLOAD,
    "true": lambda m, P, ctx, op, *a, **k: True,
    "false": lambda m, P, ctx, op, *a, **k: False,
    "by result": lambda m, P, ctx, op, *a, **k: bool(ctx.op_output.dim() == 2 and ctx.op_output.sum() > 1),
    "by op": lambda m, P, ctx, op, *a, **k: P.MUST_SAVE if op in ops(m, ["sin"]) else P.PREFER_RECOMPUTE,
    "by argument": lambda m, P, ctx, op, *a, **k: P.MUST_SAVE if a[0].requires_grad else P.MUST_RECOMPUTE,
    "in the first run": lambda m, P, ctx, op, *a, **k: P.MUST_SAVE if not ctx.is_recompute else 1 / 0,
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", POLICIES)
def test_policies(name: str, device: str) -> None:
    def run(m: Any, d: str) -> Any:
        x, w = inputs(m, d)
        policy = functools.partial(POLICIES[name], m, m.utils.checkpoint.CheckpointPolicy)
        calls: Any = OurCalls() if m is lucid else TheirCalls()
        with calls:
            y = checkpointed(m, lambda x, w: x.sin().tanh() * w.exp().sin(), policy, x, w)
            calls.calls.clear()
            backward(m, y.sum())
        # What a policy saw of requires_grad is nothing in PyTorch, whose ops are below its tape.
        found = {} if name == "by argument" else {n: calls.calls[n] for n in ("sin", "tanh", "exp")}
        return found, outcome(lambda: [y, x.grad, w.grad])

    assert run(lucid, device) == run(torch, "cpu")


def several(m: Any, x: Any, n: int) -> Any:
    for _ in range(n):
        x = x.sin().exp()
    return x


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", ["again", "changed", "other op", "written", "written, allowed", "second order"])
def test_what_is_refused(case: str, device: str) -> None:
    def run(m: Any, d: str) -> Any:
        x, w = inputs(m, d)
        times = [2]
        other = [False]

        def f(x: Any) -> Any:
            if case.startswith("written"):
                y = x.mm(w)
                return (y.add(1).exp(), y)
            if other[0]:
                x = x.tanh()
            return several(m, x, times[0])

        kept = ["mm"] if case.startswith("written") else ["exp", "mm"]
        y = checkpointed(m, f, ops(m, kept), x, mutation=case.endswith("allowed"))
        if case == "again":
            y.sum().backward(retain_graph=True)
        if case == "changed":
            times[0] = 3
        other[0] = case == "other op"
        if case.startswith("written"):
            y, product = y
            with m.no_grad():
                product.mul_(2)
        if case == "second order":
            (g,) = m.autograd.grad(y.sum(), x, create_graph=True)
            return [y, *m.autograd.grad(g.sum(), x)]
        y.sum().backward()
        return [x.grad]

    assert outcome(lambda: run(lucid, device)) == outcome(lambda: run(torch, "cpu"))


def test_what_is_no_op() -> None:
    ours, theirs = lucid.utils.checkpoint, torch.utils.checkpoint
    for bad in (["mm"], [print], [3], [lucid.Tensor], [TorchFunctionMode]):
        for module in (ours, theirs):
            with pytest.raises(ValueError, match="Expected op"):
                module.create_selective_checkpoint_contexts(bad)
    for module in (ours, theirs):
        with pytest.raises(TypeError, match="must be either a function or a list"):
            module.create_selective_checkpoint_contexts(3)
    with pytest.raises(TypeError, match="a policy gives"):
        checkpointed(lucid, lambda x: x.sin(), lambda *a, **k: "keep", lucid.ones(2, requires_grad=True))
    assert {p.name: p.value for p in ours.CheckpointPolicy} == {p.name: p.value for p in theirs.CheckpointPolicy}
    assert lucid.detach in ours.SAC_IGNORED_OPS


@pytest.mark.parametrize("op", ["mm", "matmul", "relu", "softmax", "add"])
def test_one_op_by_several_names(op: str) -> None:
    function = getattr(lucid, op)
    assert op_of(getattr(lucid.Tensor, op)) is function
    assert op_of(function) is function
    assert op_of(getattr(lucid.nn.functional, op, function)) is function


@pytest.mark.parametrize("device", DEVICES)
def test_random_numbers_after_a_kept_op(device: str) -> None:
    """The second mask is that of the first run although the first dropout, which is kept, does not run again."""
    F = lucid.nn.functional
    x = lucid.ones(50, device=device, requires_grad=True)

    def f(x: Any) -> Any:
        return F.dropout(F.dropout(x * 2).exp()).sin() + lucid.rand(50, device=device) * x

    def run(kept: list[Any] | None) -> Any:
        lucid.manual_seed(3)
        y = f(x) if kept is None else checkpointed(lucid, f, kept, x)
        state = lucid.random.get_rng_state()
        (g,) = lucid.autograd.grad(y.sum(), x)
        assert lucid.random.get_rng_state().equal(state)
        return g

    want = run(None)
    for kept in ([], [F.dropout], [lucid.exp], [F.dropout, lucid.rand]):
        assert run(kept).equal(want), kept


def test_gradients_within_do_not_go_through_kept_ops() -> None:
    x = lucid.ones(3, requires_grad=True)

    def f(x: Any) -> Any:
        (g,) = lucid.autograd.grad(x.exp().sum(), x, create_graph=True)
        return g * x

    y = checkpointed(lucid, f, [lucid.exp], x)
    with pytest.raises(RuntimeError, match="let the policy have the op run again"):
        y.sum().backward()


@pytest.mark.parametrize("device", DEVICES)
def test_layers_and_mixed_precision(device: str) -> None:
    nn = lucid.nn
    lucid.manual_seed(0)
    block = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 8), nn.Dropout(0.5)).to(device)
    x = lucid.randn(4, 8, device=device)

    def run(kept: Any) -> Any:
        block.zero_grad()
        lucid.manual_seed(1)
        with lucid.autocast(device):
            y = block(x) if kept is None else checkpointed(lucid, block, kept, x)
        y.float().sum().backward()
        return [y, *(p.grad.clone() for p in block.parameters())]

    want = run(None)
    F = nn.functional
    for kept in ([], [F.linear], [F.linear, F.gelu], [F.layer_norm, F.dropout]):
        assert all(a.equal(b) for a, b in zip(run(kept), want, strict=True)), kept
