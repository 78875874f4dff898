"""Rotary position embeddings: frequencies with the scalings of long contexts, and the rotation.

Reference:
    J. Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021; B. Peng et al., "YaRN", 2023;
    Y. Ding et al., "LongRoPE", 2024.
"""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.llm.config import Config


def _number(scaling: dict[str, Any], name: str, default: float | None = None) -> float:
    found = scaling.get(name, default)
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not math.isfinite(found) or found <= 0:
        raise errors.ValueError(f"config: rope_scaling needs a positive number {name}, got {found!r}")
    return float(found)


def frequencies(config: Config, long: bool = False) -> tuple[list[float], float]:
    """Angles per position of the pairs of a head, and the factor that cosines and sines are multiplied by.

    `long` asks for those beyond the original context, where `longrope` has others.
    """
    dim, theta = config.rotary_dim, config.rope_theta
    plain = [theta ** -(i / dim) for i in range(0, dim, 2)]
    scaling = config.rope_scaling
    kind = "default" if scaling is None else scaling.get("rope_type", "default")
    if scaling is None or kind == "default":
        return plain, 1.0
    if kind == "linear":
        factor = _number(scaling, "factor")
        return [f / factor for f in plain], 1.0
    if kind == "llama3":
        factor, low, high = (_number(scaling, n) for n in ("factor", "low_freq_factor", "high_freq_factor"))
        context = _number(scaling, "original_max_position_embeddings")
        made = []
        for f in plain:
            length = 2 * math.pi / f
            if length < context / high:
                made.append(f)
            elif length > context / low:
                made.append(f / factor)
            else:
                smooth = (context / length - low) / (high - low)
                made.append((1 - smooth) * f / factor + smooth * f)
        return made, 1.0
    if kind == "yarn":
        factor = _number(scaling, "factor")
        context = _number(scaling, "original_max_position_embeddings", config.max_position_embeddings)
        fast, slow = _number(scaling, "beta_fast", 32), _number(scaling, "beta_slow", 1)

        def index(rotations: float) -> float:
            return dim * math.log(context / (rotations * 2 * math.pi)) / (2 * math.log(theta))

        low_at, high_at = max(math.floor(index(fast)), 0), min(math.ceil(index(slow)), dim - 1)
        span = max(high_at - low_at, 0.001)
        made = []
        for i, f in enumerate(plain):
            ramp = min(max((i - low_at) / span, 0.0), 1.0)
            made.append(f / factor * ramp + f * (1 - ramp))
        attention = scaling.get("attention_factor")
        return made, 0.1 * math.log(factor) + 1.0 if attention is None else float(attention)
    if kind in ("longrope", "su"):
        factors = scaling.get("long_factor" if long else "short_factor")
        if not isinstance(factors, list) or len(factors) != len(plain):
            raise errors.ValueError(f"config: rope_scaling needs long_factor and short_factor of {len(plain)} numbers")
        context = _number(scaling, "original_max_position_embeddings")
        factor = config.max_position_embeddings / context
        attention = scaling.get("attention_factor")
        if attention is None:
            attention = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(context))
        return [f / float(by) for f, by in zip(plain, factors, strict=True)], float(attention)
    raise errors.ValueError(f"config: rope_scaling of type {kind!r} is not known")


class Rope:
    """The rotations of a model's positions."""

    def __init__(self, config: Config) -> None:
        self.dim = config.rotary_dim
        self.short = frequencies(config)
        scaling = config.rope_scaling or {}
        self.long = frequencies(config, True) if scaling.get("rope_type") in ("longrope", "su") else None
        self.context = scaling.get("original_max_position_embeddings") or config.max_position_embeddings
        self._tables: dict[Any, Tensor] = {}

    def angles(self, positions: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines (B, 1, L, dim / 2), float32, for positions (B, L) of texts of `length` tokens."""
        use_long = self.long is not None and length > self.context
        values, factor = self.long if use_long and self.long is not None else self.short
        key = (use_long, positions.device)
        if key not in self._tables:
            self._tables[key] = lucid.tensor(values, dtype=lucid.float32, device=positions.device)
        angles = positions.to(lucid.float32)[:, None, :, None] * self._tables[key]
        cos, sin = angles.cos(), angles.sin()
        return (cos, sin) if factor == 1.0 else (cos * factor, sin * factor)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`x` (B, H, L, D) with its first elements rotated: pairs are `i` and `i + dim / 2`."""
    half = cos.shape[-1]
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    a, b = x[..., :half], x[..., half : 2 * half]
    parts = [a * cos - b * sin, b * cos + a * sin]
    if 2 * half < x.shape[-1]:
        parts.append(x[..., 2 * half :])
    return lucid.cat(parts, -1)
