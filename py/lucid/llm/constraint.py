"""Output that keeps to a JSON schema, a regular expression or a grammar, by the `llguidance` crate."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor


class Constraint:
    """What one output keeps to, and how far it has come."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def masked(self, logits: Tensor) -> Tensor:
        """Logits (1, V), minus infinity for tokens that may not come next."""
        allowed = lucid.tensor([self._engine.allowed()], device=logits.device)
        return logits.masked_fill(~allowed, float("-inf"))

    def take(self, token: int) -> None:
        """Takes the token that was chosen. Raises ValueError for one that was not allowed."""
        self._engine.take(token)

    @property
    def complete(self) -> bool:
        """Whether the output has ended."""
        return bool(self._engine.is_complete())
