"""The transformer: encoder, decoder, and both (Vaswani et al., 2017)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, ClassVar

import lucid
from lucid import Tensor, errors
from lucid._warnings import warn
from lucid.nn import functional as F
from lucid.nn import init
from lucid.nn.modules.activation import GELU, MultiheadAttention, ReLU
from lucid.nn.modules.container import ModuleList
from lucid.nn.modules.dropout import Dropout
from lucid.nn.modules.linear import Linear
from lucid.nn.modules.module import Module
from lucid.nn.modules.normalization import LayerNorm

__all__ = [
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]

Activation = Callable[[Tensor], Tensor]


class _Layer(Module):
    """What layers of both kinds have: attentions, a feed-forward network, and a norm and a dropout for each of them."""

    # The attentions' names; the network comes after them.
    _attentions: ClassVar[tuple[str, ...]]
    self_attn: MultiheadAttention
    norm1: LayerNorm
    norm2: LayerNorm
    dropout1: Dropout
    dropout2: Dropout

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
        for name in self._attentions:
            attention = MultiheadAttention(d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **place)
            setattr(self, name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **place)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **place)
        self.norm_first = norm_first
        parts = range(1, len(self._attentions) + 2)
        for i in parts:
            setattr(self, f"norm{i}", LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **place))
        for i in parts:
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.activation = _get_activation_fn(activation) if isinstance(activation, str) else activation

    @staticmethod
    def _attend(
        attention: MultiheadAttention, x: Tensor, to: Tensor, mask: Any, padding: Any, is_causal: bool
    ) -> Tensor:
        mixed: Tensor = attention(
            x, to, to, attn_mask=mask, key_padding_mask=padding, is_causal=is_causal, need_weights=False
        )[0]
        return mixed

    def _feed(self, x: Tensor) -> Tensor:
        made: Tensor = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return made


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward network, each with a residual connection and layer normalisation.

    Args:
        d_model (int): Size of each position.
        nhead (int): Attention heads.
        dim_feedforward (int, default: 2048): Size of the network's hidden layer.
        dropout (float, default: 0.1): Probability.
        activation (str or Activation, optional): "relu", "gelu" or a function.
        layer_norm_eps (float, default: 1e-05): what the layer norms add to the variance.
        batch_first (bool, default: False): Whether the batch comes before the length.
        norm_first (bool, default: False): Whether to normalise before rather than after.
        bias (bool, default: True): Whether linear maps and norms have biases.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Example:
        >>> from lucid import nn
        >>> nn.TransformerEncoderLayer(8, 2, batch_first=True)(lucid.zeros(1, 5, 8)).shape
        lucid.Size([1, 5, 8])
    """

    _attentions = ("self_attn",)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """(L, N, d_model), (N, L, d_model) with `batch_first`, or (L, d_model), to the same. Masks as in attention."""
        own: tuple[Any, ...] = (src_mask, src_key_padding_mask, is_causal)
        x = src
        if self.norm_first:
            y = self.norm1(x)
            x = x + self.dropout1(self._attend(self.self_attn, y, y, *own))
            made: Tensor = x + self.dropout2(self._feed(self.norm2(x)))
            return made
        x = self.norm1(x + self.dropout1(self._attend(self.self_attn, x, x, *own)))
        made = self.norm2(x + self.dropout2(self._feed(x)))
        return made


def _get_clones(module: Module, N: int) -> ModuleList:
    if not isinstance(module, Module):
        raise errors.TypeError(f"expected a layer to make {N} copies of, got {lucid.typename(module)}")
    return ModuleList(copy.deepcopy(module) for _ in range(N))


def _why_not_nested(layer: Any) -> str | None:
    """Why an encoder of such layers would pad where PyTorch packs; `None` where PyTorch packs."""
    if not isinstance(layer, TransformerEncoderLayer):
        return "encoder_layer was not TransformerEncoderLayer"
    attention = layer.self_attn
    own: Any = layer
    reasons = {
        "norm_first was True": layer.norm_first,
        "self_attn.batch_first was not True": not attention.batch_first,
        "self_attn was passed bias=False": attention.in_proj_bias is None,
        "activation was neither relu nor gelu": not _is_relu_or_gelu(own.activation),
        "norm1.eps was not equal to encoder_layer.norm2.eps": own.norm1.eps != own.norm2.eps,
        "self_attn.num_heads is odd": attention.num_heads % 2 == 1,
    }
    return next((f"encoder_layer.{reason}" for reason, holds in reasons.items() if holds), None)


