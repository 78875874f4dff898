"""Special functions, powers and complex functions where PyTorch's numbers are near their edges, on both devices."""

from __future__ import annotations

import math
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import TABLE, within

INF, NAN = float("inf"), float("nan")
DEVICES = pytest.mark.parametrize("device", ["cpu", "gpu"])


def both(run: Any, device: str, x: Any, dtype: str = "float32") -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Lucid's result, and PyTorch's."""
    ours = run(lucid, lucid.tensor(x, dtype=getattr(lucid, dtype), device=device))
    return ours.detach().cpu().numpy(), run(torch, torch.tensor(x, dtype=getattr(torch, dtype))).detach().numpy()


# ---- the Airy function -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "dtype", "tolerance"),
    [("cpu", "float64", "float64 airy"), ("cpu", "float32", "airy"), ("gpu", "float32", "airy")],
)
def test_airy_function_along_the_line(device: str, dtype: str, tolerance: str) -> None:
    ours, theirs = both(lambda m, x: m.special.airy_ai(x), device, np.linspace(-30, 30, 1201), dtype)
    np.testing.assert_allclose(ours, theirs, **within(tolerance))


def test_airy_function_has_the_digits_of_float64() -> None:
    # The Wronskian of both solutions, by central differences of what solves y'' = x y.
    x = lucid.linspace(-12, 8, 801, dtype=lucid.float64)
    y = lucid.special.airy_ai(x)
    h = 20 / 800
    # Numerov's formula, whose error is h⁶ / 240 times the sixth derivative.
    f = y * (1 - h * h / 12 * x)
    left = f[2:] - 2 * f[1:-1] + f[:-2]
    right = h * h * x[1:-1] * y[1:-1]
    assert (left - right).abs().max() < 2e-9


@DEVICES
def test_airy_function_at_the_ends(device: str) -> None:
    ours, theirs = both(lambda m, x: m.special.airy_ai(x), device, [INF, -INF, NAN, 0.0, -0.0, 104.0, 1e30])
    np.testing.assert_allclose(ours, theirs, rtol=TABLE["rounding"].rtol)
    x = lucid.ones(2, device=device, requires_grad=True)
    assert not lucid.special.airy_ai(x).requires_grad
    assert lucid.special.airy_ai(lucid.ones(0, 3, device=device)).shape == (0, 3)
    assert lucid.special.airy_ai(lucid.arange(3, device=device)).dtype == lucid.float32
    with pytest.raises(RuntimeError):
        lucid.special.airy_ai(lucid.ones(1, dtype=lucid.complex64, device=device))


# ---- incomplete gamma functions --------------------------------------------------------------------------------------


@DEVICES
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("deviations", [-3.0, -1.0, -0.3, 0.0, 0.2, 1.0, 3.0])
def test_incomplete_gamma_functions_far_out(deviations: float, upper: bool, device: str) -> None:
    a = np.array([17, 30, 100, 1e3, 1e4, 1e5, 1e6, 1e8, 1e10, 1e20, 1e30], dtype=np.float32)
    x = (a + deviations * np.sqrt(a)).astype(np.float32)
    name = "gammaincc" if upper else "gammainc"
    wide = [torch.tensor(v, dtype=torch.float64) for v in (a, x)]
    theirs = getattr(torch.special, name)(*wide).numpy()
    ours = getattr(lucid.special, name)(*(lucid.tensor(v, device=device) for v in (a, x)))
    np.testing.assert_allclose(ours.cpu().numpy(), theirs, **within("probabilities"))
    if device == "cpu":
        ours = getattr(lucid.special, name)(*(lucid.tensor(v.numpy()) for v in wide))
        np.testing.assert_allclose(ours.numpy(), theirs, **within("float64 probabilities"))


# ---- powers ----------------------------------------------------------------------------------------------------------


@DEVICES
@pytest.mark.parametrize("exponent", [0.5, -0.5, 1.5, 2.5, -1.5, 2, 3, -1, 0.0])
def test_powers_by_numbers_and_their_gradients(exponent: float, device: str) -> None:
    found = []
    for m, where in ((torch, "cpu"), (lucid, device)):
        for call in ("pow", "float_power"):
            x = m.tensor([-0.0, 0.0, -INF, INF, -1.0, 4.0], device=where, requires_grad=True)
            y = getattr(m, call)(x, exponent)
            y.sum().backward()
            found.append([np.array(t.detach().cpu().tolist()) for t in (y, x.grad)])
    for ours, theirs in zip(found[2:], found[:2], strict=True):
        for o, t in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(o, t, rtol=TABLE["rounding"].rtol)
            np.testing.assert_array_equal(np.signbit(o[~np.isnan(t)]), np.signbit(t[~np.isnan(t)]))


@DEVICES
def test_powers_of_complex_zeros(device: str) -> None:
    for exponent in (0, 0j, 0.0, 0.5, -0.5, 1.5):
        ours, theirs = both(lambda m, x: x.pow(exponent), device, [0j, 1j, 2 - 1j], "complex64")  # noqa: B023
        np.testing.assert_allclose(ours[1:], theirs[1:], **within("few ops"))
        if exponent in (0, 0.5):
            assert ours[0] == theirs[0]
    ours, theirs = both(lambda m, x: m.pow(x, x * 0), device, [0j, 1j], "complex64")
    np.testing.assert_array_equal(ours, theirs)
    ours, theirs = both(lambda m, x: m.pow(x, 0j), device, [0.0, NAN, 2.0])
    np.testing.assert_array_equal(ours, theirs)


# ---- complex functions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_logarithms_beside_their_poles_and_zeros(dtype: str) -> None:
    tiny = [1e-5, 1e-3, 1e-8]
    at = [
        z for t in tiny for z in (complex(t - 1), complex(1 - t), complex(-1, t), complex(1, t), complex(t, -1), t * 1j)
    ]
    tolerance = within("rounding" if dtype == "complex64" else "float64 functions")
    for name in ("atanh", "atan", "log"):
        ours, theirs = both(lambda m, x: getattr(m, name)(x), "cpu", at, dtype)  # noqa: B023
        np.testing.assert_allclose(ours, theirs, **tolerance)
    # On the unit circle the logarithm's real part is half the square of what is beside the axis.
    z = lucid.log(lucid.tensor([1 + 1e-9j], dtype=lucid.complex128)).item()
    assert math.isclose(z.real, 5e-19, rel_tol=TABLE["float64 rounding"].rtol)


@DEVICES
def test_polar_of_infinite_lengths(device: str) -> None:
    found = []
    for m, where in ((torch, "cpu"), (lucid, device)):
        r = m.tensor([INF, 1.0, 0.0, -2.0, -INF, NAN], device=where, requires_grad=True)
        z = m.polar(r, m.full((6,), 1.0, device=where))
        m.view_as_real(z)[:, 0].sum().backward()
        found.append((z.detach().cpu().numpy(), r.grad.cpu().numpy()))
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=TABLE["rounding"].rtol)
