"""Continuous batching and prefix caches: requests get the tokens that they would get alone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import lucid
import numpy as np
import pytest
import torch
from lucid import llm

from tests.python.tolerances import within


def small(device: str, seed: int = 0, **kwargs: Any) -> llm.CausalLM:
    lucid.manual_seed(seed)
    config = llm.Config("llama", 97, 64, 96, 2, 4, 2, 16, max_position_embeddings=128, eos_token_id=[3], **kwargs)
    model = llm.CausalLM(config, device=device)
    for parameter in model.parameters():
        parameter.data = parameter.data + lucid.randn(parameter.shape, device=device) * 0.1
    return model


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("windows", [[None, None], [6, None]])
def test_requests_that_come_and_go(device: str, windows: list[int | None]) -> None:
    model = small(device, layer_windows=windows)
    rng = random.Random(1)
    shared = [rng.randrange(97) for _ in range(12)]
    requests = []
    for i in range(20):
        tokens = [rng.randrange(97) for _ in range(rng.randrange(1, 30))]
        options: dict[str, Any] = {"temperature": 0.8, "seed": i} if i % 4 == 1 else {}
        if i % 4 == 2:
            options = {"repetition_penalty": 1.3, "frequency_penalty": 0.5, "logit_bias": {5: 3.0}}
        prompt = shared + tokens if i % 3 == 0 else tokens
        requests.append(llm.Request(prompt, rng.randrange(1, 16), llm.Sampler(**options), ends=frozenset()))
    alone = [
        llm.generate(model, [r.tokens], r.max_new_tokens, sampler=llm.Sampler(**_options(r)), eos_token_id=[])[0].tokens
        for r in requests
    ]
    batcher = llm.Batcher(model, max_batch=6, chunk=16, prefixes=llm.PrefixCache(model))
    cancelled, most, waiting = requests[9], 0, list(requests)
    while waiting or not batcher.idle:
        for _ in range(rng.randrange(3)):
            if waiting:
                batcher.submit(waiting.pop(0))
        batcher.step()
        most = max(most, batcher.running)
        if len(cancelled.generated) == 2:
            batcher.cancel(cancelled)
    assert most == 6 and batcher.prefixes is not None and batcher.prefixes.hits > 0
    for request, wanted in zip(requests, alone, strict=True):
        assert request.generated == (wanted[:2] if request is cancelled else wanted)


def _options(request: llm.Request) -> dict[str, Any]:
    s = request.sampler
    names = ("temperature", "repetition_penalty", "frequency_penalty", "logit_bias", "seed")
    return {n: getattr(s, n) for n in names}


def test_refusals_and_logprobs() -> None:
    model = small("cpu")
    batcher = llm.Batcher(model)
    for request, words in (
        (llm.Request([]), "at least one"),
        (llm.Request([97]), "tokens must be"),
        (llm.Request([1] * 100, 100), "context"),
        (llm.Request([1], 4, stop=["x"]), "tokenizer"),
        (llm.Request([1], 4, sampler=llm.Sampler(logit_bias={97: 1.0})), "logit_bias"),
    ):
        with pytest.raises(lucid.errors.ValueError, match=words):
            batcher.submit(request)
    assert batcher.idle
    batcher.submit(llm.Request([5, 6, 7], 3, ends=frozenset(), top_logprobs=2))
    steps = [s for _ in range(3) for s in batcher.step()]
    made = llm.generate(model, [[5, 6, 7]], 3, logprobs=True, eos_token_id=[])[0]
    assert made.logprobs is not None
    np.testing.assert_allclose([s.logprob for s in steps], made.logprobs, **within("logits"))
    assert [s.finish_reason for s in steps] == [None, None, "length"]
    assert all(s.top[0][0] == s.token and s.top[0][1] >= s.top[1][1] for s in steps)


def test_prefixes_are_found_saved_and_refused(tmp_path: Path) -> None:
    model = small("cpu")
    prefixes = llm.PrefixCache(model)
    prompt = [7, 8, 9, 10, 11]
    wanted = llm.generate(model, [prompt], 8, eos_token_id=[])[0].tokens
    for _ in range(2):
        assert llm.generate(model, [prompt], 8, eos_token_id=[], prefixes=prefixes)[0].tokens == wanted
    other = [7, 8, 9, 50]
    for found in (prefixes.find([*prompt, *wanted]), prefixes.find(other)):
        assert 3 <= found.offset < len(prompt) + len(wanted)
    assert llm.generate(model, [other], 8, eos_token_id=[], prefixes=prefixes)[0].tokens == (
        llm.generate(model, [other], 8, eos_token_id=[])[0].tokens
    )
    path = tmp_path / "prompts.safetensors"
    prefixes.save(path)
    again = llm.PrefixCache(model)
    again.load(path)
    assert len(again) == len(prefixes) and again.find([*prompt, 1]).offset == 5
    assert llm.generate(model, [prompt], 8, eos_token_id=[], prefixes=again)[0].tokens == wanted
    with pytest.raises(lucid.errors.ValueError, match="another model"):
        llm.PrefixCache(small("cpu", seed=1)).load(path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(lucid.errors.LucidError, match="safetensors"):
        llm.PrefixCache(model).load(path)
    # Without memory nothing is kept.
    none = llm.PrefixCache(model, 0)
    llm.generate(model, [prompt], 2, prefixes=none)
    assert len(none) == 0


def test_presence_and_frequency_penalties() -> None:
    logits = np.random.default_rng(0).normal(size=(2, 20)).astype(np.float32)
    seen = np.array([[1, 2, 3, 3, 5], [-1, 2, 0, 0, 0]])
    sampler = llm.Sampler(presence_penalty=0.7, frequency_penalty=0.2, logit_bias={4: 2.5, 3: -1.0})
    got = sampler.penalized(lucid.tensor(logits), lucid.tensor(seen), 3).numpy()
    wanted = torch.tensor(logits)
    for row, tokens in zip(wanted, seen[:, -3:], strict=True):
        for token in set(tokens.tolist()):
            row[token] -= 0.7 + 0.2 * (tokens == token).sum()
        row[4] += 2.5
        row[3] -= 1.0
    np.testing.assert_allclose(got, wanted.numpy(), **within("few ops"))
