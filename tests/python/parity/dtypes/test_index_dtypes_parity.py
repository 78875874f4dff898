"""Which dtypes each op takes its indices and classes in, and what it raises for the others: as PyTorch, op by op."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import lucid
import pytest
import torch

DTYPES = ("int64", "int32", "int16", "int8", "uint8", "bool", "float32", "complex64")


def square(f: Any, device: str) -> Any:
    return f.ones(4, 4, device=device)


#: Each takes the framework, a tensor of four by four and an index tensor of one zero.
CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "gather": lambda f, x, i: x.gather(0, i.reshape(1, 1)),
    "scatter": lambda f, x, i: x.scatter(0, i.reshape(1, 1), 1.0),
    "scatter of a tensor": lambda f, x, i: x.scatter(0, i.reshape(1, 1), x),
    "scatter_add": lambda f, x, i: x.scatter_add(0, i.reshape(1, 1), x),
    "scatter_reduce": lambda f, x, i: x.scatter_reduce(0, i.reshape(1, 1), x, "amax"),
    "index_select": lambda f, x, i: x.index_select(0, i),
    "index_copy": lambda f, x, i: x.index_copy(0, i, x[:1]),
    "index_fill": lambda f, x, i: x.index_fill(0, i, 1.0),
    "index_add": lambda f, x, i: x.index_add(0, i, x[:1]),
    "index_reduce": lambda f, x, i: x.index_reduce(0, i, x[:1], "amax"),
    "take": lambda f, x, i: f.take(x, i),
    "put": lambda f, x, i: x.put(i, x[0, :1]),
    "take_along_dim": lambda f, x, i: f.take_along_dim(x, i.reshape(1, 1), 0),
    "indexing": lambda f, x, i: x[:1][i],
    "index_put": lambda f, x, i: x[:1].index_put((i,), x[:1]),
    "embedding": lambda f, x, i: f.nn.functional.embedding(i, x),
    "embedding_bag": lambda f, x, i: f.nn.functional.embedding_bag(i.reshape(1, 1), x),
    "one_hot": lambda f, x, i: f.nn.functional.one_hot(i),
    "bincount": lambda f, x, i: f.bincount(i),
    "repeat_interleave": lambda f, x, i: f.repeat_interleave(x, i, 0),
    "unravel_index": lambda f, x, i: f.unravel_index(i, (2, 2)),
    "nll_loss": lambda f, x, i: f.nn.functional.nll_loss(x[:1], i),
    "multi_margin_loss": lambda f, x, i: f.nn.functional.multi_margin_loss(x[:1], i),
    "multilabel_margin_loss": lambda f, x, i: f.nn.functional.multilabel_margin_loss(x[:1, :1], i.reshape(1, 1)),
    "gather of nothing": lambda f, x, i: x.gather(0, i[:0].reshape(0, 1)),
    "scatter of nothing": lambda f, x, i: x.scatter(0, i[:0].reshape(0, 1), 1.0),
    "index_select of nothing": lambda f, x, i: x.index_select(0, i[:0]),
}


def outcome(name: str, f: Any, dtype: str, device: str) -> Any:
    """The shape of what comes back, or what is raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return tuple(CALLS[name](f, square(f, device), f.zeros(1, device=device).to(getattr(f, dtype))).shape)
        except Exception as error:
            return error


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("name", CALLS)
def test_the_same_dtypes_are_taken(name: str, device: str) -> None:
    for dtype in DTYPES:
        theirs, ours = outcome(name, torch, dtype, "cpu"), outcome(name, lucid, dtype, device)
        if isinstance(theirs, Exception):
            # What PyTorch has no kernel for may be looked at before, here.
            assert isinstance(ours, (type(theirs), lucid.errors.DtypeMismatch)), (dtype, ours)
        else:
            assert ours == theirs, dtype
