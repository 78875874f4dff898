"""`lucid.fft` against PyTorch: every function, `norm`, size and dimension, on both devices; gradients, errors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import within

DEVICES = ("cpu", "gpu")
LINES = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
PLANES = tuple(f"{name}2" for name in LINES)
GRIDS = tuple(f"{name}n" for name in LINES)
NORMS = (None, "backward", "ortho", "forward")
#: Odd, even, powers of two, a prime that is large beside them, a product of primes.
LENGTHS = (1, 2, 3, 8, 15, 16, 30, 31, 64, 97, 101)
FROM_REAL = ("rfft", "ihfft", "rfft2", "ihfft2", "rfftn", "ihfftn")

rng = np.random.default_rng(0)


@pytest.fixture(params=["cpu", "gpu", "mlx"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both devices, and the GPU device with MLX's own transforms on its CPU stream, as on Metal."""
    lucid._C.set_hosting(request.param != "mlx")
    yield "cpu" if request.param == "cpu" else "gpu"
    lucid._C.set_hosting(True)


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype.startswith("complex") else x).astype(dtype)


def dtypes(name: str, device: str) -> list[str]:
    """What a function takes on a device."""
    double = ["float64"] if device == "cpu" else []
    made = ["float32", *double]
    return made if name in FROM_REAL else [*made, "complex64", *(["complex128"] if double else [])]


def check(ours: Any, theirs: Any, what: object = "") -> None:
    assert str(ours.dtype).split(".")[-1] == str(theirs.dtype).split(".")[-1], what
    assert tuple(ours.shape) == tuple(theirs.shape), what
    wanted = theirs.detach().resolve_conj().numpy()
    scale = max(1.0, float(np.abs(wanted).max())) if wanted.size else 1.0
    tolerance = "float64 transforms" if wanted.dtype in (np.float64, np.complex128) else "transforms"
    got = np.asarray(ours.detach().cpu().tolist(), dtype=wanted.dtype).reshape(wanted.shape)
    np.testing.assert_allclose(got / scale, wanted / scale, **within(tolerance), err_msg=str(what))


def both(name: str, x: np.ndarray, device: str, *args: Any, view: Any = None, **kwargs: Any) -> None:
    """The function of both libraries on the same numbers."""
    view = view or (lambda t: t)
    theirs = getattr(torch.fft, name)(view(torch.from_numpy(x.copy())), *args, **kwargs)
    ours = getattr(lucid.fft, name)(
        view(lucid.tensor(x.tolist(), dtype=getattr(lucid, str(x.dtype))).reshape(x.shape).to(device)), *args, **kwargs
    )
    check(ours, theirs, (name, x.shape, x.dtype, args, kwargs))


@pytest.mark.parametrize("name", LINES)
def test_every_length_and_norm(name: str, device: str) -> None:
    for dtype, n in itertools.product(dtypes(name, device), LENGTHS):
        # One element is none, of half a spectrum.
        if name not in ("irfft", "hfft") or n > 1:
            both(name, numbers((2, n), dtype), device)
        both(name, numbers((2, n), dtype), device, n=n, norm="ortho")
    for dtype, norm, n, dim in itertools.product(dtypes(name, device)[-2:], NORMS, (None, 3, 8, 11), (0, 1, -1)):
        both(name, numbers((4, 7, 6), dtype), device, n, dim, norm)


@pytest.mark.parametrize("name", LINES)
def test_integers_and_layouts(name: str, device: str) -> None:
    x = rng.integers(-4, 5, (6, 7))
    for dtype in ("int64", "uint8", "bool"):
        both(name, (x % 5).astype(dtype), device)
    x = numbers((9, 8, 10), dtypes(name, device)[-1])
    views = {
        "transposed": lambda t: t.transpose(0, 2),
        "permuted": lambda t: t.permute(1, 2, 0),
        "sliced": lambda t: t[1:7, ::2, 3:],
        "expanded": lambda t: t[:1].expand(3, 8, 10),
        "flipped": lambda t: t.flip(1),
    }
    for view, dim in itertools.product(views.values(), (0, 1, 2)):
        both(name, x, device, dim=dim, view=view)
    both(f"{name}n", x, device, view=views["permuted"])
    both(f"{name}2", x, device, dim=(2, 0), view=views["sliced"])


