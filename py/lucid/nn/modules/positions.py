"""Encodings of positions as modules. None is in PyTorch."""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.nn import functional as F
from lucid.nn.modules.activation import SiLU
from lucid.nn.modules.linear import Linear
from lucid.nn.modules.module import Module

__all__ = ["RotaryEmbedding", "SinusoidalEmbedding", "SinusoidalEmbedding2D", "TimestepEmbedding"]


class RotaryEmbedding(Module):
    """Rotates queries and keys (…, length, head_dim) by their positions (Su et al., 2021).

    Called with one tensor it gives that rotated; with two, queries and keys, both. `cos_sin` gives the tables that
    `F.apply_rotary_emb` takes.

    Args:
        head_dim (int, optional): The last dimension's size, even; `dim=` by another name.
        max_position (int, default: 2048): Unused rows cost nothing; positions may exceed it.
        base (float, default: 10000.0): The slowest rotation's period over 2π.
        interleaved (bool, default: False): Whether neighbours are pairs, rather than element i and element i +
            dim/2.
        dim (int, optional): another name of `head_dim`.

    Raises:
        TypeError: no size is given.
        ValueError: the size is odd.

    Example:
        >>> from lucid import nn
        >>> nn.RotaryEmbedding(8)(lucid.randn(1, 5, 8)).shape
        lucid.Size([1, 5, 8])
    """

    inv_freq: Tensor

    def __init__(
        self,
        head_dim: int | None = None,
        max_position: int = 2048,
        base: float = 10000.0,
        interleaved: bool = False,
        *,
        dim: int | None = None,
    ) -> None:
        super().__init__()
        if (head_dim is None) == (dim is None):
            raise errors.TypeError("RotaryEmbedding expects the last dimension's size as head_dim, or as dim")
        size = head_dim if head_dim is not None else dim
        if size is None or size < 2 or size % 2:
            raise errors.ValueError(f"RotaryEmbedding: head_dim must be even and positive, got {size}")
        self.dim = self.head_dim = dim = size
        self.max_position = max_position
        self.base = base
        self.interleaved = interleaved
        steps = lucid.arange(0, dim, 2).to(lucid.float32) * (-math.log(base) / dim)
        self.register_buffer("inv_freq", steps.exp(), persistent=False)

    def cos_sin(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines (…, dim / 2) of the angles at positions (…)."""
        angles = positions.to(self.inv_freq.dtype).unsqueeze(-1) * self.inv_freq
        return angles.cos(), angles.sin()

    def forward(
        self, x: Tensor, k: Tensor | int | None = None, position_ids: Tensor | None = None, *, offset: int = 0
    ) -> Any:
        """`x` (…, length, head_dim), or `x` and `k`, rotated.

        Args:
            x: Queries, or keys alone.
            k: Keys; or `offset` by position.
            position_ids: (length) or (N, length); from `offset` on where not given.
            offset: The first position. Default: 0.
        """
        if isinstance(k, int):
            offset, k = k, None
        if position_ids is None:
            position_ids = lucid.arange(offset, offset + x.shape[-2], device=x.device)
        cos, sin = self.cos_sin(position_ids)
        if position_ids.ndim == 2 and x.ndim == 4:
            cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        if k is None:
            return F.apply_rotary_emb(x, cos.to(x.dtype), sin.to(x.dtype), self.interleaved)
        return F.apply_rotary_emb(x, k, cos, sin, interleaved=self.interleaved)

    def extra_repr(self) -> str:
        return f"{self.dim}, max_position={self.max_position}, base={self.base}, interleaved={self.interleaved}"


class SinusoidalEmbedding(Module):
    """Sines and cosines of positions (…): (…, dim). `max_period` is the longest period over 2π. Default: 10000.

    Args:
        dim (int): the number of features, even.
        max_period (float, default: 10000.0): the longest period over 2π.

    Example:
        >>> from lucid import nn
        >>> nn.SinusoidalEmbedding(4)(lucid.tensor([0.0, 1.0])).shape
        lucid.Size([2, 4])
    """

    def __init__(self, dim: int, max_period: float = 10000.0) -> None:
        super().__init__()
        self.dim = dim
        self.max_period = max_period

    def forward(self, positions: Tensor) -> Tensor:
        return F.sinusoidal_embedding(positions, self.dim, self.max_period)

    def extra_repr(self) -> str:
        return f"{self.dim}, max_period={self.max_period}"


class SinusoidalEmbedding2D(SinusoidalEmbedding):
    """Adds sinusoids of row and column to images (N, dim, H, W); `dim` is a multiple of 4.

    Args:
        dim (int): the number of channels, a multiple of 4.
        max_period (float, default: 10000.0): the longest period over 2π.

    Example:
        >>> from lucid import nn
        >>> nn.SinusoidalEmbedding2D(8)(lucid.zeros(1, 8, 2, 3)).shape
        lucid.Size([1, 8, 2, 3])
    """

    def forward(self, positions: Tensor) -> Tensor:
        height, width = positions.shape[-2:]
        made = F.sinusoidal_embedding_2d(height, width, self.dim, self.max_period, positions.device)
        return positions + made.permute([2, 0, 1]).to(positions.dtype)


class TimestepEmbedding(Module):
    """Sinusoids of time steps (N) through two linear maps with a SiLU between: (N, out_dim), as diffusion models do.

    Args:
        dim (int): Size of the sinusoids.
        out_dim (int, optional): Size of the output.
        max_period (float, default: 10000.0): As in `SinusoidalEmbedding`.

    Example:
        >>> from lucid import nn
        >>> nn.TimestepEmbedding(8)(lucid.tensor([0.0, 10.0])).shape
        lucid.Size([2, 32])
    """

    def __init__(self, dim: int, out_dim: int | None = None, max_period: float = 10000.0) -> None:
        super().__init__()
        self.dim = dim
        self.out_dim = 4 * dim if out_dim is None else out_dim
        self.max_period = max_period
        self.linear1 = Linear(dim, self.out_dim)
        self.act = SiLU()
        self.linear2 = Linear(self.out_dim, self.out_dim)

    def forward(self, timesteps: Tensor) -> Tensor:
        made = F.sinusoidal_embedding(timesteps, self.dim, self.max_period).to(self.linear1.weight.dtype)
        out: Tensor = self.linear2(self.act(self.linear1(made)))
        return out
