"""Random models of every architecture against `transformers`: logits, caches, padded batches, greedy and beam
tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lucid
import numpy as np
import pytest
import torch
from lucid import llm

from tests.python.parity.llm.models import MODELS, VOCAB, make, prompts
from tests.python.tolerances import TABLE, within

DEVICES = ("cpu", "gpu")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Pairs of models by name, made once."""
    held: dict[tuple[str, str], tuple[Any, llm.CausalLM]] = {}
    theirs: dict[str, tuple[Any, Path]] = {}

    def get(name: str, device: str = "cpu") -> tuple[Any, llm.CausalLM]:
        if name not in theirs:
            folder = tmp_path_factory.mktemp(name)
            theirs[name] = make(name, folder), folder
        if (name, device) not in held:
            held[name, device] = theirs[name][0], llm.load_model(theirs[name][1], device)
        return held[name, device]

    return get


def of_torch(model: Any, rows: list[list[int]]) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor(rows)).logits.cpu().numpy()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", MODELS)
def test_logits(made: Any, name: str, device: str) -> None:
    theirs, ours = made(name, device)
    rows = prompts(20, 20)
    wanted = of_torch(theirs, rows)
    with lucid.no_grad():
        x = lucid.tensor(rows, device=device)
        got = ours(x).cpu().numpy()
        np.testing.assert_allclose(got, wanted, **within("logits"))
        # Through caches of every kind: a prompt in chunks, then token by token.
        for options in ({}, {"kind": "static", "max_size": 20}, {"rotating": False}):
            cache = llm.Cache(ours.config, **options)
            parts = [ours(x[:, a:b], cache=cache) for a, b in ((0, 9), (9, 10), (10, 11), (11, 16), (16, 17), (17, 20))]
            np.testing.assert_allclose(lucid.cat(parts, 1).cpu().numpy(), wanted, **within("logits"))
            assert cache.offset == 20


def test_long_factors_hold_for_long_texts(made: Any) -> None:
    theirs, ours = made("phi3-longrope")
    rows = prompts(40)
    got = ours(lucid.tensor(rows)).cpu().numpy()
    np.testing.assert_allclose(got, of_torch(theirs, rows), **within("logits"))
    assert np.abs(ours(lucid.tensor([rows[0][:10]])).cpu().numpy() - got[:, :10]).max() > 1e-3


@pytest.mark.parametrize("name", ["phi3-longrope", "llama-dynamic"])
def test_frequencies_follow_the_length_of_each_text(made: Any, name: str) -> None:
    theirs, ours = made(name)
    rows = prompts(40, 20)
    tokens, padding = llm.padded(rows)
    got = ours(tokens, padding=padding).numpy()
    for i, row in enumerate(rows):
        np.testing.assert_allclose(got[i, -len(row) :], of_torch(theirs, [row])[0], **within("logits"))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["llama3", "mistral", "mixtral", "qwen3", "gemma2", "gemma3", "phi3"])
def test_greedy_tokens_of_padded_batches(made: Any, name: str, device: str) -> None:
    theirs, ours = made(name, device)
    rows = prompts(5, 11, 8)
    got = [g.tokens for g in llm.generate(ours, rows, 14, eos_token_id=[])]
    for row, tokens in zip(rows, got, strict=True):
        x = torch.tensor([row])
        for _ in range(14):
            with torch.no_grad():
                x = torch.cat([x, theirs(x).logits[:, -1:].argmax(-1)], 1)
        assert tokens == x[0, len(row) :].tolist()
    # A small chunk changes nothing, and neither do sequences that are alone.
    assert [g.tokens for g in llm.generate(ours, rows, 14, eos_token_id=[], chunk=3)] == got
    assert [llm.generate(ours, [r], 14, eos_token_id=[])[0].tokens for r in rows] == got


@pytest.mark.parametrize("name", ["llama2", "mistral", "qwen2"])
def test_beams(made: Any, name: str) -> None:
    theirs, ours = made(name)
    for seed, penalty in ((0, 1.0), (1, 1.0), (2, 0.5), (3, 2.0)):
        row = prompts(7, seed=seed)
        # Tokens that are likely end sequences, so that they end at different lengths.
        ends = [int(t) for t in of_torch(theirs, row)[0, -1].argsort()[-40:-20]]
        wanted = theirs.generate(
            torch.tensor(row), num_beams=3, do_sample=False, max_new_tokens=10, eos_token_id=ends,
            length_penalty=penalty,
            attention_mask=torch.ones(1, 7, dtype=torch.long), pad_token_id=0,
        )  # fmt: skip
        got = llm.generate(ours, row, 10, num_beams=3, eos_token_id=ends, length_penalty=penalty)[0]
        tokens = wanted[0, 7:].tolist()
        assert got.tokens == tokens[: len(got.tokens)] and not any(tokens[len(got.tokens) :])
        assert got.finish_reason == ("stop" if got.tokens[-1] in ends else "length")


