"""Complex numbers against PyTorch: parts as views, writes through them, gradients through them, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import TABLE, within

DEVICES = pytest.mark.parametrize("device", ["cpu", "gpu"])
VALUES = np.array([[1 + 2j, -3 + 0.5j, 0 - 1j], [2 - 2j, 0j, 4 + 0.25j]], dtype=np.complex64)


def both(device: str) -> list[tuple[Any, Any]]:
    """The module and a fresh complex tensor, of each framework."""
    return [(torch, torch.tensor(VALUES)), (lucid, lucid.tensor(VALUES, device=device))]


def same(ours: Any, theirs: Any) -> None:
    np.testing.assert_allclose(np.asarray(ours.cpu().tolist()), theirs.detach().numpy(), **within("few ops"))
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert ours.stride() == theirs.stride()
    assert ours.storage_offset() == theirs.storage_offset()


def write_real(m: Any, z: Any) -> Any:
    z.real[0] = 7
    return z


def write_imag(m: Any, z: Any) -> Any:
    z.imag.mul_(2).add_(1)
    return z


def write_property(m: Any, z: Any) -> Any:
    z.real = 3.5
    z[1].imag = z[0].real.clone()
    return z


def write_pairs(m: Any, z: Any) -> Any:
    m.view_as_real(z.transpose(0, 1))[1:, :, 1] = 9
    return z


def write_of_column(m: Any, z: Any) -> Any:
    z[:, 1].imag.fill_(-1)
    return z


def write_to_base(m: Any, z: Any) -> Any:
    part = z.imag
    z.mul_(1j)
    return part


def write_complex_over_floats(m: Any, z: Any) -> Any:
    x = m.view_as_real(z).clone()
    m.view_as_complex(x)[0] = 1 + 1j
    return x


def offset_view(m: Any, z: Any) -> Any:
    return z[:, 1:].imag


def deep_chain(m: Any, z: Any) -> Any:
    """More steps than the engine keeps one by one."""
    x = m.view_as_real(z)
    for _ in range(6):
        x = x.transpose(0, 1)[:, :, :].unsqueeze(0).squeeze(0)
    x[0, 1] += 10
    x.as_strided((2,), (2,), 1).fill_(5)
    return z


def chain_back(m: Any, z: Any) -> Any:
    w = m.view_as_complex(m.view_as_real(z))
    for _ in range(6):
        w = w.transpose(0, 1)[:, :].unsqueeze(0).squeeze(0)
    w[0] = 2j
    return z


@DEVICES
@pytest.mark.parametrize(
    "act",
    [
        write_real,
        write_imag,
        write_property,
        write_pairs,
        write_of_column,
        write_to_base,
        write_complex_over_floats,
        offset_view,
        deep_chain,
        chain_back,
    ],
)
def test_parts_are_views(act: Any, device: str) -> None:
    theirs, ours = (act(m, z) for m, z in both(device))
    same(ours, theirs)


@DEVICES
def test_writes_through_parts_have_gradients(device: str) -> None:
    def run(m: Any, z: Any) -> Any:
        z.requires_grad_()
        x = m.ones(2, 3, device=z.device).requires_grad_()
        y = z * (2 - 1j)
        y.real.mul_(x)
        y[0].imag.copy_(x[1] * 3)
        m.view_as_real(y)[1, 0].add_(1)
        (y.abs() + y.imag * y.real).sum().backward()
        return z.grad, x.grad

    theirs, ours = (run(m, z) for m, z in both(device))
    for w, g in zip(theirs, ours, strict=True):
        np.testing.assert_allclose(np.asarray(g.cpu().tolist()), w.numpy(), **within("program"))


@DEVICES
def test_versions_guard_what_was_saved(device: str) -> None:
    z = lucid.tensor(VALUES, device=device).requires_grad_() * 1
    y = z.exp().sum()
    z.real.zero_()
    y.abs().backward()  # exp keeps its output only.
    z = lucid.tensor(VALUES, device=device).requires_grad_() * 1
    y = z.sin().sum()
    z.real.zero_()
    with pytest.raises(RuntimeError, match="in-place"):
        y.abs().backward()


@DEVICES
@pytest.mark.parametrize(
    "op", ["exp", "log", "sin", "tanh", "sqrt", "abs", "angle", "sgn", "square", "reciprocal", "pow"]
)
def test_second_derivatives(op: str, device: str) -> None:
    def run(m: Any, z: Any) -> Any:
        z = (z + 0.3).detach().requires_grad_()
        y = z.pow(1.5 - 0.5j) if op == "pow" else getattr(z, op)()
        loss = m.view_as_real(y).square().sum() if y.is_complex() else y.square().sum()
        make = m.autograd.grad(loss, z, create_graph=True)[0]
        m.view_as_real(make).square().sum().backward()
        return z.grad

    theirs, ours = (run(m, z) for m, z in both(device))
    np.testing.assert_allclose(np.asarray(ours.cpu().tolist()), theirs.numpy(), **within("complex functions"))


@DEVICES
def test_refusals(device: str) -> None:
    z, x = lucid.tensor(VALUES, device=device), lucid.ones(2, 3, device=device)
    for f in (
        lambda: z < z,
        lambda: z.maximum(z),
        lambda: lucid.sort(z),
        lambda: z // z,
        lambda: z % 2,
        lambda: z.clamp(0, 1),
        lambda: lucid.sign(z),
        lambda: z.floor(),
        lambda: x.imag,
        lambda: lucid.view_as_real(x),
        lambda: lucid.view_as_complex(x),
        lambda: lucid.view_as_complex(lucid.ones(2, 4, device=device)[:, 1:3]),
        lambda: lucid.view_as_complex(lucid.ones(2, 2, device=device).t()),
        lambda: lucid.view_as_complex(lucid.tensor(1.0, device=device)),
        lambda: lucid.complex(x, x.to(lucid.float16)),
        lambda: lucid.polar(x, x.to(lucid.int64)),
        lambda: lucid.exp(z).sum().requires_grad_().backward(),
        lambda: x.copy_(z).mul_(1j),
    ):
        with pytest.raises(RuntimeError):
            f()


@DEVICES
def test_nothing_is_put_off(device: str) -> None:
    z, x = lucid.tensor(VALUES, device=device), lucid.ones(3, device=device)
    assert not z.conj().is_conj() and not z.imag.is_neg() and z.conj().resolve_conj().tolist() == VALUES.conj().tolist()
    assert x.conj() is x and x.real is x and lucid.is_complex(z) and not lucid.is_complex(z.real)
    assert lucid.isreal(z).tolist() == (VALUES.imag == 0).tolist() and lucid.isreal(x).all()


UNARY = (
    *("exp", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sigmoid", "abs", "angle", "sgn", "reciprocal", "square"),
    *("isnan", "isinf", "isfinite", "sinc", "nan_to_num"),
)
SPECIAL = [complex(a, b) for a in (0.0, -0.0, 1.5, -1.5, 1e30, -1e30) for b in (0.0, -0.0, 2.0, -2.0, 1e-30)]


@DEVICES
@pytest.mark.parametrize(
    "op",
    UNARY,
)
def test_branch_cuts_zeros_and_large_numbers(op: str, device: str) -> None:
    z = np.array(SPECIAL, dtype=np.complex64)
    if device == "gpu":
        z = z[np.abs(z.real) < 1e20]
    theirs, ours = getattr(torch, op)(torch.tensor(z)), getattr(lucid, op)(lucid.tensor(z, device=device))
    got, want = np.asarray(ours.cpu().tolist()), theirs.numpy()
    sure = np.isfinite(want)
    np.testing.assert_allclose(got[sure], want[sure], **within("program"))


#: Squares of their parts overflow or vanish; those of infinite ones have no size.
FAR = (1e300 + 1e300j, 1e-300 + 2e-300j, 3 + 4j, 1e308 + 0j, 1e200 - 1e-200j, complex("inf+1j"), 0j)


@pytest.mark.parametrize("op", [op for op in UNARY if op != "square"])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_the_ends_of_double_precision(op: str, dtype: str) -> None:
    z = np.array([v for v in FAR if dtype == "complex128" or not 1e30 < abs(v) < np.inf]).astype(dtype)
    theirs, ours = getattr(torch, op)(torch.tensor(z)), getattr(lucid, op)(lucid.tensor(z))
    assert repr(ours.dtype).removeprefix("lucid.") == repr(theirs.dtype).removeprefix("torch.")
    rtol = TABLE["few ops" if dtype == "complex64" else "float64 rounding"].rtol
    np.testing.assert_allclose(np.asarray(ours.tolist()), theirs.numpy(), rtol=rtol)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_quotients_of_large_small_and_infinite_numbers(dtype: str) -> None:
    largest = 1e30 if dtype == "complex64" else 1e308
    z = np.array([v for v in (*FAR, 1e30j, 1e-30 + 0j, complex("nan+0j")) if not largest < abs(v) < np.inf]).astype(
        dtype
    )
    a, b = torch.tensor(z), lucid.tensor(z)
    theirs, ours = a[:, None] / a, b[:, None] / b
    rtol = TABLE["few ops" if dtype == "complex64" else "float64 rounding"].rtol
    np.testing.assert_allclose(np.asarray(ours.tolist()), theirs.numpy(), rtol=rtol)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_parts_that_are_no_numbers(dtype: str) -> None:
    """C's values of functions whose argument has a part that is NaN or infinite."""
    parts = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -2.5]
    points = [complex(a, b) for a in parts for b in parts]
    names = ["exp", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh"]
    for name in [*names, "asin", "acos", "atan", "asinh", "acosh", "atanh"]:
        wanted = getattr(torch, name)(torch.tensor(points, dtype=getattr(torch, dtype)))
        got = getattr(lucid, name)(lucid.tensor(points, dtype=getattr(lucid, dtype)))
        for part in ("real", "imag"):
            # Of a NaN beside an infinity C leaves some signs open.
            w, g = getattr(wanted, part).abs().numpy(), getattr(got, part).abs().numpy()
            np.testing.assert_allclose(g, w, **within("complex functions"), err_msg=f"{name}, {part}")
