"""`python -m lucid.llm` with a small model that is trained to count, and the example that trains one."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import lucid
import numpy as np
import pytest
from lucid import llm
from lucid.llm.__main__ import main

from tests.python.tolerances import TABLE, within

TEMPLATE = (
    "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}a:{% endif %}"
)
ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learned the alphabet, with a tokenizer of bytes."""
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        example = importlib.import_module("train_llama")
    finally:
        sys.path.remove(str(ROOT / "examples"))
    path = tmp_path_factory.mktemp("alphabet")
    example.train_tokenizer("abc", 257, path)
    (path / "chat_template.jinja").write_text(TEMPLATE)
    tokenizer = llm.load_tokenizer(path)
    lucid.manual_seed(0)
    config = llm.Config("llama", 257, 64, 64, 1, 2, 1, 32, max_position_embeddings=512, tie_word_embeddings=True)
    model = llm.CausalLM(config)
    tokens = lucid.tensor([tokenizer.encode("abcdefghijklmnopqrstuvwxyz" * 3)])
    optimizer = lucid.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):
        loss = lucid.nn.functional.cross_entropy(model(tokens[:, :-1])[0], tokens[0, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.2
    llm.save_model(model, path)
    (path / "text.txt").write_text("klmnopqrstuvwxyzabcdefghij" * 4)
    return path


def test_generate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--model", str(folder), "--prompt", "abcdefgh", "--max-tokens", "5"]) == 0
    said = capsys.readouterr()
    assert said.out == "ijklm\n" and "8 tokens read" in said.err
    assert main(["generate", "--model", str(folder), "--prompt", "abcdefgh", "--stop", "kl", "--cache-bits", "8"]) == 1
    assert "groups" in capsys.readouterr().err
    assert main(["generate", "--model", str(folder), "--prompt", "abcdefgh", "--stop", "lm"]) == 0
    assert capsys.readouterr().out == "ijk\n"
    assert main(["generate", "--model", str(folder / "none"), "--prompt", "a"]) == 1
    assert "no such" in capsys.readouterr().err


def test_streamed_text_is_the_whole_text(folder: Path) -> None:
    model, tokenizer = llm.load_model(folder), llm.load_tokenizer(folder)
    for stop in ([], ["op"], ["mno", "zz"]):
        whole = llm.generate(model, "abcdefgh", 12, tokenizer, stop=stop)[0]
        parts = list(llm.stream(model, "abcdefgh", 12, tokenizer, stop=stop))
        assert "".join(text for _, text in parts) == whole.text
        assert [t for t, _ in parts if t >= 0] == whole.tokens


def test_chat(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = iter(["abc", "defg", ""])
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    assert main(["chat", "--model", str(folder), "--max-tokens", "3"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    model, tokenizer = llm.load_model(folder), llm.load_tokenizer(folder)
    messages: list[dict[str, Any]] = []
    for line, answer in (("abc", first), ("defg", second)):
        messages.append({"role": "user", "content": line})
        prompt = tokenizer.apply_chat_template(messages)
        assert llm.generate(model, [tokenizer.encode(prompt, False)], 3, tokenizer)[0].text == answer
        messages.append({"role": "assistant", "content": answer})


def test_quantize_and_measure(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, out = str(folder / "text.txt"), str(tmp_path / "packed")
    arguments = ["--model", str(folder), "--out", out, "--text", text, "--bits", "8", "--group-size", "32"]
    assert main(["quantize", *arguments]) == 0
    assert "perplexity" in capsys.readouterr().out
    assert json.loads((tmp_path / "packed" / "config.json").read_text())["quantization"] == {
        "bits": 8,
        "group_size": 32,
    }
    values = []
    for path in (str(folder), out):
        assert main(["perplexity", "--model", path, "--text", text, "--window", "64"]) == 0
        values.append(float(capsys.readouterr().out.split()[-1]))
    assert values[0] == pytest.approx(values[1], rel=TABLE["4-bit perplexity"].rtol) and values[0] < 2
    assert main(["bench", "--model", out, "--prompt-tokens", "16", "--new-tokens", "2", "--batch", "2"]) == 0
    assert "tokens/s" in capsys.readouterr().out
    assert main(["convert", "--model", out, "--out", str(tmp_path / "again"), "--dtype", "float16"]) == 0
    model = llm.load_model(tmp_path / "again")
    assert {p.dtype for p in model.parameters()} == {lucid.float16}
    # Written as int32, read by MLX's name for the same bits.
    packed = llm.load_model(out)
    x = lucid.tensor([[70, 71, 72]])
    np.testing.assert_allclose(model(x).float().numpy(), packed(x).numpy(), **within("4-bit weights"))


def test_example_writes_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    example = importlib.import_module("train_llama")
    monkeypatch.setattr(sys, "argv", ["train_llama", "--quick", "--out", str(tmp_path)])
    made = example.main()
    losses = made["losses"]
    assert sum(losses[-5:]) < 0.95 * sum(losses[:5])
    exact, eight, four = (made["perplexity"][k] for k in ("float32", 8, 4))
    assert eight == pytest.approx(exact, rel=TABLE["8-bit perplexity"].rtol)
    assert four == pytest.approx(exact, rel=TABLE["4-bit perplexity"].rtol)
    assert llm.load_tokenizer(tmp_path).decode(llm.load_tokenizer(tmp_path).encode("naïve 1 x")) == "naïve 1 x"