@pytest.mark.parametrize("name", ["llama2", "mistral", "gemma2"])
def test_speculative_tokens_are_the_greedy_ones(made: Any, name: str, tmp_path: Path) -> None:
    _, ours = made(name)
    other, row = made("llama2")[1], prompts(6)
    wanted = llm.generate(ours, row, 25, eos_token_id=[])[0].tokens
    for draft in (ours, other):
        for count in (1, 3, 5):
            assert llm.generate(ours, row, 25, eos_token_id=[], draft=draft, draft_tokens=count)[0].tokens == wanted


@pytest.mark.parametrize("name", ["llama2", "mixtral", "qwen3-moe", "gemma2"])
@pytest.mark.parametrize("device", DEVICES)
def test_quantised_models(made: Any, name: str, device: str, tmp_path: Path) -> None:
    theirs, _ = made(name)
    folder = tmp_path / "dense"
    theirs.save_pretrained(folder)
    rows = lucid.tensor(prompts(12), device=device)
    for bits, group in ((8, 32), (4, 64), (5, 32)):
        model = llm.load_model(folder, device)
        lucid.quantization.quantize(model, bits, group)
        got = model(rows)
        llm.save_model(model, tmp_path / "packed")
        again = llm.load_model(tmp_path / "packed", device)
        np.testing.assert_array_equal(again(rows).cpu().numpy(), got.cpu().numpy())
        # The same with the rounded weights as floats.
        dense = llm.load_model(folder, device)
        held = dict(dense.named_parameters())
        for path, module in model.named_modules():
            if hasattr(module, "dequantize"):
                held[f"{path}.weight"].data = module.dequantize()
        np.testing.assert_allclose(got.cpu().numpy(), dense(rows).cpu().numpy(), **within("logits"))
    # And a cache that is quantised gives nearly what one of floats does.
    cache = llm.Cache(model.config, "quantized", bits=8, group_size=32) if model.config.head_dim % 32 == 0 else None
    if cache is not None:
        np.testing.assert_allclose(model(rows, cache=cache).cpu().numpy(), got.cpu().numpy(), **within("4-bit weights"))


def test_quantised_cache(made: Any) -> None:
    _, ours = made("mistral")
    rows = lucid.tensor(prompts(12))
    wanted = ours(rows).cpu().numpy()
    cache = llm.Cache(ours.config, "quantized", bits=8, group_size=32)
    parts = [ours(rows[:, a:b], cache=cache) for a, b in ((0, 5), (5, 6), (6, 12))]
    got = lucid.cat(parts, 1).cpu().numpy()
    assert 1e-6 < np.abs(got - wanted).max() < 0.05 * np.abs(wanted).max()
    dense = llm.Cache(ours.config, rotating=False)
    ours(rows, cache=dense)
    assert cache.nbytes < 0.5 * dense.nbytes


@pytest.mark.parametrize("device", DEVICES)
def test_sampling(made: Any, device: str) -> None:
    _, ours = made("llama2", device)
    row = prompts(6)

    def run(**options: Any) -> list[int]:
        return llm.generate(ours, row, 12, sampler=llm.Sampler(**options), eos_token_id=[])[0].tokens

    greedy = run()
    assert run(temperature=1.0, top_k=1) == greedy == run(temperature=0.7, top_p=1e-6) == run(temperature=1, min_p=1.0)
    first = run(temperature=5.0, seed=3)
    assert first == run(temperature=5.0, seed=3) != run(temperature=5.0, seed=4)
    made_one = llm.generate(ours, row, 12, logprobs=True, eos_token_id=[])[0]
    whole = lucid.tensor([row[0] + made_one.tokens], device=device)
    scores = ours(whole).log_softmax(-1)[0, 5:-1].gather(1, whole[0, 6:, None])
    np.testing.assert_allclose(made_one.logprobs, scores.squeeze(1).tolist(), **within("logits"))


