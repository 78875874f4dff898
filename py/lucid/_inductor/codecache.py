"""What tells one tensor from another in a cache of compiled programs, without its elements."""

from __future__ import annotations

import dataclasses
from typing import Any

import lucid
from lucid import Tensor

__all__ = ["TensorMetadata", "extract_tensor_metadata_for_cache_key"]


@dataclasses.dataclass(frozen=True)
class TensorMetadata:
    """A tensor's attributes, which compare and hash by value."""

    dtype: lucid.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: lucid.device
    layout: lucid.layout
    memory_format: Any
    storage_offset: int
    storage_bytes: int | None
    requires_grad: bool
    is_quantized: bool
    is_conj: bool
    is_neg: bool
    is_inference: bool
    is_sparse: bool
    is_coalesced: bool | None
    dense_dim: int | None
    sparse_dim: int | None


def _memory_format(t: Tensor) -> Any:
    formats: list[Any] = [lucid.contiguous_format, lucid.channels_last, lucid.channels_last_3d]
    dims = {lucid.channels_last: 4, lucid.channels_last_3d: 5}
    fit = [f for f in formats if dims.get(f, t.ndim) == t.ndim and t.is_contiguous(memory_format=f)]
    return fit[0] if fit else None


def extract_tensor_metadata_for_cache_key(t: Tensor) -> TensorMetadata:
    """A tensor's attributes without those of its place in memory, on which no compiled program depends.

    Args:
        t (Tensor): a tensor of any shape.

    Returns:
        TensorMetadata: the attributes; equal for equal ones.

    Example:
        >>> from lucid._inductor.codecache import extract_tensor_metadata_for_cache_key
        >>> extract_tensor_metadata_for_cache_key(lucid.ones(2, 3)[:1]).shape
        (1, 3)
    """
    dense = t.layout is lucid.strided
    return TensorMetadata(
        dtype=t.dtype,
        shape=tuple(t.shape),
        stride=tuple(t.stride()) if dense else (),
        device=t.device,
        layout=t.layout,
        memory_format=_memory_format(t) if dense else None,
        storage_offset=0,
        storage_bytes=None,
        requires_grad=t.requires_grad,
        is_quantized=t.is_quantized,
        is_conj=t.is_conj(),
        is_neg=t.is_neg(),
        is_inference=t.is_inference(),
        is_sparse=t.is_sparse,
        is_coalesced=t.is_coalesced() if t.is_sparse else None,
        dense_dim=t.dense_dim() if t.is_sparse else None,
        sparse_dim=t.sparse_dim() if t.is_sparse else None,
    )
