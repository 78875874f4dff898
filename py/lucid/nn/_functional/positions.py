"""Encodings of positions: sinusoids (Vaswani et al., 2017) and rotations (Su et al., 2021). None is in PyTorch."""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid import Tensor, errors

__all__ = ["apply_rotary_emb", "sinusoidal_embedding", "sinusoidal_embedding_2d"]


def apply_rotary_emb(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:
    """`x` with each pair of its last dimension's elements rotated by the angles of `cos` and `sin`.

    Args:
        x: (…, length, size), of an even size.
        cos: The angles' cosines, (length, size / 2) or (length, size), or what broadcasts to `x`.
        sin: Their sines, likewise.
        interleaved: Whether neighbours are pairs, rather than element i and element i + size/2. Default: False.
    """
    size = x.shape[-1]
    if size % 2:
        raise errors.ValueError(f"apply_rotary_emb: the last dimension must be even, got {size}")
    half = size // 2
    if cos.shape != sin.shape or cos.shape[-1] not in (half, size):
        raise errors.ValueError(
            f"apply_rotary_emb: cos and sin must have {half} or {size} columns, got {cos.shape}, {sin.shape}"
        )
    if cos.shape[-1] == size:
        # Given once per element: each pair's angle is there twice.
        pick = slice(None, None, 2) if interleaved else slice(None, half)
        cos, sin = cos[..., pick], sin[..., pick]
    if interleaved:
        pairs = x.reshape([*x.shape[:-1], half, 2])
        a, b = pairs[..., 0], pairs[..., 1]
        return lucid.stack([a * cos - b * sin, a * sin + b * cos], -1).reshape(x.shape)
    a, b = x[..., :half], x[..., half:]
    return lucid.cat([a * cos - b * sin, a * sin + b * cos], -1)


def sinusoidal_embedding(positions: Tensor, dim: int, max_period: float = 10000.0) -> Tensor:
    """Sines, then cosines, of positions (…) at `dim / 2` frequencies from 1 down to 1/max_period: (…, dim)."""
    if dim < 1:
        raise errors.ValueError(f"sinusoidal_embedding: dim must be positive, got {dim}")
    half = dim // 2
    line = lucid.arange(half, device=positions.device).to(lucid.float32)
    angles = positions.to(lucid.float32).unsqueeze(-1) * (line * (-math.log(max_period) / max(half, 1))).exp()
    made = lucid.cat([angles.sin(), angles.cos()], -1)
    return lucid.constant_pad_nd(made, [0, 1]) if dim % 2 else made


def sinusoidal_embedding_2d(
    height: int, width: int, dim: int, max_period: float = 10000.0, device: Any = None
) -> Tensor:
    """Sinusoids of each row's and each column's number, half of `dim` each: (height, width, dim)."""
    if dim % 4:
        raise errors.ValueError(f"sinusoidal_embedding_2d: dim must be divisible by 4, got {dim}")
    rows, columns = (
        sinusoidal_embedding(lucid.arange(n, device=device), dim // 2, max_period) for n in (height, width)
    )
    shape = [height, width, dim // 2]
    return lucid.cat([rows.unsqueeze(1).expand(shape), columns.unsqueeze(0).expand(shape)], -1)
