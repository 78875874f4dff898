"""`TransformGetItemToIndex`, by the file that PyTorch has it in."""

from __future__ import annotations

from typing import Any

__all__ = ["TransformGetItemToIndex"]


class TransformGetItemToIndex:
    """A block in which tensors without dimensions are indices under `vmap`. Here they always are."""

    def __enter__(self) -> TransformGetItemToIndex:
        return self

    def __exit__(self, *exc: Any) -> None:
        pass
