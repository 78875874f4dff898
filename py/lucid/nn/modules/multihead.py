"""Multi-head attention."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.nn import functional as F
from lucid.nn import init
from lucid.nn.modules.linear import NonDynamicallyQuantizableLinear
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter

__all__ = [
    "MultiheadAttention",
]


class MultiheadAttention(Module):
    """`num_heads` attentions side by side, each on its own projection of query, key and value (Vaswani et al., 2017).

    Parameters have PyTorch's names: `in_proj_weight` (or `q_proj_weight`, `k_proj_weight`, `v_proj_weight` where sizes
    differ), `in_proj_bias`, `bias_k`, `bias_v`, `out_proj.weight`, `out_proj.bias`.

    Args:
        embed_dim (int): Size of the query and of the output; a multiple of `num_heads`.
        num_heads (int): How many heads.
        dropout (float, default: 0.0): Probability of dropping an attention weight in training.
        bias (bool, default: True): Whether the projections have biases.
        add_bias_kv (bool, default: False): Whether to append a learned position to keys and values.
        add_zero_attn (bool, default: False): Whether to append a position of zeros.
        kdim (int, optional): Size of the keys.
        vdim (int, optional): Size of the values.
        batch_first (bool, default: False): Whether the batch comes before the length.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Raises:
        ValueError: `num_heads` does not divide `embed_dim`.

    Example:
        >>> from lucid import nn
        >>> attention = nn.MultiheadAttention(8, 2, batch_first=True)
        >>> x = lucid.randn(1, 5, 8)
        >>> output, weights = attention(x, x, x)
        >>> output.shape, weights.shape
        (lucid.Size([1, 5, 8]), lucid.Size([1, 5, 5]))
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
            raise AssertionError(f"embed_dim must be divisible by num_heads, got {embed_dim} and {num_heads}")

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
        swap = self.batch_first and query.dim() == 3
        if swap:
            # The same tensor three times stays so: it is then projected at once.
            if query is key and key is value:
                query = key = value = query.transpose(0, 1)
            else:
                query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        output, weights = F.multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            self.training,
            key_padding_mask,
            need_weights,
            attn_mask,
            not self._qkv_same_embed_dim,
            self.q_proj_weight,
            self.k_proj_weight,
            self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return (output.transpose(0, 1) if swap else output), weights


# Programs look for these classes in `activation`, which is where PyTorch has them.
for _cls in (MultiheadAttention,):
    _cls.__module__ = "lucid.nn.modules.activation"
