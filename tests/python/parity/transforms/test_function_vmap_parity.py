"""Functions with gradients of their own inside of `vmap`, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import TABLE, within

DEVICES = ["cpu", "gpu"]
A = np.linspace(-1.5, 2.0, 12, dtype=np.float32).reshape(4, 3)
B = np.linspace(0.5, 1.5, 3, dtype=np.float32)
C = np.linspace(-1.0, 1.0, 24, dtype=np.float32).reshape(2, 4, 3)


def generated(m: Any) -> Any:
    class Wave(m.autograd.Function):  # type: ignore[misc]
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any, w: Any, k: float) -> Any:
            return (x * w).sin() * k, x.argmax(-1)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            x, w, ctx.k = inputs
            ctx.mark_non_differentiable(output[1])
            ctx.save_for_backward(x, w, output[0])

        @staticmethod
        def backward(ctx: Any, g: Any, _: Any) -> Any:
            x, w, y = ctx.saved_tensors
            assert y.shape == x.shape
            slope = (x * w).cos() * ctx.k * g
            return slope * w, slope * x, None

    return Wave


def ruled(m: Any) -> Any:
    class Cube(m.autograd.Function):  # type: ignore[misc]
        seen: ClassVar[list[Any]] = []

        @staticmethod
        def forward(x: Any, w: Any) -> Any:
            return x**3 * w

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, w = ctx.saved_tensors
            return 3 * x**2 * w * g, (x**3 * g).sum_to_size(w.shape)

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any, w: Any) -> Any:
            Cube.seen.append((info.batch_size, info.randomness, in_dims))
            x = x.movedim(in_dims[0], 0) if in_dims[0] is not None else x.expand(info.batch_size, *x.shape)
            w = w.movedim(in_dims[1], 0) if in_dims[1] is not None else w
            return Cube.apply(x, w).movedim(0, -1), -1

    return Cube


CASES: dict[str, Callable[[Any, Any], Any]] = {
    "mapped": lambda m, t: m.func.vmap(lambda x: generated(m).apply(x, t(B), 2.0))(t(A)),
    "shared first": lambda m, t: m.func.vmap(lambda w: generated(m).apply(t(B), w, 2.0)[0])(t(A)),
    "other dims": lambda m, t: m.func.vmap(lambda x: generated(m).apply(x, t(B[:1]), 2.0)[0], 1, 1)(t(A)),
    "nested": lambda m, t: m.func.vmap(
        m.func.vmap(lambda x, w: generated(m).apply(x, w, 0.5)[0], (0, None)), (0, None)
    )(t(C), t(B)),
    "grad inside": lambda m, t: m.func.vmap(m.func.grad(lambda x: generated(m).apply(x, t(B), 2.0)[0].sum()))(t(A)),
    "grad by what is shared": lambda m, t: m.func.grad(
        lambda w: m.func.vmap(lambda x: generated(m).apply(x, w, 2.0)[0])(t(A)).square().sum()
    )(t(B)),
    "second gradient": lambda m, t: m.func.jacrev(
        m.func.jacrev(lambda x: m.func.vmap(lambda r: generated(m).apply(r, r.exp(), 2.0)[0])(x).sum())
    )(t(A)),
    "jacrev": lambda m, t: m.func.jacrev(lambda x: generated(m).apply(x, t(B), 2.0)[0])(t(B)),
    "own rule": lambda m, t: m.func.vmap(ruled(m).apply, (0, None))(t(A), t(B)),
    "own rule, shared first": lambda m, t: m.func.vmap(ruled(m).apply, (None, 1))(t(B), t(A.T.copy())),
    "own rule, grad": lambda m, t: m.func.vmap(m.func.grad(lambda x, w: ruled(m).apply(x, w).sum(), (0, 1)))(
        t(A), t(A + 1)
    ),
    "own rule, nested": lambda m, t: m.func.vmap(m.func.vmap(ruled(m).apply))(t(C), t(C + 1)),
}


@pytest.mark.parametrize("case", CASES)
def test_values(case: str) -> None:
    def numbers(out: Any) -> list[Any]:
        return [o.numpy(force=True) for o in (out if isinstance(out, tuple) else (out,))]

    theirs = numbers(CASES[case](torch, torch.tensor))
    for device in DEVICES:
        ours = numbers(CASES[case](lucid, lambda a, d=device: lucid.tensor(a, device=d)))
        for a, b in zip(ours, theirs, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, **within("near zero"))


def test_the_backward_outlives_the_map() -> None:
    found = []
    for m in (lucid, torch):
        w = m.tensor(B).requires_grad_()
        y, at = m.func.vmap(lambda x, m=m, w=w: generated(m).apply(x, w, 2.0))(m.tensor(A))
        assert y.grad_fn.name() == "VmappedWaveBackward" or m is torch
        assert at.tolist() == [2, 2, 2, 2] and not at.requires_grad
        (g,) = m.autograd.grad(y.square().sum(), w, create_graph=True)
        g.sum().backward()
        found.append((g.tolist(), w.grad.tolist()))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=TABLE["near zero"].rtol)


def test_what_a_rule_is_told() -> None:
    seen = []
    for m in (lucid, torch):
        cube = ruled(m)
        m.func.vmap(cube.apply, (0, None), randomness="same")(m.tensor(A), m.tensor(B))
        seen.append(cube.seen)
    assert seen[0] == seen[1]


def refused(m: Any, kind: str) -> Any:
    class Plain(m.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(x: Any) -> Any:
            return x * 2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

    class Both(Plain):
        generate_vmap_rule = True

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            return x * 2, 0

    class One(Plain):
        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            return x * 2

    class Old(m.autograd.Function):  # type: ignore[misc]
        generate_vmap_rule = True

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

    return {"neither": Plain, "both": Both, "one result": One, "no setup_context": Old}[kind]


@pytest.mark.parametrize("kind", ["neither", "both", "one result", "no setup_context"])
def test_refusals(kind: str) -> None:
    for m in (torch, lucid):
        with pytest.raises(RuntimeError, match=r"vmap|setup_context"):
            m.func.vmap(refused(m, kind).apply)(m.tensor(A))
    assert lucid._C._vmap_active() == []
