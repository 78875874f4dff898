"""Multi-head attention as a function, which `nn.MultiheadAttention` calls."""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid import _C, Tensor, errors
from lucid._warnings import warn

__all__ = ["multi_head_attention_forward"]


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of `num_heads` heads over (L, N, E), (S, N, E), (S, N, E), or without N; see `nn.MultiheadAttention`.

    `static_k` and `static_v` (N · heads, S, E / heads) stand for the projected keys and values. Gives the output and,
    with `need_weights`, the weights, averaged over the heads or not.

    Args:
        query (Tensor): (L, N, E), or (L, E).
        key (Tensor): (S, N, E), or (S, E).
        value (Tensor): (S, N, E), or (S, E).
        embed_dim_to_check (int): the size E that `query` must have.
        num_heads (int): the number of heads, which divides E.
        in_proj_weight (Tensor, optional): the projections of query, key and value, (3·E, E).
        in_proj_bias (Tensor, optional): (3·E,).
        bias_k (Tensor, optional): a further key, (1, 1, E).
        bias_v (Tensor, optional): a further value, (1, 1, E).
        add_zero_attn (bool): adds a key and a value of zeros.
        dropout_p (float): the probability that a weight is zeroed.
        out_proj_weight (Tensor): the projection of the result, (E, E).
        out_proj_bias (Tensor, optional): (E,).
        training (bool, default: True): drops weights.
        key_padding_mask (Tensor, optional): the keys that are not seen, (N, S) or (S,); bool, or a number to add.
        need_weights (bool, default: True): also returns the weights.
        attn_mask (Tensor, optional): (L, S) or (N·heads, L, S): bool, true where a key is not seen, or a number to
            add.
        use_separate_proj_weight (bool, default: False): takes the three weights below, rather than
            `in_proj_weight`.
        q_proj_weight (Tensor, optional): (E, E).
        k_proj_weight (Tensor, optional): (E, key size).
        v_proj_weight (Tensor, optional): (E, value size).
        static_k (Tensor, optional): the projected keys, (N·heads, S, E / heads), in the place of `key`.
        static_v (Tensor, optional): the projected values, (N·heads, S, E / heads), in the place of `value`.
        average_attn_weights (bool, default: True): averages the weights over the heads.
        is_causal (bool, default: False): says that `attn_mask` is causal.

    Returns:
        tuple of Tensors: (L, N, E), and the weights (N, L, S), (N, heads, L, S) or None.

    Raises:
        RuntimeError: shapes that do not fit.

    Example:
        >>> import lucid.nn.functional as F
        >>> x, w, b = lucid.ones(3, 1, 4), lucid.ones(12, 4), lucid.zeros(12)
        >>> made, weights = F.multi_head_attention_forward(
        ...     x, x, x, 4, 2, w, b, None, None, False, 0.0, lucid.eye(4), lucid.zeros(4)
        ... )
        >>> made.shape, weights.shape
        (lucid.Size([3, 1, 4]), lucid.Size([1, 3, 3]))
    """
    if is_causal and attn_mask is None:
        raise errors.RuntimeError("Need attn_mask if specifying the is_causal hint.")
    batched = query.dim() == 3
    if query.dim() not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {query.dim()}-D query tensor"
        )
    if key.dim() != query.dim() or value.dim() != query.dim():
        raise AssertionError(
            f"For {'batched (3-D)' if batched else 'unbatched (2-D)'} `query`, expected `key` and `value` to be "
            f"{query.dim()}-D but found {key.dim()}-D and {value.dim()}-D tensors respectively"
        )
    same = query is key and key is value
    # The batch in front from here on.
    query, key, value = ((x.transpose(0, 1) if batched else x.unsqueeze(0)) for x in (query, key, value))
    if same:
        key = value = query
    if key_padding_mask is not None:
        if key_padding_mask.dim() != (2 if batched else 1):
            raise AssertionError(
                f"expected `key_padding_mask` to be None or {2 if batched else 1}-D but found "
                f"{key_padding_mask.dim()}-D tensor instead"
            )
        if not batched:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    masks = (key_padding_mask, attn_mask)
    if all(mask is not None for mask in masks) and masks[0].dtype is not masks[1].dtype:  # type: ignore[union-attr]
        warn("Support for mismatched key_padding_mask and attn_mask is deprecated. Use same type for both instead.")
    count, length, size = query.shape
    if size != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {size}")
    head = size // num_heads
    if head * num_heads != size:
        raise AssertionError(f"embed_dim {size} not divisible by num_heads {num_heads}")
    if key.shape[:2] != value.shape[:2]:
        raise AssertionError(f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}")
    if not use_separate_proj_weight and key.shape != value.shape:
        raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")
    if key_padding_mask is not None and key_padding_mask.shape != key.shape[:2]:
        raise AssertionError(
            f"expected key_padding_mask of shape {tuple(key.shape[:2])}, got {tuple(key_padding_mask.shape)}"
        )
    weights: Any
    if use_separate_proj_weight:
        weights = (q_proj_weight, k_proj_weight, v_proj_weight)
        for name, given, own in zip(("query", "key", "value"), (query, key, value), weights, strict=True):
            if own is not None and own.shape != (size, given.shape[-1]):
                wanted = (size, given.shape[-1])
                raise AssertionError(f"expecting {name} weights shape of {wanted}, but got {tuple(own.shape)}")
    elif same and in_proj_weight is not None:
        weights = None
    else:
        assert in_proj_weight is not None, "in_proj_weight is None"
        weights = in_proj_weight.chunk(3)
    if weights is None:
        assert in_proj_weight is not None
        q, k, v = _C.linear(query, in_proj_weight, in_proj_bias).chunk(3, -1)
    else:
        biases: Any = (None, None, None) if in_proj_bias is None else in_proj_bias.split(size)
        q, k, v = (_C.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
    causal = is_causal and key_padding_mask is None and not need_weights
    if causal:
        attn_mask = None
    if bias_k is not None and bias_v is not None:
        k = lucid.cat([k, bias_k.expand([count, 1, size])], 1)
        v = lucid.cat([v, bias_v.expand([count, 1, size])], 1)
    q = q.reshape([count, length, num_heads, head]).transpose(1, 2)
    k, v = (
        x.reshape([count, x.shape[1], num_heads, head]).transpose(1, 2)
        if static is None
        else static.reshape([count, num_heads, *static.shape[1:]])
        for x, static in ((k, static_k), (v, static_v))
    )
    if add_zero_attn:
        blank = lucid.zeros((count, num_heads, 1, head), dtype=k.dtype, device=k.device)
        k, v = lucid.cat([k, blank], 2), lucid.cat([v, blank], 2)
    keys = k.shape[2]
    mask = _mask(attn_mask, key_padding_mask, num_heads, count, length, keys, q)
    dropout = dropout_p if training else 0.0
    shown = None
    if need_weights:
        scores = (q * (1.0 / math.sqrt(head))).matmul(k.transpose(-2, -1))
        with _C._Step("view"):
            shown = _C.softmax(scores if mask is None else scores + mask, -1)
            if dropout > 0:
                shown = _C.dropout(shown, dropout)
        mixed = shown.matmul(v)
        if average_attn_weights:
            shown = shown.mean(1)
    else:
        mixed = _C.scaled_dot_product_attention(q, k, v, mask, dropout, causal)
    if batched and not query.is_contiguous():
        # The steps are outermost in memory too, as in what was given: the result can be viewed as rows.
        rows = mixed.permute([2, 0, 1, 3]).reshape([length, count, size])
        with _C._Step("view"):
            return _C.linear(rows, out_proj_weight, out_proj_bias), shown
    output: Tensor = _C.linear(mixed.transpose(1, 2).reshape([count, length, size]), out_proj_weight, out_proj_bias)
    if not batched:
        return output.squeeze(0), None if shown is None else shown.squeeze(0)
    return output.transpose(0, 1), shown


def _mask(
    attn_mask: Tensor | None, padding: Tensor | None, heads: int, count: int, length: int, keys: int, like: Tensor
) -> Tensor | None:
    """Both masks as one to add to the scores (count, heads, length, keys)."""
    total = None
    if attn_mask is not None:
        total = _additive("attn_mask", attn_mask, like)
        own = total.shape[-1]
        wanted = [length, own] if total.dim() == 2 else [count * heads, length, own]
        if total.dim() not in (2, 3):
            raise errors.RuntimeError(f"attn_mask's dimension {total.dim()} is not supported")
        if list(total.shape) != wanted or own > keys:
            raise errors.RuntimeError(
                f"The shape of the {total.dim()}D attn_mask is {tuple(total.shape)}, but should be {tuple(wanted)}."
            )
        if total.dim() == 3:
            total = total.reshape([count, heads, length, own])
    if padding is not None:
        hidden = _additive("key_padding_mask", padding, like).reshape([count, 1, 1, padding.shape[-1]])
        total = hidden if total is None else total + hidden
    if total is not None and total.shape[-1] < keys:
        # The positions appended by `add_bias_kv` and `add_zero_attn` are always seen.
        total = _C.constant_pad_nd(total, [0, keys - total.shape[-1]])
    return total


def _additive(name: str, mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype == lucid.bool:
        return lucid.zeros(tuple(mask.shape), dtype=like.dtype, device=mask.device).masked_fill(mask, -math.inf)
    if not mask.is_floating_point():
        raise AssertionError(f"only bool and floating types of {name} are supported")
    return mask
