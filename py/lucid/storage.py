"""Tensors' memory, as in `torch.storage`."""

from __future__ import annotations

from lucid._storage import TypedStorage, UntypedStorage

__all__ = ["TypedStorage", "UntypedStorage"]