@pytest.mark.parametrize("name", [*PLANES, *GRIDS])
def test_sizes_and_dimensions(name: str, device: str) -> None:
    cases: list[dict[str, Any]] = [
        {},
        {"s": (4, 9)},
        {"s": (-1, 3), "dim": (0, 1)},
        {"s": (7, 2), "dim": (2, 0)},
        {"dim": (1, -1)},
        {"dim": (-1,)},
        {"s": 5, "dim": 1},
    ]
    if name in GRIDS:
        cases += [{"s": (5,)}, {"dim": (2, 0, 1)}, {"s": (2, 6, 5), "dim": (0, 1, 2)}]
    for dtype, case, norm in itertools.product(dtypes(name, device)[-2:], cases, NORMS[1:]):
        both(name, numbers((3, 5, 8), dtype), device, norm=norm, **case)
    both(name, numbers((2, 16, 32), dtypes(name, device)[0]), device)


@pytest.mark.parametrize("n", [1 << 12, 1000, 10007, 3 * 5 * 7 * 11 * 13, 1 << 17])
def test_long_transforms(n: int, device: str) -> None:
    for name in ("fft", "rfft", "ifft", "irfft"):
        for dtype in dtypes(name, device)[-2:]:
            both(name, numbers((n,), dtype), device)
    both("fft2", numbers((64, 300), "complex64"), device)


def test_empty_batches(device: str) -> None:
    for name in LINES:
        both(name, numbers((0, 4), "float32"), device)
        both(name, numbers((4, 0), "float32"), device, dim=0)
        both(name, numbers((4, 0), "float32"), device, n=5)
        both(f"{name}n", numbers((4, 0), "float32"), device, dim=0)
    both("fftn", numbers((), "float32"), device)
    both("fftn", numbers((2, 3), "complex64"), device, dim=())
    both("ifftn", numbers((2, 3), "float32"), device, dim=())


def test_what_the_symmetry_says_is_zero_is_not_read(device: str) -> None:
    x = numbers((3, 5), "complex64")
    x[:, 0] += 3j
    x[:, -1] -= 2j
    for n, name in itertools.product((8, 9), ("irfft", "hfft")):
        both(name, x, device, n=n)
    both("irfft2", x, device)
    x[:, 0] = complex(1.0, np.nan)
    assert not lucid.fft.irfft(lucid.tensor(x.tolist()).to("cpu")).isnan().any()


def test_frequencies_and_shifts(device: str) -> None:
    for name, n, d in itertools.product(("fftfreq", "rfftfreq"), (0, 1, 2, 5, 8), (1.0, 0.25)):
        for dtype in ("float32", "float16") + (("float64",) if device == "cpu" else ()):
            theirs = getattr(torch.fft, name)(n, d, dtype=getattr(torch, dtype))
            ours = getattr(lucid.fft, name)(n, d, dtype=getattr(lucid, dtype), device=device)
            check(ours, theirs, (name, n, d, dtype))
            assert ours.device.type == lucid.zeros(1, device=device).device.type
    assert lucid.fft.fftfreq(4, requires_grad=True).requires_grad
    for name, dim in itertools.product(("fftshift", "ifftshift"), (None, 0, (1,), (0, -1))):
        both(name, numbers((5, 4, 3), "float32"), device, dim=dim)
        both(name, np.arange(6).reshape(2, 3, 1), device, dim=dim)


@pytest.mark.parametrize("name", [*LINES, *PLANES, *GRIDS])
def test_gradients(name: str, device: str) -> None:
    for dtype in dtypes(name, device)[-2:]:
        x = numbers((3, 4, 5), dtype)
        given = {} if name in LINES else {"dim": (0, 2)}
        results = []
        for m, t in (
            (torch, torch.from_numpy(x)),
            (lucid, lucid.tensor(x.tolist(), dtype=getattr(lucid, dtype)).to(device)),
        ):
            t = t.detach().requires_grad_()
            y = getattr(m.fft, name)(t, **given)
            loss = (m.view_as_real(y.resolve_conj()) if y.is_complex() else y).sin().sum()
            (g,) = m.autograd.grad(loss, t, create_graph=True)
            size = (m.view_as_real(g.resolve_conj()) if g.is_complex() else g).square().sum()
            (gg,) = m.autograd.grad(size, t)
            results.append((g, gg))
        for theirs, ours in zip(*results, strict=True):
            check(ours, theirs, (name, dtype))


