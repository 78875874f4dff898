"""Rotary position embeddings: frequencies with the scalings of long contexts, and the rotation.

Reference:
    J. Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021; B. Peng et al., "YaRN", 2023;
    Y. Ding et al., "LongRoPE", 2024.
"""

from __future__ import annotations

import dataclasses
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


def frequencies(config: Config, length: int = 0) -> tuple[list[float], float]:
    """Angles per position of the pairs of a head, and the factor that cosines and sines are multiplied by.

    `length` is the text's number of tokens, on which those of `longrope` and `dynamic` depend.
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
    if kind == "dynamic":
        factor, context = _number(scaling, "factor"), float(config.max_position_embeddings)
        base = theta * (factor * max(length, context) / context - (factor - 1)) ** (dim / (dim - 2))
        return [base ** -(i / dim) for i in range(0, dim, 2)], 1.0
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
        context = _number(scaling, "original_max_position_embeddings", config.max_position_embeddings)
        factor = _number(scaling, "factor", config.max_position_embeddings / context)
        fast, slow = _number(scaling, "beta_fast", 32), _number(scaling, "beta_slow", 1)

        def index(rotations: float) -> float:
            return dim * math.log(context / (rotations * 2 * math.pi)) / (2 * math.log(theta))

        low_at, high_at = index(fast), index(slow)
        if scaling.get("truncate", True):
            low_at, high_at = float(math.floor(low_at)), float(math.ceil(high_at))
        low_at, high_at = max(low_at, 0.0), min(high_at, dim - 1.0)
        span = max(high_at - low_at, 0.001)
        made = []
        for i, f in enumerate(plain):
            ramp = min(max((i - low_at) / span, 0.0), 1.0)
            made.append(f / factor * ramp + f * (1 - ramp))
        attention = scaling.get("attention_factor")
        if attention is None:
            mscale, all_dim = scaling.get("mscale"), scaling.get("mscale_all_dim")
            attention = _yarn_scale(factor, 1.0)
            if mscale and all_dim:
                attention = _yarn_scale(factor, float(mscale)) / _yarn_scale(factor, float(all_dim))
        return made, float(attention)
    if kind in ("longrope", "su"):
        context = _number(scaling, "original_max_position_embeddings")
        factors = scaling.get("long_factor" if length > context else "short_factor")
        if not isinstance(factors, list) or len(factors) != len(plain):
            raise errors.ValueError(f"config: rope_scaling needs long_factor and short_factor of {len(plain)} numbers")
        factor = config.max_position_embeddings / context
        attention = scaling.get("attention_factor")
        if attention is None:
            attention = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(context))
        return [f / float(by) for f, by in zip(plain, factors, strict=True)], float(attention)
    raise errors.ValueError(f"config: rope_scaling of type {kind!r} is not known")


def _yarn_scale(factor: float, by: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * by * math.log(factor) + 1.0


class Rope:
    """The rotations of a model's positions.

    Args:
        config: The model's.
        local: Those of layers with a window, where they have a base of their own (Gemma 3).
    """

    def __init__(self, config: Config, local: bool = False) -> None:
        if local and config.rope_local_theta is not None:
            config = dataclasses.replace(config, rope_theta=config.rope_local_theta, rope_scaling=None)
        self.config = config
        scaling = config.rope_scaling or {}
        kind = scaling.get("rope_type")
        #: Texts above this length have frequencies of their own; None where all have the same.
        self.context: float | None = None
        if kind in ("longrope", "su"):
            self.context = _number(scaling, "original_max_position_embeddings")
        elif kind == "dynamic":
            self.context = config.max_position_embeddings
        self.short = frequencies(config)
        self._tables: dict[Any, Tensor] = {}

    def _table(self, length: int, device: Any) -> tuple[Tensor, float]:
        """Frequencies (dim / 2,) for texts of `length` tokens, and the factor."""
        if self.context is None or length <= self.context:
            length = 0
        values, factor = self.short if length == 0 else frequencies(self.config, length)
        # Those of dynamic scaling differ with each length, so that they are not kept.
        if length and (self.config.rope_scaling or {}).get("rope_type") == "dynamic":
            return lucid.tensor(values, dtype=lucid.float32, device=device), factor
        key = (length > 0, device)
        if key not in self._tables:
            self._tables[key] = lucid.tensor(values, dtype=lucid.float32, device=device)
        return self._tables[key], factor

    def angles(self, positions: Tensor, length: int, padding: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Cosines and sines (B, 1, L, dim / 2), float32, for positions (B, L) of texts of `length` tokens, of which
        the first `padding` (B,) are padding."""
        table, factor = self._table(length, positions.device)
        if self.context is not None and padding is not None and length > self.context:
            rows = [self._table(length - int(count), positions.device)[0] for count in padding.tolist()]
            table = lucid.stack(rows)[:, None, None]
        angles = positions.to(lucid.float32)[:, None, :, None] * table
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
