"""Datasets, samplers, collation and loaders against PyTorch: same structures, values, dtypes, lengths and error
kinds."""

from __future__ import annotations

import inspect
from collections import OrderedDict, namedtuple
from typing import Any

import lucid
import numpy as np
import pytest
import torch
from lucid.utils import data as ours
from torch.utils import data as theirs

Point = namedtuple("Point", "x y")


class Bag(dict[str, Any]):
    """A mapping type of its own."""


def plain(value: Any) -> Any:
    """The same for both libraries: tensors by dtype, shape and elements."""
    if isinstance(value, lucid.Tensor | torch.Tensor):
        dtype = repr(value.dtype).split(".")[1]
        return "tensor", dtype, tuple(value.shape), value.tolist()
    if isinstance(value, dict):
        return type(value), {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return "array", value.tolist()
    return type(value), value


def outcome(f: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        return plain(f(*args, **kwargs))
    except Exception as e:
        builtin = next(c for c in type(e).__mro__ if c.__module__ == "builtins")
        return "raises", builtin


CASES = [
    lambda lib: [1, 2],
    lambda lib: [1, 2.5],
    lambda lib: [1.5, 2],
    lambda lib: [True, False],
    lambda lib: [1 + 2j],
    lambda lib: ["a", "b"],
    lambda lib: [b"a"],
    lambda lib: [None],
    lambda lib: [lib.ones(2), lib.zeros(2)],
    lambda lib: [lib.ones(2), lib.zeros(3)],
    lambda lib: [lib.ones(2), 1],
    lambda lib: [lib.tensor(1), lib.tensor(2)],
    lambda lib: [np.ones((2, 3), "float16")] * 2,
    lambda lib: [np.float32(1), np.float32(2)],
    lambda lib: [np.int8(1)],
    lambda lib: [np.bool_(True)],
    lambda lib: [np.float64(1), 2.0],
    lambda lib: [np.array("a")],
    lambda lib: [np.array([object()])],
    lambda lib: [np.str_("a")],
    lambda lib: [{"a": 1, "b": [1.0, (2, "s")]}, {"a": 3, "b": [4.0, (5, "t")]}],
    lambda lib: [{"a": 1}, {"b": 1}],
    lambda lib: [Point(1, lib.ones(1)), Point(2, lib.zeros(1))],
    lambda lib: [OrderedDict(a=1), OrderedDict(a=2)],
    lambda lib: [Bag(a=1), Bag(a=2)],
    lambda lib: [[1, 2], [3, 4]],
    lambda lib: [(1, 2), (3, 4)],
    lambda lib: [(1, 2), (3,)],
    lambda lib: [[], []],
    lambda lib: [range(3), range(3)],
    lambda lib: [],
    lambda lib: [{1, 2}],
]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_collate_and_convert(case: Any) -> None:
    for name in ("default_collate", "default_convert"):
        mine = outcome(getattr(ours, name), case(lucid))
        reference = outcome(getattr(theirs, name), case(torch))
        if name == "default_convert" and isinstance(case(lucid), list) and "object" in repr(case(lucid)):
            # Arrays of objects are left alone, and compare by identity.
            continue
        assert mine == reference


def test_signatures() -> None:
    for name in (
        "DataLoader",
        "RandomSampler",
        "WeightedRandomSampler",
        "SubsetRandomSampler",
        "BatchSampler",
        "DistributedSampler",
        "random_split",
        "collate" if hasattr(theirs, "collate") else "default_collate",
    ):
        mine = inspect.signature(getattr(ours, name)).parameters
        reference = inspect.signature(getattr(theirs, name)).parameters
        shared = {k: (v.kind, v.default) for k, v in mine.items() if k != "worker_type"}
        wanted = {k: (v.kind, v.default) for k, v in reference.items()}
        if name == "random_split":
            # PyTorch's default is its global generator object; None means the same here.
            shared.pop("generator")
            wanted.pop("generator")
        assert list(shared.items()) == list(wanted.items()), name
    assert {n for n in theirs.__all__ if n in dir(ours)} >= {"DataLoader", "Dataset", "get_worker_info"}


class Ours(ours.IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(7))


class Theirs(theirs.IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(7))


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"batch_size": 3},
        {"batch_size": 3, "drop_last": True},
        {"batch_size": None},
        {"batch_size": 2, "sampler": [3, 1, 2]},
        {"batch_sampler": [[1, 2], [0]]},
        {"batch_size": 10},
        {"batch_size": 10, "drop_last": True},
    ],
)
def test_batches(kwargs: dict[str, Any]) -> None:
    rows = list(range(10, 17))
    mine, reference = ours.DataLoader(rows, **kwargs), theirs.DataLoader(rows, **kwargs)
    assert len(mine) == len(reference)
    assert [plain(b) for b in mine] == [plain(b) for b in reference]
    if "sampler" not in kwargs and "batch_sampler" not in kwargs:
        assert [plain(b) for b in ours.DataLoader(Ours(), **kwargs)] == [
            plain(b) for b in theirs.DataLoader(Theirs(), **kwargs)
        ]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("n", [1, 2, 5, 10, 12])
@pytest.mark.parametrize("replicas", [1, 2, 3, 5])
def test_distributed_sampler(n: int, replicas: int, drop_last: bool) -> None:
    for rank in range(replicas):
        args = (range(n), replicas, rank, False, 0, drop_last)
        mine, reference = ours.DistributedSampler(*args), theirs.DistributedSampler(*args)  # type: ignore[arg-type]
        assert (len(mine), list(mine)) == (len(reference), list(reference))


@pytest.mark.parametrize("lengths", [[3, 7], [0.5, 0.5], [0.33, 0.33, 0.34], [0.1] * 10, [10], [0, 10], [0.25, 0.25]])
def test_random_split_lengths(lengths: list[Any]) -> None:
    def sizes(lib: Any) -> Any:
        return [len(p) for p in lib.random_split(range(10), lengths)]

    assert outcome(sizes, ours) == outcome(sizes, theirs)
