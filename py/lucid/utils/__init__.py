"""Tools around tensors and training: data loading, checkpointing, DLPack, hooks."""

from __future__ import annotations

import importlib
from typing import Any

from lucid._absent import missing

_MODULES = (
    *("_pytree", "benchmark", "checkpoint", "collect_env", "cpp_extension", "data", "deterministic", "dlpack"),
    *("flop_counter", "hooks", "model_zoo", "tensorboard"),
)


def __getattr__(name: str) -> Any:
    """Loads the modules when they are first asked for."""
    if name in ("ModelSummary", "summary"):
        return getattr(importlib.import_module("lucid.utils._summary"), name)
    if name == "swap_tensors":
        return importlib.import_module("lucid.utils._swap").swap_tensors
    if name not in _MODULES:
        raise missing("lucid.utils", name)
    return importlib.import_module(f"lucid.utils.{name}")
