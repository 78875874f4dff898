"""Memory formats against PyTorch: `memory_format=` wherever it is taken, and strides of copies."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import lucid
import pytest
import torch

DEVICES = ("cpu", "gpu")


def tensors(L: Any, device: str) -> tuple[Any, Any, Any]:
    x = L.arange(120, device=device).to(L.float32).reshape(2, 3, 4, 5)
    return x, x[0, 0], L.zeros(2, 3, 4, 5, 6, device=device)


#: What is made of an image, a matrix and a volume; `d` is a device.
MADE: dict[str, Callable[..., Any]] = {
    "contiguous": lambda L, x, m, v, d: x.contiguous(memory_format=L.channels_last),
    "contiguous volume": lambda L, x, m, v, d: v.contiguous(memory_format=L.channels_last_3d),
    "contiguous of another rank": lambda L, x, m, v, d: x.contiguous(memory_format=L.channels_last_3d),
    "contiguous matrix": lambda L, x, m, v, d: m.contiguous(memory_format=L.channels_last),
    "contiguous preserve": lambda L, x, m, v, d: x.contiguous(memory_format=L.preserve_format),
    "contiguous preserve of a transpose": lambda L, x, m, v, d: m.t().contiguous(memory_format=L.preserve_format),
    "contiguous by position": lambda L, x, m, v, d: x.contiguous(L.channels_last),
    "contiguous back": lambda L, x, m, v, d: x.contiguous(memory_format=L.channels_last).contiguous(),
    "contiguous of nothing": lambda L, x, m, v, d: x[:, :, :0].contiguous(memory_format=L.channels_last),
    "clone": lambda L, x, m, v, d: x.clone(memory_format=L.channels_last),
    "clone by function": lambda L, x, m, v, d: L.clone(x, memory_format=L.channels_last),
    "clone of another rank": lambda L, x, m, v, d: x[0].clone(memory_format=L.channels_last),
    "clone of permuted": lambda L, x, m, v, d: x.permute(3, 1, 0, 2).clone(),
    "clone of sliced": lambda L, x, m, v, d: x[:, ::2].clone(),
    "clone of sliced and permuted": lambda L, x, m, v, d: x[:, ::2].permute(3, 1, 0, 2).clone(),
    "clone of expanded": lambda L, x, m, v, d: x.expand(2, 2, 3, 4, 5).clone(),
    "clone of permuted and expanded": lambda L, x, m, v, d: x.permute(3, 1, 0, 2).expand(2, 5, 3, 2, 4).clone(),
    "clone of windows": lambda L, x, m, v, d: x.unfold(3, 2, 1).clone(),
    "clone of a row as a column": lambda L, x, m, v, d: m[:1].t().clone(),
    "clone of ones": lambda L, x, m, v, d: L.zeros(3, 1, device=d).t().clone(),
    "clone of a part of ones": lambda L, x, m, v, d: L.zeros(1, 3, 1, 4, device=d)[:, :, 0].clone(),
    "clone of nothing": lambda L, x, m, v, d: L.zeros(0, 4, device=d).t().clone(),
    "clone of as_strided": lambda L, x, m, v, d: x.as_strided((2, 2, 2), (0, 1, 4)).clone(),
    "clone of overlapping": lambda L, x, m, v, d: x.as_strided((2, 2), (1, 1)).clone(),
    "clone of equal strides": lambda L, x, m, v, d: x.as_strided((3, 2, 2), (4, 0, 0)).clone(),
    "clone contiguous": lambda L, x, m, v, d: m.t().clone(memory_format=L.contiguous_format),
    "to": lambda L, x, m, v, d: x.to(memory_format=L.channels_last),
    "to of another rank": lambda L, x, m, v, d: m.to(memory_format=L.channels_last),
    "to and a dtype": lambda L, x, m, v, d: x.to(L.int32, memory_format=L.channels_last),
    "to and flags": lambda L, x, m, v, d: x.to(L.int32, False, True, memory_format=L.channels_last),
    "to and a device": lambda L, x, m, v, d: x.to("cpu", L.int32, memory_format=L.channels_last),
    "to like another": lambda L, x, m, v, d: x.to(x.int(), memory_format=L.channels_last),
    "to a dtype": lambda L, x, m, v, d: x.permute(3, 1, 0, 2).to(L.int32),
    "to a dtype of sliced": lambda L, x, m, v, d: x[:, ::2].permute(3, 1, 0, 2).half(),
    "to a dtype, contiguous": lambda L, x, m, v, d: m.t().to(L.int32, memory_format=L.contiguous_format),
    "to a copy": lambda L, x, m, v, d: m.t().to(L.float32, copy=True),
    "type": lambda L, x, m, v, d: x.permute(3, 1, 0, 2).type(L.int64),
    "function of each element": lambda L, x, m, v, d: x.permute(3, 1, 0, 2).square(),
    "function of each element of a transpose": lambda L, x, m, v, d: L.relu(m.t()),
    "function of each element, channels last": lambda L, x, m, v, d: x.contiguous(memory_format=L.channels_last).neg(),
    "function of each element of a slice": lambda L, x, m, v, d: m[1:3].t().abs(),
    "gelu": lambda L, x, m, v, d: L.nn.functional.gelu(x.permute(3, 1, 0, 2)) * 0,
    "sum of two in one order": lambda L, x, m, v, d: x.permute(3, 1, 0, 2) + x.permute(3, 1, 0, 2),
    "product of two in one order": lambda L, x, m, v, d: m.t() * m.neg().t(),
    "product with a number": lambda L, x, m, v, d: 2 * m.t() * 3,
    "half": lambda L, x, m, v, d: x.half(memory_format=L.channels_last),
    "float of float": lambda L, x, m, v, d: x.float(memory_format=L.channels_last),
    "int contiguous": lambda L, x, m, v, d: m.t().int(memory_format=L.contiguous_format),
    "half by position": lambda L, x, m, v, d: x.half(L.channels_last),
    "cpu": lambda L, x, m, v, d: x.cpu(memory_format=L.channels_last),
    "empty": lambda L, x, m, v, d: L.empty(2, 3, 4, 5, memory_format=L.channels_last, device=d).zero_(),
    "empty of nothing": lambda L, x, m, v, d: L.empty(2, 3, 0, 5, memory_format=L.channels_last, device=d),
    "empty without channels": lambda L, x, m, v, d: L.empty(2, 0, 4, 5, memory_format=L.channels_last, device=d),
    "empty of ones": lambda L, x, m, v, d: L.empty(2, 1, 4, 1, memory_format=L.channels_last, device=d).zero_(),
    "empty preserve": lambda L, x, m, v, d: L.empty(2, 3, memory_format=L.preserve_format, device=d),
    "empty None": lambda L, x, m, v, d: L.empty(2, 3, memory_format=None, device=d).zero_(),
    "empty of another rank": lambda L, x, m, v, d: L.empty(2, 3, memory_format=L.channels_last, device=d),
    "zeros": lambda L, x, m, v, d: L.zeros(2, 3, 4, 5, memory_format=L.channels_last, device=d),
    "empty_like": lambda L, x, m, v, d: L.empty_like(x, memory_format=L.channels_last).zero_(),
    "empty_like of expanded": lambda L, x, m, v, d: L.empty_like(x.expand(2, 2, 3, 4, 5)).zero_(),
    "zeros_like": lambda L, x, m, v, d: L.zeros_like(x.permute(3, 1, 0, 2)),
    "zeros_like contiguous": lambda L, x, m, v, d: L.zeros_like(m.t(), memory_format=L.contiguous_format),
    "zeros_like of another rank": lambda L, x, m, v, d: L.zeros_like(m, memory_format=L.channels_last),
    "ones_like": lambda L, x, m, v, d: L.ones_like(x[:, ::2].permute(3, 1, 0, 2)),
    "ones_like and a number": lambda L, x, m, v, d: L.ones_like(x, memory_format=3),
    "full_like": lambda L, x, m, v, d: L.full_like(x, 2, memory_format=L.channels_last, dtype=L.int32),
    "rand_like": lambda L, x, m, v, d: L.rand_like(x, memory_format=L.channels_last).zero_(),
    "randn_like": lambda L, x, m, v, d: L.randn_like(m.t()).zero_(),
    "randint_like": lambda L, x, m, v, d: L.randint_like(x, 5, memory_format=L.channels_last).zero_(),
    "resize_": lambda L, x, m, v, d: x.clone().resize_(2, 3, 4, 5, memory_format=L.channels_last),
    "resize_ smaller": lambda L, x, m, v, d: x.clone().resize_(1, 3, 4, 5, memory_format=L.channels_last),
    "resize_ larger": lambda L, x, m, v, d: m.clone().resize_(2, 3, 4, 5, memory_format=L.channels_last).zero_(),
    "resize_ of another rank": lambda L, x, m, v, d: x.clone().resize_(3, 4, memory_format=L.channels_last),
    "resize_ preserve": lambda L, x, m, v, d: x.clone().resize_(2, 3, memory_format=L.preserve_format),
    "resize_as_": lambda L, x, m, v, d: L.zeros(120, device=d).resize_as_(x, memory_format=L.channels_last),
    "resize_as_ of channels last": lambda L, x, m, v, d: L.zeros(120, device=d).resize_as_(
        x.contiguous(memory_format=L.channels_last)
    ),
    "resize_as_ preserve": lambda L, x, m, v, d: L.zeros(120, device=d).resize_as_(
        x.contiguous(memory_format=L.channels_last), memory_format=L.preserve_format
    ),
    "tensor": lambda L, x, m, v, d: L.as_tensor(m.t(), dtype=L.int32),
    "deepcopy": lambda L, x, m, v, d: copy.deepcopy(x.permute(3, 1, 0, 2)),
    "deepcopy of sliced": lambda L, x, m, v, d: copy.deepcopy(x[:, ::2]),
    "pickle": lambda L, x, m, v, d: pickle.loads(pickle.dumps(x.contiguous(memory_format=L.channels_last))),
    "write": lambda L, x, m, v, d: x.contiguous(memory_format=L.channels_last).add_(1)[:, 1:].mul_(2),
    "conv": lambda L, x, m, v, d: L.nn.functional.conv2d(
        x.contiguous(memory_format=L.channels_last), x[:, :, :2, :2].clone(memory_format=L.channels_last)
    ).contiguous(),
    "reshape": lambda L, x, m, v, d: x.contiguous(memory_format=L.channels_last).permute(0, 2, 3, 1).reshape(-1, 3),
}


def outcome(run: Callable[[], Any]) -> Any:
    try:
        t = run()
    except (RuntimeError, TypeError) as error:
        return RuntimeError if isinstance(error, RuntimeError) else TypeError
    dtype = str(t.dtype).rsplit(".", 1)[-1]
    flags = [t.is_contiguous(), t._is_view(), t.storage_offset(), t.is_leaf]
    return tuple(t.shape), t.stride(), dtype, flags, t.cpu().tolist()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", MADE)
def test_strides_and_elements(name: str, device: str) -> None:
    ours = outcome(lambda: MADE[name](lucid, *tensors(lucid, device), device))
    theirs = outcome(lambda: MADE[name](torch, *tensors(torch, "cpu"), "cpu"))
    assert ours == theirs


@pytest.mark.parametrize("device", DEVICES)
def test_is_contiguous(device: str) -> None:
    def run(L: Any, device: str) -> list[Any]:
        x, m, v = tensors(L, device)
        formats = [L.contiguous_format, L.preserve_format, L.channels_last, L.channels_last_3d]
        shapes = [(2, 1, 4, 5), (2, 3, 1, 1), (0, 3, 4, 5), (1, 1, 1, 1), (2, 3, 0, 5)]
        seen = [x, m, m.t(), v, x[0], x[:, ::2], x.permute(0, 2, 3, 1), *(L.zeros(s, device=device) for s in shapes)]
        seen += [x.contiguous(memory_format=L.channels_last), v.contiguous(memory_format=L.channels_last_3d)]
        seen += [L.empty(2, 3, 0, 5, device=device, memory_format=L.channels_last)]
        return [[t.is_contiguous(memory_format=f) for f in formats] for t in seen]

    assert run(lucid, device) == run(torch, "cpu")


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_itself(device: str) -> None:
    def run(L: Any, device: str) -> list[bool]:
        x, m, _ = tensors(L, device)
        last = x.contiguous(memory_format=L.channels_last)
        return [
            x.contiguous() is x,
            last.contiguous(memory_format=L.channels_last) is last,
            last.to(memory_format=L.channels_last) is last,
            last.to(memory_format=L.contiguous_format) is last,
            last.to(memory_format=L.preserve_format) is last,
            last.float() is last,
            last.float(memory_format=L.preserve_format) is last,
            x.to(memory_format=L.contiguous_format) is x,
            m.t().to(memory_format=L.contiguous_format).is_contiguous(),
            x.float(memory_format=L.channels_last) is x,
        ]

    assert run(lucid, device) == run(torch, "cpu")


@pytest.mark.parametrize("device", DEVICES)
def test_dim_order(device: str) -> None:
    def run(L: Any, device: str) -> list[Any]:
        x, m, _ = tensors(L, device)
        both = [L.contiguous_format, L.channels_last]
        seen = [x.dim_order(), x.permute(3, 1, 0, 2).dim_order(), m.t().dim_order()]
        seen += [x.contiguous(memory_format=L.channels_last).dim_order(), L.ones(1, 1, 1, 1, device=device).dim_order()]
        seen += [x.dim_order(ambiguity_check=both), x.dim_order(ambiguity_check=True)]
        for t, check in ((L.ones(1, 1, 1, 1, device=device), True), (L.ones(1, 1, 1, 1, device=device), both)):
            try:
                seen.append(t.dim_order(ambiguity_check=check))
            except RuntimeError:
                seen.append("ambiguous")
        return seen

    assert run(lucid, device) == run(torch, "cpu")


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_pass_through(device: str) -> None:
    def run(L: Any, device: str) -> Any:
        x = tensors(L, device)[0].requires_grad_()
        y = x.contiguous(memory_format=L.channels_last)
        z = (x * 1).to(memory_format=L.channels_last)
        w = x.permute(3, 1, 0, 2).clone()
        w[0] = 0
        names = [t.grad_fn.name() for t in (y, z, x.permute(3, 1, 0, 2).half(), x.to(L.float32, copy=True))]
        ((y * z).sum() + w.sum()).backward()
        return names, x.grad.tolist(), w.stride()

    assert run(lucid, device) == run(torch, "cpu")


@pytest.mark.parametrize("device", DEVICES)
def test_modules(device: str) -> None:
    def run(L: Any, device: str) -> Any:
        net = L.nn.Sequential(L.nn.Conv2d(3, 4, 3), L.nn.BatchNorm2d(4)).to(device)
        same = net.to(memory_format=L.channels_last)
        strides = [p.stride() for p in net.parameters()]
        net.to(L.float16, memory_format=L.channels_last)
        kinds = [str(p.dtype).rsplit(".", 1)[-1] for p in [*net.parameters(), *net.buffers()]]
        volume = L.nn.Conv3d(3, 4, 3).to(device, memory_format=L.channels_last_3d)
        errors = []
        for wrong in (
            lambda: L.nn.Conv3d(3, 4, 3).to(memory_format=L.channels_last),
            lambda: net.to(L.channels_last),
        ):
            errors.append(outcome(wrong))
        return same is net, strides, kinds, volume.weight.stride(), errors

    assert run(lucid, device) == run(torch, "cpu")


def test_the_formats_are_objects() -> None:
    for name in ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d"):
        ours, theirs = getattr(lucid, name), getattr(torch, name)
        assert repr(ours) == repr(theirs).replace("torch", "lucid")
        assert isinstance(ours, lucid.memory_format)
        assert pickle.loads(pickle.dumps(ours)) is ours and copy.deepcopy(ours) is ours
        assert {ours: 1}[ours] == 1 and ours == getattr(lucid, name)
    assert lucid.channels_last != lucid.channels_last_3d
    with pytest.raises(TypeError):
        lucid.memory_format()


def test_arrays_have_the_strides() -> None:
    x = lucid.arange(120.0).reshape(2, 3, 4, 5).contiguous(memory_format=lucid.channels_last)
    a = x.numpy()
    assert a.strides == (240, 4, 60, 12)
    assert lucid.from_numpy(a).stride() == x.stride()
    lucid.from_numpy(a)[0, 0, 0, 0] = 7
    assert x[0, 0, 0, 0].item() == 7
