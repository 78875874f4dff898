"""Batches in memory that a GPU reads without a copy, which no memory here is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import lucid
from lucid.utils.data._collate import _mapping, _sequence


def pin_memory(data: Any, device: Any = None) -> Any:
    """A nest whose tensors, and objects that have it, `pin_memory()` was called of, as a `DataLoader` of PyTorch does.

    A tensor's gives the tensor. `device` has no effect, as in PyTorch.
    """
    if isinstance(data, lucid.Tensor) or hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, str | bytes):
        return data
    if isinstance(data, Mapping):
        return _mapping(data, lambda key: pin_memory(data[key]))
    if isinstance(data, tuple):
        made = [pin_memory(d) for d in data]
        return type(data)(*made) if hasattr(data, "_fields") else type(data)(made)
    if isinstance(data, Sequence):
        return _sequence(data, [pin_memory(d) for d in data])
    return data
