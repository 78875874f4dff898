"""GGUF files that we write: read back by us and by the `gguf` package."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import lucid
import numpy as np
import pytest
from lucid import llm
from lucid.llm.__main__ import main
from lucid.llm.gguf_export import FORMATS, save_gguf

from tests.python.parity.llm.letters import letters
from tests.python.parity.llm.models import MODELS, make, prompts
from tests.python.tolerances import within

#: What GGUF has no form for: a kind of RoPE scaling, windows and query scales that an architecture does not imply.
WITHOUT = {
    "llama-dynamic": "dynamic",
    "qwen2-window": "layer_windows",
    "gemma2": "query_pre_attn_scalar|layer_windows",
    "gemma3": "query_pre_attn_scalar|layer_windows",
}


@pytest.mark.parametrize("name", MODELS)
def test_models_come_back(name: str, tmp_path: Path) -> None:
    make(name, tmp_path / "hf")
    model = llm.load_model(tmp_path / "hf")
    path = tmp_path / "model.gguf"
    if name in WITHOUT:
        with pytest.raises(lucid.errors.NotImplementedError, match=WITHOUT[name]):
            save_gguf(model, path, "F32")
        return
    save_gguf(model, path, "F32")
    again = llm.load_model(path)
    with lucid.no_grad():
        for length in (20, 40):
            x = lucid.tensor(prompts(length))
            np.testing.assert_allclose(again(x).numpy(), model(x).numpy(), **within("logits"))
    reader = gguf.GGUFReader(path)
    assert {t.name for t in reader.tensors} >= {"token_embd.weight", "output_norm.weight"}
    own = model.model.embed_tokens.weight.detach().numpy()
    found = next(t for t in reader.tensors if t.name == "token_embd.weight")
    np.testing.assert_array_equal(found.data.reshape(own.shape), own)


@pytest.mark.parametrize("format", FORMATS)
def test_formats_are_those_of_gguf(format: str, tmp_path: Path) -> None:
    make("smollm", tmp_path / "hf")
    model = llm.load_model(tmp_path / "hf")
    save_gguf(model, tmp_path / "model.gguf", format)
    found = {t.name: t for t in gguf.GGUFReader(tmp_path / "model.gguf").tensors}
    weight = model.model.layers[1].mlp.down_proj.weight.detach().numpy()
    tensor = found["blk.1.ffn_down.weight"]
    assert tensor.tensor_type.name == format and found["output_norm.weight"].tensor_type.name == "F32"
    theirs = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(weight.shape)
    # What their reference rounds to is what we do.
    reference = gguf.quants.dequantize(gguf.quants.quantize(weight, tensor.tensor_type), tensor.tensor_type)
    np.testing.assert_allclose(theirs, reference.reshape(weight.shape), **within("float16 weights"))
    again = llm.load_model(tmp_path / "model.gguf")
    module = again.model.layers[1].mlp.down_proj
    ours = module.dequantize() if hasattr(module, "dequantize") else module.weight
    np.testing.assert_allclose(ours.detach().float().numpy(), theirs, **within("few ops"))


def test_tokenizers_come_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import importlib
    import sys

    root = Path(__file__).resolve().parents[4]
    sys.path.insert(0, str(root / "examples"))
    try:
        example = importlib.import_module("train_llama")
    finally:
        sys.path.remove(str(root / "examples"))
    folder = tmp_path / "folder"
    folder.mkdir()
    example.train_tokenizer("the cat and the other cat, then the end. " * 4, 280, folder)
    # Text is split as GPT-2 splits it, for which GGUF has a name; for the example's own way it has none.
    file = folder / "tokenizer.json"
    made = json.loads(file.read_text())
    made["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    file.write_text(json.dumps(made))
    tokenizer = llm.load_tokenizer(folder)
    lucid.manual_seed(0)
    size = tokenizer.vocab_size + 3
    model = llm.CausalLM(llm.Config("llama", size, 64, 64, 1, 2, 1, 32, max_position_embeddings=64, eos_token_id=[0]))
    llm.save_model(model, folder)
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    path = tmp_path / "made.gguf"
    assert main(["convert", "--model", str(folder), "--out", str(path), "--format", "Q8_0"]) == 0
    again = llm.load_tokenizer(path)
    for text in ("the cat", "naïve 12 x\n\n  the other", "then the end."):
        assert again.encode(text) == tokenizer.encode(text) and again.decode(again.encode(text)) == text
    assert again.apply_chat_template([{"role": "user", "content": "hi"}]) == "hi"
    assert llm.load_model(path).config.eos_token_id == [0]
    assert main(["generate", "--model", str(path), "--prompt", "the", "--max-tokens", "3"]) == 0
    with pytest.raises(lucid.errors.NotImplementedError, match="splits"):
        save_gguf(model, path, "F32", letters())
    with pytest.raises(lucid.errors.ValueError, match="Q6_K"):
        save_gguf(model, path, "Q6_K")
    with pytest.raises(lucid.errors.ValueError, match="adapters"):
        save_gguf(llm.add_lora(model), path, "F32")
