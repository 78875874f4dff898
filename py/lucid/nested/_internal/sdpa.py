"""Attention of nested tensors by PyTorch's name of it."""

from __future__ import annotations

from typing import Any

from lucid.nn import functional as F


def jagged_scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """`nn.functional.scaled_dot_product_attention` of nested tensors."""
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )
