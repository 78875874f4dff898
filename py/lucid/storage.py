"""Tensors' memory, as in `torch.storage`."""

from __future__ import annotations

from lucid._storage import TypedStorage, UntypedStorage
from lucid._utils import _load_storage_from_bytes as _load_from_bytes  # noqa: F401

__all__ = ["TypedStorage", "UntypedStorage"]
