"""Beam search, with Hugging Face's rules: `2 · beams` candidates a step, finished ones by score over length."""

from __future__ import annotations

from typing import Any

import lucid
from lucid.llm.cache import Cache
from lucid.llm.model import CausalLM


@lucid.no_grad()
def beam_search(
    model: CausalLM,
    prompt: list[int],
    new: int,
    beams: int,
    ends: frozenset[int],
    length_penalty: float,
    chunk: int,
    options: dict[str, Any],
) -> tuple[list[int], str]:
    """The best sequence found, and why it ended."""
    from lucid.llm.generation import prefill

    device = model.device
    cache = Cache(model.config, **options)
    logits = prefill(model, lucid.tensor([prompt], dtype=lucid.int64, device=device), cache, chunk)
    cache.reorder(lucid.zeros(beams, dtype=lucid.int64, device=device))
    running: list[list[int]] = [[]]
    scores = [0.0]
    finished: list[tuple[float, list[int]]] = []
    for step in range(new):
        table = logits.to(lucid.float32).log_softmax(-1)[: len(running)]
        total = table + lucid.tensor(scores, dtype=lucid.float32, device=device)[:, None]
        width = total.shape[1]
        best, at = total.reshape(-1).topk(min(2 * beams, total.numel()))
        chosen: list[tuple[float, int, int]] = []
        for rank, (score, place) in enumerate(zip(best.tolist(), at.tolist(), strict=True)):
            beam, token = divmod(place, width)
            # At the last step all end. One that is no better than the beams that go on is not kept.
            if token in ends or step + 1 == new:
                if rank < beams:
                    finished.append((score / (step + 1) ** length_penalty, [*running[beam], token]))
            elif len(chosen) < beams:
                chosen.append((score, beam, token))
        finished = sorted(finished, key=lambda f: -f[0])[:beams]
        running = [[*running[beam], token] for _, beam, token in chosen]
        scores = [score for score, _, _ in chosen]
        if not running:
            break
        # No beam can still become better than the worst that is finished.
        if len(finished) == beams and finished[-1][0] >= scores[0] / (step + 1) ** length_penalty:
            break
        order = [beam for _, beam, _ in chosen]
        order += [order[0]] * (beams - len(order))
        cache.reorder(lucid.tensor(order, dtype=lucid.int64, device=device))
        tokens = [token for _, _, token in chosen]
        tokens += [tokens[0]] * (beams - len(tokens))
        logits = model(lucid.tensor(tokens, dtype=lucid.int64, device=device)[:, None], cache=cache)[:, -1]
    _, row = max(finished, key=lambda f: f[0])
    return row, "stop" if row and row[-1] in ends else "length"
