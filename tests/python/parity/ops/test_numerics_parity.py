"""Incomplete gamma functions, `einsum`'s lists, variances of large numbers, complex statistics and rows in order,
against PyTorch, where the table's samples do not reach."""

from __future__ import annotations

from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import TABLE, within

DEVICES = pytest.mark.parametrize("device", ["cpu", "gpu"])
INF, NAN = float("inf"), float("nan")
GRID = [
    0.0,
    1e-6,
    1e-3,
    0.1,
    0.5,
    1.0,
    1.5,
    2.0,
    5.0,
    9.9,
    15.0,
    16.5,
    20.0,
    50.0,
    130.0,
    210.0,
    1e3,
    1e4,
    -1.0,
    INF,
    NAN,
]


@DEVICES
@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma_functions(name: str, device: str) -> None:
    a = np.repeat(GRID, len(GRID))
    x = np.tile(GRID, len(GRID))
    # Beside the grid, where the functions change: x within a few widths of a.
    middle = np.repeat([2.0, 10.0, 16.0, 17.0, 40.0, 150.0, 201.0, 1e4, 1e6], 7)
    around = middle + np.sqrt(middle) * np.tile([-3.0, -1.0, -0.1, 0.0, 0.1, 1.0, 3.0], 9)
    keep = around > 0
    a, x = np.concatenate([a, middle[keep]]), np.concatenate([x, around[keep]])
    wide = "float64" if device == "cpu" else "float32"
    wanted = getattr(torch, name)(*(torch.tensor(v.astype(wide)).double() for v in (a, x))).numpy()
    got = getattr(lucid, name)(*(lucid.tensor(v.astype(wide), device=device) for v in (a, x)))
    tolerance = within("float64 series" if device == "cpu" else "series")
    np.testing.assert_allclose(np.asarray(got.cpu().tolist()), wanted, **tolerance)


@DEVICES
def test_gradients_of_incomplete_gamma_functions(device: str) -> None:
    for name, sign in (("igamma", 1), ("igammac", -1)):
        a = lucid.tensor([0.5, 2.0, 30.0], device=device)
        x = lucid.tensor([0.7, 1.5, 25.0], device=device, requires_grad=True)
        getattr(lucid, name)(a, x).sum().backward()
        other = torch.tensor([0.7, 1.5, 25.0], requires_grad=True)
        torch.igamma(torch.tensor([0.5, 2.0, 30.0]), other).sum().backward()
        np.testing.assert_allclose(x.grad.cpu().tolist(), sign * other.grad.numpy(), rtol=TABLE["program"].rtol)
        with pytest.raises(NotImplementedError):
            getattr(lucid, name)(x, x).sum().backward()
        y = a.clone()
        assert getattr(y, name + "_")(x.detach()) is y


@DEVICES
def test_einsum_takes_lists(device: str) -> None:
    for calls in (
        lambda m, x, y: m.einsum(x, [0, 1], y, [1, 2], [0, 2]),
        lambda m, x, y: m.einsum(x, [0, 1], y, [1, 2]),
        lambda m, x, y: m.einsum(x, [1, 0]),
        lambda m, x, y: m.einsum(x, [..., 0], [0, ...]),
        lambda m, x, y: m.einsum(x, [30, 1], y, [1, 51], []),
        lambda m, x, y: m.einsum(x, (5, 6), y, (6, 7), (7, 5)),
    ):
        values = [np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4) - 5]
        theirs = calls(torch, *(torch.tensor(v) for v in values))
        ours = calls(lucid, *(lucid.tensor(v.astype(np.float32), device=device) for v in values))
        np.testing.assert_allclose(np.asarray(ours.cpu().tolist()), theirs.numpy())
    for bad in (lambda m, x: m.einsum(x, [0, 52]), lambda m, x: m.einsum(x, [0])):
        for m in (torch, lucid):
            with pytest.raises((ValueError, RuntimeError)):
                bad(m, m.ones(2, 3))


@DEVICES
def test_variances_of_large_numbers(device: str) -> None:
    for values in ([1e19, -1e19] * 20, [3e18, 1e18, -2e18], [1e-30, 3e-30], [INF, 1.0], [0.0, 0.0]):
        # The squares of variances on the gpu device are float32's: layers are normalised by them.
        for name in ("var", "std") if device == "cpu" or max(values) < 1e18 else ("std",):
            theirs = getattr(torch.tensor(values), name)()
            ours = getattr(lucid.tensor(values, device=device), name)()
            np.testing.assert_allclose(
                ours.item(), theirs.item(), rtol=TABLE["few ops"].rtol, err_msg=f"{name} of {values[:3]}"
            )


