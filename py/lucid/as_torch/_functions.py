"""Functions of `torch` that are Python's there, and of which packages ask what a built-in function does not tell."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import overrides


def meshgrid(*tensors: Any, indexing: str | None = None) -> Any:
    """`lucid.meshgrid`, which MONAI asks for `__kwdefaults__` before it names `indexing`."""
    flat = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    if overrides.has_torch_function(flat):
        return overrides.handle_torch_function(meshgrid, flat, *tensors, indexing=indexing)
    return lucid.meshgrid(*tensors, **({} if indexing is None else {"indexing": indexing}))
