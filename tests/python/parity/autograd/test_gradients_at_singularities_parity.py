"""Gradients at singularities, where a value is infinite or the rule has no number, as PyTorch has them; pools whose
windows exceed the input."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import TABLE

DEVICES = pytest.mark.parametrize("device", ["cpu", "gpu"])


def both(device: str, program: Any, rtol: float = TABLE["few ops"].rtol) -> None:
    """The program gives the same numbers in both frameworks."""
    theirs = program(torch)
    with lucid.device(device):
        ours = program(lucid)
    for a, b in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(b.tolist(), a.tolist(), rtol=rtol, atol=TABLE["few ops"].atol)


def with_gradients(f: Any, call: Any, *values: list[float]) -> list[Any]:
    given = [f.tensor(v, requires_grad=True) for v in values]
    made = call(*given)
    return [made.detach(), *f.autograd.grad(made.sum(), given)]


@DEVICES
@pytest.mark.parametrize("zero_infinity", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("lengths", [([1, 3, 4], [2, 3, 1]), ([0, 2, 4], [1, 1, 0]), ([4, 4, 4], [1, 2, 1])])
def test_ctc_loss_of_sequences_that_cannot_be_aligned(
    lengths: tuple[list[int], list[int]], reduction: str, zero_infinity: bool, device: str
) -> None:
    def program(f: Any) -> list[Any]:
        probs = f.full((4, 3, 5), 0.2).log().requires_grad_()
        targets = f.tensor([[1, 1, 2], [3, 3, 3], [4, 1, 2]])
        loss = f.nn.functional.ctc_loss(probs, targets, *lengths, reduction=reduction, zero_infinity=zero_infinity)
        return [loss.detach(), *f.autograd.grad(loss.sum(), probs)]

    both(device, program)


@DEVICES
@pytest.mark.parametrize("correction", [0, 1])
@pytest.mark.parametrize("name", ["var", "std"])
@pytest.mark.parametrize("x", [[1.0, inf], [1.0, 2.0, -inf], [inf, inf, 1.0], [nan, 1.0], [1.0, 1.0], [3.0, 1.0, 2.0]])
def test_variances_beside_infinities(x: list[float], name: str, correction: int, device: str) -> None:
    both(device, lambda f: with_gradients(f, lambda t: getattr(f, name)(t, 0, correction=correction), x))


@DEVICES
def test_second_gradient_of_the_variance(device: str) -> None:
    def program(f: Any) -> list[Any]:
        x = f.tensor([[3.0, 1.0, 2.5], [0.5, 4.0, 1.0]], requires_grad=True)
        (first,) = f.autograd.grad((x.var(1) ** 2).sum(), x, create_graph=True)
        (second,) = f.autograd.grad((first * f.tensor([1.0, -2.0, 0.5])).sum(), x)
        return [first.detach(), second]

    both(device, program)


@DEVICES
def test_lengths_of_polar_below_zero(device: str) -> None:
    def program(f: Any) -> list[Any]:
        length = f.tensor([0.0, -1.0, 2.0, -0.0, -3.0, 0.0], requires_grad=True)
        angle = f.tensor([1.0, 1.0, 1.0, 0.5, -2.0, 0.0], requires_grad=True)
        z = f.polar(length, angle)
        parts = f.view_as_real(z)
        return [parts.detach(), *f.autograd.grad((parts * f.tensor([1.0, 0.5])).sum(), [length, angle])]

    both(device, program)


@DEVICES
@pytest.mark.parametrize("reduction", ["none", "sum", "mean", "batchmean"])
@pytest.mark.parametrize("log_target", [False, True])
def test_targets_of_zero_of_kl_div(log_target: bool, reduction: str, device: str) -> None:
    x, t = [-1.0, -2.0, -0.5, 0.0, -inf, -1.0], [0.0, 0.5, 1.0, 0.0, 0.0, -1.0]

    def program(f: Any) -> list[Any]:
        call = f.nn.functional.kl_div
        return with_gradients(f, lambda a, b: call(a, b, reduction=reduction, log_target=log_target), x, t)

    both(device, program)


@DEVICES
@pytest.mark.parametrize("shape", [(2, 3, 0), (2, 0, 3), (0,)])
def test_running_sums_of_nothing(shape: tuple[int, ...], device: str) -> None:
    def program(f: Any) -> list[Any]:
        x = f.ones(shape, requires_grad=True)
        made = x.logcumsumexp(-2 if len(shape) > 1 else 0)
        return [made.detach(), *f.autograd.grad(made.sum(), x)]

    both(device, program)


@DEVICES
@pytest.mark.parametrize("name", ["xlogy", "special.xlog1py"])
def test_products_with_logarithms_at_zero(name: str, device: str) -> None:
    def program(f: Any) -> list[Any]:
        call = f.special.xlog1py if "." in name else f.xlogy
        edge = -1.0 if "." in name else 0.0
        return with_gradients(f, call, [0.0, 0.0, 2.0, 0.0, 1.0], [edge, 1.0, 1.0, edge - 0.5, 3.0])

    both(device, program)


@DEVICES
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_overflow_of_soft_margin_loss(dtype: str, device: str) -> None:
    def program(f: Any) -> list[Any]:
        x = f.tensor([1.0, -20.0, -12.0, -8.0, 300.0, -300.0, inf, -inf, nan], dtype=getattr(f, dtype))
        loss = f.nn.functional.soft_margin_loss(x.requires_grad_(), f.ones_like(x), reduction="none")
        return [loss.detach(), *f.autograd.grad(loss.sum(), x)]

    both(device, program, 1e-5 if dtype == "float32" else 1e-2)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("name", ["max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d"])
@pytest.mark.parametrize(
    ("size", "window", "stride", "padding"),
    [(2, 3, 2, 0), (2, 4, 3, 0), (6, 100, None, 1), (3, 5, 4, 2), (4, 7, 5, 1), (2, 5, 5, 0)],
)
def test_windows_larger_than_the_input_with_ceil_mode(
    size: int, window: int, stride: int | None, padding: int, name: str, device: str
) -> None:
    def program(f: Any) -> list[Any]:
        n = int(name[-2])
        x = (f.arange(float(2 * size**n)).reshape([1, 2] + [size] * n) * 7 % 5).requires_grad_()
        made = getattr(f.nn.functional, name)(x, window, stride, padding, ceil_mode=True)
        return [made.detach(), *f.autograd.grad((made * made).sum(), x)]

    theirs = program(torch)
    with lucid.device(device):
        ours = program(lucid)
    for a, b in zip(theirs, ours, strict=True):
        assert tuple(b.shape) == tuple(a.shape)
        np.testing.assert_allclose(b.tolist(), a.tolist(), rtol=TABLE["few ops"].rtol)