@DEVICES
def test_complex_statistics(device: str) -> None:
    numbers = np.array([[1 + 2j, 3 - 1j, 0.5j], [2 - 2j, -1 + 0j, 4 + 0.25j]], dtype=np.complex64)
    calls: list[Any] = [
        lambda m, z: m.var(z),
        lambda m, z: m.std(z, 1),
        lambda m, z: z.var(0, correction=0),
        lambda m, z: m.var_mean(z, 1)[0],
        lambda m, z: m.view_as_real(m.var_mean(z, 1)[1]),
        lambda m, z: m.view_as_real(m.logsumexp(z, 1)),
        lambda m, z: m.view_as_real(z.mean()),
    ]
    for call in calls:
        theirs, ours = torch.tensor(numbers).requires_grad_(), lucid.tensor(numbers, device=device).requires_grad_()
        wanted, got = call(torch, theirs), call(lucid, ours)
        np.testing.assert_allclose(
            np.asarray(got.detach().cpu().tolist()), wanted.detach().numpy(), **within("near zero")
        )
        wanted.sum().backward()
        got.sum().backward()
        grad = np.asarray(ours.grad.resolve_conj().cpu().tolist())
        np.testing.assert_allclose(grad, theirs.grad.resolve_conj().numpy(), **within("program"))


@DEVICES
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32"])
def test_distinct_rows(dtype: str, device: str) -> None:
    rng = np.random.default_rng(0)
    for shape in ((50, 1), (50, 3), (40, 9), (30, 70)):
        whole = rng.integers(0 if dtype in ("bool", "uint8") else -2, 2, shape)
        whole[:, 1:] *= rng.integers(0, 2, (shape[0], 1))
        theirs = torch.tensor(whole).to(getattr(torch, dtype))
        ours = lucid.tensor(whole, device=device).to(getattr(lucid, dtype))
        for dim in (0, 1):
            # PyTorch has no rows of truth values in order.
            wide = theirs.to(torch.uint8) if dtype == "bool" else theirs
            wanted = torch.unique(wide.double() if dtype == "float16" else wide, True, True, True, dim)
            got = lucid.unique(ours, True, True, True, dim)
            for w, g in zip(wanted, got, strict=True):
                np.testing.assert_array_equal(np.asarray(g.cpu().tolist()), w.numpy())


@DEVICES
def test_rows_at_the_ends_of_their_dtype(device: str) -> None:
    low, high = -(2**63), 2**63 - 1
    x = lucid.tensor([[high, low], [low, high], [0, low], [low, 0], [low, high]], device=device)
    assert lucid.unique(x, dim=0).tolist() == [[low, 0], [low, high], [0, low], [high, low]]
    y = lucid.tensor([[INF, -0.0], [-INF, 1.0], [0.0, 1.0], [-0.0, -1.0], [-1e-40, 5.0]], device=device)
    assert lucid._C.argsort_rows(y).tolist() in ([1, 4, 3, 2, 0], [1, 3, 4, 2, 0])


@DEVICES
def test_signs_of_other_numbers(device: str) -> None:
    """`copysign` where nobody follows it, on temporaries too: signs of zeros, broadcast, and of 16-bit floats."""
    signs = [1.0, -1.0, 0.0, -0.0, INF, -INF]
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        if device == "gpu" and dtype == "float64":
            continue
        theirs = torch.tensor(signs).to(getattr(torch, dtype))
        ours = lucid.tensor(signs, device=device).to(getattr(lucid, dtype))
        for rows in (1, 700):
            wanted = torch.copysign((theirs[:, None] * 2).repeat(rows, 1), theirs).float()
            got = lucid.copysign((ours[:, None] * 2).repeat(rows, 1), ours).float().cpu()
            np.testing.assert_array_equal(np.signbit(got.numpy()), np.signbit(wanted.numpy()))
            np.testing.assert_array_equal(got.numpy(), wanted.numpy())


@DEVICES
def test_sums_of_what_is_a_number(device: str) -> None:
    """`nansum` of many elements with NaN, without, and with infinities that meet."""
    x = np.random.default_rng(0).normal(size=(300, 70)).astype("float32")
    one, meeting = x.copy(), x.copy()
    one[7, 3], meeting[2, 5], meeting[2, 6], meeting[9, 9] = NAN, INF, -INF, NAN
    for values in (x, one, meeting):
        for dim in (None, 0, 1, (0, 1)):
            wanted = torch.nansum(torch.tensor(values), dim)
            got = lucid.nansum(lucid.tensor(values, device=device) * 1.0, dim)
            np.testing.assert_allclose(got.cpu().numpy(), wanted.numpy(), **within("program"))


@DEVICES
def test_integer_division(device: str) -> None:
    rng = np.random.default_rng(1)
    for most in (9, 2**31 - 1, 2**62):
        a, b = rng.integers(-most, most, 3000), rng.integers(-most, most, 3000)
        b[b == 0] = 3
        for name in ("floor_divide", "remainder", "fmod"):
            wanted = getattr(torch, name)(torch.tensor(a), torch.tensor(b))
            got = getattr(lucid, name)(lucid.tensor(a, device=device) * 1, lucid.tensor(b, device=device))
            np.testing.assert_array_equal(got.cpu().numpy(), wanted.numpy())
            wanted = getattr(torch, name)(torch.tensor(a).reshape(30, 100), torch.tensor(b[:100]))
            got = getattr(lucid, name)(
                lucid.tensor(a, device=device).reshape(30, 100), lucid.tensor(b[:100], device=device)
            )
            np.testing.assert_array_equal(got.cpu().numpy(), wanted.numpy())