def _is_relu_or_gelu(activation: Any) -> bool:
    return activation in (F.relu, F.gelu) or isinstance(activation, (ReLU, GELU))


class TransformerEncoder(Module):
    """`num_layers` copies of a layer, one after the other, and a norm at the end if given.

    `enable_nested_tensor` and `mask_check` have no effect: there are no nested tensors here. Where PyTorch could not
    use them either, it says so in a warning, and so does this.

    Args:
        encoder_layer (TransformerEncoderLayer): the layer to copy.
        num_layers (int): the number of copies.
        norm (Module, optional): a module that is applied to the result.
        enable_nested_tensor (bool, default: True): without effect, see above.
        mask_check (bool, default: True): without effect, see above.

    Example:
        >>> from lucid import nn
        >>> layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
        >>> nn.TransformerEncoder(layer, 2)(lucid.zeros(1, 5, 8)).shape
        lucid.Size([1, 5, 8])
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
        self.layers = _get_clones(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = enable_nested_tensor
        self.use_nested_tensor = False
        self.mask_check = mask_check
        why = _why_not_nested(encoder_layer) if enable_nested_tensor else None
        if why is not None:
            warn(f"enable_nested_tensor is True, but self.use_nested_tensor is False because {why}")

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


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's output, and a feed-forward network, each with residual and norm.

    Arguments as in `TransformerEncoderLayer`.

    Args:
        d_model (int): the number of features of each position.
        nhead (int): the number of attention heads.
        dim_feedforward (int, default: 2048): the size of the hidden layer.
        dropout (float, default: 0.1): the probability of dropout.
        activation (str or callable, optional): "relu", "gelu" or a function.
        layer_norm_eps (float, default: 1e-05): what the layer norms add to the variance.
        batch_first (bool, default: False): the batch is the first dimension, (N, L, …), rather than the second.
        norm_first (bool, default: False): normalises before each part, rather than after its residual connection.
        bias (bool, default: True): learns an additive bias.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Example:
        >>> from lucid import nn
        >>> layer = nn.TransformerDecoderLayer(8, 2, batch_first=True)
        >>> layer(lucid.zeros(1, 5, 8), lucid.zeros(1, 3, 8)).shape
        lucid.Size([1, 5, 8])
    """

    _attentions = ("self_attn", "multihead_attn")
    multihead_attn: MultiheadAttention
    norm3: LayerNorm
    dropout3: Dropout

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Targets (T, N, d_model) and memory (S, N, d_model) to (T, N, d_model). Masks as in attention."""
        own: tuple[Any, ...] = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        other: tuple[Any, ...] = (memory_mask, memory_key_padding_mask, memory_is_causal)
        x = tgt
        if self.norm_first:
            y = self.norm1(x)
            x = x + self.dropout1(self._attend(self.self_attn, y, y, *own))
            x = x + self.dropout2(self._attend(self.multihead_attn, self.norm2(x), memory, *other))
            made: Tensor = x + self.dropout3(self._feed(self.norm3(x)))
            return made
        x = self.norm1(x + self.dropout1(self._attend(self.self_attn, x, x, *own)))
        x = self.norm2(x + self.dropout2(self._attend(self.multihead_attn, x, memory, *other)))
        made = self.norm3(x + self.dropout3(self._feed(x)))
        return made


class TransformerDecoder(Module):
    """`num_layers` copies of a decoder layer, one after the other, and a norm at the end if given.

    Args:
        decoder_layer (TransformerDecoderLayer): the layer to copy.
        num_layers (int): the number of copies.
        norm (Module, optional): a module that is applied to the result.

    Example:
        >>> from lucid import nn
        >>> layer = nn.TransformerDecoderLayer(8, 2, batch_first=True)
        >>> nn.TransformerDecoder(layer, 2)(lucid.zeros(1, 5, 8), lucid.zeros(1, 3, 8)).shape
        lucid.Size([1, 5, 8])
    """

    def __init__(self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = _get_clones(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """As a layer's; `tgt_is_causal=None` finds out whether `tgt_mask` is the causal mask."""
        x = tgt
        causal = _is_causal(tgt_mask, tgt_is_causal)
        for layer in self.layers:
            x = layer(
                x,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=causal,
                memory_is_causal=memory_is_causal,
            )
        return x if self.norm is None else self.norm(x)


