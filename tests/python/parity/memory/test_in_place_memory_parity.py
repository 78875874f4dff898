"""Where in-place ops and `out=` write: over the tensor's own elements, seen by all that show them."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import TABLE

N = 5003

WRITES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "relu_": lambda m, x, y: x.relu_(),
    "neg_": lambda m, x, y: x.neg_(),
    "exp_": lambda m, x, y: x.exp_(),
    "sigmoid_": lambda m, x, y: x.sigmoid_(),
    "round_": lambda m, x, y: x.round_(),
    "mul_ by a number": lambda m, x, y: x.mul_(3),
    "sub_ a tensor": lambda m, x, y: x.sub_(y),
    "add_ with alpha": lambda m, x, y: x.add_(y, alpha=2),
    "add_ itself with alpha": lambda m, x, y: x.add_(x, alpha=2),
    "mul_ itself": lambda m, x, y: x.mul_(x),
    "div_ rounded": lambda m, x, y: x.div_(y, rounding_mode="floor"),
    "remainder_": lambda m, x, y: x.remainder_(y),
    "pow_ by a tensor": lambda m, x, y: x.abs_().pow_(y),
    "pow_ 2": lambda m, x, y: x.pow_(2),
    "atan2_": lambda m, x, y: x.atan2_(y),
    "add_ of another dtype": lambda m, x, y: x.add_(y.to(m.int32)),
    "addcmul_": lambda m, x, y: x.addcmul_(y, y),
    "clamp_": lambda m, x, y: x.clamp_(-1, 1),
    "lerp_": lambda m, x, y: x.lerp_(y, 0.25),
    "copy_": lambda m, x, y: x.copy_(y),
    "copy_ of another dtype": lambda m, x, y: x.copy_(y.to(m.int32)),
    "zero_": lambda m, x, y: x.zero_(),
    "masked_fill_": lambda m, x, y: x.masked_fill_(y > 0, 7.0),
    "add to out": lambda m, x, y: m.add(x, y, out=x),
    "exp to out": lambda m, x, y: m.exp(y, out=x),
    "sum to out": lambda m, x, y: m.add(x, y.sum(), out=x),
}


def numbers(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(N).astype(np.float32) * 3


@pytest.mark.parametrize(
    ("device", "dtype"),
    [("cpu", "float32"), ("cpu", "float64"), ("cpu", "float16"), ("gpu", "float32"), ("gpu", "float16")],
)
@pytest.mark.parametrize("name", WRITES)
def test_writes_are_seen_by_all_views(name: str, dtype: str, device: str) -> None:
    seen = []
    for m, d in ((lucid, device), (torch, "cpu")):
        x = m.tensor(numbers(0)).to(getattr(m, dtype)).to(d)
        y = m.tensor(numbers(1)).to(getattr(m, dtype)).to(d)
        before, flat = x[7:], x.view(-1, 1)
        version = x._version
        WRITES[name](m, x, y)
        assert x._version > version
        seen.append((x.double() if d == "cpu" else x.float(), before, flat, y))
    for ours, theirs in zip(*seen, strict=True):
        tolerance = TABLE[{"float16": "float16", "float32": "few ops", "float64": "float64 rounding"}[dtype]].rtol
        got, wanted = np.array(ours.tolist()), np.array(theirs.tolist())
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", WRITES)
def test_addresses_stay(name: str) -> None:
    x, y = lucid.tensor(numbers(0)), lucid.tensor(numbers(1))
    shown = x.numpy()
    address = x.data_ptr()
    WRITES[name](lucid, x, y)
    assert x.data_ptr() == address
    np.testing.assert_array_equal(shown, np.array(x.tolist(), dtype=np.float32))


@pytest.mark.parametrize("name", ["relu_", "neg_", "exp_", "mul_ by a number", "sub_ a tensor", "atan2_"])
def test_no_second_tensor_is_made(name: str) -> None:
    x, y = lucid.tensor(numbers(0)), lucid.tensor(numbers(1))
    lucid.reset_peak_memory_stats("cpu")
    before = lucid.memory_stats("cpu")["peak"]
    WRITES[name](lucid, x, y)
    assert lucid.memory_stats("cpu")["peak"] - before < x.nbytes // 2


def test_parts_are_written_alone() -> None:
    for m in (lucid, torch):
        x = m.arange(12.0).reshape(3, 4)
        x[1].mul_(10)
        x[:, 2].neg_()
        x[0, :2].add_(x[2, 2:])
        x.T.add_(m.arange(3.0))
        assert x.tolist() == [[-10.0, 12.0, -2.0, 3.0], [41.0, 51.0, -59.0, 71.0], [10.0, 11.0, -8.0, 13.0]]


def test_a_write_that_fails_leaves_the_elements() -> None:
    x = lucid.tensor([7, 8, 9])
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        x.floor_divide_(lucid.tensor([1, 0, 2]))
    with pytest.raises(RuntimeError):
        x.mul_(1.5)
    with pytest.raises(RuntimeError):
        x.add_(lucid.ones(2, 3, dtype=lucid.int64))
    with lucid.inference_mode():
        inside = lucid.ones(3)
    with pytest.raises(RuntimeError):
        inside.relu_()
    leaf = lucid.tensor([-1.0], requires_grad=True)
    with pytest.raises(RuntimeError):
        leaf.relu_()
    frozen = np.array([-1.0, 2.0], dtype=np.float32)
    frozen.flags.writeable = False
    with warnings.catch_warnings(), pytest.raises(RuntimeError):
        warnings.simplefilter("ignore")  # Told once a process: another test may have been first.
        lucid.from_numpy(frozen).relu_()
    assert (x.tolist(), inside.tolist(), leaf.tolist(), frozen.tolist()) == ([7, 8, 9], [1.0] * 3, [-1.0], [-1.0, 2.0])


@pytest.mark.parametrize("write", ["copy_", "add_", "index_copy_"])
def test_threads_that_write_to_and_fro_end(write: str) -> None:
    x, y = lucid.zeros(2000), lucid.zeros(2000)
    all_rows = lucid.arange(2000)

    def go(to: Any, source: Any) -> None:
        for _ in range(300):
            if write == "index_copy_":
                to.index_copy_(0, all_rows, source)
            else:
                getattr(to, write)(source)

    # Daemons, so that a test that fails ends.
    pair = [threading.Thread(target=go, args=args, daemon=True) for args in ((x, y), (y, x))]
    for thread in pair:
        thread.start()
    for thread in pair:
        thread.join(60)
        assert not thread.is_alive()
