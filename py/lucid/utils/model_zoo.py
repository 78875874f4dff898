"""Weights from the network by their old names, as `torch.utils.model_zoo`; `lucid.hub` has the functions."""

from __future__ import annotations

from typing import Any

from lucid import hub
from lucid.hub import load_state_dict_from_url as load_url

__all__ = ["load_url"]


def __getattr__(name: str) -> Any:
    if name == "tqdm":
        return hub.__getattr__(name)
    raise AttributeError(f"module 'lucid.utils.model_zoo' has no attribute {name!r}", name=name)
