"""Attention over sequences."""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.nn import functional as F
from lucid.nn import init
from lucid.nn.modules.linear import NonDynamicallyQuantizableLinear
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """`num_heads` attentions side by side, each on its own projection of query, key and value (Vaswani et al., 2017).

    Args:
        embed_dim: Size of the query and of the output; a multiple of `num_heads`.
        num_heads: How many heads.
        dropout: Probability of dropping an attention weight in training. Default: 0.
        bias: Whether the projections have biases. Default: True.
        add_bias_kv: Whether to append a learned position to keys and values. Default: False.
        add_zero_attn: Whether to append a position of zeros. Default: False.
        kdim: Size of the keys. Default: `embed_dim`.
        vdim: Size of the values. Default: `embed_dim`.
        batch_first: Whether the batch comes before the length. Default: False.

    Parameters have PyTorch's names: `in_proj_weight` (or `q_proj_weight`, `k_proj_weight`, `v_proj_weight` where sizes
    differ), `in_proj_bias`, `bias_k`, `bias_v`, `out_proj.weight`, `out_proj.bias`.
    """

    in_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None
    out_proj: NonDynamicallyQuantizableLinear

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise errors.ValueError(
                f"embed_dim and num_heads must be greater than 0, "
                f"got embed_dim={embed_dim} and num_heads={num_heads} instead"
            )
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError("embed_dim must be divisible by num_heads")

        def blank(wanted: bool, *shape: int) -> Parameter | None:
            return Parameter(lucid.empty(shape, device=device, dtype=dtype)) if wanted else None

        same = self._qkv_same_embed_dim
        self.register_parameter("q_proj_weight", blank(not same, embed_dim, embed_dim))
        self.register_parameter("k_proj_weight", blank(not same, embed_dim, self.kdim))
        self.register_parameter("v_proj_weight", blank(not same, embed_dim, self.vdim))
        self.register_parameter("in_proj_weight", blank(same, 3 * embed_dim, embed_dim))
        self.register_parameter("in_proj_bias", blank(bias, 3 * embed_dim))
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.register_parameter("bias_k", blank(add_bias_kv, 1, 1, embed_dim))
        self.register_parameter("bias_v", blank(add_bias_kv, 1, 1, embed_dim))
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)
        for position in (self.bias_k, self.bias_v):
            if position is not None:
                init.xavier_normal_(position)

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        size, weight, bias = self.embed_dim, self.in_proj_weight, self.in_proj_bias
        if weight is not None and query is key and key is value:
            q, k, v = F.linear(query, weight, bias).chunk(3, -1)
            return q, k, v
        if weight is not None:
            weights: Any = weight.chunk(3)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases: Any = (None, None, None) if bias is None else bias.split(size)
        q, k, v = (F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
        return q, k, v

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attends from `query` to `key`, and mixes `value`.

        Args:
            query: (L, N, embed_dim), (N, L, embed_dim) with `batch_first`, or (L, embed_dim).
            key: As query, with length S and size `kdim`.
            value: As query, with length S and size `vdim`.
            key_padding_mask: (N, S) or (S): True, or -inf, where a key is not to be seen. Default: None.
            need_weights: Whether to give the weights too, which takes the slow path. Default: True.
            attn_mask: (L, S) or (N · num_heads, L, S): True, or -inf, where not to look. Default: None.
            average_attn_weights: Whether the weights are averaged over heads. Default: True.
            is_causal: A hint that `attn_mask` is the causal mask. Default: False.

        Returns the output, shaped as the query, and the weights (N, L, S), (N, num_heads, L, S) or None.
        """
        if is_causal and attn_mask is None:
            raise errors.RuntimeError("Need attn_mask if specifying the is_causal hint.")
        batched = query.dim() == 3
        if not batched:
            if query.dim() != 2:
                raise AssertionError(
                    f"query should be unbatched 2D or batched 3D tensor but received {query.dim()}-D query tensor"
                )
            same_kv = key is value
            same_qk = query is key
            query = query.unsqueeze(0)
            key = query if same_qk else key.unsqueeze(0)
            value = key if same_kv else value.unsqueeze(0)
            if key_padding_mask is not None:
                key_padding_mask = key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            same_kv = key is value
            same_qk = query is key
            query = query.transpose(0, 1)
            key = query if same_qk else key.transpose(0, 1)
            value = key if same_kv else value.transpose(0, 1)
        count, length, _ = query.shape
        q, k, v = self._project(query, key, value)
        causal = is_causal and key_padding_mask is None and not need_weights
        if causal:
            attn_mask = None
        if self.bias_k is not None and self.bias_v is not None:
            k = lucid.cat([k, self.bias_k.expand([count, 1, self.embed_dim])], 1)
            v = lucid.cat([v, self.bias_v.expand([count, 1, self.embed_dim])], 1)
        if self.add_zero_attn:
            blank = lucid.zeros((count, 1, self.embed_dim), dtype=k.dtype, device=k.device)
            k, v = lucid.cat([k, blank], 1), lucid.cat([v, blank], 1)
        q, k, v = (x.reshape([count, x.shape[1], self.num_heads, self.head_dim]).transpose(1, 2) for x in (q, k, v))
        mask = self._mask(attn_mask, key_padding_mask, count, length, k.shape[2], q)
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = (q * (1.0 / math.sqrt(self.head_dim))).matmul(k.transpose(-2, -1))
            weights = F.softmax(scores if mask is None else scores + mask, -1)
            if dropout > 0:
                weights = F.dropout(weights, dropout)
            mixed = weights.matmul(v)
            if average_attn_weights:
                weights = weights.mean(1)
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, mask, dropout, causal)
        output: Tensor = self.out_proj(mixed.transpose(1, 2).reshape([count, length, self.embed_dim]))
        if not batched:
            return output.squeeze(0), None if weights is None else weights.squeeze(0)
        return (output if self.batch_first else output.transpose(0, 1)), weights

    def _mask(
        self, attn_mask: Tensor | None, padding: Tensor | None, count: int, length: int, keys: int, like: Tensor
    ) -> Tensor | None:
        """Both masks as one to add to the scores (count, heads, length, keys)."""
        total = None
        if attn_mask is not None:
            total = _additive(attn_mask, like)
            if total.dim() == 3:
                total = total.reshape([-1, self.num_heads, length, total.shape[-1]])
            elif total.dim() != 2:
                raise errors.RuntimeError(f"attn_mask's dimension {total.dim()} is not supported")
        if padding is not None:
            hidden = _additive(padding, like).reshape([count, 1, 1, padding.shape[-1]])
            total = hidden if total is None else total + hidden
        if total is not None and total.shape[-1] < keys:
            # The positions appended by `add_bias_kv` and `add_zero_attn` are always seen.
            total = F.pad(total, [0, keys - total.shape[-1]])
        return total


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype == lucid.bool:
        return lucid.zeros(tuple(mask.shape), dtype=like.dtype, device=mask.device).masked_fill(mask, -math.inf)
    if not mask.is_floating_point():
        raise AssertionError("only bool and floating types of masks are supported")
    return mask
