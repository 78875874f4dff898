"""The model: a decoder of bytes, of blocks of attention and a feed-forward network."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import lucid
from lucid import _C, errors, nn

__all__ = ["Block", "TinyTransformer", "TransformerConfig"]


@dataclass(frozen=True)
class TransformerConfig:
    """The sizes of a `TinyTransformer`.

    Args:
        vocab (int, optional): how many tokens there are; 256 for bytes. Default: 256.
        context (int, optional): the most tokens that are seen at once. Default: 64.
        width (int, optional): features of a token, a multiple of `heads`. Default: 64.
        heads (int, optional): attention heads of a block. Default: 4.
        layers (int, optional): how many blocks there are. Default: 2.

    Raises:
        ValueError: a size is no int from 1 to 1048576, or `width` no multiple of `heads`.

    Example:
        >>> from lucid.lightning.runner import TransformerConfig
        >>> TransformerConfig(width=32, heads=2).layers
        2
    """

    vocab: int = 256
    context: int = 64
    width: int = 64
    heads: int = 4
    layers: int = 2

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1 << 20:
                raise errors.ValueError(f"TransformerConfig: {name} must be an int from 1 to 1048576, got {value!r}")
        if self.width % self.heads:
            raise errors.ValueError(f"TransformerConfig: width {self.width} is no multiple of heads {self.heads}")


class Block(nn.Module):
    """One block of a decoder: `x + attention(norm(x))`, then `x + mlp(norm(x))`; attention is causal.

    Its input and output have the shape (batch, length, width).

    Args:
        config (TransformerConfig): gives the width and the number of heads.

    Example:
        >>> from lucid.lightning.runner import Block, TransformerConfig
        >>> Block(TransformerConfig(width=8, heads=2))(lucid.ones(1, 3, 8)).shape
        lucid.Size([1, 3, 8])
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.norm1 = nn.LayerNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.proj = nn.Linear(config.width, config.width)
        self.norm2 = nn.LayerNorm(config.width)
        self.up = nn.Linear(config.width, 4 * config.width)
        self.down = nn.Linear(4 * config.width, config.width)

    def forward(self, x: _C.Tensor) -> _C.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = (parts[:, :, i].transpose(1, 2) for i in range(3))
        mixed = _C.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, length, width))
        out: _C.Tensor = x + self.down(_C.gelu(self.up(self.norm2(x))))
        return out


class TinyTransformer(nn.Module):
    """A decoder of bytes: tokens (batch, length) to the next token's logits at each position, (batch, length, vocab).

    Args:
        config (TransformerConfig, optional): the sizes. Default: `TransformerConfig()`.

    Example:
        >>> from lucid.lightning.runner import TinyTransformer, TransformerConfig
        >>> model = TinyTransformer(TransformerConfig(context=8, width=8, heads=2, layers=1))
        >>> model(lucid.tensor([[104, 105]])).shape
        lucid.Size([1, 2, 256])
    """

    def __init__(self, config: TransformerConfig | None = None) -> None:
        super().__init__()
        self.config = TransformerConfig() if config is None else config
        c = self.config
        self.tokens = nn.Embedding(c.vocab, c.width)
        self.positions = nn.Embedding(c.context, c.width)
        self.blocks = nn.ModuleList([Block(c) for _ in range(c.layers)])
        self.norm = nn.LayerNorm(c.width)
        self.head = nn.Linear(c.width, c.vocab, bias=False)

    def forward(self, tokens: _C.Tensor) -> _C.Tensor:
        """`(batch, length)` of token numbers to `(batch, length, vocab)`."""
        if tokens.dim() != 2 or not 1 <= tokens.shape[1] <= self.config.context:
            raise errors.ShapeMismatch(
                f"TinyTransformer: expected (batch, length) with a length from 1 to {self.config.context}, "
                f"got {tuple(tokens.shape)}"
            )
        x: Any = self.tokens(tokens) + self.positions(lucid.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        out: _C.Tensor = self.head(self.norm(x))
        return out