@pytest.mark.parametrize("name", [*LINES, *GRIDS])
def test_forward_mode_and_vmap(name: str, device: str) -> None:
    dtype = dtypes(name, device)[-1]
    x, v = numbers((3, 4, 5), dtype), numbers((3, 4, 5), dtype)
    ours = [lucid.tensor(a.tolist(), dtype=getattr(lucid, dtype)).to(device) for a in (x, v)]
    f = getattr(lucid.fft, name)
    y, jv = lucid.func.jvp(f, (ours[0],), (ours[1],))
    check(y, getattr(torch.fft, name)(torch.from_numpy(x)))
    check(jv, getattr(torch.fft, name)(torch.from_numpy(v)))
    each = lucid.vmap(f, in_dims=1, out_dims=1)(ours[0])
    check(each, torch.stack([getattr(torch.fft, name)(t) for t in torch.from_numpy(x).unbind(1)], 1))
    twice = lucid.vmap(lucid.vmap(f))(ours[0]) if name in LINES else None
    if twice is not None:
        check(twice, getattr(torch.fft, name)(torch.from_numpy(x)))


def test_strides_are_pytorchs() -> None:
    x = numbers((6, 8, 10), "complex64")
    views: list[Any] = [lambda t: t, lambda t: t.transpose(0, 2), lambda t: t.permute(1, 2, 0)]
    for view, name, dim in itertools.product(views, ("fft", "irfft"), (0, 1, 2)):
        theirs = getattr(torch.fft, name)(view(torch.from_numpy(x)), dim=dim)
        ours = getattr(lucid.fft, name)(view(lucid.tensor(x.tolist())), dim=dim)
        assert ours.stride() == theirs.stride(), (name, dim)
        assert not ours._is_view()
    for view, dim in itertools.product(views, ((0, 1), (2, 0), (0, 1, 2))):
        for name in ("fftn", "rfftn", "irfftn"):
            t = torch.from_numpy(x.real.copy() if name == "rfftn" else x)
            ours = lucid.tensor(t.tolist())
            got = getattr(lucid.fft, name)(view(ours), dim=dim)
            assert got.stride() == getattr(torch.fft, name)(view(t), dim=dim).stride(), (name, dim)


def test_out() -> None:
    x = numbers((4, 6), "float64")
    for name, kind in (("fft", "complex64"), ("fft", "complex128"), ("irfft", "float32"), ("hfftn", "float64")):
        theirs, ours = torch.empty(0, dtype=getattr(torch, kind)), lucid.empty(0, dtype=getattr(lucid, kind))
        assert getattr(lucid.fft, name)(lucid.tensor(x.tolist(), dtype=lucid.float64), out=ours) is ours
        check(ours, getattr(torch.fft, name)(torch.from_numpy(x), out=theirs))
    for name, kind in (("fft", "float32"), ("irfft", "complex64"), ("irfft", "int64"), ("rfftn", "float64")):
        for m in (torch, lucid):
            with pytest.raises((RuntimeError, TypeError)):
                getattr(m.fft, name)(m.ones(4, 6), out=m.empty(0, dtype=getattr(m, kind)))
    for m in (torch, lucid):
        made = m.empty(5, dtype=m.float64)
        assert m.fft.fftfreq(5, out=made) is made


