"""Modes that count and log, products of int8 and of groups, loops, float64 on the GPU, states for PyTorch's modules."""

from __future__ import annotations

import collections
import importlib
import inspect
import os
import subprocess
import sys
import warnings
from typing import Any

import lucid
import numpy as np
import pytest
import torch
from lucid import nn
from lucid.utils._python_dispatch import TorchDispatchMode

from tests.python.tolerances import within

DEVICES = ("cpu", "gpu")


def test_a_mode_counts_logs_and_replaces() -> None:
    class Count(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.calls: collections.Counter[str] = collections.Counter()

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.calls[str(func)] += 1
            if func.name() == "aten::exp":
                return args[0]
            return func(*args, **(kwargs or {}))

    layer, x = nn.Linear(3, 4), lucid.ones(2, 3)
    with Count() as mode:
        y = (layer(x).relu() + 1) * 2
        assert y.shape == (2, 4) and y.ndim == 2
        assert lucid.exp(x) is x
        with Count() as inner:
            y.sum().backward()
    backward = ["ones_like.default", "expand.default", "mul.Tensor", "threshold_backward.default", "mm.default"]
    backward = {f"aten.{name}": 1 for name in (*backward, "sum.dim_IntList", "view.default")}
    assert inner.calls == {"aten.sum.default": 1, "aten.detach.default": 3, "aten.t.default": 3, **backward}
    # The inner mode saw it first, and what it called went to the one around it.
    forward = ["t.default", "addmm.default", "relu.default", "add.Tensor", "mul.Tensor", "exp.default"]
    assert mode.calls == inner.calls + collections.Counter(f"aten.{name}" for name in forward)
    assert layer.weight.grad is not None and lucid.exp(x)[0, 0].item() > 2
    with pytest.raises(NotImplementedError), TorchDispatchMode():
        lucid.exp(x)


#: Of a framework `m`, its functions `F` and tensors `a` (2, 4), `b` (2, 3, 4), `c` (2, 3, 8, 8).
SHOWN = (
    *("F.linear(a, w, v)", "F.linear(a, w)", "F.linear(b, w, v)", "F.linear(b, w)", "F.linear(a[0], w)"),
    *("a @ w.T", "b @ w.t()", "c @ c", "a @ a[0]", "a[0] @ a[1]", "m.bmm(b, b.mT)", "m.addmm(v, a, w.t())"),
    *("F.conv2d(c, k, v[:4], padding=1)", "F.conv2d(c[0], k)", "F.conv1d(b, k[:, :, 0], stride=(1,))"),
    *("F.conv2d(c, k, padding='same')", "F.conv_transpose2d(c, k.transpose(0, 1), stride=2, output_padding=1)"),
    *("a + a", "a + 1", "1 - a", "2 / a", "a ** 2", "2 ** a", "a ** a", "a == 1", "a > a", "-a", "a // 2", "a % 2"),
    *("F.relu(a)", "F.relu6(a)", "F.gelu(a)", "F.softmax(a, -1)", "a.log_softmax(1)", "m.softmax(a, 1, m.float64)"),
    *("F.mse_loss(a, a + 1)", "F.l1_loss(a, a * 2)", "F.cross_entropy(a, i)", "F.nll_loss(a, i, reduction='sum')"),
    *("F.layer_norm(a, (4,))", "F.group_norm(c, 3)", "F.normalize(a)", "F.max_pool2d(c, 2)", "F.avg_pool2d(c, 2)"),
    *("F.adaptive_avg_pool2d(c, 1)", "F.adaptive_avg_pool2d(c, (2, None))"),
    *("F.dropout(a, 0.5, False)", "F.dropout(a, 0.5) * 0", "F.interpolate(c, scale_factor=2)", "F.pad(a, (1, 1))"),
    *("F.interpolate(c, (4, 6), mode='bilinear', align_corners=True)", "b.flatten(1)", "b.reshape(6, -1)"),
    *("b.transpose(0, 1).reshape(6, 4)", "b.view(6, 4)", "b.permute(0, 2, 1)", "a.contiguous()", "a.t().contiguous()"),
    *("a[None]", "a[:, 1:]", "a[0]", "a[i]", "a[a > 0]", "b[..., 0]", "a[:, ::2]", "b[:, None, -1]", "b[0, i]"),
    *("a.chunk(2, 1)[0]", "a.split(2, 1)[0]", "a.split([1, 3], 1)[1]", "a.unbind()[0]", "m.cat([a, a])"),
    *(
        "a.sum()",
        "a.sum(1)",
        "a.mean()",
        "a.mean(dim=1)",
        "a.max()",
        "a.max(1)[0]",
        "m.max(a, a)",
        "a.std(1)",
        "a.var()",
    ),
    *("m.where(a > 0, a, a)", "a.masked_fill(a > 0, 0.0)", "a.double()", "a.to(m.float64)", "a.to('cpu')", "a.float()"),
    *("a.sum().item()", "m.outer(a[0], a[1])", "a.clone().fill_(1.0)", "a.clone().add_(1)", "a[None].squeeze(0)"),
    *("a.clone().__setitem__(0, 1.0)", "a.clone().__setitem__((slice(None), 0), a[:, 1])", "a.topk(2)[0]"),
)


def _shown(framework: Any, text: str) -> tuple[list[str], Any]:
    base: Any = importlib.import_module(f"{framework.__name__}.utils._python_dispatch").TorchDispatchMode

    class Log(base):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    seen: list[str] = []
    arrays = {"a": (2, 4), "b": (2, 3, 4), "c": (2, 3, 8, 8), "w": (5, 4), "v": (5,), "k": (4, 3, 3, 3)}
    rng = np.random.default_rng(0)
    names = {n: framework.tensor(rng.uniform(0.1, 1, s).astype(np.float32)) for n, s in arrays.items()}
    names["i"] = framework.tensor([1, 0])
    with Log():
        made = eval(text, {"m": framework, "F": framework.nn.functional, **names})
    return seen, made


@pytest.mark.parametrize("text", SHOWN)
def test_modes_show_the_ops_below_calls(text: str) -> None:
    (theirs, want), (ours, got) = _shown(torch, text), _shown(lucid, text)
    assert ours == theirs
    if want is not None:
        got, want = (np.asarray(x.numpy() if hasattr(x, "numpy") else x) for x in (got, want))
        np.testing.assert_allclose(got, want, **within("few ops"))


#: Those whose gradient is one kernel here, which is shown by the name of its node, or is of other steps.
ONE_KERNEL = (
    *("a @ a[0]", "a[0] @ a[1]", "2 ** a", "a ** a", "a % 2", "F.group_norm(c, 3)", "F.normalize(a)", "a[a > 0]"),
    *("a[:, ::2]", "a.chunk(2, 1)[0]", "a.split(2, 1)[0]", "a.split([1, 3], 1)[1]", "a.unbind()[0]", "a.max()"),
    *("m.max(a, a)", "a.std(1)", "a.var()"),
)
#: What has no gradient, or is of doubles or other tensors on the GPU device.
NO_GRADIENT = ("a // 2",)
OTHER_ON_THE_GPU = ("m.softmax(a, 1, m.float64)", "a.double()", "a.to(m.float64)", "a.to('cpu')")
#: What more of backward passes is compared.
MORE_GRADIENTS = (
    *("a.exp()", "a.sqrt()", "a.log()", "a.sin()", "a.cos()", "(a - 0.5).abs()", "F.sigmoid(a)", "a.tanh()"),
    *("F.silu(a)", "F.leaky_relu(a)", "F.elu(a)", "F.batch_norm(c, None, None, training=True)", "F.embedding(i, w)"),
    *("a.reciprocal()", "a - a * 2", "(a - 1) * a", "b.sum((0, 2))", "b.mean((0, 1), keepdim=True)", "a * v[:1]"),
    *("a / a.sum(0)", "a.T @ a"),
)


def _leaves(framework: Any, device: str) -> dict[str, Any]:
    arrays = {"a": (2, 4), "b": (2, 3, 4), "c": (2, 3, 8, 8), "w": (5, 4), "v": (5,), "k": (4, 3, 3, 3)}
    rng = np.random.default_rng(0)
    made = {n: framework.tensor(rng.uniform(0.1, 1, s).astype(np.float32), device=device) for n, s in arrays.items()}
    for leaf in made.values():
        leaf.requires_grad_()
    return {"m": framework, "F": framework.nn.functional, "i": framework.tensor([1, 0], device=device), **made}


def _log(framework: Any, seen: list[str]) -> Any:
    base: Any = importlib.import_module(f"{framework.__name__}.utils._python_dispatch").TorchDispatchMode

    class Log(base):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    return Log()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("text", [t for t in (*SHOWN, *MORE_GRADIENTS) if t not in (*ONE_KERNEL, *NO_GRADIENT)])
def test_modes_show_the_ops_of_backward_passes(text: str, device: str) -> None:
    if device == "gpu" and text in OTHER_ON_THE_GPU:
        return
    told: list[Any] = []
    for m, on in ((torch, "cpu"), (lucid, device)):
        seen: list[str] = []
        names = _leaves(m, on)
        with _log(m, []):
            y = eval(text, names)
        if not getattr(y, "requires_grad", False) or not y.is_floating_point():
            return
        with _log(m, seen):
            y.sum().backward()
        told.append((seen, {n: names[n].grad.cpu().numpy() for n in "abcwvk" if names[n].grad is not None}))
    assert told[1][0] == told[0][0]
    assert set(told[1][1]) == set(told[0][1])
    for name, want in told[0][1].items():
        np.testing.assert_allclose(told[1][1][name], want, **within("near zero"))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("text", [*ONE_KERNEL, "F.linear(b, w, v)", "F.linear(b, w)", "F.linear(a, w)", "c @ c"])
def test_modes_leave_gradients_of_one_kernel_as_they_are(text: str, device: str) -> None:
    names = _leaves(lucid, device)
    leaves = [names[n] for n in "abcwvk"]
    want = lucid.autograd.grad(eval(text, names).sum(), leaves, allow_unused=True)
    seen: list[str] = []
    y = eval(text, names)
    with _log(lucid, seen):
        got = lucid.autograd.grad(y.sum(), leaves, allow_unused=True)
    assert seen[:3] == ["aten.sum.default", "aten.ones_like.default", "aten.expand.default"] and len(seen) > 3
    for a, b in zip(got, want, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a.cpu().numpy(), b.cpu().numpy(), **within("few ops"))


#: What has several results, other steps or other dtypes than rules know.
UNLIKE = (
    *("a.square()", "F.rms_norm(a, (4,))", "m.cat([a, m.zeros(0)])", "m.msort(a)", "a.adjoint()", "m.gradient(v)[0]"),
    *("m.div(a, v[:1], rounding_mode='floor')", "m.trapezoid(a, a)", "m.linalg.svd(a)[1]", "m.linalg.lu(c[0, 0])[1]"),
    *("m.linalg.lstsq(a.t(), a.t()[:, :1])[0]", "a.sort(1)[0]", "a.max(1)[0] * a.min(1)[0]", "F.pad(a, (1, 1))"),
    *("F.scaled_dot_product_attention(a, w, w, is_causal=True)", "F.cross_entropy(a, a.detach().softmax(1))"),
    *("a.clone().t().mul_(2).add_(1)", "a.clone()[0].exp_()", "a.prod(1)", "a.cumsum(0)", "m.complex(a, a).exp().real"),
    *("(m.complex(a, a) @ m.complex(w, w).t()).real", "F.linear(m.complex(a, a), m.complex(w, w)).abs()"),
)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("text", UNLIKE)
def test_modes_leave_other_gradients_as_they_are(text: str, device: str) -> None:
    names = _leaves(lucid, device)
    leaves = [names[n] for n in "abcwvk"]
    y = eval(text, names)
    want = lucid.autograd.grad(y.sum(), leaves, allow_unused=True, retain_graph=True)
    seen: list[str] = []
    with _log(lucid, seen):
        got = lucid.autograd.grad(y.sum(), leaves, allow_unused=True)
    for a, b in zip(got, want, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a.cpu().numpy(), b.cpu().numpy(), **within("few ops"))


def test_modes_change_gradients() -> None:
    def run(m: Any) -> Any:
        base: Any = importlib.import_module(f"{m.__name__}.utils._python_dispatch").TorchDispatchMode

        class Doubling(base):  # type: ignore[misc]
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                made = func(*args, **(kwargs or {}))
                return made * 2 if "mm" in str(func) or "ones_like" in str(func) else made

        x = m.arange(6.0).reshape(2, 3).requires_grad_()
        w = m.arange(6.0).reshape(3, 2).div(7).requires_grad_()
        y = m.mm(x * x, w).sum()
        with Doubling():
            y.backward()
        return x.grad.tolist(), w.grad.tolist()

    for want, got in zip(run(torch), run(lucid), strict=True):
        np.testing.assert_allclose(got, want, **within("few ops"))

    class Other(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*(a * 1 if isinstance(a, lucid.Tensor) else a for a in args), **(kwargs or {}))

    y = nn.functional.gelu(lucid.ones(2, requires_grad=True)).sum()
    with pytest.raises(NotImplementedError, match="gelu_backward"), Other():
        y.backward()
    assert lucid._C._torch_function_modes() == ()


@pytest.mark.parametrize("reentrant", [False, True])
def test_modes_see_what_runs_within_backward_passes(reentrant: bool) -> None:
    def run(m: Any) -> Any:
        class Cube(m.autograd.Function):  # type: ignore[misc, name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x * x * x

            @staticmethod
            def backward(ctx: Any, grad: Any) -> Any:
                return (ctx.saved_tensors[0].tan() * 3) * grad

        seen: list[str] = []
        checkpoint = importlib.import_module(f"{m.__name__}.utils.checkpoint").checkpoint
        x = m.arange(3.0).requires_grad_()
        y = checkpoint(lambda t: t.sin() * t.exp(), Cube.apply(x), use_reentrant=reentrant)
        x.register_hook(lambda g: g.tanh())
        outer: list[str] = []
        with _log(m, outer), _log(m, seen):
            first = m.autograd.grad(y.sum(), x, retain_graph=False)[0]
        assert outer == seen
        z = x.sin().sum()
        with _log(m, seen):
            g = m.autograd.grad(z, x, create_graph=True)[0]
            g.sum().backward()
        return seen, first.tolist(), x.grad.tolist(), g.requires_grad

    if reentrant:
        # Not to be used with autograd.grad.
        for m in (torch, lucid):
            with pytest.raises(RuntimeError):
                run(m)
        assert lucid._C._torch_function_modes() == ()
        return
    want, got = run(torch), run(lucid)
    for name in ("sin", "exp", "tan", "tanh", "cos", "neg"):
        assert (f"aten.{name}.default" in got[0]) == (f"aten.{name}.default" in want[0]), name
    assert got[3] == want[3]
    for a, b in zip(got[1:3], want[1:3], strict=True):
        np.testing.assert_allclose(a, b, **within("few ops"))


def test_lowered_calls_have_gradients_and_go_to_outer_modes() -> None:
    class Names(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.append(func.name())
            return func(*args, **(kwargs or {}))

    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 5))
    x, target = lucid.randn(2, 3, 4, 4), lucid.tensor([1, 4])
    nn.functional.cross_entropy(model(x), target).backward()
    want = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with Names() as outer, Names() as inner:
        loss = nn.functional.cross_entropy(model(x), target)
    loss.backward()
    assert inner.seen == outer.seen and "aten::convolution" in outer.seen and "aten::add_.Tensor" in outer.seen
    for p, grad in zip(model.parameters(), want, strict=True):
        np.testing.assert_allclose(p.grad.numpy(), grad.numpy(), **within("few ops"))
    # What is wrong is told as the call itself tells it.
    with pytest.raises(RuntimeError, match="shape"), Names():
        nn.functional.conv2d(x, lucid.ones(4, 2, 3, 3))
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    y = lucid.randn(2, 3, 4)
    with Names() as mode:
        made = attention(y, y, y)[0]
    assert "aten::addmm" in mode.seen and "aten::bmm" in mode.seen
    np.testing.assert_allclose(made.detach().numpy(), attention(y, y, y)[0].detach().numpy(), **within("few ops"))


