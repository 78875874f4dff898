"""Forward mode over every row of the op table, against differentiating twice in reverse."""

from __future__ import annotations

from typing import Any

import lucid
import lucid.autograd.forward_ad as fwd
import numpy as np
import pytest
from lucid import func

from tests.python import tolerances
from tests.python.samples import Sample
from tests.python.unit.test_table import numbers
from tests.python.unit.test_vmap_table import DEVICES, ROWS, called, differentiable, name_of, tensor, variants


def drawn(row: Any, device: str) -> list[tuple[Sample, list[Any], list[int]]]:
    """Samples with their tensors and which of these may have tangents."""
    found = []
    for text in row["samples"]:
        (sample,) = variants(row, text, 1)
        if not sample.fits(device) or not sample.tensors():
            continue
        tensors = [tensor(d, d.values, device) for d in sample.tensors()]
        places = differentiable([sample], tensors)
        if places:
            found.append((sample, tensors, places))
    return found


def direction(x: lucid.Tensor, i: int) -> lucid.Tensor:
    steps = np.cos(np.arange(x.numel()) + i).reshape(tuple(x.shape)).astype(np.float32)
    # What is computed of complex numbers moves in both parts.
    return lucid.tensor(steps, device=x.device).to(x.dtype) * (1 - 0.5j if x.is_complex() else 1)


def outputs(row: Any, sample: Sample, tensors: list[Any], places: list[int], given: Any) -> list[Any]:
    """The differentiable results with these in the places of the tensors."""
    own = list(tensors)
    for i, x in zip(places, given, strict=True):
        own[i] = x
    made = called(row, sample, own)
    return [y for y in made if isinstance(y, lucid.Tensor) and (y.is_floating_point() or y.is_complex())]


def agree(got: Any, wanted: Any, where: str) -> None:
    rtol, atol = tolerances.backward("float32")
    want = numbers(wanted)
    have = np.zeros_like(want) if got is None else numbers(got)
    # Sums of large terms of both signs are as exact as the terms.
    size = np.abs(want[np.isfinite(want)]).max(initial=1.0)
    np.testing.assert_allclose(have, want, rtol, atol * size, err_msg=where)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("row", [r for r in ROWS if r["differentiable"]], ids=name_of)
def test_tangents_agree_with_differentiating_twice(row: Any, device: str) -> None:
    for sample, tensors, places in drawn(row, device):
        primals = tuple(tensors[i] for i in places)
        steps = tuple(direction(x, i) for i, x in enumerate(primals))

        def f(*given: Any, case: Any = (sample, tensors, places)) -> tuple[Any, ...]:
            lucid.manual_seed(0)
            return tuple(outputs(row, *case, given))

        if not f(*primals):
            continue
        values, wanted = func.jvp(f, primals, steps)
        with fwd.dual_level():
            unpacked = [fwd.unpack_dual(y) for y in f(*map(fwd.make_dual, primals, steps))]
        for (value, tangent), y, v in zip(unpacked, values, wanted, strict=True):
            agree(value, y, sample.text)
            agree(tangent, v, sample.text)
