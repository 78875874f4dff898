"""From logits to tokens: penalties, temperature, top-k, top-p, min-p."""

from __future__ import annotations

import dataclasses

import lucid
from lucid import _C, Tensor, errors


@dataclasses.dataclass
class Sampler:
    """How the next token is chosen from a model's logits.

    Args:
        temperature (float, optional): logits are divided by it; 0 takes the best token. Default: 0.
        top_k (int, optional): how many of the best tokens are kept; 0: all. Default: 0.
        top_p (float, optional): the best tokens that together have this probability are kept. Default: 1, all.
        min_p (float, optional): tokens with at least this share of the best one's probability are kept. Default: 0,
            all.
        repetition_penalty (float, optional): logits of tokens that were seen are divided by it where positive,
            multiplied where negative. Default: 1.
        seed (int, optional): where the draws start. Default: None, the default generator continues.
        presence_penalty (float, optional): what is taken from the logits of tokens that were generated before. Default:
            0.
        frequency_penalty (float, optional): what is taken from them for each time that they were. Default: 0.
        logit_bias (dict of int to float, optional): what is added to the logits of tokens. Default: nothing.

    Raises:
        ValueError: a number is out of its range.

    Example:
        >>> model = lucid.llm.CausalLM(lucid.llm.Config("llama", 32, 16, 32, 2, 2, 1, 8))
        >>> sampler = lucid.llm.Sampler(temperature=0.7, top_p=0.9, seed=0)
        >>> len(lucid.llm.generate(model, [1, 2, 3], max_new_tokens=4, sampler=sampler)[0].tokens)
        4
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] | None = None

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
        for name in ("presence_penalty", "frequency_penalty"):
            if not -100 <= getattr(self, name) <= 100:
                raise errors.ValueError(f"sampling: {name} must be from -100 to 100, got {getattr(self, name)}")
        self._generators: dict[str, lucid.Generator] = {}

    @property
    def has_penalties(self) -> bool:
        """Do logits depend on the tokens before, or have biases?"""
        counted = self.presence_penalty != 0 or self.frequency_penalty != 0
        return counted or self.repetition_penalty != 1.0 or bool(self.logit_bias)

    def penalized(self, logits: Tensor, seen: Tensor, generated: int = 0) -> Tensor:
        """Logits (B, V) with penalties for the tokens `seen` (B, N), the last `generated` of which were generated, and
        with biases; tokens below 0 count nothing."""
        if self.repetition_penalty != 1.0:
            held = seen.clamp(min=0)
            own = logits.gather(1, held)
            lower = lucid.where(own < 0, own * self.repetition_penalty, own / self.repetition_penalty)
            marks = lucid.zeros_like(logits).scatter_reduce(1, held, (seen >= 0).to(logits.dtype), "amax")
            logits = lucid.where(marks > 0, logits.scatter(1, held, lower), logits)
        if generated and (self.presence_penalty or self.frequency_penalty):
            made = seen[:, -generated:]
            counts = lucid.zeros_like(logits).scatter_add(1, made.clamp(min=0), (made >= 0).to(logits.dtype))
            logits = logits - self.frequency_penalty * counts - self.presence_penalty * (counts > 0).to(logits.dtype)
        if self.logit_bias:
            tokens = lucid.tensor([list(self.logit_bias)], dtype=lucid.int64, device=logits.device)
            values = lucid.tensor([list(self.logit_bias.values())], dtype=logits.dtype, device=logits.device)
            tokens, values = (t.expand(logits.shape[0], -1) for t in (tokens, values))
            logits = logits.scatter_add(1, tokens, values)
        return logits

    def scores(self, logits: Tensor) -> Tensor:
        """Log-probabilities (B, V), up to a constant, of what may be drawn; minus infinity for the rest."""
        made: Tensor = _C._sampling_scores(logits, self.temperature, self.top_k, self.top_p, self.min_p)
        return made

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
