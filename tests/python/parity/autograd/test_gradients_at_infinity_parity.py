"""Gradients where a rule divides 0 by 0, or multiplies it by infinity: PyTorch's, not NaN where it has a number."""

from __future__ import annotations

import itertools
import math
from typing import Any

import lucid
import pytest

from tests.python.tolerances import TABLE

torch = pytest.importorskip("torch")

INF = math.inf
DEVICES = ["cpu", "gpu"]


def gradients(module: Any, f: Any, numbers: tuple[float, ...], **kwargs: Any) -> list[float]:
    inputs = [module.tensor(v, requires_grad=True, **kwargs) for v in numbers]
    f(*inputs).backward()
    return [x.grad.item() for x in inputs]


def same(a: list[float], b: list[float]) -> bool:
    return all(
        x == y or (math.isnan(x) and math.isnan(y)) or math.isclose(x, y, rel_tol=TABLE["few ops"].rtol)
        for x, y in zip(a, b, strict=True)
    )


@pytest.mark.parametrize("device", DEVICES)
def test_lerp(device: str) -> None:
    for numbers in itertools.product((INF, 1.0, -2.0), (INF, 1.0), (0.3, 0.7, INF, -INF)):
        want = gradients(torch, torch.lerp, numbers)
        assert same(gradients(lucid, lucid.lerp, numbers, device=device), want), numbers


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["xlogy", "xlog1py"])
def test_no_nan_where_pytorch_has_none(name: str, device: str) -> None:
    for numbers in itertools.product((0.0, -0.0, 1.0, INF, -2.0), (0.0, -1.0, 1.0, INF, -2.0)):
        want = gradients(torch, getattr(torch.special, name), numbers)
        got = gradients(lucid, getattr(lucid.special, name), numbers, device=device)
        assert all(math.isnan(w) or not math.isnan(g) for g, w in zip(got, want, strict=True)), numbers


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin"])
@pytest.mark.parametrize("arriving", [math.nan, INF])
def test_no_gradient_reaches_what_was_not_chosen(name: str, device: str, arriving: float) -> None:
    def both(module: Any, **kwargs: Any) -> list[Any]:
        a, b = (module.tensor(v, **kwargs).requires_grad_() for v in ([1.0, 2.0, 3.0], [2.0, 2.0, -1.0]))
        getattr(module, name)(a, b).backward(module.tensor([arriving, arriving, 1.0], **kwargs))
        return a.grad.tolist() + b.grad.tolist()

    assert same(both(lucid, device=device), both(torch))


@pytest.mark.parametrize("value", [0j, 1 + 2j])
@pytest.mark.parametrize("dim", [None, 0, 1])
def test_std_of_equal_complex_numbers(value: complex, dim: int | None) -> None:
    def grad(module: Any) -> list[Any]:
        x = module.full((3, 2), value, dtype=module.complex64).requires_grad_()
        x.std(dim, correction=0).sum().backward()
        return x.grad.tolist()

    assert grad(lucid) == grad(torch)


@pytest.mark.parametrize("device", DEVICES)
def test_cumprod_beside_zeros(device: str) -> None:
    def of_sum_of_squares(module: Any, numbers: tuple[float, ...], **kwargs: Any) -> list[Any]:
        x = module.tensor(numbers, **kwargs).requires_grad_()
        x.cumprod(0).square().sum().backward()
        return list(x.grad.tolist())

    for numbers in itertools.product((0.0, math.nan, 0.5, INF), repeat=4):
        assert same(of_sum_of_squares(lucid, numbers, device=device), of_sum_of_squares(torch, numbers)), numbers
