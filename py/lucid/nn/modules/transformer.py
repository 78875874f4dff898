"""The encoder half of the transformer."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from lucid import Tensor, errors
from lucid.nn import functional as F
from lucid.nn.modules.attention import MultiheadAttention
from lucid.nn.modules.container import ModuleList
from lucid.nn.modules.dropout import Dropout
from lucid.nn.modules.linear import Linear
from lucid.nn.modules.module import Module
from lucid.nn.modules.normalization import LayerNorm

__all__ = ["TransformerEncoder", "TransformerEncoderLayer"]

Activation = Callable[[Tensor], Tensor]


class TransformerEncoderLayer(Module):
    """Self-attention and a feed-forward network, each with a residual connection and layer normalisation.

    Args:
        d_model: Size of each position.
        nhead: Attention heads.
        dim_feedforward: Size of the network's hidden layer. Default: 2048.
        dropout: Probability. Default: 0.1.
        activation: "relu", "gelu" or a function. Default: relu.
        layer_norm_eps: Default: 1e-5.
        batch_first: Whether the batch comes before the length. Default: False.
        norm_first: Whether to normalise before rather than after. Default: False.
        bias: Whether linear maps and norms have biases. Default: True.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        place = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **place
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **place)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **place)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **place)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **place)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.activation = _activation(activation) if isinstance(activation, str) else activation

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """(L, N, d_model), (N, L, d_model) with `batch_first`, or (L, d_model), to the same. Masks as in attention."""
        x = src
        if self.norm_first:
            x = x + self._attend(self.norm1(x), src_mask, src_key_padding_mask, is_causal)
            return x + self._feed(self.norm2(x))
        x = self.norm1(x + self._attend(x, src_mask, src_key_padding_mask, is_causal))
        made: Tensor = self.norm2(x + self._feed(x))
        return made

    def _attend(self, x: Tensor, mask: Tensor | None, padding: Tensor | None, is_causal: bool) -> Tensor:
        mixed, _ = self.self_attn(
            x, x, x, attn_mask=mask, key_padding_mask=padding, need_weights=False, is_causal=is_causal
        )
        made: Tensor = self.dropout1(mixed)
        return made

    def _feed(self, x: Tensor) -> Tensor:
        hidden = self.dropout(self.activation(self.linear1(x)))
        made: Tensor = self.dropout2(self.linear2(hidden))
        return made


class TransformerEncoder(Module):
    """`num_layers` copies of a layer, one after the other, and a norm at the end if given.

    `enable_nested_tensor` and `mask_check` are accepted and have no effect.
    """

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = ModuleList(copy.deepcopy(encoder_layer) for _ in range(num_layers))
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = enable_nested_tensor
        self.mask_check = mask_check

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """(L, N, d_model), (N, L, d_model) with `batch_first`, or (L, d_model), to the same."""
        x = src
        for layer in self.layers:
            x = layer(x, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=bool(is_causal))
        return x if self.norm is None else self.norm(x)


def _activation(name: str) -> Activation:
    if name == "relu":
        return F.relu
    if name == "gelu":
        return F.gelu
    raise errors.RuntimeError(f"activation should be relu/gelu, not {name}")
