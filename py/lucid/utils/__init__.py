"""Tools around tensors and training: data loading, checkpointing, DLPack, hooks."""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    """Loads the modules when they are first asked for."""
    if name not in ("_pytree", "checkpoint", "data", "dlpack", "hooks"):
        raise AttributeError(f"module 'lucid.utils' has no attribute {name!r}")
    return importlib.import_module(f"lucid.utils.{name}")
