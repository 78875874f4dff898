"""Reads and writes at indices where nothing is read or written, which PyTorch does not look at: beside PyTorch."""

from __future__ import annotations

import itertools
from typing import Any

import lucid
import pytest
import torch

SHAPES = [(0, 0), (0, 3), (3, 0), (0, 0, 2), (2, 0, 3), (2, 0, 0), (0,)]
ALL = slice(None)
KEYS = [
    *([one] for one in ([1], [0], [5], [-9], [], [[1, 2]])),
    *([ALL, one] for one in ([1], [5], [-9], [1, 2], [])),
    *([[1], [1]], [[], [1]], [[1], []], [..., [1]], [[1], ALL], [ALL, ALL, [1]], [ALL, [5, 1], [0, 1]]),
    [[1], ALL, [1]],
]


def outcome(call: Any) -> Any:
    """The shape of what a call gives, or its error."""
    try:
        made = call()
    except Exception as e:
        return e
    return None if made is None else tuple(made.shape)


def same(call: Any, device: str) -> None:
    """`call` takes the package and the keywords for making a tensor."""
    theirs, ours = outcome(lambda: call(torch, {})), outcome(lambda: call(lucid, {"device": device}))
    if isinstance(theirs, RuntimeError) and "setStorage" in str(theirs):
        # PyTorch finds by accident that there is no such place; here the error says so.
        assert isinstance(ours, IndexError), ours
    elif isinstance(theirs, Exception):
        assert isinstance(ours, type(theirs)), (ours, theirs)
    else:
        assert ours == theirs


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_keys_into_nothing(shape: tuple[int, ...], device: str) -> None:
    for key, kind in itertools.product(KEYS, ["read", "number", "tensor", "method"]):
        if sum(k is not ... for k in key) > len(shape):
            continue

        def call(m: Any, k: Any, key: Any = key, kind: str = kind) -> Any:
            x = m.zeros(shape, **k)
            if kind == "read":
                return x[tuple(key)]
            if kind == "method":
                if any(p is ... or p == ALL for p in key):
                    return x
                at = tuple(m.tensor(p, dtype=m.int64, **k) for p in key)
                return x.index_put_(at, m.tensor(1.0, **k))
            x[tuple(key)] = 7.0 if kind == "number" else m.ones(1, **k)
            return x

        same(call, device)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_number_written_to_nothing_is_recorded(device: str) -> None:
    def call(m: Any, k: Any) -> tuple[Any, ...]:
        leaf = m.ones(0, 0, requires_grad=True, **k)
        x = leaf * 2
        x[:, [1]] = 7.0
        x.sum().backward()
        return tuple(leaf.grad.shape), x._version, x.requires_grad

    assert call(lucid, {"device": device}) == call(torch, {})


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_gradient_of_a_read_that_nothing_reads(device: str) -> None:
    def call(m: Any, k: Any) -> Any:
        leaf = m.ones(3, 0, requires_grad=True, **k)
        made = leaf[[], [1]]
        made.sum().backward()
        return tuple(made.shape), tuple(leaf.grad.shape)

    assert call(lucid, {"device": device}) == call(torch, {})


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_number_that_does_not_fit_is_still_refused(device: str) -> None:
    def call(m: Any, k: Any) -> Any:
        x = m.zeros(0, 0, dtype=m.uint8, **k)
        x[:, [1]] = -1000

    same(call, device)
