"""`None` for each argument of each row of the op table: it is taken where PyTorch takes it, by position and by name, in
the function, the method and the in-place method."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.limitations import NONE_ARGUMENTS
from tests.python.samples import Data, DType, Sample, rows, samples

ROWS = [r for r in rows() if r["torch"] != "-" and r["samples"] and r["family"] != "random"]


def value(x: Any, f: Any) -> Any:
    """A sample's argument for one framework."""
    if isinstance(x, Data):
        return f.tensor(x.values.astype(np.float32) if x.varies else x.values)
    if isinstance(x, DType):
        return getattr(f, x.name)
    return [value(y, f) for y in x] if isinstance(x, list) else x


def found(f: Any, path: str) -> Any:
    for part in path.split("."):
        f = getattr(f, part, None)
    return f


def forms(row: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """The names under which both frameworks have the op, and whether it is a method."""
    name = row["torch"].removeprefix("Tensor.")
    if not row["torch"].startswith("Tensor.") and found(torch, name) and found(lucid, name):
        yield name, False
    for method in (name, name + "_"):
        if "." not in method and all(callable(getattr(f.Tensor, method, None)) for f in (torch, lucid)):
            yield method, True


def refusal(f: Any, form: tuple[str, bool], args: list[Any], kwargs: dict[str, Any]) -> Exception | None:
    given, named = [value(a, f) for a in args], {k: value(v, f) for k, v in kwargs.items()}
    call = found(f, form[0]) if not form[1] else getattr(given.pop(0), form[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call(*given, **named)
        except Exception as error:
            return error
    return None


def trials(row: dict[str, Any], sample: Sample, method: bool) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """The sample's call with one `None` in it."""
    args, kwargs = list(sample.args), dict(sample.kwargs)
    names = [p["name"] for p in row["params"]]
    for i in range(int(method), len(args)):
        yield [*args[:i], None, *args[i + 1 :]], kwargs
        if i < len(names):
            yield args[:i], {**kwargs, names[i]: None}
    if len(args) < sum(not p["keyword_only"] for p in row["params"]):
        yield [*args, None], kwargs
    for name in names[len(args) :]:
        yield args, {**kwargs, name: None}


@pytest.mark.parametrize("row", [r for r in ROWS if r["name"] not in NONE_ARGUMENTS], ids=lambda r: str(r["name"]))
def test_none_is_taken_where_pytorch_takes_it(row: dict[str, Any]) -> None:
    for form in forms(row):
        for sample in list(samples(row))[:4]:
            if form[1] and not (sample.args and isinstance(sample.args[0], Data)):
                continue
            args, kwargs = list(sample.args), dict(sample.kwargs)
            if refusal(torch, form, args, kwargs) or refusal(lucid, form, args, kwargs):
                continue
            for args, kwargs in trials(row, sample, form[1]):
                theirs, ours = refusal(torch, form, args, kwargs), refusal(lucid, form, args, kwargs)
                assert (theirs is None) == (ours is None), (form, args, kwargs, theirs, ours)
                # PyTorch's own Python may fall over None with an error of any kind.
                assert ours is None or isinstance(ours, (lucid.errors.LucidError, TypeError)), ours
