"""Writes that overlap their inputs: activations in place and overlapping windows. Against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import TABLE, within

DEVICES = ("cpu", "gpu")

#: Functions with `inplace`, and how else they are called.
IN_PLACE: dict[str, tuple[Any, ...]] = {
    "relu": (),
    "relu6": (),
    "silu": (),
    "mish": (),
    "hardswish": (),
    "hardsigmoid": (),
    "hardtanh": (-0.5, 1.0),
    "leaky_relu": (0.2,),
    "elu": (0.7,),
    "selu": (),
    "celu": (0.7,),
    "threshold": (0.5, 2.0),
    "rrelu": (0.2, 0.4),
}


def activated(m: Any, name: str, part: bool, again: bool, device: str) -> list[Any]:
    x = m.arange(6.0, device=device).sub(2.25).requires_grad_()
    y = x * 1
    getattr(m.nn.functional, name)(y[1:4] if part else y, *IN_PLACE[name], inplace=True)
    (g,) = m.autograd.grad(y.square().sum(), x, create_graph=again)
    return [y.detach().tolist(), g.tolist(), *([m.autograd.grad(g.sum(), x)[0].tolist()] if again else [])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("part", [False, True], ids=["whole", "part"])
@pytest.mark.parametrize("name", IN_PLACE)
def test_activations(name: str, part: bool, device: str) -> None:
    for again in (False, True) if name != "hardsigmoid" else (False,):
        wanted, given = activated(torch, name, part, again, "cpu"), activated(lucid, name, part, again, device)
        for a, b in zip(wanted, given, strict=True):
            np.testing.assert_allclose(b, a, **within("near zero"))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["SiLU", "Mish", "Hardswish"])
def test_modules(name: str, device: str) -> None:
    def trained(m: Any, device: str) -> list[Any]:
        linear = m.nn.Linear(3, 2, device=device)
        with m.no_grad():
            linear.weight.copy_(m.arange(6.0, device=device).reshape(2, 3) / 5 - 0.4)
            linear.bias.zero_()
        m.nn.Sequential(linear, getattr(m.nn, name)(inplace=True))(m.ones(4, 3, device=device)).sum().backward()
        return linear.weight.grad.tolist()

    np.testing.assert_allclose(trained(lucid, device), trained(torch, "cpu"), rtol=TABLE["few ops"].rtol)


def test_a_leaf_is_not_written_over() -> None:
    for m in (torch, lucid):
        x = m.ones(3, requires_grad=True)
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            m.nn.functional.silu(x, inplace=True)


#: Windows of six numbers.
WINDOWS: dict[str, Callable[[Any], Any]] = {
    "all": lambda b: b.unfold(0, 3, 1),
    "every second": lambda b: b.unfold(0, 3, 2),
    "strided": lambda b: b.as_strided((4, 3), (1, 1)),
    "behind the first": lambda b: b[1:].unfold(0, 3, 1),
    "that do not overlap": lambda b: b.as_strided((2, 2), (3, 2)),
}
#: Writes whose gradient does not depend on the order in which a place is written several times.
WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "add_": lambda m, v: v.add_(1),
    "sub_": lambda m, v: v.sub_(m.ones_like(v) * 3),
    "mul_": lambda m, v: v.mul_(2),
    "div_": lambda m, v: v.div_(2),
    "neg_": lambda m, v: v.neg_(),
    "relu_": lambda m, v: v.relu_(),
    "clamp_min_": lambda m, v: v.clamp_min_(2),
    "addcmul_": lambda m, v: v.addcmul_(m.ones_like(v), m.ones_like(v)),
    "lerp_": lambda m, v: v.lerp_(m.ones_like(v), 0.5),
    "pow_": lambda m, v: v.pow_(2),
    "masked_fill_": lambda m, v: v.masked_fill_(v > 3, 0.0),
    "tril_": lambda m, v: v.tril_(),
    "index_fill_": lambda m, v: v.index_fill_(0, m.tensor([0], device=v.device), 1.0),
    "index_add_": lambda m, v: v.index_add_(0, m.tensor([0], device=v.device), m.ones_like(v.detach()[:1])),
    "cumsum_": lambda m, v: v.cumsum_(0),
    "zero_": lambda m, v: v.zero_(),
    "copy_": lambda m, v: v.copy_(m.ones_like(v)),
    "several": lambda m, v: v.add_(1).mul_(3).neg_(),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("windows", WINDOWS)
@pytest.mark.parametrize("name", WRITES)
def test_windows(name: str, windows: str, device: str) -> None:
    def gradients(m: Any, device: str) -> list[Any]:
        made = []
        for read in (False, True):
            x = m.arange(6.0, device=device).add(0.5).requires_grad_()
            base = x * 1
            view = WINDOWS[windows](base)
            before = (view * 2).sum() if read else 0
            WRITES[name](m, view)
            after = (view if read else base * m.arange(1.0, 7.0, device=device)).sum()
            (before + after).backward()
            made.append(x.grad.tolist())
        return made

    np.testing.assert_allclose(gradients(lucid, device), gradients(torch, "cpu"), rtol=TABLE["few ops"].rtol)
