"""The crate's decoder: logits and tokens of `transformers` and of Python's models, caches, sampling, refusals."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import re
import shutil
import weakref
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import lucid
import numpy as np
import pytest
import torch
from lucid import _C, llm
from lucid.llm.gguf_export import save_gguf
from safetensors.numpy import load_file, save_file

from tests.python.parity.llm.models import MODELS, make, prompts
from tests.python.tolerances import within


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_greedy_tokens_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    theirs = make(name, tmp_path)
    row = prompts(28)[0]
    # Beyond 24 tokens longrope has other frequencies, and transformers reads the whole text anew.
    new = 16 if "longrope" in name else 20
    with torch.no_grad():
        wanted = theirs(torch.tensor([row])).logits[0, -1].numpy()
        ids = theirs.generate(
            torch.tensor([row[:8]]), max_new_tokens=new, do_sample=False, eos_token_id=None, pad_token_id=0
        )[0, 8:].tolist()
    for device in ("cpu", "gpu"):
        engine = _C._Decoder(tmp_path, device)
        # At once, and through a cache. Where frequencies depend on a text's length, a cache has those of its time.
        whole, pieces = (0, 28), (0, 9, 10, 11, 17, 28)
        for cuts in (whole,) if "dynamic" in name or "longrope" in name else (whole, pieces):
            got = engine.logits([row[a:b] for a, b in pairwise(cuts)])
            np.testing.assert_allclose(got.cpu().numpy(), wanted, **within("logits"))
    if 2 not in ids:
        assert _C._Decoder(tmp_path, "cpu").generate(row[:8], new)[0] == ids
    model = llm.load_model(tmp_path, "gpu")
    assert _C._Decoder(tmp_path, "gpu").generate(row[:6], 12)[0] == llm.generate(model, [row[:6]], 12)[0].tokens


@pytest.mark.parametrize(
    "name", ["llama3", "llama-yarn", "mistral", "mixtral", "qwen3", "qwen3-moe", "gemma2", "phi3", "phi3-longrope"]
)
def test_gguf_files_and_quantised_folders(name: str, tmp_path: Path) -> None:
    # A GGUF file has no key for that number.
    make(name, tmp_path / "dense", **({"query_pre_attn_scalar": 16} if name == "gemma2" else {}))
    row = prompts(12)[0]

    def same(path: Path) -> None:
        with lucid.no_grad():
            wanted = llm.load_model(path)(lucid.tensor([row]))[0, -1].float().numpy()
        got = _C._Decoder(path, "cpu").logits([row[:7], row[7:]])
        np.testing.assert_allclose(got.float().numpy(), wanted, **within("logits"))

    model = llm.load_model(tmp_path / "dense")
    for form in ("F32", "F16", "Q8_0", "Q4_1"):
        save_gguf(model, tmp_path / "model.gguf", form)
        same(tmp_path / "model.gguf")
    lucid.quantization.quantize(model, 4, 32)
    llm.save_model(model, tmp_path / "packed")
    same(tmp_path / "packed")
    if name in ("mixtral", "qwen3-moe"):
        # As MLX's programs call them.
        for path in (tmp_path / "packed").glob("*.safetensors"):
            lead = ".block_sparse_moe" if name == "mixtral" else ".mlp"
            parts = {re.sub(r"\.mlp(\.\w+_proj\.)", lead + r".switch_mlp\1", k) if v.ndim == 3 else k: v
                     for k, v in load_file(path).items()}  # fmt: skip
            assert any("switch_mlp" in k for k in parts)
            save_file(parts, path)
        same(tmp_path / "packed")
    mode = json.loads((tmp_path / "packed" / "config.json").read_text())
    mode["quantization"]["mode"] = "unheard-of"
    (tmp_path / "packed" / "config.json").write_text(json.dumps(mode))
    with pytest.raises(lucid.errors.NotImplementedError, match="unheard-of"):
        _C._Decoder(tmp_path / "packed", "cpu")


@pytest.mark.parametrize("name", ["llama3", "qwen2", "phi3", "mixtral"])
def test_activations_of_8_bits(name: str, tmp_path: Path) -> None:
    make(name, tmp_path / "dense")
    row = prompts(12)[0]
    places = []
    for form in ("Q8_0", "Q4_0"):
        save_gguf(llm.load_model(tmp_path / "dense"), tmp_path / f"{form}.gguf", form)
        places.append(tmp_path / f"{form}.gguf")
    for bits in (4, 8):
        model = llm.load_model(tmp_path / "dense")
        lucid.quantization.quantize(model, bits, 32)
        llm.save_model(model, tmp_path / f"bits{bits}")
        places.append(tmp_path / f"bits{bits}")
    for place in places:
        model = llm.load_model(place, activations="int8")
        with lucid.no_grad():
            exact = llm.load_model(place)(lucid.tensor([row]))[0, -1].numpy()
            wanted = model(lucid.tensor([row]))[0, -1].numpy()
        got = _C._Decoder(place, "cpu", True).logits([row[:7], row[7:]]).numpy()
        # The same kernels; where sums are rounded otherwise, activations may fall to the other side of a half. Python's
        # experts take activations as they are.
        if name != "mixtral":
            np.testing.assert_allclose(got, wanted, **within("8-bit activations", np.abs(wanted).max()))
        for wrong in (np.abs(wanted - exact), np.abs(got - exact)):
            assert 0 < wrong.max() < 0.1 * np.abs(exact).max()
        assert llm.generate(model, [row], 3)[0].tokens[0] == int(wanted.argmax())
        if place.suffix == ".gguf":
            for write in (llm.save_model, save_gguf):
                with pytest.raises(lucid.errors.NotImplementedError, match="int8"):
                    write(model, tmp_path / "other")
    with pytest.raises(lucid.errors.ValueError, match="cpu"):
        llm.load_model(places[0], "gpu", activations="int8")
    with pytest.raises(lucid.errors.ValueError, match="int4"):
        llm.load_model(places[0], activations="int4")


def test_the_same_seed_draws_the_tokens_of_python(tmp_path: Path) -> None:
    make("llama3", tmp_path)
    model, row = llm.load_model(tmp_path), prompts(6)[0]
    for settings in ({"top_k": 12}, {"top_p": 0.7}, {"min_p": 0.1, "top_k": 40, "top_p": 0.95}, {}):
        sampler = llm.Sampler(temperature=0.8, seed=5, **settings)
        wanted = llm.generate(model, [row], 24, sampler=sampler)[0].tokens
        got = _C._Decoder(tmp_path, "cpu").generate(
            row, 24, temperature=0.8, **settings, generator=lucid.Generator(seed=5)
        )
        assert got[0] == wanted


@pytest.mark.parametrize("name", ["llama3", "mistral", "mixtral", "qwen3-moe", "gemma2"])
def test_batches_and_beams_have_the_tokens_of_transformers(name: str, tmp_path: Path) -> None:
    theirs = make(name, tmp_path)
    texts = [row[: 12 - 4 * i] for i, row in enumerate(prompts(12)[:3])]
    for device in ("cpu", "gpu"):
        engine = _C._Decoder(tmp_path, device)
        # Each as it is alone, and those that end leave the others where they are.
        alone = [engine.generate(text, 16)[0] for text in texts]
        assert engine.generate_batch(texts, 16) == alone
        assert engine.generate_batch(texts[:1], 1) == [alone[0][:1]]
        drawn = engine.generate_batch(texts, 8, 0.7, lucid.Generator(seed=3))
        assert drawn == engine.generate_batch(texts, 8, 0.7, lucid.Generator(seed=3))
        for beams, penalty in ((1, 1.0), (3, 1.0), (4, 0.0)):
            with torch.no_grad():
                options = {"num_beams": beams, "length_penalty": penalty, "do_sample": False}
                wanted = theirs.generate(torch.tensor([texts[0]]), max_new_tokens=10, **options)
            assert engine.beam_search(texts[0], 10, beams, penalty) == wanted[0, 12:].tolist()


def test_a_draft_changes_no_token(tmp_path: Path) -> None:
    make("llama2", tmp_path / "large")
    make("smollm", tmp_path / "small", num_hidden_layers=1)
    row = prompts(9)[0]
    for device in ("cpu", "gpu"):
        model, draft = (_C._Decoder(tmp_path / name, device) for name in ("large", "small"))
        for most in (1, 2, 30):
            wanted = model.generate(row, most)[0]
            # One that is never right, and one that always is.
            for other in (draft, model):
                for ahead in (1, 4):
                    assert model.generate_with_draft(other, ahead, row, most) == wanted
        settings = {"temperature": 0.9, "generator": lucid.Generator(seed=7)}
        drawn = model.generate_with_draft(draft, 3, row, 12, **settings)
        assert drawn == model.generate(row, 12, temperature=0.9, generator=lucid.Generator(seed=7))[0]


def test_caches_grow_and_forget_what_no_window_reaches(tmp_path: Path) -> None:
    make("mistral", tmp_path, max_position_embeddings=2048)
    engine, model = _C._Decoder(tmp_path, "cpu"), llm.load_model(tmp_path)
    row = prompts(1100)[0]
    with lucid.no_grad():
        wanted = model(lucid.tensor([row]))[0, -1].numpy()
    steps = [row[:300], *([t] for t in row[300:860]), row[860:]]
    np.testing.assert_allclose(engine.logits(steps).numpy(), wanted, **within("logits"))
    # Two buffers of float32 in each of three layers; a window of 6 tokens leaves room for 256, not for all.
    _, held = engine.generate([5], 900)
    assert held <= 3 * 2 * 2 * 32 * 4 * 512


def test_refusals(tmp_path: Path) -> None:
    folder = tmp_path / "llama2"
    make("llama2", folder)
    engine = _C._Decoder(folder, "cpu")
    for tokens, words in (
        ([[96]], "tokens must be"),
        ([[]], "tokens must be"),
        ([[1] * 129], "context"),
        ([[1] * 100, [1] * 29], "context"),
        ([], "no tokens"),
    ):
        with pytest.raises(lucid.errors.ValueError, match=words):
            engine.logits(tokens)
    with pytest.raises(lucid.errors.ValueError, match="context"):
        engine.generate([1, 2], 127)
    for bad in ({"temperature": -1.0}, {"temperature": float("nan")}, {"top_p": 0.0}, {"min_p": 2.0}):
        with pytest.raises(lucid.errors.ValueError, match=next(iter(bad))):
            engine.generate([1, 2], 3, **bad)
    for bad in ([], [[]], [[1], []]):
        with pytest.raises(lucid.errors.ValueError, match="prompt"):
            engine.generate_batch(bad, 3)
    with pytest.raises(lucid.errors.ValueError, match="context"):
        engine.generate_batch([[1, 2], [3]], 127)
    for beams, penalty in ((0, 1.0), (97, 1.0), (2, float("inf"))):
        with pytest.raises(lucid.errors.ValueError, match="beam"):
            engine.beam_search([1, 2], 3, beams, penalty)
    with pytest.raises(lucid.errors.ValueError, match="ahead"):
        engine.generate_with_draft(engine, 0, [1, 2], 3)
    make("llama2", tmp_path / "other", vocab_size=64)
    with pytest.raises(lucid.errors.ValueError, match="vocabularies of 96 and 64"):
        engine.generate_with_draft(_C._Decoder(tmp_path / "other", "cpu"), 2, [1, 2], 3)
    make("mistral", tmp_path / "window")
    short = _C._Decoder(tmp_path / "window", "cpu")
    with pytest.raises(lucid.errors.NotImplementedError, match="window"):
        short.generate_with_draft(short, 2, [1, 2], 8)
    make("mixtral", tmp_path / "mixtral")
    config = json.loads((tmp_path / "mixtral" / "config.json").read_text())
    for bad in ({"num_local_experts": 5}, {"num_experts_per_tok": 9}, {"num_local_experts": -1}):
        (tmp_path / "mixtral" / "config.json").write_text(json.dumps({**config, **bad}))
        with pytest.raises(lucid.errors.ValueError, match=r"expert|mlp\.gate"):
            _C._Decoder(tmp_path / "mixtral", "cpu")
    (tmp_path / "mixtral" / "config.json").write_text(json.dumps({**config, "model_type": "mamba"}))
    with pytest.raises(lucid.errors.NotImplementedError, match="mamba"):
        _C._Decoder(tmp_path / "mixtral", "cpu")
    text = (folder / "config.json").read_text()
    for old, new in (
        ('"vocab_size": 96', '"vocab_size": 97'),
        ('"vocab_size": 96', '"vocab_size": -1'),
        ('"hidden_size": 64', '"hidden_size": 0'),
        ('"num_hidden_layers": 3', '"num_hidden_layers": 2'),
        ('"num_hidden_layers": 3', '"num_hidden_layers": 4'),
        ('"num_attention_heads": 4', '"num_attention_heads": 3'),
        ('"rms_norm_eps": 1e-06', '"rms_norm_eps": "x"'),
        ('"rope_type": "default"', '"rope_type": "odd"'),
        ("{", "["),
    ):
        assert old in text
        (folder / "config.json").write_text(text.replace(old, new, 1))
        with pytest.raises(lucid.errors.LucidError):
            _C._Decoder(folder, "cpu")
    (folder / "config.json").write_text(text)
    shards = sorted(folder.glob("model-*.safetensors"))
    whole = shards[0].read_bytes()
    shards[0].write_bytes(whole[: len(whole) // 2])
    with pytest.raises(lucid.errors.FileError):
        _C._Decoder(folder, "cpu")
    shards[0].unlink()
    with pytest.raises(lucid.errors.FileError, match="shard is missing"):
        _C._Decoder(folder, "cpu")
    shutil.rmtree(folder)
    with pytest.raises(lucid.errors.FileNotFoundError):
        _C._Decoder(folder, "cpu")


def small(device: str) -> llm.CausalLM:
    lucid.manual_seed(0)
    config = llm.Config("llama", 48, 32, 64, 2, 4, 2, 8)
    return llm.CausalLM(config).to(device).eval()


@lucid.no_grad()
def next_logits(model: llm.CausalLM, engine: bool) -> np.ndarray:
    """After a prompt and one more token, by the engine's decoder where it takes the model, or by the modules alone."""
    cache = llm.Cache(model.config)
    tokens = lucid.tensor([[1, 2, 3]]).to(model.device)
    model.hidden(tokens, cache)
    last = lucid.tensor([[7]]).to(model.device)
    found = model(last, cache=cache)[:, -1] if engine else model.logits(model.hidden(last, cache))[:, -1]
    return np.asarray(found.float().cpu())