@DEVICES
def test_the_second_derivative_of_the_logarithm_of_gamma(device: str) -> None:
    x = np.concatenate([np.geomspace(1e-4, 1e6, 700), -np.linspace(0.1, 30.35, 90), [0.0, -0.0, INF, NAN]])
    x = x.astype("float32")
    wanted = torch.polygamma(1, torch.tensor(x).double()).float().numpy()
    got = lucid.polygamma(1, lucid.tensor(x, device=device)).cpu().numpy()
    np.testing.assert_allclose(got, wanted, **within("program"))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_large_images_with_borders(mode: str) -> None:
    x = np.random.default_rng(2).normal(size=(2, 3, 30, 41)).astype("float32")
    for pad in ((1, 1), (3, 0, 0, 2), (29, 29, 29, 29), (5, 4, 3, 2), (0, 0, 1, 0), (41, 0, 30, 0), (-3, 2, 1, -1)):
        try:
            wanted = torch.nn.functional.pad(torch.tensor(x if len(pad) > 2 else x[0]), pad, mode)
        except RuntimeError:
            with pytest.raises(RuntimeError):
                lucid.nn.functional.pad(lucid.tensor(x if len(pad) > 2 else x[0]), pad, mode)
            continue
        for ours in (lucid.tensor(x), lucid.tensor(x).to(memory_format=lucid.channels_last)):
            ours = ours if len(pad) > 2 else ours[0]
            got = lucid.nn.functional.pad(ours * 1.0, pad, mode)
            np.testing.assert_array_equal(got.numpy(), wanted.numpy())
            with_tape = lucid.nn.functional.pad(ours.requires_grad_(), pad, mode)
            np.testing.assert_array_equal(with_tape.detach().numpy(), wanted.numpy())


@DEVICES
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_group_norm_of_images_whose_channels_are_last(dtype: str, device: str) -> None:
    for shape, groups in (((2, 8, 5, 3), 4), ((1, 64, 33, 20), 32), ((3, 6, 40, 41), 1), ((2, 5, 2, 2), 5)):
        rng = np.random.default_rng(3)
        x, g = (rng.normal(3.0, 2.0, shape).astype("float32") for _ in range(2))
        w, b = (rng.normal(size=shape[1]).astype("float32") for _ in range(2))
        found = []
        for lib in (torch, lucid):
            # Of 16 bits PyTorch's gradients have errors of a tenth: it computes with the same numbers in float32.
            kind, wide = getattr(lib, dtype), torch.float32 if lib is torch else getattr(lib, dtype)
            to = {} if lib is torch else {"device": device}
            leaves = [lib.tensor(t, **to).to(kind).to(wide).requires_grad_() for t in (x, w, b)]
            last = leaves[0].to(memory_format=lib.channels_last)
            y = lib.nn.functional.group_norm(last, groups, *leaves[1:])
            y.backward(lib.tensor(g, **to).to(kind).to(wide))
            found.append([t.detach().float().cpu().numpy() for t in (y, *(leaf.grad for leaf in leaves))])
            assert y.is_contiguous(memory_format=lib.channels_last)
        for wanted, got in zip(*found, strict=True):
            scale = max(1.0, float(np.abs(wanted).max()))
            np.testing.assert_allclose(
                got / scale, wanted / scale, **within("program" if dtype == "float32" else "lower precision")
            )


@DEVICES
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64"])
def test_numbers_around(dtype: str, device: str) -> None:
    """Padding of one to four dimensions, of rows, of what is not row-major, and of nothing."""
    whole = torch.arange(2 * 3 * 5 * 7).reshape(2, 3, 5, 7).to(getattr(torch, dtype))
    ours = lucid.tensor(np.arange(2 * 3 * 5 * 7).reshape(2, 3, 5, 7), device=device).to(getattr(lucid, dtype))
    value = {"bool": True, "complex64": 2.5, "float32": -1.5}.get(dtype, 4)
    pads = ((1, 2), (0, 3, 2, 0), (0, 0, 1, 1), (1, 0, 0, 0, 2, 1), (1, 1, 1, 1, 1, 1, 1, 1), (-2, 1, 3, -1), (-5, 2))
    for theirs, mine in (
        (whole, ours), (whole[1, 2, 3], ours[1, 2, 3]), (whole[:, :1], ours[:, :1]), (whole.mT, ours.mT),
        (whole[:, :, ::2], ours[:, :, ::2]), (whole[:0], ours[:0]),
    ):  # fmt: skip
        for pad in pads:
            if len(pad) <= 2 * theirs.ndim:
                wanted = torch.nn.functional.pad(theirs, pad, value=value)
                got = lucid.nn.functional.pad(mine, pad, value=value)
                assert got.shape == wanted.shape and got.cpu().tolist() == wanted.tolist()
