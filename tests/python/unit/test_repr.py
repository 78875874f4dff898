"""How tensors print. The expected texts are PyTorch's, with the names of this package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lucid
import pytest

inf, nan = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (1.5, "tensor(1.5000)"),
        (3, "tensor(3)"),
        (True, "tensor(True)"),
        (2j, "tensor(0.+2.j)"),
        ([], "tensor([])"),
        ([0.0, 0.0], "tensor([0., 0.])"),
        ([1.0, 1000.0], "tensor([   1., 1000.])"),
        ([1.0, 1001.0], "tensor([1.0000e+00, 1.0010e+03])"),
        ([1e-5, 1.0], "tensor([1.0000e-05, 1.0000e+00])"),
        ([12345.678, 0.5], "tensor([1.2346e+04, 5.0000e-01])"),
        ([1234.5, 12.25], "tensor([1234.5000,   12.2500])"),
        ([nan, 1.0], "tensor([nan, 1.])"),
        ([inf, -1.5, nan], "tensor([    inf, -1.5000,     nan])"),
        ([0.0, nan], "tensor([0., nan])"),
        (1e10, "tensor(1.0000e+10)"),
        ([[-1, 100], [20, 3]], "tensor([[ -1, 100],\n        [ 20,   3]])"),
        ([[[1.0, 2.0]], [[3.0, 4.0]]], "tensor([[[1., 2.]],\n\n        [[3., 4.]]])"),
        ([1 + 2j, -0.5 - 1j], "tensor([ 1.0000+2.j, -0.5000-1.j])"),
    ],
)
def test_numbers(data: Any, text: str) -> None:
    assert repr(lucid.tensor(data)) == str(lucid.tensor(data)) == text


def test_suffixes() -> None:
    real = lucid.device("gpu").type
    assert repr(lucid.ones(2, dtype=lucid.float16)) == "tensor([1., 1.], dtype=lucid.float16)"
    assert repr(lucid.ones(2, device="gpu")) == f"tensor([1., 1.], device='{real}')"
    assert repr(lucid.ones(2, requires_grad=True)) == "tensor([1., 1.], requires_grad=True)"
    assert repr(lucid.ones(2, requires_grad=True) * 2) == "tensor([2., 2.], grad_fn=<MulBackward0>)"
    assert repr(lucid.zeros(0, 3)) == "tensor([], size=(0, 3))"
    assert repr(lucid.zeros(0, dtype=lucid.int64)) == "tensor([], dtype=lucid.int64)"
    assert repr(lucid.nn.Parameter(lucid.ones(1))) == "Parameter containing:\ntensor([1.], requires_grad=True)"
    t = lucid.full((2,), 1.5, dtype=lucid.float64, requires_grad=True)
    assert repr(t) == "tensor([1.5000, 1.5000], dtype=lucid.float64, requires_grad=True)"


def test_long_lines_break() -> None:
    text = repr(lucid.arange(30).float())
    lines = text.splitlines()
    assert lines[0] == "tensor([ 0.,  1.,  2.,  3.,  4.,  5.,  6.,  7.,  8.,  9., 10., 11., 12., 13.,"
    assert lines[1].startswith("        14., ")
    wide = repr(lucid.ones(12, dtype=lucid.float64, requires_grad=True))
    assert wide.endswith("1.], dtype=lucid.float64,\n       requires_grad=True)")


def test_large_tensors_are_summarised() -> None:
    assert repr(lucid.arange(1001)) == "tensor([   0,    1,    2,  ...,  998,  999, 1000])"
    text = repr(lucid.arange(10000).reshape(100, 100))
    assert text.splitlines()[3] == "        ...,"
    assert len(text.splitlines()) == 7
    assert "..." not in repr(lucid.arange(1000))


@pytest.fixture
def options() -> Iterator[None]:
    yield
    lucid.set_printoptions(profile="default")


def test_options(options: None) -> None:
    lucid.set_printoptions(precision=2)
    assert repr(lucid.tensor([1.2345])) == "tensor([1.23])"
    lucid.set_printoptions(threshold=4, edgeitems=1)
    assert repr(lucid.arange(5)) == "tensor([0,  ..., 4])"
    lucid.set_printoptions(profile="default", sci_mode=True)
    assert repr(lucid.tensor([1.5])) == "tensor([1.5000e+00])"
    with pytest.raises(ValueError):
        lucid.set_printoptions(profile="none")


def test_printing_leaves_no_trace_on_the_tape() -> None:
    x = lucid.ones(2000, requires_grad=True)
    repr(x * 2)
    assert lucid.is_grad_enabled()
    x.sum().backward()
    assert x.grad is not None