CHANGES: dict[str, Callable[[llm.CausalLM], Any]] = {
    "in place": lambda m: m.model.layers[1].mlp.up_proj.weight.data.mul_(2.0),
    "data": lambda m: setattr(m.model.norm.weight, "data", m.model.norm.weight.data * 3.0),
    "another parameter": lambda m: setattr(m.lm_head, "weight", lucid.nn.Parameter(m.lm_head.weight.detach() + 1.0)),
    "state dict": lambda m: m.load_state_dict({k: v * 0.5 for k, v in m.state_dict().items()}),
    "hook": lambda m: m.model.layers[0].mlp.register_forward_hook(lambda _, x, y: y * 2.0),
    "another module": lambda m: setattr(m.model.layers[0].mlp, "down_proj", lucid.nn.Linear(64, 32).to(m.device)),
    "number": lambda m: setattr(m.model.layers[1].self_attn, "scale", 1.0),
    "activation": lambda m: setattr(m.model.layers[1].mlp, "act", lucid.tanh),
    "function": lambda m: setattr(m.model.layers[0].mlp, "forward", lambda x: x * 0.0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_is_changed_gives_what_its_modules_give(change: str) -> None:
    """The engine's decoder of a model follows every change of it, between one token and the next."""
    model = small("gpu")
    np.testing.assert_allclose(next_logits(model, True), next_logits(model, False), **within("logits"))
    before = next_logits(model, True)
    CHANGES[change](model)
    after = next_logits(model, True)
    np.testing.assert_allclose(after, next_logits(model, False), **within("logits"))
    assert not np.allclose(before, after)


def test_a_model_that_was_changed_before_its_first_step_is_not_the_configurations() -> None:
    model = small("gpu")
    model.model.layers[0].mlp.act = lucid.tanh
    model.model.norm.eps = 0.5
    np.testing.assert_allclose(next_logits(model, True), next_logits(model, False), **within("logits"))


def test_a_step_under_autocast_is_rounded_as_the_modules_are() -> None:
    model = small("gpu")
    with lucid.autocast(model.device.type, dtype=lucid.bfloat16):
        got, want = next_logits(model, True), next_logits(model, False)
    np.testing.assert_array_equal(got, want)


def test_a_step_that_is_begun_early_is_forgotten() -> None:
    """Whoever stops early finds a cache of the tokens that were fed, and goes on as one who did not."""
    model = small("gpu")
    whole = llm.generate(model, [1, 2, 3], max_new_tokens=8, eos_token_id=[])[0].tokens
    cache = llm.Cache(model.config)
    tokens = llm.stream(model, [1, 2, 3], max_new_tokens=8, eos_token_id=[], cache=cache)
    first = [next(tokens)[0] for _ in range(4)]
    tokens.close()
    assert cache.offset == 3 + 3
    rest = llm.generate(model, [first[-1]], max_new_tokens=4, eos_token_id=[], cache=cache)[0].tokens
    assert first + rest == whole


def test_a_model_that_has_stepped_is_copied_pickled_and_collected() -> None:
    """What the engine keeps of a model is no part of it."""
    model = small("gpu")
    want = next_logits(model, True)
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
    for each in copies:
        np.testing.assert_allclose(next_logits(each, True), want, **within("logits"))
