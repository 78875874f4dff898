"""Generating text: prompts in chunks, batches padded on the left, sampling, beams, and a draft model's help."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.llm.cache import Cache
from lucid.llm.constraint import Constraint
from lucid.llm.model import CausalLM
from lucid.llm.prefix import PrefixCache
from lucid.llm.sampling import Sampler
from lucid.llm.token_step import is_used
from lucid.llm.tokenizer import Tokenizer

#: Tokens of a prompt that go through the model at once.
CHUNK = 512


@dataclasses.dataclass
class Generated:
    """What was generated for one prompt.

    Args:
        tokens (list of int): the new tokens, with the one that ended them.
        text (str, optional): their text, without special tokens and stop strings. Default: empty, without a tokenizer.
        finish_reason (str, optional): `"stop"` for an end token or a stop string, `"length"` otherwise.
        logprobs (list of float, optional): the log-probability of each token, where they were asked for.

    Example:
        >>> model = lucid.llm.CausalLM(lucid.llm.Config("llama", 32, 16, 32, 2, 2, 1, 8))
        >>> found = lucid.llm.generate(model, [1, 2, 3], max_new_tokens=4)[0]
        >>> len(found.tokens), found.finish_reason
        (4, 'length')
    """

    tokens: list[int]
    text: str = ""
    finish_reason: str = "length"
    logprobs: list[float] | None = None


def _prompts(prompts: Any, tokenizer: Tokenizer | None) -> list[list[int]]:
    if isinstance(prompts, str) or (prompts and isinstance(prompts[0], int)):
        prompts = [prompts]
    made = []
    for prompt in prompts:
        if isinstance(prompt, str):
            if tokenizer is None:
                raise errors.ValueError("generate: a prompt that is text needs a tokenizer")
            prompt = tokenizer.encode(prompt)
        made.append([int(t) for t in prompt])
    if not made or not all(made):
        raise errors.ValueError("generate: every prompt needs at least one token")
    return made


def _check(model: CausalLM, prompts: list[list[int]], new: int, cache: Cache | None) -> None:
    config = model.config
    if isinstance(new, bool) or not isinstance(new, int) or new < 1:
        raise errors.ValueError(f"generate: max_new_tokens must be a positive integer, got {new!r}")
    for prompt in prompts:
        if min(prompt) < 0 or max(prompt) >= config.vocab_size:
            raise errors.ValueError(
                f"generate: tokens must be from 0 to {config.vocab_size - 1}, got {min(prompt)} to {max(prompt)}"
            )
        before = len(prompt) + (0 if cache is None else cache.offset)
        if before + new > config.context:
            raise errors.ValueError(
                f"generate: {before} tokens and {new} new ones do not fit into the model's context of "
                f"{config.context}; shorten the prompt or lower max_new_tokens"
            )


def padded(prompts: Sequence[Sequence[int]], device: Any = None, pad: int = 0) -> tuple[Tensor, Tensor | None]:
    """Makes one tensor of several prompts, padded on the left.

    Args:
        prompts (sequence of sequence of int): the tokens of each.
        device (device or str, optional): where the tensor goes. Default: the default device.
        pad (int, optional): the token that pads. Default: 0.

    Returns:
        tuple of (Tensor, Tensor or None): the tokens, of shape (B, L), int64; and how many are padding, of shape (B,),
        int64, or None where none are.

    Example:
        >>> lucid.llm.padded([[5, 6, 7], [8]])
        (tensor([[5, 6, 7],
                [0, 0, 8]]), tensor([0, 2]))
    """
    longest = max(len(p) for p in prompts)
    rows = [[pad] * (longest - len(p)) + list(p) for p in prompts]
    tokens = lucid.tensor(rows, dtype=lucid.int64, device=device)
    counts = [longest - len(p) for p in prompts]
    return tokens, lucid.tensor(counts, dtype=lucid.int64, device=device) if any(counts) else None


def prefill(
    model: CausalLM,
    tokens: Tensor,
    cache: Cache,
    chunk: int = CHUNK,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Puts a prompt's tokens through a model, so that a cache holds their keys and values.

    Args:
        model (CausalLM): the model that reads them.
        tokens (Tensor): of shape (B, L), integers.
        cache (Cache): gets the keys and values.
        chunk (int, optional): how many tokens go through the model at once. Default: 512.
        progress (callable, optional): called with how many tokens have been read, and of how many. Default: none.

    Returns:
        Tensor: the logits after the last token, of shape (B, vocab_size).

    Raises:
        ValueError: `chunk` is less than 1.

    Example:
        >>> config = lucid.llm.Config("llama", 32, 16, 32, 2, 2, 1, 8)
        >>> model, cache = lucid.llm.CausalLM(config), lucid.llm.Cache(config)
        >>> lucid.llm.prefill(model, lucid.tensor([[1, 2, 3]]), cache).shape
        lucid.Size([1, 32])
    """
    if chunk < 1:
        raise errors.ValueError(f"prefill: chunk must be positive, got {chunk}")
    length = tokens.shape[1]
    logits: Tensor | None = None
    for start in range(0, length, chunk):
        logits = model(tokens[:, start : start + chunk], cache=cache, last_only=True)
        logits.eval()
        if progress is not None:
            progress(min(start + chunk, length), length)
    assert logits is not None
    return logits[:, -1]


