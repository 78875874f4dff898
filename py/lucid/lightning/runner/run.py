"""Training, generation and timing of the tiny transformer; the same seed gives the same numbers."""

from __future__ import annotations

import statistics
import time
from typing import Any

import lucid
from lucid import _C, errors
from lucid.lightning._arrays import number, sizes
from lucid.lightning.runner.model import TinyTransformer

__all__ = ["bench", "generate", "train"]


def _bytes(op: str, text: bytes | str) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    if not isinstance(data, bytes):
        raise errors.TypeError(f"{op}: expected str or bytes, got {type(text).__name__}")
    return data


def train(
    model: TinyTransformer,
    text: bytes | str,
    *,
    steps: int = 100,
    batch: int = 8,
    lr: float = 3e-3,
    seed: int = 0,
    optimizer: Any = None,
    begin: int = 0,
) -> dict[str, Any]:
    """Trains a model on the bytes of a text by AdamW.

    Args:
        model (TinyTransformer): The model, on its device.
        text (bytes or str): Longer than the model's context.
        steps (int, default: 100): How many steps, of how many pieces of the text each.
        batch (int, default: 8): How many steps, of how many pieces of the text each.
        lr (float, default: 0.003): The rate, from 0 on.
        seed (int, default: 0): Which pieces are drawn: those of step `n` are the same however often training was
            interrupted.
        optimizer (object, optional): The one to go on with; a fresh one by default.
        begin (int, default: 0): The number of the first step.

    Returns:
        A dict with `losses` (one for each step), `step` (the number of the next) and `optimizer`.

    Raises:
        TypeError: `text` is neither bytes nor str.
        ValueError: the text is not longer than the context, has a byte out of the vocabulary, or a number is out of its
            range.

    Example:
        >>> from lucid.lightning import runner
        >>> model = runner.TinyTransformer(runner.TransformerConfig(context=8, width=8, heads=2, layers=1))
        >>> done = runner.train(model, "to be or not to be", steps=2, batch=2)
        >>> len(done["losses"]), done["step"]
        (2, 2)
    """
    steps, batch = sizes("train()", steps=steps, batch=batch)
    rate = number("train()", "lr", lr, least=0.0)
    data = _bytes("train()", text)
    length = model.config.context
    if len(data) <= length:
        raise errors.ValueError(f"train(): the text must be longer than the context of {length} bytes, got {len(data)}")
    if max(data) >= model.config.vocab:
        raise errors.ValueError(f"train(): byte {max(data)} is not in the vocabulary of {model.config.vocab}")
    device = next(iter(model.parameters())).device
    tokens = _C.tensor(list(data))
    if optimizer is None:
        optimizer = lucid.optim.AdamW(model.parameters(), lr=rate)
    model.train()
    losses = []
    for step in range(begin, begin + steps):
        generator = _C.Generator()
        generator.manual_seed(seed * 1_000_003 + step)
        starts = lucid.randint(0, len(data) - length, (batch,), generator=generator).tolist()
        pieces = lucid.stack([tokens[s : s + length + 1] for s in starts]).to(device)
        logits = model(pieces[:, :-1])
        loss = lucid.nn.functional.cross_entropy(logits.reshape(-1, model.config.vocab), pieces[:, 1:].reshape(-1))
        loss.eval()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "step": begin + steps, "optimizer": optimizer}


def generate(
    model: TinyTransformer, prompt: bytes | str, *, count: int = 32, temperature: float = 0.0, seed: int = 0
) -> bytes:
    """Continues a prompt by `count` bytes.

    Args:
        model (TinyTransformer): gives the logits of the next byte.
        prompt (bytes or str): at least one byte; the last ones, as many as the context has, are seen.
        count (int, optional): how many bytes are added. Default: 32.
        temperature (float, optional): 0 takes the likeliest byte; above it, bytes are drawn from `softmax(logits /
            temperature)`. Default: 0.
        seed (int, optional): where the draws start. Default: 0.

    Returns:
        bytes: the prompt and `count` bytes more.

    Raises:
        ValueError: the prompt is empty or has a byte out of the vocabulary, or a number is out of its range.

    Example:
        >>> from lucid.lightning import runner
        >>> model = runner.TinyTransformer(runner.TransformerConfig(context=8, width=8, heads=2, layers=1))
        >>> len(runner.generate(model, "to be", count=4))
        9
    """
    (count,) = sizes("generate()", count=count)
    heat = number("generate()", "temperature", temperature, least=0.0)
    data = list(_bytes("generate()", prompt))
    if not data or max(data) >= model.config.vocab:
        raise errors.ValueError(f"generate(): the prompt must have bytes below {model.config.vocab}")
    device = next(iter(model.parameters())).device
    generator = _C.Generator()
    generator.manual_seed(seed)
    model.eval()
    with lucid.no_grad():
        for _ in range(count):
            seen = _C.tensor([data[-model.config.context :]]).to(device)
            logits = model(seen)[0, -1].cpu()
            if heat == 0:
                data.append(int(logits.argmax().item()))
            else:
                odds = (logits / heat).softmax(-1)
                data.append(int(lucid.multinomial(odds, 1, generator=generator).item()))
    return bytes(data)


def bench(model: TinyTransformer, *, batch: int = 8, warmup: int = 2, iters: int = 10) -> dict[str, Any]:
    """Times a model's forward pass over whole contexts.

    Args:
        model (TinyTransformer): the model, on its device.
        batch (int, optional): how many sequences there are. Default: 8.
        warmup (int, optional): untimed runs, from 0 on. Default: 2.
        iters (int, optional): timed runs, from 1 on. Default: 10.

    Returns:
        A dict with `forward_ms` (the median), `cv_pct` (standard deviation over mean), `tokens_per_s`, `device`,
        `batch`, `iters`.

    Raises:
        ValueError: a number is out of its range.

    Example:
        >>> from lucid.lightning import runner
        >>> model = runner.TinyTransformer(runner.TransformerConfig(context=8, width=8, heads=2, layers=1))
        >>> report = runner.bench(model, batch=2, warmup=0, iters=2)
        >>> report["batch"], report["forward_ms"] > 0
        (2, True)
    """
    batch, iters = sizes("bench()", batch=batch, iters=iters)
    if not isinstance(warmup, int) or warmup < 0:
        raise errors.ValueError(f"bench(): warmup must be an int from 0 on, got {warmup!r}")
    device = next(iter(model.parameters())).device
    tokens = lucid.zeros(batch, model.config.context, dtype=lucid.int64, device=device)
    model.eval()
    times = []
    with lucid.no_grad():
        for i in range(warmup + iters):
            start = time.perf_counter()
            model(tokens).eval()
            if i >= warmup:
                times.append(time.perf_counter() - start)
    median = statistics.median(times)
    return {
        "forward_ms": median * 1e3,
        "cv_pct": 100 * statistics.pstdev(times) / statistics.mean(times),
        "tokens_per_s": batch * model.config.context / median,
        "device": device.type,
        "batch": batch,
        "iters": iters,
    }
