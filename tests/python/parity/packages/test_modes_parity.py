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
    assert inner.calls == {"aten.sum.default": 1}
    # The inner mode saw it first, and what it called went to the one around it.
    expected = ["linear", "relu", "add", "mul", "exp", "sum"]
    assert mode.calls == {f"aten.{name}.default": 1 for name in expected}
    assert layer.weight.grad is not None and lucid.exp(x)[0, 0].item() > 2
    with pytest.raises(NotImplementedError), TorchDispatchMode():
        lucid.exp(x)


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
