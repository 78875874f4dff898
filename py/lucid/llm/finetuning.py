"""Fine-tuning: texts, completions and conversations to batches, and the loop that learns from them."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.llm.model import CausalLM
from lucid.llm.tokenizer import Tokenizer
from lucid.nn import functional as F

#: What `cross_entropy` leaves out.
IGNORED = -100


@dataclasses.dataclass
class Example:
    """Tokens, of which those from `start` on are learned."""

    tokens: list[int]
    start: int = 1


def _of_record(record: Any, tokenizer: Tokenizer, where: str) -> Example:
    """An example of an object of a JSONL file."""
    if isinstance(record, dict) and isinstance(record.get("text"), str):
        return Example(tokenizer.encode(record["text"]))
    if isinstance(record, dict) and all(isinstance(record.get(k), str) for k in ("prompt", "completion")):
        prompt = tokenizer.encode(record["prompt"])
        return Example(prompt + tokenizer.encode(record["completion"], False), len(prompt))
    messages = record.get("messages") if isinstance(record, dict) else None
    if isinstance(messages, list) and messages and all(isinstance(m, dict) for m in messages):
        tools = record.get("tools")
        prompt_text = tokenizer.apply_chat_template(messages[:-1], tools=tools) if len(messages) > 1 else ""
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=False, tools=tools)
        tokens = tokenizer.encode(text, False)
        # Templates may write the whole in another way than its beginning: then all is learned.
        start = len(tokenizer.encode(prompt_text, False)) if prompt_text and text.startswith(prompt_text) else 1
        return Example(tokens, start)
    raise errors.ValueError(f"{where}: needs text, prompt and completion, or messages")


def read_examples(
    path: str | os.PathLike[str], tokenizer: Tokenizer, max_tokens: int, end: int | None
) -> list[Example]:
    """The examples of a file, cut to `max_tokens`, with the token `end` behind each of JSONL.

    `.jsonl` has an object a line: `{"text": …}`, `{"prompt": …, "completion": …}`, of which the completion is learned,
    or `{"messages": […]}`, of which the last message is. Any other file is one text, cut into pieces of `max_tokens`.

    Raises FileError for files that cannot be read, ValueError for lines that are something else.
    """
    place = Path(path)
    try:
        text = place.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise errors.FileNotFoundError(f"{place}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as e:
        raise errors.FileError(f"{place}: {e}") from None
    made: list[Example] = []
    if place.suffix == ".jsonl":
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            where = f"{place}, line {number}"
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as e:
                raise errors.ValueError(f"{where}: not JSON: {e}") from None
            example = _of_record(record, tokenizer, where)
            if end is not None and example.tokens[-1:] != [end]:
                example.tokens.append(end)
            example.tokens = example.tokens[:max_tokens]
            made.append(example)
    else:
        tokens = tokenizer.encode(text)
        made = [Example(tokens[i : i + max_tokens]) for i in range(0, len(tokens), max_tokens)]
    # What has nothing to learn after it was cut is left out.
    made = [e for e in made if len(e.tokens) > max(e.start, 1)]
    if not made:
        raise errors.ValueError(f"{place}: has no example with a token to learn in its first {max_tokens} tokens")
    return made


def collate(examples: Sequence[Example], device: Any) -> tuple[Tensor, Tensor]:
    """Tokens and labels (B, L), padded on the right; labels of what is not learned are ignored."""
    longest = max(len(e.tokens) for e in examples)
    rows = [e.tokens + [0] * (longest - len(e.tokens)) for e in examples]
    labels = []
    for e in examples:
        start = max(e.start, 1)
        learned = e.tokens[start:]
        labels.append([IGNORED] * (start - 1) + learned + [IGNORED] * (longest - start - len(learned)))
    to = {"dtype": lucid.int64, "device": device}
    return lucid.tensor(rows, **to), lucid.tensor(labels, **to)


def loss_of(model: CausalLM, tokens: Tensor, labels: Tensor) -> tuple[Tensor, int]:
    """The sum of the negative log-likelihoods of labels (B, L - 1), and how many there are."""
    hidden = model.hidden(tokens)[:, :-1]
    flat = labels.reshape(-1)
    # Only the states that something is learned at become logits.
    at = (flat != IGNORED).nonzero(as_tuple=True)[0]
    rows = hidden.reshape(-1, hidden.shape[-1]).index_select(0, at)
    logits = model.logits(rows[None])[0].to(lucid.float32)
    return F.cross_entropy(logits, flat.index_select(0, at), reduction="sum"), int(at.numel())


@lucid.no_grad()
def evaluate(model: CausalLM, examples: Sequence[Example], batch_size: int = 4) -> float:
    """The mean negative log-likelihood of what is learned in examples."""
    training = model.training
    model.eval()
    total, count = 0.0, 0
    for i in range(0, len(examples), batch_size):
        loss, n = loss_of(model, *collate(examples[i : i + batch_size], model.device))
        total, count = total + float(loss.item()), count + n
    model.train(training)
    return total / count


@dataclasses.dataclass
class Report:
    """How training goes.

    Attributes:
        step: Steps so far.
        loss: The mean loss of the last step.
        tokens_per_second: Tokens that went through the model, with padding.
        valid_loss: Where it was measured.
    """

    step: int
    loss: float
    tokens_per_second: float
    valid_loss: float | None = None


def _batches(examples: Sequence[Example], size: int, seed: int) -> Iterator[list[Example]]:
    """Batches of examples in an order that differs with each epoch; lengths in a batch are alike."""
    rng = random.Random(seed)
    while True:
        order = list(examples)
        rng.shuffle(order)
        # Sorted in stretches: little padding, and batches that still differ.
        stretch = 32 * size
        order = [e for i in range(0, len(order), stretch) for e in sorted(order[i : i + stretch], key=_length)]
        batches = [order[i : i + size] for i in range(0, len(order), size)]
        rng.shuffle(batches)
        yield from batches


def _length(example: Example) -> int:
    return len(example.tokens)


def finetune(
    model: CausalLM,
    examples: Sequence[Example],
    steps: int,
    batch_size: int = 4,
    accumulate: int = 1,
    learning_rate: float = 1e-4,
    warmup: int = 10,
    weight_decay: float = 0.0,
    max_norm: float = 1.0,
    valid: Sequence[Example] = (),
    valid_every: int = 100,
    seed: int = 0,
    report: Callable[[Report], None] | None = None,
) -> list[float]:
    """Trains the parameters of a model that require a gradient, with AdamW; the rate warms up and decays as a cosine.

    Args:
        model (CausalLM): with adapters (`add_lora`), or with parameters that require gradients.
        examples (sequence of Example): token lists, with the first token that is learned.
        steps (int): how many steps the optimizer makes.
        batch_size (int, optional): examples that go through the model at once. Default: 4.
        accumulate (int, optional): batches whose gradients make one step. Default: 1.
        learning_rate (float, optional): the largest one; it ends at a tenth. Default: 1e-4.
        warmup (int, optional): steps in which it rises. Default: 10.
        weight_decay (float, optional): AdamW's. Default: 0.
        max_norm (float, optional): the largest norm of the gradient. Default: 1.
        valid (sequence of Example, optional): examples to measure on, each `valid_every` steps and at the end.
        valid_every (int, optional): steps between measurements. Default: 100.
        seed (int, optional): of the order of the examples. Default: 0.
        report (callable, optional): called with a report after each step. Default: none.

    Returns:
        list of float: the mean loss of each step.

    Raises:
        ValueError: nothing requires a gradient, there are no examples, or a number is not positive.

    Example:
        >>> from lucid.llm.finetuning import Example
        >>> model = lucid.llm.CausalLM(lucid.llm.Config("llama", 32, 16, 32, 2, 2, 1, 8))
        >>> _ = lucid.llm.add_lora(model, rank=2)
        >>> losses = lucid.llm.finetune(model, [Example([1, 2, 3, 4])], steps=3, learning_rate=0.01, warmup=1)
        >>> len(losses)
        3
    """
    for name, value in (("steps", steps), ("batch_size", batch_size), ("accumulate", accumulate)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise errors.ValueError(f"finetune: {name} must be a positive integer, got {value!r}")
    if not examples:
        raise errors.ValueError("finetune: there are no examples")
    learned = [p for p in model.parameters() if p.requires_grad]
    if not learned:
        raise errors.ValueError("finetune: no parameter requires a gradient; add adapters with add_lora")
    if not learning_rate > 0:
        raise errors.ValueError(f"finetune: learning_rate must be positive, got {learning_rate}")
    optimizer = lucid.optim.AdamW(learned, lr=learning_rate, weight_decay=weight_decay)
    batches = _batches(examples, batch_size, seed)
    losses = []
    model.train()
    for step in range(steps):
        started = time.perf_counter()
        share = min(1.0, (step + 1) / max(warmup, 1))
        share *= 0.1 + 0.9 * (0.5 + 0.5 * math.cos(math.pi * step / steps))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * share
        taken = [collate(next(batches), model.device) for _ in range(accumulate)]
        count = sum(int((labels != IGNORED).sum().item()) for _, labels in taken)
        total = 0.0
        optimizer.zero_grad()
        for tokens, labels in taken:
            loss, _ = loss_of(model, tokens, labels)
            (loss / count).backward()
            total += float(loss.item())
        lucid.nn.utils.clip_grad_norm_(learned, max_norm)
        optimizer.step()
        losses.append(total / count)
        measured = None
        if valid and ((step + 1) % valid_every == 0 or step + 1 == steps):
            measured = evaluate(model, valid, batch_size)
        if report is not None:
            seconds = max(time.perf_counter() - started, 1e-9)
            read = sum(tokens.numel() for tokens, _ in taken)
            report(Report(step + 1, losses[-1], read / seconds, measured))
    model.eval()
    return losses