def test_warpers_are_those_of_transformers() -> None:
    from transformers.generation import logits_process as hf

    logits = np.random.default_rng(0).normal(size=(3, 50)).astype(np.float32) * 3
    ids = np.random.default_rng(1).integers(0, 50, (3, 8))
    cases = {
        "top_k": ({"temperature": 1.0, "top_k": 7}, hf.TopKLogitsWarper(7)),
        "top_p": ({"temperature": 1.0, "top_p": 0.6}, hf.TopPLogitsWarper(0.6)),
        "min_p": ({"temperature": 1.0, "min_p": 0.1}, hf.MinPLogitsWarper(0.1)),
        "temperature": ({"temperature": 0.3}, hf.TemperatureLogitsWarper(0.3)),
    }
    for options, warper in cases.values():
        wanted = warper(torch.tensor(ids), torch.tensor(logits)).cpu().numpy()
        got = llm.Sampler(**options).scores(lucid.tensor(logits)).cpu().numpy()
        np.testing.assert_allclose(got, wanted, rtol=TABLE["few ops"].rtol)
    wanted = hf.RepetitionPenaltyLogitsProcessor(1.7)(torch.tensor(ids), torch.tensor(logits)).cpu().numpy()
    seen = np.concatenate([np.full((3, 2), -1), ids], 1)
    got = llm.Sampler(repetition_penalty=1.7).penalized(lucid.tensor(logits), lucid.tensor(seen))
    np.testing.assert_allclose(got.cpu().numpy(), wanted, rtol=TABLE["rounding"].rtol)


def test_gradients_reach_every_parameter() -> None:
    config = llm.Config("qwen3_moe", 32, 16, 32, 2, 2, 1, 8, qk_norm=True, num_experts=3, num_experts_per_tok=3,
                        moe_intermediate_size=8)  # fmt: skip
    model = llm.CausalLM(config)
    loss = lucid.nn.functional.cross_entropy(model(lucid.tensor([[1, 2, 3, 4]]))[0], lucid.tensor([2, 3, 4, 5]))
    loss.backward()
    assert all(p.grad is not None and bool((p.grad != 0).any()) for p in model.parameters())


def test_refusals(made: Any, tmp_path: Path) -> None:
    _, ours = made("llama2")
    cases: list[tuple[Any, str]] = [
        (lambda: llm.generate(ours, [[]]), "at least one token"),
        (lambda: llm.generate(ours, [[VOCAB]]), "tokens must be"),
        (lambda: llm.generate(ours, [[-1]]), "tokens must be"),
        (lambda: llm.generate(ours, [[3] * 100], 100), "context"),
        (lambda: llm.generate(ours, "text"), "tokenizer"),
        (lambda: llm.generate(ours, [[3]], 0), "max_new_tokens"),
        (lambda: llm.generate(ours, [[3]], 4, stop=["x"]), "tokenizer"),
        (lambda: llm.Sampler(temperature=float("nan")), "temperature"),
        (lambda: llm.Sampler(top_p=0), "top_p"),
        (lambda: llm.Cache(ours.config, "static"), "max_size"),
        (lambda: ours(lucid.tensor([1, 2])), "shape"),
        (lambda: llm.load_model(tmp_path / "no"), "no such"),
        (lambda: lucid.quantization.quantize(lucid.nn.ReLU()), "no layer"),
        (lambda: lucid.quantization.quantize(lucid.nn.Linear(64, 2), bits=7), "bits"),
    ]
    for call, words in cases:
        with pytest.raises(lucid.errors.LucidError, match=words):
            call()
    cache = llm.Cache(ours.config, "static", max_size=4)
    with pytest.raises(lucid.errors.ValueError, match="do not fit"):
        ours(lucid.tensor([[1, 2, 3, 4, 5]]), cache=cache)


def test_damaged_folders(made: Any, tmp_path: Path) -> None:
    theirs, _ = made("llama2")
    theirs.save_pretrained(tmp_path, max_shard_size="100KB")
    config = (tmp_path / "config.json").read_text()
    shard = sorted(tmp_path.glob("model-*.safetensors"))[1]
    whole = shard.read_bytes()

    def refused(words: str) -> None:
        with pytest.raises((lucid.errors.LucidError, FileNotFoundError), match=words):
            llm.load_model(tmp_path)

    shard.write_bytes(whole[:-7])
    refused("safetensors")
    shard.unlink()
    refused("missing")
    shard.write_bytes(whole)
    for old, new, words in (
        ('"llama"', '"lamma"', "model_type"),
        ('"vocab_size": 96', '"vocab_size": 97', "shape"),
        ('"hidden_size": 64', '"hidden_size": -64', "hidden_size"),
        ('"num_hidden_layers": 3', '"num_hidden_layers": 4', "lacks"),
        ('"num_key_value_heads": 2', '"num_key_value_heads": 3', "share"),
        ("{", "[", "JSON"),
    ):
        assert old in config
        (tmp_path / "config.json").write_text(config.replace(old, new))
        refused(words)
    index = tmp_path / "model.safetensors.index.json"
    (tmp_path / "config.json").write_text(config)
    index.write_text(index.read_text().replace(shard.name, "../x.safetensors"))
    refused("no file of the folder")
