"""Accuracy of element-wise float32 kernels in units of the last place, against float64, beside PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import within

#: Functions as both libraries spell them.
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "elu": lambda m, x: m.nn.functional.elu(x, 0.7),
    "selu": lambda m, x: m.nn.functional.selu(x),
    "celu": lambda m, x: m.nn.functional.celu(x, 1.3),
    "softplus": lambda m, x: m.nn.functional.softplus(x),
    "logsigmoid": lambda m, x: m.nn.functional.logsigmoid(x),
    "mish": lambda m, x: m.nn.functional.mish(x),
    "silu": lambda m, x: m.nn.functional.silu(x),
    "sigmoid": lambda m, x: m.sigmoid(x),
    "hardswish": lambda m, x: m.nn.functional.hardswish(x),
    "hardsigmoid": lambda m, x: m.nn.functional.hardsigmoid(x),
    "leaky_relu": lambda m, x: m.nn.functional.leaky_relu(x, 0.1),
    "softshrink": lambda m, x: m.nn.functional.softshrink(x, 0.3),
    "cube": lambda m, x: x**3,
    "reciprocal": lambda m, x: x**-1,
    "inverse square": lambda m, x: x**-2,
    "remainder": lambda m, x: x % 0.7,
    "floor_divide": lambda m, x: x // 0.7,
    "fmod": lambda m, x: m.fmod(x, 0.7),
    "exp": lambda m, x: m.exp(x),
    "log1p": lambda m, x: m.log1p(x.abs()),
    "tanh": lambda m, x: m.tanh(x),
    "tan": lambda m, x: m.tan(x),
    "asin": lambda m, x: m.asin(x.clamp(-1, 1)),
    "acos": lambda m, x: m.acos(x.clamp(-1, 1)),
    "atan": lambda m, x: m.atan(x),
    "atan2": lambda m, x: m.atan2(x, x.flip(0)),
    "atanh": lambda m, x: m.atanh(x.clamp(-0.984375, 0.984375)),
    "erf": lambda m, x: m.erf(x),
    "erfc": lambda m, x: m.erfc(x),
    "erfinv": lambda m, x: m.erfinv(x.clamp(-0.984375, 0.984375)),
    "hypot": lambda m, x: m.hypot(x, x.flip(0)),
}
#: Bounds of those that are above 2 where PyTorch's are below, or that cancel, where an intermediate has been rounded.
KNOWN = {"celu": 2.5, "erfc": 2.5, "softshrink": np.inf, "hardsigmoid": 4.0, "mish": 6.0}


def points() -> np.ndarray:
    """float32 numbers of every size within the range where the functions are not constant."""
    rng = np.random.default_rng(0)
    spread = np.exp2(rng.uniform(-20, 6, 60_000)) * rng.choice([-1, 1], 60_000)
    return np.concatenate([spread, rng.uniform(-20, 20, 60_000)]).astype(np.float32)


def ulps(got: np.ndarray, exact: np.ndarray) -> float:
    """The largest distance from the exact values, in the spacing of float32 there."""
    fine = np.isfinite(exact) & (np.abs(exact) > 1e-36) & (np.abs(exact) < 1e38)
    spacing = np.spacing(np.abs(exact[fine]).astype(np.float32)).astype(np.float64)
    return float((np.abs(got[fine].astype(np.float64) - exact[fine]) / spacing).max())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_is_as_accurate_as_pytorch(name: str) -> None:
    """At most 2 ulp, or as many as PyTorch's kernel has."""
    x, f = points(), FUNCTIONS[name]
    exact = f(torch, torch.tensor(x.astype(np.float64))).numpy()
    ours = ulps(f(lucid, lucid.tensor(x)).numpy(), exact)
    theirs = ulps(f(torch, torch.tensor(x)).numpy(), exact)
    assert ours <= max(2.0, theirs, KNOWN.get(name, 0.0)), f"{name}: {ours:.2f} ulp, PyTorch {theirs:.2f}"


SPECIAL = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-40,
    -1e-40,
    1e6,
    -1e6,
    100.0,
    -100.0,
    3.0,
    -3.0,
    6.0,
    20.0,
    20.5,
    0.3,
]


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in ("floor_divide",)])
@pytest.mark.parametrize("layout", ["contiguous", "strided", "empty"])
def test_values_and_gradients_at_the_ends(name: str, layout: str) -> None:
    """Infinities, NaN, signed zeros, subnormals; views; nothing."""
    values = np.array(SPECIAL * 2, np.float32).reshape(2, -1)
    f = FUNCTIONS[name]

    def of(lib: Any) -> list[np.ndarray]:
        x = lib.tensor(values[:, :0] if layout == "empty" else values)
        x = x.t()[::2] if layout == "strided" else x
        x = x.detach().requires_grad_()
        y = f(lib, x)
        y.backward(lib.ones_like(y))
        return [y.detach().numpy(), x.grad.numpy()]

    (value, slope), (expected, wanted) = of(lucid), of(torch)
    np.testing.assert_allclose(value, expected, **within("denormals"), equal_nan=True)
    # What PyTorch's vectorised kernels and those of single elements give NaN for a slope is not the same.
    number = ~np.isnan(wanted) & ~np.isnan(expected)
    np.testing.assert_allclose(slope[number], wanted[number], **within("denormal slopes"))
