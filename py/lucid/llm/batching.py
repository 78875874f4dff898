"""Continuous batching: requests join and leave a running batch at any step.

All sequences of the batch have one cache, padded on the left, so that their last tokens are in one column. A sequence
that comes is read alone (or with others that come) and its cache is then joined to the batch's; one that ends is taken
out of it. Between two steps of the batch at most one piece of a prompt is read, so that long prompts hold nobody up.
Invariant: a request's tokens are those that it would get alone, but for ties within rounding.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Sequence
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.llm.cache import STEP, Cache
from lucid.llm.constraint import Constraint
from lucid.llm.generation import CHUNK, _Text, padded
from lucid.llm.model import CausalLM
from lucid.llm.prefix import PrefixCache
from lucid.llm.sampling import Sampler
from lucid.llm.tokenizer import Tokenizer


@dataclasses.dataclass(eq=False)
class Request:
    """One prompt that a `Batcher` continues, and how.

    Args:
        tokens (list of int): the prompt.
        max_new_tokens (int, optional): the most tokens to generate. Default: 128.
        sampler (Sampler, optional): how tokens are chosen. Default: the best one each.
        stop (sequence of str, optional): strings that end the text; the batcher needs a tokenizer then. Default: none.
        ends (frozenset of int, optional): tokens that end it. Default: the model's.
        top_logprobs (int, optional): how many of the best tokens' log-probabilities are noted, beside the chosen one's.
            Default: None, none at all.
        constraint (Constraint, optional): what the output keeps to. Default: none.
        generated (list of int, optional): the tokens so far; the batcher appends to it.

    Example:
        >>> request = lucid.llm.Request([1, 2, 3], max_new_tokens=2)
        >>> batcher = lucid.llm.Batcher(lucid.llm.CausalLM(lucid.llm.Config("llama", 32, 16, 32, 2, 2, 1, 8)))
        >>> batcher.submit(request)
        >>> while not batcher.idle:
        ...     _ = batcher.step()
        >>> len(request.generated)
        2
    """

    tokens: list[int]
    max_new_tokens: int = 128
    sampler: Sampler = dataclasses.field(default_factory=Sampler)
    stop: Sequence[str] = ()
    ends: frozenset[int] | None = None
    top_logprobs: int | None = None
    constraint: Constraint | None = None
    generated: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Step:
    """A token of a request.

    Attributes:
        request: Whose it is.
        token: The token.
        text: What is new in the text and can be no part of a stop string.
        finish_reason: `"stop"` or `"length"` with the last token, else None.
        logprob: Its log-probability, where asked for.
        top: The best tokens with their log-probabilities, where asked for.
    """

    request: Request
    token: int
    text: str
    finish_reason: str | None = None
    logprob: float | None = None
    top: list[tuple[int, float]] = dataclasses.field(default_factory=list)


class _Running:
    """A request in the batch."""

    def __init__(self, request: Request, tokenizer: Tokenizer | None) -> None:
        self.request = request
        self.text = _Text(tokenizer, request.stop)


class _Reading:
    """A request whose prompt is being read."""

    def __init__(self, request: Request, cache: Cache) -> None:
        self.request, self.cache = request, cache


def _padding(cache: Cache, rows: int, device: Any) -> Tensor:
    if cache.padding is not None:
        return cache.padding
    return lucid.zeros(rows, dtype=lucid.int64, device=device)


def _room(length: int) -> int:
    return -(-(length + 1) // STEP) * STEP


def join(a: Cache, b: Cache) -> None:
    """Adds the sequences of `b` behind those of `a`, both padded to one length."""
    length = max(a.offset, b.offset)
    device = a.layers[0].buffers[0].device
    counts = [c.layers[0].buffers[0].shape[0] for c in (a, b)]
    for own, other in zip(a.layers, b.layers, strict=True):
        grown = []
        for x, y in zip(own.buffers, other.buffers, strict=True):
            buffer = x.new_zeros((sum(counts), x.shape[1], _room(length), x.shape[3]))
            buffer[: counts[0], :, length - a.offset : length] = x[:, :, : a.offset]
            buffer[counts[0] :, :, length - b.offset : length] = y[:, :, : b.offset]
            grown.append(buffer)
        own.buffers, own.length = grown, length
    a.padding = lucid.cat(
        [
            _padding(a, counts[0], device) + (length - a.offset),
            _padding(b, counts[1], device) + (length - b.offset),
        ]
    )
    a.offset = length


def keep(cache: Cache, rows: list[int], device: Any) -> None:
    """Leaves only some sequences, and no more padding than they need."""
    index = lucid.tensor(rows, dtype=lucid.int64, device=device)
    assert cache.padding is not None
    padding = cache.padding.index_select(0, index)
    spare = int(padding.min().item())
    length = cache.offset - spare
    for layer in cache.layers:
        kept = []
        for x in layer.buffers:
            buffer = x.new_zeros((len(rows), x.shape[1], _room(length), x.shape[3]))
            buffer[:, :, :length] = x[:, :, spare : cache.offset].index_select(0, index)
            kept.append(buffer)
        layer.buffers, layer.length = kept, length
    cache.padding, cache.offset = padding - spare, length


class Batcher:
    """Runs requests together: each step generates one token for each, and requests come and go between steps.

    Args:
        model (CausalLM): generates the tokens.
        tokenizer (Tokenizer, optional): for texts and stop strings. Default: none.
        max_batch (int, optional): the most sequences at once. Default: 32.
        chunk (int, optional): how many tokens of a prompt are read between two steps. Default: 512.
        prefixes (PrefixCache, optional): keys and values of earlier prompts. Default: none are kept.

    Raises:
        ValueError: `max_batch` or `chunk` is less than 1.

    Example:
        >>> model = lucid.llm.CausalLM(lucid.llm.Config("llama", 32, 16, 32, 2, 2, 1, 8))
        >>> batcher = lucid.llm.Batcher(model)
        >>> for prompt in ([1, 2, 3], [4, 5]):
        ...     batcher.submit(lucid.llm.Request(prompt, max_new_tokens=2))
        >>> count = 0
        >>> while not batcher.idle:
        ...     count += len(batcher.step())
        >>> count
        4
    """

    def __init__(
        self,
        model: CausalLM,
        tokenizer: Tokenizer | None = None,
        max_batch: int = 32,
        chunk: int = CHUNK,
        prefixes: PrefixCache | None = None,
    ) -> None:
        if max_batch < 1 or chunk < 1:
            raise errors.ValueError(f"Batcher: max_batch and chunk must be positive, got {max_batch} and {chunk}")
        self.model, self.tokenizer = model, tokenizer
        self.max_batch, self.chunk, self.prefixes = max_batch, chunk, prefixes
        self.waiting: deque[Request] = deque()
        self._reading: _Reading | None = None
        self._running: list[_Running] = []
        self._cache: Cache | None = None

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self.waiting and self._reading is None and not self._running

    @property
    def running(self) -> int:
        """How many sequences are in the batch."""
        return len(self._running)

    def submit(self, request: Request) -> None:
        """Takes a request.

        Raises ValueError for prompts without tokens, tokens outside of the vocabulary, and what exceeds the model's
        context.
        """
        from lucid.llm.generation import _check

        if not request.tokens:
            raise errors.ValueError("generate: every prompt needs at least one token")
        _check(self.model, [request.tokens], request.max_new_tokens, None)
        if request.stop and self.tokenizer is None:
            raise errors.ValueError("generate: stop strings need a tokenizer")
        if any(not 0 <= t < self.model.config.vocab_size for t in request.sampler.logit_bias or ()):
            raise errors.ValueError("generate: logit_bias names tokens outside of the vocabulary")
        self.waiting.append(request)

    def cancel(self, request: Request) -> None:
        """Drops a request, wherever it is."""
        if request in self.waiting:
            self.waiting.remove(request)
        elif self._reading is not None and self._reading.request is request:
            self._reading = None
        else:
            self._leave([i for i, r in enumerate(self._running) if r.request is request])

    @lucid.no_grad()
    def step(self) -> list[Step]:
        """Reads a piece of a prompt if there is one, and goes on by one token with every sequence in the batch."""
        made: list[Step] = []
        if self._running:
            tokens = [r.request.generated[-1] for r in self._running]
            x = lucid.tensor(tokens, dtype=lucid.int64, device=self.model.device)[:, None]
            logits = self.model(x, cache=self._cache)[:, -1]
            made += self._choose(self._running, logits)
            self._leave([i for i, step in enumerate(made) if step.finish_reason is not None])
        if self._reading is None and len(self._running) < self.max_batch and self.waiting:
            made += self._begin()
        if self._reading is not None:
            made += self._read()
        return made

    def _begin(self) -> list[Step]:
        """Takes what waits: the first of it alone where it is long or partly known, else all that is short."""
        taken: list[Request] = []
        longest = 0
        while self.waiting and len(self._running) + len(taken) < self.max_batch:
            request = self.waiting[0]
            longest = max(longest, len(request.tokens))
            known = self.prefixes.find(request.tokens) if self.prefixes is not None else None
            if len(request.tokens) > self.chunk or (known is not None and known.offset):
                if not taken:
                    self.waiting.popleft()
                    self._reading = _Reading(request, known or Cache(self.model.config, rotating=False))
                break
            if taken and longest * (len(taken) + 1) > 4 * self.chunk:
                break
            taken.append(self.waiting.popleft())
        if not taken:
            return []
        tokens, padding = padded([r.tokens for r in taken], self.model.device)
        cache = Cache(self.model.config, rotating=False, padding=padding)
        logits = self.model(tokens, cache=cache, last_only=True)[:, -1]
        return self._enter(taken, cache, logits)

    def _read(self) -> list[Step]:
        assert self._reading is not None
        request, cache = self._reading.request, self._reading.cache
        piece = request.tokens[cache.offset : cache.offset + self.chunk]
        x = lucid.tensor([piece], dtype=lucid.int64, device=self.model.device)
        logits = self.model(x, cache=cache, last_only=True)[:, -1]
        logits.eval()
        if cache.offset < len(request.tokens):
            return []
        self._reading = None
        return self._enter([request], cache, logits)

    def _enter(self, requests: list[Request], cache: Cache, logits: Tensor) -> list[Step]:
        """Joins sequences that were read to the batch, with their first tokens."""
        fresh = [_Running(r, self.tokenizer) for r in requests]
        made = self._choose(fresh, logits)
        self._running += fresh
        if self._cache is None:
            cache.padding = _padding(cache, len(fresh), self.model.device)
            self._cache = cache
        else:
            join(self._cache, cache)
        first = len(self._running) - len(fresh)
        self._leave([first + i for i, step in enumerate(made) if step.finish_reason is not None])
        return made

    def _leave(self, rows: list[int]) -> None:
        """Takes sequences out of the batch; what they have read is kept for prompts that begin with it."""
        if not rows:
            return
        assert self._cache is not None and self._cache.padding is not None
        if self.prefixes is not None:
            counts = self._cache.padding.tolist()
            for row in rows:
                request = self._running[row].request
                tokens = (request.tokens + request.generated)[: self._cache.offset - counts[row]]
                own = Cache(self.model.config, rotating=False)
                for layer, held in zip(own.layers, self._cache.layers, strict=True):
                    layer.buffers = [b[row : row + 1, :, counts[row] : self._cache.offset] for b in held.buffers]
                    layer.length = len(tokens)
                own.offset = len(tokens)
                self.prefixes.put(tokens, own)
        left = [i for i in range(len(self._running)) if i not in rows]
        self._running = [self._running[i] for i in left]
        if left:
            keep(self._cache, left, self.model.device)
        else:
            self._cache = None

    def _choose(self, running: list[_Running], logits: Tensor) -> list[Step]:
        """The next token of each sequence, from logits (B, V)."""
        plain = all(
            r.request.sampler.temperature == 0
            and not r.request.sampler.has_penalties
            and r.request.constraint is None
            and r.request.top_logprobs is None
            for r in running
        )
        best: list[int] = logits.argmax(-1).tolist() if plain else []
        made = []
        for i, one in enumerate(running):
            step = Step(one.request, best[i], "") if plain else self._one(one.request, logits[i : i + 1])
            request = one.request
            request.generated.append(step.token)
            ends = request.ends if request.ends is not None else frozenset(self.model.config.eos_token_id)
            ended = step.token in ends
            stopped = one.text.add(None if ended else step.token)
            if ended or stopped:
                step.finish_reason = "stop"
            elif len(request.generated) >= request.max_new_tokens:
                one.text.add(None)
                step.finish_reason = "length"
            step.text = one.text.fresh(step.finish_reason is not None)
            made.append(step)
        return made

    def _one(self, request: Request, logits: Tensor) -> Step:
        sampler = request.sampler
        if sampler.has_penalties:
            seen = lucid.tensor([request.tokens + request.generated], dtype=lucid.int64, device=logits.device)
            logits = sampler.penalized(logits, seen, len(request.generated))
        if request.constraint is not None:
            logits = request.constraint.masked(logits)
        token = int(sampler(logits).item())
        if request.constraint is not None:
            request.constraint.take(token)
        step = Step(request, token, "")
        if request.top_logprobs is not None:
            scores = logits.to(lucid.float32).log_softmax(-1)[0]
            step.logprob = float(scores[token].item())
            if request.top_logprobs:
                values, tokens = scores.topk(min(request.top_logprobs, scores.numel()))
                step.top = list(zip(tokens.tolist(), values.tolist(), strict=True))
        return step
