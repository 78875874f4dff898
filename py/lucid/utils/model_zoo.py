"""Weights from the network by their old names, as `torch.utils.model_zoo`; `lucid.hub` has the functions."""

from __future__ import annotations

from lucid.hub import load_state_dict_from_url as load_url

__all__ = ["load_url"]
