"""Encodings of positions: sinusoids (Vaswani et al., 2017) and rotations (Su et al., 2021). None is in PyTorch."""

from __future__ import annotations

import math
from typing import Any, overload

import lucid
from lucid import Tensor, errors

__all__ = ["apply_rotary_emb", "sinusoidal_embedding", "sinusoidal_embedding_2d", "timestep_embedding"]


@overload
def apply_rotary_emb(q: Tensor, k: Tensor, cos: Tensor, sin: bool = ..., *, interleaved: bool = ...) -> Tensor: ...


@overload
def apply_rotary_emb(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None = ...,
    interleaved: bool = ...,
) -> tuple[Tensor, Tensor]: ...


def apply_rotary_emb(*args: Any, **kwargs: Any) -> Any:
    """Rotates each pair of the last dimension's elements by the angles of `cos` and `sin` (Su et al., 2021).

    `apply_rotary_emb(q, k, cos, sin, position_ids=None, interleaved=False)` gives rotated queries and keys;
    `apply_rotary_emb(x, cos, sin, interleaved=False)` one rotated tensor. A pair (a, b) becomes
    (a · cos - b · sin, a · sin + b · cos).

    Args:
        q, k, x (Tensor): (…, length, size), of an even size.
        cos (Tensor): The angles' cosines, (length, size / 2) or (length, size), or what broadcasts; with
            `position_ids` a table
            of (positions, size / 2) or (positions, size).
        sin (Tensor): Their sines, likewise.
        position_ids (Tensor, optional): Which rows of the tables belong to the elements: (length), or (N, length) for
            `q` and `k` of (N, heads, length, size). Default: the rows in order.
        interleaved (bool, default: False): Whether neighbours are pairs, rather than element i and element i + size/2.

    Returns:
        Tensors of the shapes and dtypes of `q` and `k`, or of `x`.

    Raises:
        ValueError: an odd size, or tables whose columns do not fit it.
        IndexError: a position beyond the tables.

    Example:
        >>> import lucid.nn.functional as F
        >>> rope = lucid.nn.RotaryEmbedding(4)
        >>> q, k, ids = lucid.ones(1, 2, 3, 4), lucid.ones(1, 2, 3, 4), lucid.arange(3)
        >>> rotated, _ = F.apply_rotary_emb(q, k, *rope.cos_sin(lucid.arange(8)), ids)
        >>> rotated.shape
        lucid.Size([1, 2, 3, 4])
    """
    pair = len(args) > 3 and isinstance(args[3], Tensor)
    if pair or not {"q", "k", "position_ids"}.isdisjoint(kwargs):
        return _rotated_pair(*args, **kwargs)
    return _rotated(*args, **kwargs)


def _rotated_pair(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    position_ids: Tensor | None = None,
    interleaved: bool = False,
) -> tuple[Tensor, Tensor]:
    if position_ids is not None:
        if cos.ndim != 2 or cos.shape != sin.shape:
            raise errors.ValueError(
                "apply_rotary_emb: with position_ids cos and sin must be tables of (positions, size), got "
                f"{cos.shape}, {sin.shape}"
            )
        cos, sin = cos[position_ids], sin[position_ids]
        if position_ids.ndim == 2 and q.ndim == 4:
            # One row of positions per sequence, the same for all its heads.
            cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    cos, sin = cos.to(q.dtype), sin.to(q.dtype)
    return _rotated(q, cos, sin, interleaved), _rotated(k, cos.to(k.dtype), sin.to(k.dtype), interleaved)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False) -> Tensor:
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
    """Sines, then cosines, of positions (…) at `dim / 2` frequencies from 1 down to 1/max_period: (…, dim).

    Args:
        positions (Tensor): any shape (…), floating or integral.
        dim (int): the number of features, even.
        max_period (float, default: 10000.0): the longest period.

    Returns:
        Tensor: (…, dim).

    Raises:
        ValueError: `dim` is odd.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.sinusoidal_embedding(lucid.tensor([0.0, 1.0]), 4)
        tensor([[0.0000, 0.0000, 1.0000, 1.0000],
                [0.8415, 0.0100, 0.5403, 0.9999]])
    """
    if dim < 1:
        raise errors.ValueError(f"sinusoidal_embedding: dim must be positive, got {dim}")
    half = dim // 2
    line = lucid.arange(half, device=positions.device).to(lucid.float32)
    angles = positions.to(lucid.float32).unsqueeze(-1) * (line * (-math.log(max_period) / max(half, 1))).exp()
    made = lucid.cat([angles.sin(), angles.cos()], -1)
    return lucid.constant_pad_nd(made, [0, 1]) if dim % 2 else made


def timestep_embedding(timesteps: Tensor, dim: int, max_period: float = 10000.0) -> Tensor:
    """Cosines, then sines, of time steps (N) at `dim / 2` frequencies from 1 down to 1/max_period: (N, dim).

    The order of diffusion models (Ho et al., 2020), where `sinusoidal_embedding` has the sines first. An odd `dim` ends
    with a column of zeros.

    Args:
        timesteps (Tensor): (N,), floating or integral.
        dim (int): the number of features.
        max_period (float, default: 10000.0): the longest period.

    Returns:
        Tensor: (N, dim).

    Raises:
        ValueError: `timesteps` is no vector.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.timestep_embedding(lucid.tensor([0.0]), 4)
        tensor([[1., 1., 0., 0.]])
    """
    if dim < 1:
        raise errors.ValueError(f"timestep_embedding: dim must be positive, got {dim}")
    half = dim // 2
    made = sinusoidal_embedding(timesteps, 2 * half, max_period) if half else timesteps.unsqueeze(-1)[..., :0]
    made = lucid.cat([made[..., half:], made[..., :half]], -1).to(lucid.float32)
    return lucid.constant_pad_nd(made, [0, 1]) if dim % 2 else made


def sinusoidal_embedding_2d(
    height: int, width: int, dim: int, max_period: float = 10000.0, device: Any = None
) -> Tensor:
    """Sinusoids of each row's and each column's number, half of `dim` each: (height, width, dim).

    Args:
        height (int): the number of rows.
        width (int): the number of columns.
        dim (int): the number of features, divisible by 4.
        max_period (float, default: 10000.0): the longest period.
        device (lucid.device or str, optional): where the result is made; the current default device by default.

    Returns:
        Tensor: (height, width, dim).

    Raises:
        ValueError: 4 does not divide `dim`.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.sinusoidal_embedding_2d(2, 3, 8).shape
        lucid.Size([2, 3, 8])
    """
    if dim % 4:
        raise errors.ValueError(f"sinusoidal_embedding_2d: dim must be divisible by 4, got {dim}")
    rows, columns = (
        sinusoidal_embedding(lucid.arange(n, device=device), dim // 2, max_period) for n in (height, width)
    )
    shape = [height, width, dim // 2]
    return lucid.cat([rows.unsqueeze(1).expand(shape), columns.unsqueeze(0).expand(shape)], -1)