def _scaled(m: Any, seen: list[str]) -> Any:
    map_of = importlib.import_module(f"{m.__name__}.utils._pytree").tree_map

    class Scaled(m.Tensor):  # type: ignore[misc, name-defined]
        @staticmethod
        def __new__(cls, inner: Any, scale: float = 2.0) -> Any:
            return m.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

        def __init__(self, inner: Any, scale: float = 2.0) -> None:
            self.inner, self.scale = inner, scale

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            if func == m.ops.aten.detach.default:
                return cls(args[0].inner, args[0].scale)
            whole = map_of(lambda x: x.inner * x.scale if isinstance(x, cls) else x, (args, kwargs or {}))
            return func(*whole[0], **whole[1])

    return Scaled


@pytest.mark.parametrize("device", DEVICES)
def test_tensors_that_keep_their_numbers_elsewhere(device: str) -> None:
    told = []
    for m, where in ((torch, "cpu"), (lucid, device)):
        seen: list[str] = []
        kind = _scaled(m, seen)
        x = kind(m.arange(6.0, device=where).reshape(2, 3))
        one = m.ones(1, 3, device=where)
        layer = m.nn.Linear(3, 2, bias=False)
        layer.weight = m.nn.Parameter(x, requires_grad=False)
        results = (
            x + 1,
            m.nn.functional.linear(one, x, one[0, :2]),
            m.matmul(x, one[0]),
            x.sum(),
            x[0],
            x.t(),
            layer(one),
        )
        assert isinstance(x, kind) and isinstance(x.detach(), kind) and isinstance(layer.weight, m.nn.Parameter)
        assert x.device == one.device and x.layout == m.strided and x.dim() == 2 and len(x) == 2
        facts = (tuple(x.shape), str(x.dtype).partition(".")[2], x.stride(), x.numel(), x.requires_grad)
        told.append((facts, [r.tolist() for r in results], seen))
        with pytest.raises(TypeError, match="__torch_dispatch__"):
            m.Tensor._make_wrapper_subclass(m.Tensor, (2,))
    assert told[0] == told[1]
    inner = lucid.ones(2, device=device, requires_grad=True)
    (_scaled(lucid, [])(inner) * 3).sum().backward()
    assert inner.grad.tolist() == [6, 6]
    with pytest.raises(TypeError, match="subclass of Tensor"):
        lucid.Tensor._make_wrapper_subclass(int, (2,))


