"""`backward` to chosen inputs, its hooks and kept gradients; generated rules of `vmap` that save twice."""

from __future__ import annotations

from typing import Any

import lucid
import pytest
import torch

DEVICES = ("cpu", "gpu")


def leaf(m: Any, device: str) -> Any:
    return m.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)


def hooks(m: Any, device: str) -> list[Any]:
    a, b = leaf(m, device), leaf(m, device)
    c = a * b
    log: list[str] = []
    for name, t in (("a", a), ("b", b), ("c", c)):
        t.register_hook(lambda g, name=name: log.append(name))
    for name, t in (("a", a), ("b", b)):
        t.register_post_accumulate_grad_hook(lambda p, name=name: log.append(f"{name} has {p.grad.tolist()}"))
    for _ in range(2):
        m.autograd.backward(c.sum(), inputs=[a], retain_graph=True)
    return [log, a.grad.tolist(), b.grad]


def kept(m: Any, device: str) -> list[Any]:
    """What is no leaf keeps its gradient once, whether it was to keep it anyway or not."""
    made = []
    for retains in (False, True):
        a = leaf(m, device)
        c = a * 2
        d = c * c
        if retains:
            c.retain_grad()
        d.sum().backward(inputs=[c, a], retain_graph=True)
        made += [c.retains_grad, c.grad.tolist(), a.grad.tolist()]
        d.sum().backward(inputs=[c])
        made += [c.grad.tolist(), a.grad.tolist()]
    return made


def generated(m: Any, device: str) -> list[Any]:
    class Product(m.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any, y: Any) -> Any:
            return x * y, x + 1

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            x, y = ctx.saved_tensors
            return g * y + h, g * x

        @staticmethod
        def jvp(ctx: Any, a: Any, b: Any) -> Any:
            x, y = ctx.saved_tensors
            return a * y + b * x, a

    def f(x: Any, y: Any) -> Any:
        return Product.apply(x, y)[0]

    x = m.arange(6.0, device=device).reshape(2, 3)
    y = x + 2
    each = m.func.vmap(m.func.grad(lambda x, y: f(x, y).sum()))(x, y)
    whole = m.func.grad(lambda x: m.func.vmap(f)(x, y).sum())(x)
    pushed = m.func.vmap(lambda x, y, t: m.func.jvp(f, (x, y), (t, t))[1])(x, y, x)
    return [t.tolist() for t in (each, whole, pushed)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", [hooks, kept, generated])
def test_alike(case: Any, device: str) -> None:
    assert case(lucid, device) == case(torch, "cpu")
