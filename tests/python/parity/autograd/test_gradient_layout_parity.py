"""The layout of gradients: the strides of what `autograd.grad` gives, against PyTorch on the op table's samples.

Strides of dimensions of size 1 are not compared, nor those of empty gradients. The gradients that leaves keep have the
layout of the leaves: `test_layout_parity`.
"""

from __future__ import annotations

from typing import Any

import lucid
import pytest
import torch

from tests.python.limitations import GRADIENT_STRIDES, GRADIENT_STRIDES_ON_GPU
from tests.python.parity.memory.test_layout_parity import DEVICES, ROWS, both, steps
from tests.python.samples import Data


def is_leaf(d: Data, t: Any) -> bool:
    """Does an argument get a gradient?"""
    return bool(d.varies and d.gradient and (t.is_floating_point() or t.is_complex()))


#: Incoming gradients: row-major, with the result's strides, and of a sum.
COMING = {
    "row-major": lambda m, y: m.ones(tuple(y.shape), device=y.device, dtype=y.dtype),
    "alike": lambda m, y: m.ones_like(y),
    "of a sum": lambda m, y: m.ones((), device=y.device, dtype=y.dtype).expand(tuple(y.shape)),
}


def strides(m: Any, leaves: list[Any], made: list[Any], coming: str) -> list[Any]:
    """Sizes, strides and all strides of the gradients of each result; `None` for what has none."""
    seen: list[Any] = []
    for y in made:
        grads = [None] * len(leaves)
        if y.requires_grad:
            try:
                g = COMING[coming](m, y)
                grads = m.autograd.grad(y, leaves, g, retain_graph=True, allow_unused=True)
            except RuntimeError:
                pass
        dense = [None if g is None or g.layout != m.strided else g for g in grads]
        seen += [None if g is None else (tuple(g.shape), steps(g), g.stride()) for g in dense]
    return seen


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("row", [r for r in ROWS if r["differentiable"]], ids=lambda r: r["name"])
def test_strides_of_gradients(row: Any, device: str) -> None:
    differ = []
    for sample, layout, theirs, ours in both(row, device, leaf=is_leaf):
        for coming in COMING:
            pairs = zip(strides(torch, *theirs, coming), strides(lucid, *ours, coming), strict=True)
            for want, got in pairs:
                if want and got and want[0] == got[0] and want[1] != got[1]:
                    differ.append((sample.text, layout, coming, want[0], want[2], got[2]))
    assert bool(differ) == (
        row["name"] in GRADIENT_STRIDES or (device == "gpu" and row["name"] in GRADIENT_STRIDES_ON_GPU)
    ), differ


@pytest.mark.parametrize("device", DEVICES)
def test_the_gradient_of_a_mean_can_be_written(device: str) -> None:
    def doubled(m: Any, **where: str) -> list[Any]:
        x = m.arange(6.0, **where).reshape(2, 3).requires_grad_()
        seen = []
        for y in (x.mean(), x.mean(0).sum(), x.mean(1, keepdim=True).sum(), (x.t() * 2).mean()):
            (g,) = m.autograd.grad(y, x)
            seen += [g.mul_(2).tolist(), g.stride()]
        return seen

    assert doubled(lucid, device=device) == doubled(torch)
