"""`out=` for each row of the op table: the functions that write to one are PyTorch's, and no others."""

from __future__ import annotations

import warnings
from typing import Any

import lucid
import pytest
import torch

from tests.python.limitations import OUT_ARGUMENTS
from tests.python.parity.api.test_none_arguments_parity import found, value
from tests.python.samples import Sample, rows, samples

ROWS = [r for r in rows() if r["torch"] != "-" and r["samples"] and not r["torch"].startswith("Tensor.")]


def made_by(f: Any, path: str, sample: Sample, out: Any) -> Any:
    """What the call makes, or what it raises; `out` makes tensors to write to of a result."""
    args, kwargs = [value(a, f) for a in sample.args], {k: value(v, f) for k, v in sample.kwargs.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = found(f, path)(*args, **kwargs)
        except Exception:
            return None
        try:
            found(f, path)(*args, **kwargs, out=out(f, made))
        except Exception as error:
            return error
    return "written"


def like(f: Any, made: Any) -> Any:
    if isinstance(made, (tuple, list)):
        return tuple(like(f, m) for m in made)
    return f.empty(0, dtype=made.dtype) if isinstance(made, f.Tensor) else None


@pytest.mark.parametrize("row", ROWS, ids=[r["name"] for r in ROWS])
def test_out_is_taken_where_pytorch_takes_it(row: dict[str, Any]) -> None:
    path = row["torch"]
    if row["name"] in OUT_ARGUMENTS or not found(torch, path) or not found(lucid, path):
        return
    for sample in list(samples(row, "cpu"))[:6]:
        if "out" in sample.kwargs:
            continue
        for out in (like, lambda f, made: None):
            theirs, ours = (made_by(f, path, sample, out) for f in (torch, lucid))
            if theirs is None or ours is None:
                continue
            wrong = f"PyTorch: {theirs!r}, here: {ours!r}"
            assert isinstance(theirs, TypeError) == isinstance(ours, TypeError), wrong


@pytest.mark.parametrize("name", ["sum", "prod", "median", "nanmedian", "argsort"])
def test_out_goes_with_the_argument_that_its_overload_has(name: str) -> None:
    def refusal(f: Any, **named: Any) -> Exception | None:
        x = f.tensor([[3.0, 1.0], [2.0, 4.0]])
        out = {
            "median": lambda: (f.empty(0), f.empty(0, dtype=f.int64)),
            "argsort": lambda: f.empty(0, dtype=f.int64),
        }.get(name.removeprefix("nan"), lambda: f.empty(0))()
        try:
            made = getattr(f, name)(x, out=out, **named)
        except Exception as error:
            return error
        assert made is out or isinstance(out, tuple)
        return None

    for named in ({}, {"dim": 1}, {"stable": True} if name == "argsort" else {"dim": 0, "keepdim": True}):
        theirs, ours = refusal(torch, **named), refusal(lucid, **named)
        assert type(theirs) is TypeError and isinstance(ours, TypeError) if theirs else ours is None, named
