"""What PyTorch's own op samples (`tests.python.opinfo`) showed to differ, case by case against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch

DEVICES = ("cpu", "gpu")


def to_lucid(t: Any, device: str) -> Any:
    """A tensor, or what holds tensors, as ours."""
    if isinstance(t, torch.Tensor):
        numbers = (t.detach().float() if t.dtype in (torch.bfloat16, torch.float16) else t.detach()).numpy()
        y = lucid.tensor(numbers, device=device).to(getattr(lucid, str(t.dtype).rsplit(".", 1)[-1]))
        return y.requires_grad_(t.requires_grad)
    return type(t)(to_lucid(x, device) for x in t) if isinstance(t, (list, tuple)) else t


def numbers_of(t: Any) -> np.ndarray[Any, Any]:
    return np.asarray(t.detach().tolist())


def agree(call: Callable[..., Any], *args: Any, device: str, rtol: float = 1e-5) -> None:
    """`call(module, *args)` and its gradients are PyTorch's."""
    ours = to_lucid(args, device)
    want, got = call(torch, *args), call(lucid, *ours)
    want, got = ([y] if isinstance(y, (torch.Tensor, lucid.Tensor)) else list(y) for y in (want, got))
    assert len(want) == len(got)
    for a, b in zip(want, got, strict=True):
        assert str(a.dtype).rsplit(".", 1)[-1] == str(b.dtype).rsplit(".", 1)[-1]
        assert tuple(a.shape) == tuple(b.shape)
        assert a.requires_grad == b.requires_grad
        np.testing.assert_allclose(numbers_of(b), numbers_of(a), rtol=rtol, atol=rtol)
    leaves = [(a, b) for a, b in zip(args, ours, strict=True) if isinstance(a, torch.Tensor) and a.requires_grad]
    if not leaves:
        return
    pairs = [(a, b) for a, b in zip(want, got, strict=True) if a.requires_grad]
    weights = [torch.cos(torch.arange(a.numel()) + i).reshape(a.shape).to(a.dtype) for i, (a, _) in enumerate(pairs)]
    asked = torch.autograd.grad([a for a, _ in pairs], [a for a, _ in leaves], weights, allow_unused=True)
    given = lucid.autograd.grad(
        [b for _, b in pairs], [b for _, b in leaves], [to_lucid(w, device) for w in weights], allow_unused=True
    )
    for a, b in zip(asked, given, strict=True):
        known = np.zeros(tuple(b.shape)) if a is None else numbers_of(a)
        np.testing.assert_allclose(numbers_of(b), known, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_sums_do_not_get_stuck(device: str, dtype: str) -> None:
    one = torch.ones(3000, dtype=getattr(torch, dtype))
    agree(lambda m, x: [x.sum(), x.reshape(3, 1000).sum(1), x.cumsum(0)[-1], x.reshape(3, 1000).sum((0, 1))], one,
          device=device)  # fmt: skip
    # Nor do they overflow on the way.
    agree(lambda m, x: x.cumsum(0), torch.tensor([6e4, 6e4, -6e4, -6e4], dtype=getattr(torch, dtype)), device=device)


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_of_expanded_biases_keep_their_digits(device: str) -> None:
    torch.manual_seed(0)
    bias = torch.zeros(1, dtype=torch.bfloat16, requires_grad=True)
    agree(lambda m, b, x: (b + x) * x, bias, torch.randn(4000).bfloat16(), device=device, rtol=1e-2)


@pytest.mark.parametrize("device", DEVICES)
def test_logit_of_crossing_bounds(device: str) -> None:
    x = torch.tensor([0.1, 0.45, 0.5, 0.55, 0.7, 0.9, float("nan")])
    agree(lambda m, x: m.logit(x, 0.6), x, device=device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_scatters_of_truths(device: str, reduce: str, include_self: bool) -> None:
    x, at = torch.tensor([True, False, True, False]), torch.tensor([0, 0, 1, 3])
    src = torch.tensor([True, False, True, False])
    agree(lambda m, x, at, s: x.scatter_add(0, at, s), x, at, src, device=device)
    agree(lambda m, x, at, s: x.clone().scatter_add_(0, at, s), x, at, src, device=device)
    how = {"include_self": include_self}
    agree(lambda m, x, at, s: x.scatter_reduce(0, at, s, reduce, **how), x, at, src, device=device)
    agree(lambda m, x, at, s: x.clone().scatter_reduce_(0, at, s, reduce, **how), x, at, src, device=device)


@pytest.mark.parametrize("device", DEVICES)
def test_a_mean_of_truths_is_refused(device: str) -> None:
    x, at = lucid.tensor([True, False], device=device), lucid.tensor([0, 0], device=device)
    with pytest.raises(RuntimeError):
        x.scatter_reduce(0, at, x, "mean")
    with pytest.raises(RuntimeError):
        x.index_reduce(0, at, x, "amax")


@pytest.mark.parametrize("device", DEVICES)
def test_powers_of_one_number(device: str) -> None:
    agree(lambda m, x: m.linalg.vander(x, N=3), torch.tensor(2.0, requires_grad=True), device=device)
    with pytest.raises(RuntimeError):
        lucid.linalg.vander(lucid.tensor(2.0, device=device))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("p", [-2, -1, -0.5])
def test_norms_of_negative_order_at_zero(device: str, p: float) -> None:
    for numbers in ([0.0, 0.0, 0.0], [0.0, 1.0, -2.0], [3.0, 1.0, -2.0], [[0.0, 1.0], [2.0, 3.0]]):
        x = torch.tensor(numbers, requires_grad=True)
        agree(lambda m, x: m.linalg.vector_norm(x, p, dim=-1), x, device=device)
    agree(lambda m, x: m.linalg.vector_norm(x, p), torch.tensor([0.0, float("nan"), 1.0]), device=device)


@pytest.mark.parametrize("device", DEVICES)
def test_gradient_takes_none(device: str) -> None:
    agree(lambda m, x: m.gradient(x, spacing=None, dim=None), torch.tensor([[1.0, 4.0], [9.0, 25.0]]), device=device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_exponentials_of_16_bit_matrices(device: str, dtype: str) -> None:
    # PyTorch's own are infinite in float16, as the coefficients of its polynomial are: compared with float32.
    a = lucid.tensor([[0.5, -0.25], [1.0, 0.125]], dtype=getattr(lucid, dtype), device=device)
    want = torch.linalg.matrix_exp(torch.tensor(a.tolist()))
    for y in (lucid.linalg.matrix_exp(a), a.matrix_exp()):
        assert y.dtype == a.dtype
        np.testing.assert_allclose(numbers_of(y), numbers_of(want), rtol=1e-2)


@pytest.mark.parametrize("device", DEVICES)
def test_the_sign_of_a_determinant_is_part_of_the_graph(device: str) -> None:
    agree(lambda m, a: m.linalg.slogdet(a), torch.tensor([[1.0, 2.0], [3.0, -4.0]], requires_grad=True), device=device)


def test_special_has_the_names_of_its_module() -> None:
    public = [name for name in dir(torch.special) if not name.startswith("_") and name.islower()]
    there = [name for name in public if hasattr(lucid.special, name)]
    assert set(lucid.special.__all__) <= set(public)
    assert len(there) == len(lucid.special.__all__)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", lucid.special.__all__)
def test_special_functions(device: str, name: str) -> None:
    x = torch.tensor([0.2, 0.5, 0.75, 0.9], requires_grad=True)
    y = torch.tensor([1.5, 2.5, 3.0, 4.5])
    calls: dict[str, Callable[..., Any]] = {
        **dict.fromkeys(("softmax", "log_softmax", "logsumexp"), lambda m, x, y: getattr(m.special, name)(x, 0)),
        **dict.fromkeys(("xlogy", "xlog1py"), lambda m, x, y: getattr(m.special, name)(x, y)),
        **dict.fromkeys(("gammainc", "gammaincc"), lambda m, x, y: getattr(m.special, name)(y, x)),
        "zeta": lambda m, x, y: m.special.zeta(y, x),
        "multigammaln": lambda m, x, y: m.special.multigammaln(x + y, 2),
        "polygamma": lambda m, x, y: m.special.polygamma(1, x),
        **dict.fromkeys(
            (n for n in lucid.special.__all__ if "_polynomial_" in n),
            lambda m, x, y: getattr(m.special, name)(x, 3),
        ),
    }
    if "_polynomial_" in name or name.startswith("scaled_"):
        # PyTorch has no gradients of these.
        x = x.detach()
    agree(calls.get(name, lambda m, x, y: getattr(m.special, name)(x)), x, y, device=device, rtol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_log_ndtr_far_out(device: str) -> None:
    x = torch.tensor([-60.0, -12.0, -1.5, -1.0, -0.5, 0.0, 3.0, 9.0], requires_grad=True)
    agree(lambda m, x: [m.special.log_ndtr(x), m.special.ndtr(x)], x, device=device, rtol=1e-4)
