"""From logits to tokens: penalties, temperature, top-k, top-p, min-p."""

from __future__ import annotations

import dataclasses

import lucid
from lucid import Tensor, errors


@dataclasses.dataclass
class Sampler:
    """How tokens are chosen.

    Attributes:
        temperature: 0 takes the best token; otherwise logits are divided by it.
        top_k: Keep so many of the best tokens; 0 keeps all.
        top_p: Keep the best tokens that together have this probability.
        min_p: Keep tokens with at least this share of the best one's probability.
        repetition_penalty: Logits of tokens that were seen are divided by it where positive, multiplied where negative.
        seed: Of the draws; None goes on from the default generator.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        if not self.temperature >= 0 or self.temperature == float("inf"):
            raise errors.ValueError(f"sampling: temperature must be a number from 0 on, got {self.temperature}")
        if self.top_k < 0:
            raise errors.ValueError(f"sampling: top_k must be 0 or more, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise errors.ValueError(f"sampling: top_p must be above 0 and at most 1, got {self.top_p}")
        if not 0 <= self.min_p <= 1:
            raise errors.ValueError(f"sampling: min_p must be from 0 to 1, got {self.min_p}")
        if not self.repetition_penalty > 0:
            raise errors.ValueError(f"sampling: repetition_penalty must be positive, got {self.repetition_penalty}")
        self._generators: dict[str, lucid.Generator] = {}

    def penalized(self, logits: Tensor, seen: Tensor) -> Tensor:
        """Logits (B, V) with those of the tokens `seen` (B, N) lowered; tokens below 0 count nothing."""
        if self.repetition_penalty == 1.0:
            return logits
        held = seen.clamp(min=0)
        own = logits.gather(1, held)
        lower = lucid.where(own < 0, own * self.repetition_penalty, own / self.repetition_penalty)
        marks = lucid.zeros_like(logits).scatter_reduce(1, held, (seen >= 0).to(logits.dtype), "amax")
        return lucid.where(marks > 0, logits.scatter(1, held, lower), logits)

    def scores(self, logits: Tensor) -> Tensor:
        """Log-probabilities (B, V), up to a constant, of what may be drawn; minus infinity for the rest."""
        logits = logits.to(lucid.float32) / self.temperature
        if self.top_k and self.top_k < logits.shape[-1]:
            least = logits.topk(self.top_k, -1)[0][:, -1:]
            logits = logits.masked_fill(logits < least, float("-inf"))
        if self.min_p > 0:
            probabilities = logits.softmax(-1)
            least = probabilities.amax(-1, keepdim=True) * self.min_p
            logits = logits.masked_fill(probabilities < least, float("-inf"))
        if self.top_p < 1:
            ordered, order = logits.sort(-1, descending=True)
            probabilities = ordered.softmax(-1)
            # A token stays if those before it have not reached top_p; the best one always does.
            drop = probabilities.cumsum(-1) - probabilities >= self.top_p
            drop = lucid.zeros_like(drop).scatter(1, order, drop)
            logits = logits.masked_fill(drop, float("-inf"))
        return logits

    def __call__(self, logits: Tensor) -> Tensor:
        """One token (B,) for each row of logits (B, V)."""
        if self.temperature == 0:
            return logits.argmax(-1)
        probabilities = self.scores(logits).softmax(-1)
        return lucid.multinomial(probabilities, 1, generator=self.generator(logits)).squeeze(-1)

    def generator(self, like: Tensor) -> lucid.Generator | None:
        """The generator of the draws on a tensor's device."""
        if self.seed is None:
            return None
        key = like.device.type
        if key not in self._generators:
            self._generators[key] = lucid.Generator(device=like.device)
            self._generators[key].manual_seed(self.seed)
        return self._generators[key]