def _rows(m: Any, seen: list[str]) -> Any:
    """A class that turns off its say about whole calls, and calls ops of its instances while it is asked."""

    class Rows(m.Tensor):  # type: ignore[misc, name-defined]
        __torch_function__ = m._C._disabled_torch_function_impl

        @staticmethod
        def __new__(cls, inner: Any) -> Any:
            return m.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

        def __init__(self, inner: Any) -> None:
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            if func == m.ops.aten.unbind.int:
                return [args[0][0], args[0][1]]
            return func(*(a.inner if isinstance(a, cls) else a for a in args), **(kwargs or {}))

    return Rows


def test_classes_are_asked_about_what_they_call_on_their_instances() -> None:
    told = []
    for m in (torch, lucid):
        seen: list[str] = []
        x = _rows(m, seen)(m.arange(6).reshape(2, 3))
        told.append(([r.tolist() for r in (*x.unbind(), x + 1)], seen))
    assert told[0] == told[1]
    assert told[1][1] == ["aten.unbind.int", "aten.select.int", "aten.select.int", "aten.add.Tensor"]


@pytest.mark.parametrize("device", DEVICES)
def test_int_mm(device: str) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(-128, 128, (20, 16), np.int8), rng.integers(-128, 128, (16, 24), np.int8)
    expected = torch._int_mm(torch.tensor(a), torch.tensor(b))
    made = lucid._int_mm(lucid.tensor(a, device=device), lucid.tensor(b, device=device))
    assert made.dtype == lucid.int32 and made.tolist() == expected.tolist()
    out = lucid.empty(20, 24, dtype=lucid.int32)
    assert lucid._int_mm(lucid.tensor(a), lucid.tensor(b), out=out) is out and out.tolist() == expected.tolist()
    cases = [
        (lucid.ones(2, 2), lucid.ones(2, 2)),
        (out.to(lucid.int8), out.to(lucid.int8)),
        (lucid.ones(2).char(),) * 2,
    ]
    for bad in cases:
        with pytest.raises(RuntimeError, match="_int_mm"):
            lucid._int_mm(*bad)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["rows", "columns", "inner", "batch"])