class Transformer(Module):
    """An encoder and a decoder.

    Matrices start Xavier-uniform.

    Args:
        d_model (int, default: 512): Size of each position.
        nhead (int, default: 8): Attention heads.
        num_encoder_layers (int, default: 6): the number of encoder layers.
        num_decoder_layers (int, default: 6): the number of decoder layers.
        dim_feedforward (int, default: 2048): the size of the hidden layers.
        dropout (float, default: 0.1): the probability of dropout.
        activation (str or Activation, optional): "relu", "gelu" or a function.
        custom_encoder (Module, optional): the encoder, in the place of a new one.
        custom_decoder (Module, optional): the decoder, in the place of a new one.
        layer_norm_eps (float, default: 1e-05): what the layer norms add to the variance.
        batch_first (bool, default: False): the batch is the first dimension, (N, L, d_model), rather than the
            second.
        norm_first (bool, default: False): normalises before each part, rather than after its residual connection.
        bias (bool, default: True): learns additive biases.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Example:
        >>> from lucid import nn
        >>> model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
        >>> model(lucid.zeros(1, 5, 8), lucid.zeros(1, 3, 8)).shape
        lucid.Size([1, 3, 8])
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Activation = F.relu,
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        args: Any = (
            d_model,
            nhead,
            dim_feedforward,
            dropout,
            activation,
            layer_norm_eps,
            batch_first,
            norm_first,
            bias,
            device,
            dtype,
        )
        norm: Any = {"eps": layer_norm_eps, "bias": bias, "device": device, "dtype": dtype}
        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            self.encoder = TransformerEncoder(
                TransformerEncoderLayer(*args), num_encoder_layers, LayerNorm(d_model, **norm)
            )
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            self.decoder = TransformerDecoder(
                TransformerDecoderLayer(*args), num_decoder_layers, LayerNorm(d_model, **norm)
            )
        self._reset_parameters()
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Sources (S, N, d_model) and targets (T, N, d_model) to (T, N, d_model); the batch first if so told."""
        batched = src.dim() == 3
        if batched and src.size(0 if self.batch_first else 1) != tgt.size(0 if self.batch_first else 1):
            raise errors.RuntimeError(
                f"the batch number of src and tgt must be equal, got {list(src.shape)} and {list(tgt.shape)}"
            )
        if src.size(-1) != self.d_model or tgt.size(-1) != self.d_model:
            raise errors.RuntimeError(
                f"the feature number of src and tgt must be equal to d_model ({self.d_model}), got "
                f"{list(src.shape)} and {list(tgt.shape)}"
            )
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        made: Tensor = self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )
        return made

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """The causal mask (sz, sz): -inf above the diagonal, 0 elsewhere."""
        return lucid.full([sz, sz], -math.inf, dtype=dtype, device=device).triu(1)

    def _reset_parameters(self) -> None:
        for p in self.parameters():
            if p.dim() > 1:
                init.xavier_uniform_(p)


def _is_causal(mask: Tensor | None, told: bool | None) -> bool:
    """Is the mask the causal one? Looks at it, which evaluates, only where not told."""
    if told is not None:
        return told
    if mask is None or mask.dim() != 2 or mask.shape[0] != mask.shape[1]:
        return False
    size = mask.shape[0]
    blank = lucid.full([size, size], -math.inf, dtype=lucid.float32, device=mask.device).triu(1)
    if mask.dtype == lucid.bool:
        return bool(lucid.equal(mask, blank != 0))
    return bool(lucid.equal(mask, blank.to(mask.dtype)))


def _get_activation_fn(activation: str) -> Activation:
    if activation == "relu":
        return F.relu
    if activation == "gelu":
        return F.gelu
    raise errors.RuntimeError(f"activation should be relu/gelu, not {activation}")
