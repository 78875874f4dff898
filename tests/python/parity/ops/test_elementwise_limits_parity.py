"""Element-wise ops at the limits of every dtype against PyTorch: the smallest and largest integers, wrapping, division
by zero; NaN, infinities, both zeros, subnormals and the largest numbers of the floating dtypes that are not float32."""

from __future__ import annotations

from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python import limitations
from tests.python.parity.ops.test_table_parity import ROWS, compare, name_of
from tests.python.samples import Data, Sample, samples

FAMILIES = ("unary", "binary", "pointwise", "compare", "select")
EDGES = [r for r in ROWS if r["family"] in FAMILIES]


def with_values(sample: Sample, values: np.ndarray, seed: int) -> Sample:
    rng = np.random.default_rng(seed)

    def pick(d: Data) -> Data:
        return Data(rng.choice(values, d.values.shape)) if d.varies else d

    args, kwargs = sample.map(pick)
    return Sample(f"edges {sample.text}", tuple(args), kwargs)


def beyond(row: Any, device: str, dtype: str, ends: str) -> bool:
    """Is it a known gap?"""
    return any(limitations.known(row["name"], device, d) for d in (dtype, "special", ends))


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("row", EDGES, ids=name_of)
def test_ends_of_integers(row: Any, device: str) -> None:
    for dtype in ("uint8", "int8", "int16", "int32", "int64"):
        if dtype not in row["dtypes"] or beyond(row, device, dtype, "ends of integers"):
            continue
        info = torch.iinfo(getattr(torch, dtype))
        values = np.array([info.min, info.max, 0, 1, 2, 7, info.max if info.min == 0 else -1, info.max // 2])
        for zero in (False, True):
            chosen = values if zero else values[values != 0]
            for seed, sample in enumerate(samples(row, device, integers=True)):
                compare(row, with_values(sample, chosen, seed), dtype, "contiguous", device, grad=False)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("row", EDGES, ids=name_of)
def test_ends_of_floats(row: Any, device: str) -> None:
    for dtype in ("float64", "float16", "bfloat16"):
        if dtype not in row["dtypes"] or (device == "gpu" and dtype == "float64"):
            continue
        if beyond(row, device, dtype, "ends of floats"):
            continue
        info = torch.finfo(getattr(torch, dtype))
        values = np.array(
            [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, info.max, info.min, info.tiny, 7.0]
        )
        for seed, sample in enumerate(samples(row, device)):
            compare(row, with_values(sample, values, seed), dtype, "contiguous", device, grad=False)


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("r", [0, 1, 3, 4, 10, 2**40])
def test_more_places_than_elements_give_no_combinations(r: int, replacement: bool) -> None:
    for n in (0, 1, 3):
        if replacement and n and r > 10:
            continue
        ours = lucid.combinations(lucid.arange(n), r=r, with_replacement=replacement)
        if r > 10:
            assert tuple(ours.shape) == (0, r)
            continue
        theirs = torch.combinations(torch.arange(n), r=r, with_replacement=replacement)
        assert (ours.tolist(), tuple(ours.shape)) == (theirs.tolist(), tuple(theirs.shape))
