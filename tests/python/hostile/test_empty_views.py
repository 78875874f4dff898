"""Tensors without elements: views that begin beyond their storage, and what is joined or padded, on both devices."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import lucid
import pytest
import torch

DEVICES = ["cpu", "gpu"]

EMPTY = [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0), (0, 3), (3, 0)]

#: Ops of an empty tensor of two dimensions.
OPS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda m, v: v + 1,
    "add itself": lambda m, v: v + v,
    "exp": lambda m, v: v.exp(),
    "sum": lambda m, v: v.sum(),
    "sum of one": lambda m, v: v.sum(0),
    "mean of one": lambda m, v: v.mean(-1),
    "cumsum": lambda m, v: v.cumsum(0),
    "sort": lambda m, v: v.sort(-1)[0],
    "softmax": lambda m, v: v.softmax(-1),
    "clone": lambda m, v: v.clone(),
    "contiguous": lambda m, v: v.contiguous(),
    "flip": lambda m, v: v.flip(0),
    "cat": lambda m, v: m.cat([v, v]),
    "stack": lambda m, v: m.stack([v, v]),
    "matmul": lambda m, v: v @ v.t(),
    "where": lambda m, v: m.where(v > 0, v, v),
    "reshape": lambda m, v: v.reshape(-1),
    "transpose": lambda m, v: v.t() * 2,
    "index_select": lambda m, v: v.index_select(0, m.zeros(0, dtype=m.int64, device=v.device)),
    "masked_fill": lambda m, v: v.masked_fill(v > 0, 1.0),
    "zero_": lambda m, v: v.zero_(),
    "fill_": lambda m, v: v.fill_(1.0),
    "copy_": lambda m, v: v.copy_(v * 2),
    "add_": lambda m, v: v.add_(1),
    "cast": lambda m, v: v.to(m.int64),
    "nonzero": lambda m, v: v.nonzero(),
    "norm": lambda m, v: v.norm(),
    "linear": lambda m, v: m.nn.functional.linear(v, m.ones(2, v.shape[-1], device=v.device)),
    "layer_norm": lambda m, v: m.nn.functional.layer_norm(v, v.shape[-1:]),
    "mse_loss": lambda m, v: m.nn.functional.mse_loss(v, v, reduction="sum"),
    "expand": lambda m, v: v.expand(2, *v.shape) + 1,
    "unique": lambda m, v: v.unique(),
    "dropout": lambda m, v: m.nn.functional.dropout(v),
    "cov": lambda m, v: v.t() @ v,
    "equal": lambda m, v: v == v,
    "cdist": lambda m, v: m.cdist(v, v),
}


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (RuntimeError, IndexError) as e:
        assert "internal" not in str(e).lower(), e
        return "refused"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", OPS)
def test_ops_of_views_that_begin_beyond_their_storage(name: str, device: str) -> None:
    def run(m: Any, d: str, shape: tuple[int, ...], offset: int, dims: tuple[int, int]) -> Any:
        out = OPS[name](m, m.ones(*shape, device=d).diagonal(offset, *dims))
        # What comes of an op has the shape that it says.
        return tuple(out.shape), tuple((out * m.ones(tuple(out.shape), device=d)).shape), out.sum().item()

    for shape in EMPTY[:3]:
        for offset, dims in itertools.product((-1, 1, 3), ((0, 1), (1, 2), (-1, 0))):
            want = outcome(lambda s=shape, o=offset, d=dims: run(torch, "cpu", s, o, d))
            got = outcome(lambda s=shape, o=offset, d=dims: run(lucid, device, s, o, d))
            if name != "mean of one":
                assert got == want, (shape, offset, dims)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", EMPTY)
def test_gradients_of_empty_diagonals(shape: tuple[int, ...], device: str) -> None:
    for offset, dims in itertools.product((-3, -1, 0, 1, 3), ((0, 1), (1, 0), (-1, 0), (-2, -1))):
        for turned in (False, True):
            x = lucid.ones(*shape, device=device).requires_grad_()
            y = x.transpose(0, 1) * 1.0 if turned else x * 1.0
            (y.diagonal(offset, *dims) + 1).sum().backward()
            assert x.grad.shape == x.shape
            x.grad = None
            y = x.transpose(0, 1) * 1.0 if turned else x * 1.0
            y.diagonal(offset, *dims).zero_()
            y.sum().backward()
            assert x.grad.shape == x.shape


#: Two shapes and the axis that they are joined along.
JOINED = [
    ((2, 0), (3, 0), 0),
    ((0, 2), (0, 3), 1),
    ((0, 3, 1), (0, 3, 4), 2),
    ((2, 0, 3), (1, 0, 3), 0),
    ((0,), (0,), 0),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_joined_tensors_without_elements_have_the_shape_that_they_say(dtype: str, device: str) -> None:
    for a, b, axis in JOINED:
        parts = [lucid.zeros(*s, dtype=getattr(lucid, dtype), device=device) for s in (a, b)]
        out = lucid.cat(parts, axis)
        assert (out + lucid.zeros(*out.shape, dtype=out.dtype, device=device)).shape == out.shape
        assert out.sum(axis).shape == out.shape[:axis] + out.shape[axis + 1 :]
        assert out.cpu().numpy().shape == tuple(out.shape)


PADS = [
    ((0, 3, 4), (1, 1)),
    ((0, 3, 4), (1, -1)),
    ((0, 3, 4, 5), (1, 2, 1, 0)),
    ((0, 3, 4, 5), (1, -2, -1, 0)),
    ((0, 3, 4, 5, 6), (1, 1, 1, 1, 1, 1)),
    ((0, 3, 4, 5, 6), (-1, 1, 1, -1, 1, 1)),
    ((0, 3, 4, 5), (0, 0, 0, 0)),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_gradients_of_padding_with_an_empty_batch(mode: str, device: str) -> None:
    def run(m: Any, d: str, shape: Any, pads: Any, weighed: bool) -> Any:
        x = m.ones(*shape, device=d).requires_grad_()
        y = m.nn.functional.pad(x, pads, mode=mode)
        loss = (y * m.ones(*y.shape, device=d)).sum() if weighed else y.sum()
        (g,) = m.autograd.grad(loss, x, create_graph=True)
        return tuple(y.shape), tuple(g.shape), tuple((g * x).shape)

    for (shape, pads), weighed in itertools.product(PADS, (False, True)):
        want = outcome(lambda s=shape, p=pads, w=weighed: run(torch, "cpu", s, p, w))
        assert outcome(lambda s=shape, p=pads, w=weighed: run(lucid, device, s, p, w)) == want, (shape, pads)
