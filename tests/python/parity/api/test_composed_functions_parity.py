"""Functions of `torch` itself that are made of others: native norms, copies of views, windows' arguments, switches."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.parity.ops.test_table_parity import to_numpy
from tests.python.tolerances import TABLE, within

DEVICES = ["cpu", "gpu"]


def flat(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [v for part in value for v in flat(part)]
    return [value]


def told(m: Any, device: str, call: Callable[..., Any]) -> Any:
    """What a call gives, with the gradient of all that has one; or the kind of error."""
    torch_like = np.random.default_rng(0)
    x, y = torch_like.standard_normal((3, 4)), torch_like.standard_normal((2, 4, 5))
    made = [m.tensor(v.astype(np.float32), device=device, requires_grad=True) for v in (x, y)]
    try:
        results = flat(call(m, *made))
    except (IndexError, TypeError, ValueError, RuntimeError) as e:
        return frozenset(k for k in (IndexError, TypeError, ValueError, RuntimeError) if isinstance(e, k))
    seen: list[Any] = []
    for r in results:
        is_tensor = isinstance(r, (torch.Tensor, lucid.Tensor))
        seen.append((str(r.dtype).rpartition(".")[2], r.requires_grad, to_numpy(r.detach())) if is_tensor else r)
    tracked = [r for r in results if getattr(r, "requires_grad", False)]
    if tracked:
        sum((r * r).sum() for r in tracked).backward()
        seen += [None if t.grad is None else to_numpy(t.grad) for t in made]
    return seen


def agree(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, (list, tuple)):
        assert type(ours) is type(theirs) and len(ours) == len(theirs), (ours, theirs)
        for a, b in zip(ours, theirs, strict=True):
            agree(a, b)
    elif isinstance(theirs, frozenset):
        # Some of ours are of both kinds that PyTorch has for the same.
        assert isinstance(ours, frozenset) and theirs <= ours, (ours, theirs)
    elif isinstance(theirs, np.ndarray):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, **within("program"))
    else:
        assert ours == theirs


CALLS: dict[str, Callable[..., Any]] = {
    "alias_copy": lambda m, x, y: m.alias_copy(x),
    "slice_copy": lambda m, x, y: m.slice_copy(x, 1, 1, 4, 2),
    "slice_copy whole": lambda m, x, y: m.slice_copy(x),
    "slice_copy from the end": lambda m, x, y: m.slice_copy(x, -2, start=-2),
    "slice_copy step 0": lambda m, x, y: m.slice_copy(x, 0, 0, 3, 0),
    "slice_copy no dimension": lambda m, x, y: m.slice_copy(x, 2),
    "slice_copy out": lambda m, x, y: m.slice_copy(x.detach(), 0, 1, out=m.empty(0, device=x.device)),
    "native_layer_norm": lambda m, x, y: m.native_layer_norm(x, [4], x[0], x[1], 1e-5),
    "native_layer_norm of two": lambda m, x, y: m.native_layer_norm(y, (4, 5), None, None, 1e-3),
    "native_layer_norm of half": lambda m, x, y: [
        v.dtype == m.float16 for v in m.native_layer_norm(x.half(), [4], None, None, 1e-5)
    ],
    "native_layer_norm of a number": lambda m, x, y: m.native_layer_norm(x, 4, None, None, 1e-5),
    "native_layer_norm of others": lambda m, x, y: m.native_layer_norm(x, [3], None, None, 1e-5),
    "native_layer_norm no eps": lambda m, x, y: m.native_layer_norm(x, [4], None, None),
    "native_group_norm": lambda m, x, y: m.native_group_norm(y, None, None, 2, 4, 5, 2, 1e-5),
    "native_group_norm weights": lambda m, x, y: m.native_group_norm(y, x[0], x[1], 2, 4, 5, 4, 1e-5),
    "native_group_norm sizes": lambda m, x, y: m.native_group_norm(y, None, None, 3, 4, 5, 2, 1e-5),
    "native_group_norm groups": lambda m, x, y: m.native_group_norm(y, None, None, 2, 4, 5, 3, 1e-5),
    "native_batch_norm": lambda m, x, y: m.native_batch_norm(y, None, None, None, None, True, 0.1, 1e-5),
    "native_batch_norm weights": lambda m, x, y: m.native_batch_norm(x, x[0], x[1], None, None, True, 0.1, 1e-5),
    "native_batch_norm eval": lambda m, x, y: m.native_batch_norm(
        y, None, None, m.zeros(4, device=y.device), m.ones(4, device=y.device), False, 0.1, 1e-5
    ),
    "native_batch_norm nothing to go by": lambda m, x, y: m.native_batch_norm(
        y, None, None, None, None, False, 0.1, 1e-5
    ),
    "native_batch_norm of a vector": lambda m, x, y: m.native_batch_norm(x[0], None, None, None, None, True, 0.1, 1e-5),
    "native_dropout off": lambda m, x, y: m.native_dropout(x, 0.5, False),
    "native_dropout of none": lambda m, x, y: m.native_dropout(x, 0.0, True),
    "native_dropout of all": lambda m, x, y: m.native_dropout(x, 1.0, None),
    "native_dropout beyond": lambda m, x, y: m.native_dropout(x, 2.0, True),
    "native_dropout of integers": lambda m, x, y: m.native_dropout(x.long(), 0.5, True),
    "frobenius_norm": lambda m, x, y: m.frobenius_norm(x, 1),
    "frobenius_norm of two": lambda m, x, y: m.frobenius_norm(y, (0, 2), True),
    "frobenius_norm of all": lambda m, x, y: m.frobenius_norm(x, []),
    "frobenius_norm of three": lambda m, x, y: m.frobenius_norm(y, (0, 1, 2)),
    "frobenius_norm of integers": lambda m, x, y: m.frobenius_norm(x.long(), 0),
    "frobenius_norm out": lambda m, x, y: m.frobenius_norm(x.detach(), 0, out=m.empty(0, device=x.device)),
    "norm_except_dim": lambda m, x, y: m.norm_except_dim(x),
    "norm_except_dim 1": lambda m, x, y: m.norm_except_dim(y, 2, 1),
    "norm_except_dim -2": lambda m, x, y: m.norm_except_dim(y, 2, -2),
    "norm_except_dim of all": lambda m, x, y: m.norm_except_dim(y, 2, -1),
    "norm_except_dim of order 1": lambda m, x, y: m.norm_except_dim(x, pow=1, dim=0),
    "norm_except_dim of a vector": lambda m, x, y: m.norm_except_dim(x[0], 2, 0),
    "norm_except_dim nowhere": lambda m, x, y: m.norm_except_dim(x, 2, 9),
    "window of -1": lambda m, x, y: m.hann_window(-1),
    "window of integers": lambda m, x, y: m.kaiser_window(3, dtype=m.int64),
    "window of a fraction": lambda m, x, y: m.blackman_window(3.0),
    "window, gradient": lambda m, x, y: m.bartlett_window(3, requires_grad=True).requires_grad,
    "window of half": lambda m, x, y: m.hamming_window(5, dtype=m.float16).dtype == m.float16,
    "range to nothing": lambda m, x, y: m.range(3, 1),
    "range of step 0": lambda m, x, y: m.range(1, 4, 0),
    "range without end": lambda m, x, y: m.range(4),
    "range to infinity": lambda m, x, y: m.range(0.0, float("inf")),
    "range of bool": lambda m, x, y: m.range(1, 4, dtype=m.bool),
    "range into": lambda m, x, y: m.range(0, 4, out=m.empty(0)),
    "entr's slope": lambda m, x, y: m.special.entr(x.abs()),
    "ndtri's slope": lambda m, x, y: m.special.ndtri(m.special.ndtr(x)),
    "ndtri in the tails": lambda m, x, y: m.special.ndtri(10.0 ** -m.arange(1.0, 38.0, 3.0, device=x.device)),
    "modified_bessel_i0": lambda m, x, y: m.special.modified_bessel_i0(x.detach()),
    "modified_bessel_i1": lambda m, x, y: m.special.modified_bessel_i1(x.detach()),
    "polynomial of a number": lambda m, x, y: m.special.legendre_polynomial_p(0.5, m.arange(4, device=x.device)),
    "polynomial of degree -1": lambda m, x, y: m.special.hermite_polynomial_h(x.detach(), -1),
    "polynomial of degree 2.7": lambda m, x, y: m.special.laguerre_polynomial_l(x.detach(), 2.7),
    "polynomial of degree 12": lambda m, x, y: m.special.chebyshev_polynomial_t(x.detach() / 4, 12),
    "polynomial of integers": lambda m, x, y: m.special.chebyshev_polynomial_u(m.arange(4, device=x.device), 3),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore")
def test_values_gradients_and_errors(name: str, device: str) -> None:
    agree(told(lucid, device, CALLS[name]), told(torch, "cpu", CALLS[name]))


@pytest.mark.parametrize("device", DEVICES)
def test_native_dropout_says_what_it_kept(device: str) -> None:
    x = lucid.arange(1.0, 1001.0, device=device).requires_grad_()
    y, kept = lucid.native_dropout(x, 0.25, True)
    assert kept.dtype == lucid.bool and not kept.requires_grad and 600 < kept.sum().item() < 900
    np.testing.assert_allclose(
        to_numpy(y.detach()), to_numpy(x.detach()) * to_numpy(kept) / 0.75, rtol=TABLE["rounding"].rtol
    )
    y.sum().backward()
    np.testing.assert_allclose(to_numpy(x.grad), to_numpy(kept) / 0.75, rtol=TABLE["rounding"].rtol)


@pytest.mark.parametrize("device", DEVICES)
def test_native_batch_norm_moves_the_statistics(device: str) -> None:
    def run(m: Any, d: str) -> Any:
        mean, var = m.zeros(3, device=d), m.ones(3, device=d)
        m.native_batch_norm(m.arange(12.0, device=d).reshape(4, 3), None, None, mean, var, True, 0.5, 1e-5)
        return mean.tolist(), var.tolist()

    np.testing.assert_allclose(run(lucid, device), run(torch, "cpu"), rtol=TABLE["few ops"].rtol)


def test_get_device() -> None:
    assert lucid.get_device(lucid.ones(2)) == torch.get_device(torch.ones(2)) == -1
    assert lucid.get_device(lucid.ones(2, device="gpu")) == 0


def test_switches() -> None:
    for m in (lucid, torch):
        L: Any = m
        assert L.is_anomaly_enabled() is False
        L.set_anomaly_enabled(True, False)
        assert (L.is_anomaly_enabled(), L.is_anomaly_check_nan_enabled()) == (True, False)
        L.set_anomaly_enabled(False)
        assert L.is_anomaly_enabled() is False
        assert L.is_autocast_cpu_enabled() is False
        with L.autocast("cpu"):
            assert L.is_autocast_cpu_enabled() is True
        L.set_autocast_cpu_enabled(True)
        assert L.is_autocast_enabled("cpu") is True
        L.set_autocast_cpu_enabled(False)
        assert (L.get_autocast_cpu_dtype(), L.get_autocast_gpu_dtype()) == (L.bfloat16, L.float16)
        with pytest.raises(TypeError):
            L.set_autocast_cpu_enabled(1)
        assert L.set_flush_denormal(False) is True
        with pytest.raises(RuntimeError):
            L.set_flush_denormal(1)
        assert L.get_deterministic_debug_mode() == 0
        for mode, number in (("warn", 1), (2, 2), ("default", 0)):
            L.set_deterministic_debug_mode(mode)
            assert L.get_deterministic_debug_mode() == number
        for bad, kind in (("x", RuntimeError), (3, RuntimeError), (1.5, TypeError)):
            with pytest.raises(kind):
                L.set_deterministic_debug_mode(bad)


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.sym_int(-2.7),
        lambda m: m.sym_int("3"),
        lambda m: m.sym_float(3),
        lambda m: m.sym_not(0),
        lambda m: m.sym_ite(True, 2, 3),
        lambda m: m.sym_max(1, 2.0),
        lambda m: m.sym_max(2, 1.0),
        lambda m: m.sym_max(True, 1),
        lambda m: m.sym_min(2, 1),
        lambda m: m.sym_min(np.float32(2), 1),
        lambda m: m.sym_sum([1, 2, 3]),
        lambda m: m.sym_sum(1, 2.5),
        lambda m: m.sym_sum(()),
        lambda m: m.sym_sqrt(2),
        lambda m: m.sym_sqrt(-1),
    ],
)
def test_symbols_are_numbers(call: Callable[[Any], Any]) -> None:
    def told(m: Any) -> Any:
        try:
            value = call(m)
        except ValueError:
            return ValueError
        return value, type(value)

    assert told(lucid) == told(torch)


def test_symbols_of_other_kinds_are_refused() -> None:
    for call in (
        lambda m: m.sym_ite(1, 2, 3),
        lambda m: m.sym_ite(True, 2, 3.0),
        lambda m: m.sym_max("a", 1),
        lambda m: m.sym_min(1, None),
    ):
        with pytest.raises(TypeError):
            call(lucid)
        with pytest.raises(AssertionError):
            call(torch)


@pytest.mark.parametrize("name", ["DoubleTensor", "HalfTensor", "BFloat16Tensor", "LongTensor", "BoolTensor", "Tensor"])
@pytest.mark.parametrize("by_name", [False, True])
def test_default_tensor_types(name: str, by_name: bool) -> None:
    def told(m: Any) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                m.set_default_tensor_type(f"torch.{name}" if by_name else getattr(m, name))
            return str(m.tensor([1.0]).dtype).rpartition(".")[2], str(m.zeros(2).device)
        except TypeError:
            return TypeError
        finally:
            m.set_default_dtype(m.float32)

    assert told(lucid) == told(torch)


@pytest.fixture
def each_time() -> Iterator[None]:
    """What is warned of once in a process is warned of each time."""
    lucid.set_warn_always(True)
    yield
    lucid.set_warn_always(False)


def test_default_tensor_types_on_the_gpu_device_and_their_warning(each_time: None) -> None:
    try:
        with pytest.warns(UserWarning, match="deprecated"):
            lucid.set_default_tensor_type(lucid.ones(1, device="gpu").type())
        assert lucid.ones(1).device == lucid.device("gpu")
    finally:
        lucid.set_default_device("cpu")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["int64", "int8", "bool", "complex64"])
@pytest.mark.parametrize("kind", ["avg", "max"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_adaptive_pools_refuse_what_pytorchs_refuse(n: int, kind: str, dtype: str, device: str) -> None:
    for m, d in ((lucid, device), (torch, "cpu")):
        x = m.ones([4] * (n + 2), device=d).to(getattr(m, dtype))
        with pytest.raises(NotImplementedError):
            getattr(m.nn.functional, f"adaptive_{kind}_pool{n}d")(x, 2)