ERRORS: dict[str, Any] = {
    "no dimensions": lambda m: m.fft.fft(m.tensor(1.0)),
    "no points": lambda m: m.fft.fft(m.ones(4), 0),
    "negative points": lambda m: m.fft.rfft(m.ones(4), n=-1),
    "nothing": lambda m: m.fft.fft(m.zeros(0)),
    "half of nothing": lambda m: m.fft.irfft(m.ones(1)),
    "norm": lambda m: m.fft.fft(m.ones(4), norm="x"),
    "dim": lambda m: m.fft.fft(m.ones(4), dim=1),
    "dims of a plane": lambda m: m.fft.fft2(m.ones(4)),
    "real input": lambda m: m.fft.rfft(m.ones(4, dtype=m.complex64)),
    "real input of ihfftn": lambda m: m.fft.ihfftn(m.ones(4, dtype=m.complex64)),
    "no axis": lambda m: m.fft.rfftn(m.ones(4), dim=()),
    "no axis of hfftn": lambda m: m.fft.hfftn(m.tensor(1.0)),
    "too many sizes": lambda m: m.fft.fftn(m.ones(4), s=(1, 2)),
    "sizes and dims": lambda m: m.fft.fftn(m.ones(4, 4), s=(1, 2), dim=(0,)),
    "dims twice": lambda m: m.fft.fftn(m.ones(4, 4), dim=(0, -2)),
    "size 0": lambda m: m.fft.fftn(m.ones(4), s=(0,)),
    "float16": lambda m: m.fft.fft(m.ones(4, dtype=m.float16)),
    "bfloat16": lambda m: m.fft.irfftn(m.ones(4, dtype=m.bfloat16)),
    "frequencies of integers": lambda m: m.fft.fftfreq(4, dtype=m.int64),
    "negative frequencies": lambda m: m.fft.rfftfreq(-4),
    "shift": lambda m: m.fft.fftshift(m.ones(4), dim=1),
    "a text": lambda m: m.fft.fft("x"),
    "n is a text": lambda m: m.fft.fft(m.ones(4), n="x"),
    "too much": lambda m: m.fft.fft(m.ones(4), n=1 << 60),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_of_pytorchs_kind(name: str) -> None:
    with pytest.raises(Exception) as theirs:
        ERRORS[name](torch)
    with pytest.raises(Exception) as ours:
        ERRORS[name](lucid)
    kinds = (RuntimeError, IndexError, TypeError, NotImplementedError)
    assert any(isinstance(ours.value, kind) and isinstance(theirs.value, kind) for kind in kinds), ours.value


def test_autocast() -> None:
    x = lucid.ones(4, dtype=lucid.bfloat16)
    with lucid.autocast("cpu", dtype=lucid.bfloat16):
        assert lucid.fft.fft(x).dtype == lucid.complex64
        assert lucid.fft.irfftn(x).dtype == lucid.float32
        with pytest.raises(NotImplementedError):
            lucid.fft.hfftn(x)


def test_threads_give_the_same_numbers() -> None:
    x = lucid.randn(3, 200, 300, dtype=lucid.complex64)
    before = lucid.get_num_threads()
    made = []
    for threads in (1, 4):
        lucid.set_num_threads(threads)
        made.append([lucid.fft.fftn(x), lucid.fft.fft(x, dim=0), lucid.fft.rfft2(x.real), lucid.fft.irfft2(x)])
    lucid.set_num_threads(before)
    for one, more in zip(*made, strict=True):
        assert lucid.equal(one, more)


def test_primitives_are_pytorchs() -> None:
    x = numbers((3, 5), "complex64")
    t, ours = torch.from_numpy(x), lucid.tensor(x.tolist())
    check(lucid._fft_c2c(ours, [0, 1], 1, False), torch._fft_c2c(t, [0, 1], 1, False))
    check(lucid._fft_c2r(ours, [1], 2, 9), torch._fft_c2r(t, [1], 2, 9))
    check(lucid._fft_r2c(ours.real, [1], 0, True), torch._fft_r2c(t.real, [1], 0, True))
    for call in (lambda: lucid._fft_c2r(ours, [1], 0, 20), lambda: lucid._fft_c2c(ours, [0], 3, True)):
        with pytest.raises(RuntimeError):
            call()


@pytest.mark.parametrize("device", DEVICES)
def test_real_numbers_that_begin_anywhere(device: str) -> None:
    """Views, pieces, results of views that nobody else has: cuFFT refuses an odd number of floats before the first."""
    numbers = np.random.default_rng(0).standard_normal((6, 9)).astype(np.float32)
    ours, theirs = lucid.tensor(numbers).to(device), torch.tensor(numbers)
    work: list[Callable[[Any, Any], Any]] = [
        lambda m, x: x[1],
        lambda m, x: x[2:, 3:],
        lambda m, x: x.unbind(0)[3],
        lambda m, x: x.split(1, 0)[5],
        lambda m, x: (x * 2)[1:, 1:] + 1,
        lambda m, x: (x.sin()[3] * 2).exp(),
        lambda m, x: x.topk(4, 1)[0][1],
        lambda m, x: x.flatten()[1::2][1:],
        lambda m, x: x.t()[1:],
    ]
    for make in work:
        for evaluated in (False, True):
            x = make(lucid, ours)
            if evaluated:
                x.eval()
            check(lucid.fft.rfft(x), torch.fft.rfft(make(torch, theirs)))
        check(lucid.fft.rfftn(make(lucid, ours)), torch.fft.rfftn(make(torch, theirs)))