def test_grouped_mm(device: str, kind: str) -> None:
    ends = [2, 2, 7]
    shapes = {
        "rows": ((9, 4), (3, 4, 5)),
        "columns": ((3, 4, 5), (5, 8)),
        "inner": ((4, 8), (8, 5)),
        "batch": ((3, 2, 4), (3, 4, 5)),
    }[kind]
    a, b = (np.random.default_rng(i).standard_normal(s).astype(np.float32) for i, s in enumerate(shapes))
    x, y = (lucid.tensor(v, device=device, requires_grad=True) for v in (a, b))
    offs = None if kind == "batch" else lucid.tensor(ends, dtype=lucid.int32, device=device)
    made = lucid._grouped_mm(x, y, offs)
    spans = list(zip([0, *ends[:-1]], ends, strict=True))
    if kind == "rows":
        want = np.concatenate([*(a[s:e] @ b[g] for g, (s, e) in enumerate(spans)), np.zeros((2, 5), np.float32)])
    elif kind == "columns":
        want = np.concatenate([*(a[g] @ b[:, s:e] for g, (s, e) in enumerate(spans)), np.zeros((4, 1))], 1)
    elif kind == "inner":
        want = np.stack([a[:, s:e] @ b[s:e] for s, e in spans])
    else:
        want = a @ b
    np.testing.assert_allclose(made.detach().cpu().numpy(), want, **within("near zero"))
    made.sum().backward()
    assert x.grad.shape == x.shape and y.grad.abs().sum().item() > 0
    if offs is not None:
        with pytest.raises(RuntimeError, match="offsets must rise"):
            lucid._grouped_mm(x, y, offs.flip(0))
        with pytest.raises(RuntimeError, match="provide offsets"):
            lucid._grouped_mm(x, y)


