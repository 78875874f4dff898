"""Rotary position embeddings: frequencies with the scalings of long contexts, and the rotation.

Both are the engine's, so that its own decoder has the same.

Reference:
    J. Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021; B. Peng et al., "YaRN", 2023;
    Y. Ding et al., "LongRoPE", 2024.
"""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import lucid
from lucid import _C, Tensor, errors
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
    try:
        scaling = json.dumps(config.rope_scaling)
    except (TypeError, ValueError, RecursionError) as e:
        raise errors.ValueError(f"config: rope_scaling has no JSON form: {e}") from None
    made: tuple[list[float], float] = _C._rope_frequencies(
        config.rotary_dim, config.rope_theta, config.max_position_embeddings, scaling, length
    )
    return made


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
    made: Tensor = _C._rope_rotate(x, cos, sin)
    return made
