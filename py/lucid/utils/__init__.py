"""Tools around tensors and training: data loading, checkpointing, DLPack."""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    """Loads `checkpoint`, `data` and `dlpack` when they are first asked for."""
    if name not in ("checkpoint", "data", "dlpack"):
        raise AttributeError(f"module 'lucid.utils' has no attribute {name!r}")
    return importlib.import_module(f"lucid.utils.{name}")
