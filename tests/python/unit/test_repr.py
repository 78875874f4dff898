"""How tensors print. The expected texts are PyTorch's, with the names of this package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree

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
    with pytest.warns(UserWarning, match="default, short, full"):
        lucid.set_printoptions(profile="long")
    assert repr(lucid.tensor([1.5])) == "tensor([1.5000])"


def test_printing_leaves_no_trace_on_the_tape() -> None:
    x = lucid.ones(2000, requires_grad=True)
    repr(x * 2)
    assert lucid.is_grad_enabled()
    x.sum().backward()
    assert x.grad is not None


HTML: dict[str, Callable[[], lucid.Tensor]] = {
    "a number": lambda: lucid.tensor(2),
    "a vector that requires gradients": lambda: lucid.arange(3.0).requires_grad_(),
    "a result": lambda: lucid.arange(3.0).requires_grad_() * 2,
    "a matrix with NaN": lambda: lucid.tensor([[1.0, float("nan")], [float("-inf"), 2.0]]),
    "truths": lambda: lucid.tensor([[True], [False]]),
    "complex numbers": lambda: lucid.tensor([[1 + 2j, -1j]]),
    "no elements": lambda: lucid.zeros(0, 3),
    "three dimensions": lambda: lucid.ones(2, 1, 2),
    "a sparse matrix": lambda: lucid.eye(2).to_sparse(),
    "a large matrix": lambda: lucid.arange(2500).reshape(50, 50),
    "a wide one": lambda: lucid.ones(2, 600),
    "on the gpu device": lambda: lucid.arange(4.0, device="gpu").reshape(2, 2),
}


@pytest.mark.parametrize("case", HTML)
def test_html_is_well_formed_and_shows_what_is_there(case: str) -> None:
    t = HTML[case]()
    root = ElementTree.fromstring(f"<div>{t._repr_html_()}</div>")
    facts = "".join(root[0].itertext())
    assert f"shape {tuple(t.shape)}" in facts
    assert ("requires_grad" in facts) is t.requires_grad
    if t.is_sparse or t.ndim > 2 or t.numel() == 0:
        # As it is printed, whatever signs of markup that has.
        assert root[1].tag == "pre"
        assert root[1].text == repr(t)
        return
    rows = root.findall("table/tbody/tr")
    edges = 7 if t.numel() > 1000 else 10**9  # three at each end, and what stands for the rest
    height, width = (1, t.numel()) if t.ndim < 2 else t.shape
    assert len(rows) == min(height, edges)
    assert {len(row.findall("td")) for row in rows} == {min(width, edges)}
    assert len(root.findall("table/thead/tr/th")) == 1 + min(width, edges)
    if t.numel() <= 1000 and t.dtype == lucid.int64:
        assert [int("".join(cell.itertext())) for cell in root.iter("td")] == t.reshape(-1).tolist()


def test_html_escapes_names() -> None:
    class Odd(lucid.Tensor):
        pass

    Odd.__name__ = "<b>&"
    t = lucid.ones(2).as_subclass(Odd) if hasattr(lucid.Tensor, "as_subclass") else Odd(lucid.ones(2))
    root = ElementTree.fromstring(f"<div>{t._repr_html_()}</div>")
    assert (root[0].findtext("small") or "").startswith("<b>&")