def test_while_loop() -> None:
    x = lucid.tensor(2.0, requires_grad=True)
    count, made = lucid.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * x), (lucid.tensor(0), x))
    made.backward()
    assert (count.item(), made.item(), x.grad.item()) == (3, 16, 32)
    for bad in (
        lambda: lucid.while_loop(1, 2, ()),
        lambda: lucid.while_loop(lambda v: v, lambda v: v, (lucid.ones(2),)),
        lambda: lucid.while_loop(lambda v: v > 0, lambda v: (v, v), (lucid.tensor(1.0),)),
        lambda: lucid.while_loop(lambda v: True, lambda v: v, lucid.ones(1)),
    ):
        with pytest.raises(RuntimeError):
            bad()


def test_float64_policy() -> None:
    x = lucid.ones(3, dtype=lucid.float64)
    code = "import lucid; print(lucid.get_float64_policy(), lucid.ones(2, dtype=lucid.float64).to('gpu').dtype)"
    env = {**os.environ, "LUCID_FLOAT64_POLICY": "downcast"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.split() == ["downcast", "lucid.float32"] and "64-bit floats" in done.stderr
    assert lucid.get_float64_policy() == "error"
    with pytest.raises(TypeError, match="no float64"):
        x.to("gpu")
    lucid.set_float64_policy("downcast")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = [
                x.to("gpu"),
                x.to("gpu", lucid.float64),
                lucid.zeros(3, dtype=lucid.float64, device="gpu"),
                lucid.rand(3, dtype=lucid.float64, device="gpu"),
                lucid.tensor([1.0], dtype=lucid.float64, device="gpu"),
                lucid.tensor(np.ones(2), device="gpu"),
                lucid.ones(3, device="gpu").double(),
                nn.Linear(2, 2).double().to("gpu").weight,
            ]
            assert all(t.dtype == lucid.float32 and not t.is_cpu for t in made)
            assert lucid.ones(2, dtype=lucid.complex128).to("gpu").dtype == lucid.complex64
            leaf = lucid.ones(2, dtype=lucid.float64, requires_grad=True)
            leaf.to("gpu").sum().backward()
            assert leaf.grad.dtype == lucid.float64
    finally:
        lucid.set_float64_policy("error")
    with pytest.raises(TypeError, match="no float64"):
        lucid.zeros(3, dtype=lucid.float64, device="gpu")
    with pytest.raises(ValueError, match="downcast"):
        lucid.set_float64_policy("cast")


def test_pytorchs_modules_take_our_states() -> None:
    ours, theirs = (
        nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)),
        torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)),
    )
    ours(lucid.randn(5, 3))
    theirs.load_state_dict(ours.to("gpu").state_dict())
    x = np.ones((2, 3), np.float32)
    a, b = ours.eval()(lucid.tensor(x, device="gpu")).detach().numpy(), theirs.eval()(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(a, b, **within("few ops"))
    target = torch.zeros(2, dtype=torch.bfloat16)
    assert target.copy_(lucid.tensor([1.0, 2.0], dtype=lucid.bfloat16)) is target and target.tolist() == [1, 2]
    with pytest.raises(TypeError, match="PyTorch's add"):
        torch.add(torch.ones(2), lucid.ones(2))
    with pytest.raises(RuntimeError):
        theirs[0].load_state_dict(nn.Linear(2, 2).state_dict())


def test_cuda_names_agree() -> None:
    if lucid.cuda.is_available():
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = lucid.ones(2).cuda()
        lucid.cuda.synchronize()
        start, end = lucid.cuda.Event(enable_timing=True), lucid.cuda.Event(enable_timing=True)
        with lucid.cuda.stream(lucid.cuda.Stream()):
            start.record()
            (x + 1).sum().item()
            end.record()
        assert start.elapsed_time(end) >= 0 and lucid.cuda.current_device() == 0
        with pytest.raises(RuntimeError, match="ordinal"):
            lucid.cuda.synchronize(3)
    code = "import lucid; lucid.cuda.synchronize()"
    env = {**os.environ, "LUCID_STRICT_DEVICE": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    assert done.returncode != 0 and "GpuNotAvailable" in done.stderr


def test_signatures_and_messages() -> None:
    assert str(inspect.signature(lucid.topk)) == (
        "(input, k, dim=-1, largest=True, sorted=True, *, axis=None, out=None)"
    )
    assert inspect.signature(lucid.Tensor.topk).parameters["dim"].default == -1
    assert inspect.signature(lucid.zeros).parameters["requires_grad"].default is False
    told = [n for n in lucid._C.__all__ if "=..." in (getattr(getattr(lucid, n), "__text_signature__", "") or "")]
    # Several signatures in one: what is left out says which is meant, and has no value.
    assert set(told) <= {"Tensor", "result_type", "sparse_coo_tensor"}
    with pytest.raises(
        RuntimeError, match=r"subscript 'j' has size 4 for operand 1.*size 3 of operand 0.*\[2, 3\], \[4, 5\]"
    ):
        lucid.einsum("ij,jk->ik", lucid.ones(2, 3), lucid.ones(4, 5))
    with pytest.raises(RuntimeError, match=r"Expected size 3 but got size 5 in dimension 1 for tensor number 2"):
        lucid.cat([lucid.ones(2, 3), lucid.ones(2, 3), lucid.ones(4, 5)])
    with pytest.raises(RuntimeError, match=r"tensor number 1 in the list has 1 dimensions"):
        lucid.cat([lucid.ones(2, 3), lucid.ones(3)])


@pytest.mark.parametrize("framework", [torch, lucid])
def test_ops_are_found_by_their_names(framework: Any) -> None:
    aten = framework.ops.aten
    seen: list[str] = []

    class Mode(importlib.import_module(f"{framework.__name__}.utils._python_dispatch").TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func == aten.mm.default:
                seen.append("mm")
            seen.append({aten.sin.default: "sine", aten.exp.default: "exponential"}.get(func, "other"))
            assert func != aten.cos.default
            return func(*args, **(kwargs or {}))

    x = framework.ones(2, 2)
    with Mode():
        _ = x.sin(), framework.exp(x), framework.mm(x, x)
    assert seen == ["sine", "exponential", "mm", "other"]