class _Text:
    """The text of one sequence as it grows, up to a stop string."""

    def __init__(self, tokenizer: Tokenizer | None, stop: Sequence[str]) -> None:
        self.stream = tokenizer.stream() if tokenizer else None
        self.stop = [s for s in stop if s]
        self.text = ""
        self.given = 0

    def add(self, token: int | None) -> bool:
        """Takes a token (None: the last was taken); is there a stop string?"""
        if self.stream is None:
            return False
        self.text += self.stream.finish() if token is None else self.stream.add(token)
        at = min((i for i in (self.text.find(s) for s in self.stop) if i >= 0), default=-1)
        if at >= 0:
            self.text = self.text[:at]
        return at >= 0

    def fresh(self, last: bool) -> str:
        """What was not given yet and can be no part of a stop string."""
        end = len(self.text)
        if not last:
            end -= max((n for s in self.stop for n in range(1, len(s)) if self.text.endswith(s[:n])), default=0)
        made = self.text[self.given : end]
        self.given = max(self.given, end)
        return made


@lucid.no_grad()
def _steps(
    model: CausalLM,
    prompts: list[list[int]],
    new: int,
    sampler: Sampler,
    chunk: int,
    cache: Cache | None,
    cache_options: dict[str, Any],
    logprobs: bool,
    progress: Callable[[int, int], None] | None,
    prefixes: PrefixCache | None = None,
    constraint: Constraint | None = None,
) -> Iterator[tuple[list[int], list[float] | None]]:
    device = model.device
    tokens, padding = padded(prompts, device)
    known = 0
    alone = prefixes is not None or constraint is not None
    if (alone and len(prompts) != 1) or (prefixes is not None and (cache is not None or cache_options)):
        raise errors.ValueError(
            "generate: a constraint takes one prompt, a prefix cache one prompt and no other cache or its options"
        )
    if prefixes is not None:
        cache = prefixes.find(prompts[0])
        known = cache.offset
    elif cache is None:
        cache = Cache(model.config, padding=padding, **cache_options)
    elif padding is not None:
        raise errors.ValueError("generate: a cache that is given goes on with prompts of one length")
    seen = None
    if sampler.has_penalties:
        longest = tokens.shape[1]
        rows = [[-1] * (longest - len(p)) + p for p in prompts]
        seen = lucid.tensor(rows, dtype=lucid.int64, device=device)
    logits = prefill(model, tokens[:, known:], cache, chunk, progress)
    fed = list(prompts[0])
    # Where the step after a token needs nothing from the host, it is begun before the token is looked at.
    begun = False
    try:
        for step in range(new):
            if seen is not None:
                logits = sampler.penalized(logits, seen, step)
            if constraint is not None:
                logits = constraint.masked(logits)
            chosen = sampler(logits)
            if seen is not None:
                seen = lucid.cat([seen, chosen[:, None]], 1)
            shown = None
            if logprobs:
                scores = logits.to(lucid.float32).log_softmax(-1)
                shown = scores.gather(1, chosen[:, None]).squeeze(1).tolist()
            if step + 1 < new and constraint is None and not logprobs and is_used(model, cache):
                logits = model(chosen[:, None], cache=cache)[:, -1]
                lucid.eval(logits, wait=False)
                begun = True
            numbers = chosen.tolist()
            if constraint is not None:
                constraint.take(numbers[0])
            yield numbers, shown
            if step + 1 < new:
                if not begun:
                    logits = model(chosen[:, None], cache=cache)[:, -1]
                fed += numbers[:1]
                begun = False
    finally:
        # Also where whoever asked wants no more tokens.
        if begun:
            cache.trim(1)
        if prefixes is not None and cache.offset == len(fed):
            prefixes.put(fed, cache)


def _ends(model: CausalLM, eos: Sequence[int] | int | None) -> frozenset[int]:
    if eos is None:
        return frozenset(model.config.eos_token_id)
    return frozenset([eos] if isinstance(eos, int) else eos)


def generate(
    model: CausalLM,
    prompts: Any,
    max_new_tokens: int = 128,
    tokenizer: Tokenizer | None = None,
    sampler: Sampler | None = None,
    stop: Sequence[str] = (),
    eos_token_id: Sequence[int] | int | None = None,
    num_beams: int = 1,
    length_penalty: float = 1.0,
    draft: CausalLM | None = None,
    draft_tokens: int = 4,
    logprobs: bool = False,
    chunk: int = CHUNK,
    cache: Cache | None = None,
    cache_options: dict[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
    prefixes: PrefixCache | None = None,
    constraint: Constraint | None = None,
) -> list[Generated]:
    """Continues prompts, all at once.

    Args:
        model (CausalLM): the model, in evaluation mode.
        prompts (str, list of int, or a list of either): texts need a tokenizer.
        max_new_tokens (int, optional): the most tokens for each. Default: 128.
        tokenizer (Tokenizer, optional): for texts and stop strings. Default: none.
        sampler (Sampler, optional): how tokens are chosen. Default: the best one each.
        stop (sequence of str, optional): strings that end a sequence; they are not in its text. Default: none.
        eos_token_id (int or sequence of int, optional): tokens that end a sequence. Default: the model's; `[]` for
            none.
        num_beams (int, optional): above 1, beam search for each prompt, as Hugging Face's, without sampling. Default:
            1.
        length_penalty (float, optional): scores of beams are divided by their length to this power. Default: 1.
        draft (CausalLM, optional): a small model with the same tokens that proposes `draft_tokens` at a time, which the
            model checks at once; greedy results are the same as without, but for ties. One prompt, temperature 0.
        draft_tokens (int, optional): how many tokens the draft proposes. Default: 4.
        logprobs (bool, optional): whether each token's log-probability is noted. Default: False.
        chunk (int, optional): how many tokens of a prompt go through the model at once. Default: 512.
        cache (Cache, optional): of earlier calls, to continue; its tokens come before the prompts. Default: a new one.
        cache_options (dict, optional): for the cache that is made: `kind`, `max_size`, `bits`, `group_size`.
        progress (callable, optional): called with how many tokens of the prompts have been read, and of how many.
        prefixes (PrefixCache, optional): keys and values of earlier prompts, for one prompt. Default: none.
        constraint (Constraint, optional): what the output keeps to, for one prompt. Default: none.

    Returns:
        list of Generated: one for each prompt.

    Raises:
        ValueError: a text without a tokenizer, a token out of the vocabulary, more tokens than the model's context, or
            options that exclude one another.

    Example:
        >>> model = lucid.llm.CausalLM(lucid.llm.Config("llama", 32, 16, 32, 2, 2, 1, 8))
        >>> sampler = lucid.llm.Sampler(temperature=0.8, seed=1)
        >>> found = lucid.llm.generate(model, [[1, 2, 3], [4]], max_new_tokens=5, sampler=sampler)
        >>> [len(g.tokens) for g in found]
        [5, 5]
    """
    rows = _prompts(prompts, tokenizer)
    _check(model, rows, max_new_tokens, cache)
    sampler = sampler or Sampler()
    ends = _ends(model, eos_token_id)
    if stop and tokenizer is None:
        raise errors.ValueError("generate: stop strings need a tokenizer")
    options = dict(cache_options or {})
    if num_beams > 1:
        from lucid.llm.beams import beam_search

        others = (draft, cache, prefixes, constraint)
        if sampler.temperature != 0 or any(o is not None for o in others) or logprobs or stop:
            raise errors.ValueError("generate: beam search takes no sampling, draft, cache, stop strings or logprobs")
        made = [
            beam_search(model, row, max_new_tokens, num_beams, ends, length_penalty, chunk, options) for row in rows
        ]
        return [Generated(t, tokenizer.decode(t) if tokenizer else "", reason) for t, reason in made]
    if draft is not None:
        if (
            len(rows) != 1
            or sampler.temperature != 0
            or sampler.has_penalties
            or any(o is not None for o in (cache, prefixes, constraint))
            or logprobs
        ):
            raise errors.ValueError("generate: a draft model helps with one prompt at temperature 0, without a cache")
        steps = _speculative(model, draft, rows[0], max_new_tokens, draft_tokens, chunk, options)
    else:
        steps = _steps(
            model, rows, max_new_tokens, sampler, chunk, cache, options, logprobs, progress, prefixes, constraint
        )
    out = [Generated([], logprobs=[] if logprobs else None) for _ in rows]
    texts = [_Text(tokenizer, stop) for _ in rows]
    active = [True] * len(rows)
    for numbers, shown in steps:
        for i, token in enumerate(numbers):
            if not active[i]:
                continue
            out[i].tokens.append(token)
            noted = out[i].logprobs
            if shown is not None and noted is not None:
                noted.append(shown[i])
            if token in ends or texts[i].add(token):
                out[i].finish_reason = "stop"
                active[i] = False
        if not any(active):
            break
    for made_one, text in zip(out, texts, strict=True):
        text.add(None)
        made_one.text = text.text
    return out


def stream(
    model: CausalLM,
    prompt: Any,
    max_new_tokens: int = 128,
    tokenizer: Tokenizer | None = None,
    sampler: Sampler | None = None,
    stop: Sequence[str] = (),
    eos_token_id: Sequence[int] | int | None = None,
    chunk: int = CHUNK,
    cache: Cache | None = None,
    cache_options: dict[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
    prefixes: PrefixCache | None = None,
    constraint: Constraint | None = None,
) -> Iterator[tuple[int, str]]:
    """Continues one prompt, and yields tokens as they are generated.

    Args:
        model (CausalLM): the model, in evaluation mode.
        prompt (str or list of int): a text needs a tokenizer.
        max_new_tokens (int, optional): the most tokens. Default: 128.
        tokenizer (Tokenizer, optional): for texts and stop strings. Default: none.
        sampler (Sampler, optional): how tokens are chosen. Default: the best one each.
        stop (sequence of str, optional): strings that end the sequence; they are not in its text. Default: none.
        eos_token_id (int or sequence of int, optional): tokens that end it. Default: the model's; `[]` for none.
        chunk (int, optional): how many tokens of the prompt go through the model at once. Default: 512.
        cache (Cache, optional): of earlier calls, to continue; its tokens come before the prompt. Default: a new one.
        cache_options (dict, optional): for the cache that is made: `kind`, `max_size`, `bits`, `group_size`.
        progress (callable, optional): called with how many tokens of the prompt have been read, and of how many.
        prefixes (PrefixCache, optional): keys and values of earlier prompts. Default: none.
        constraint (Constraint, optional): what the output keeps to. Default: none.

    Yields:
        tuple of (int, str): a token, and the text that is new with it; -1 with text that was held back at the end.

    Raises:
        ValueError: several prompts, or what `generate` refuses.

    Example:
        >>> model = lucid.llm.CausalLM(lucid.llm.Config("llama", 32, 16, 32, 2, 2, 1, 8))
        >>> tokens = [token for token, text in lucid.llm.stream(model, [1, 2, 3], max_new_tokens=4)]
        >>> len(tokens)
        4
    """
    rows = _prompts(prompt, tokenizer)
    if len(rows) != 1:
        raise errors.ValueError(f"stream: takes one prompt, got {len(rows)}")
    _check(model, rows, max_new_tokens, cache)
    ends = _ends(model, eos_token_id)
    steps = _steps(
        model, rows, max_new_tokens, sampler or Sampler(), chunk, cache, dict(cache_options or {}), False, progress,
        prefixes, constraint,
    )  # fmt: skip
    text = _Text(tokenizer, stop)
    for numbers, _ in steps:
        token = numbers[0]
        if token in ends:
            text.add(None)
            yield token, text.fresh(True)
            return
        stopped = text.add(token)
        yield token, text.fresh(stopped)
        if stopped:
            return
    text.add(None)
    rest = text.fresh(True)
    if rest:
        yield -1, rest


@lucid.no_grad()
def _speculative(
    model: CausalLM,
    draft: CausalLM,
    prompt: list[int],
    new: int,
    ahead: int,
    chunk: int,
    options: dict[str, Any],
) -> Iterator[tuple[list[int], list[float] | None]]:
    """Greedy tokens, of which the model checks `ahead + 1` at a time."""
    if ahead < 1:
        raise errors.ValueError(f"generate: draft_tokens must be positive, got {ahead}")
    if draft.config.vocab_size != model.config.vocab_size:
        raise errors.ValueError(
            f"generate: the draft model has {draft.config.vocab_size} tokens, the model {model.config.vocab_size}"
        )
    options = {**options, "rotating": False}
    caches = [Cache(m.config, **options) for m in (model, draft)]
    start = lucid.tensor([prompt], dtype=lucid.int64, device=model.device)
    last = int(prefill(model, start, caches[0], chunk).argmax(-1).item())
    prefill(draft, start, caches[1], chunk)
    made = 1
    yield [last], None
    # What the draft has not seen yet ends with `last`.
    behind = [last]
    while made < new:
        count = min(ahead, new - made)
        proposed: list[int] = []
        feed = behind
        for _ in range(count):
            step = draft(lucid.tensor([feed], device=model.device), cache=caches[1], last_only=True)
            feed = [int(step[:, -1].argmax(-1).item())]
            proposed += feed
        checked = model(lucid.tensor([[last, *proposed]], device=model.device), cache=caches[0])
        best: list[int] = checked[0].argmax(-1).tolist()
        right = 0
        while right < count and proposed[right] == best[right]:
            right += 1
        accepted = best[: right + 1]
        caches[0].trim(count - right)
        # The draft has seen all of its proposals but the last one.
        seen = min(right, count - 1)
        caches[1].trim(count - 1 - seen)
        behind = [*proposed[seen:right], accepted[-1]]
        last = accepted[-1]
        for token in accepted[: new - made]:
            yield [token], None
        made += len(accepted)


@lucid.no_grad()
def perplexity(model: CausalLM, tokens: Sequence[int], window: int = 512, limit: int | None = None) -> float:
    """Computes the perplexity of a text: `exp(-mean(log p(token | those before it)))`, in windows that do not overlap.

    Args:
        model (CausalLM): the model, in evaluation mode.
        tokens (sequence of int): the text's tokens, at least two.
        window (int, optional): the length of a window, at most the model's context; its first token is not scored.
            Default: 512.
        limit (int, optional): the most windows. Default: all.

    Returns:
        float: 1 for a model that knows the text, `vocab_size` for one that guesses.

    Raises:
        ValueError: there are not two tokens.

    Example:
        >>> model = lucid.llm.CausalLM(lucid.llm.Config("llama", 32, 16, 32, 2, 2, 1, 8))
        >>> lucid.llm.perplexity(model, [1, 2, 3, 4, 5]) > 1
        True
    """
    window = min(window, model.config.context)
    pieces = [tokens[i : i + window] for i in range(0, len(tokens), window)]
    pieces = [p for p in pieces if len(p) > 1][:limit]
    if not pieces:
        raise errors.ValueError("perplexity: needs at least two tokens")
    total, count = 0.0, 0
    for piece in pieces:
        x = lucid.tensor([list(piece)], dtype=lucid.int64, device=model.device)
        logits = model(x)[0, :-1].to(lucid.float32)
        loss = lucid.nn.functional.cross_entropy(logits, x[0, 1:], reduction="sum")
        total += float(loss.item())
        count += len(piece) - 1
    return float(lucid.tensor(total / count, dtype=lucid.float64).exp().item())
