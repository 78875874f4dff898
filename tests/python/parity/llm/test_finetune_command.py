"""`finetune`, `merge`, and output under constraints, in a shell."""

from __future__ import annotations

import json
from pathlib import Path

import lucid
import pytest
from lucid import llm
from lucid.llm.__main__ import main

from tests.python.parity.llm.letters import letters, small


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    llm.save_model(small(), tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").write_text(letters()._engine.to_json())
    return tmp_path / "model"


def test_finetune_and_merge(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(json.dumps({"prompt": p, "completion": p.upper()}) for p in ("ab", "cd", "ef")))
    common = ["--steps", "60", "--learning-rate", "2e-2", "--rank", "8", "--batch", "3", "--warmup", "2"]
    for more in ([], ["--bits", "8", "--group-size", "32"]):
        out = tmp_path / f"adapter{len(more)}"
        arguments = ["--model", str(folder), "--data", str(data), "--out", str(out), "--valid", str(data)]
        assert main(["finetune", *arguments, *common, *more]) == 0
        said = capsys.readouterr()
        first, last = (float(said.out.split()[i]) for i in (1, 4))
        assert last < 0.2 * first and "validation" in said.err
        assert (
            main(["generate", "--model", str(folder), "--adapter", str(out), "--prompt", "cd", "--max-tokens", "20"])
            == 0
        )
        assert capsys.readouterr().out == "CD\n"
    merged = tmp_path / "merged"
    arguments = ["--model", str(folder), "--adapter", str(tmp_path / "adapter0")]
    assert main(["merge", *arguments, "--out", str(merged)]) == 0
    assert main(["generate", "--model", str(merged), "--prompt", "ab", "--max-tokens", "20"]) == 0
    assert capsys.readouterr().out.endswith("AB\n")
    arguments = ["--model", str(folder), "--data", str(data), "--out", str(tmp_path / "whole"), "--full"]
    assert main(["finetune", *arguments, *common]) == 0
    assert main(["generate", "--model", str(tmp_path / "whole"), "--prompt", "ef", "--max-tokens", "20"]) == 0
    assert capsys.readouterr().out.endswith("EF\n")
    assert main(["merge", "--model", str(folder), "--out", str(merged)]) == 1
    assert main(["finetune", *arguments, "--bits", "4"]) == 1


def test_constraints_and_prompt_cache(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema, grammar, kept = tmp_path / "schema.json", tmp_path / "grammar.lark", tmp_path / "kept.safetensors"
    schema.write_text('{"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 3}')
    grammar.write_text('start: "(" start ")" | "x" "y"?')
    run = ["generate", "--model", str(folder), "--prompt", "abc", "--temperature", "1", "--max-tokens", "60"]
    for seed in ("1", "2"):
        assert main([*run, "--seed", seed, "--json-schema", str(schema)]) == 0
        made = json.loads(capsys.readouterr().out)
        assert 2 <= len(made) <= 3 and all(isinstance(x, bool) for x in made)
        assert main([*run, "--seed", seed, "--regex", "[0-9]{3}-[a-c]+z"]) == 0
        text = capsys.readouterr().out.strip()
        assert text[:3].isdigit() and text[3] == "-" and set(text[4:-1]) <= set("abc")
    assert main([*run, "--grammar", str(grammar)]) == 0
    assert set(capsys.readouterr().out.strip()) <= set("()xy")
    assert main([*run, "--regex", "("]) == 1 and main([*run, "--regex", "a", "--grammar", str(grammar)]) == 1
    capsys.readouterr()
    plain = ["generate", "--model", str(folder), "--prompt", "abcdefgh", "--max-tokens", "6"]
    outs = []
    for more in ([], ["--prompt-cache", str(kept)], ["--prompt-cache", str(kept)]):
        assert main([*plain, *more]) == 0
        outs.append(capsys.readouterr().out)
    assert outs[0] == outs[1] == outs[2] and kept.exists()
    assert main([*plain, "--logprobs"]) == 0
    assert all(float(line.split()[0]) <= 0 for line in capsys.readouterr().out.splitlines())
    penalties = ["--presence-penalty", "1", "--frequency-penalty", "1", "--min-p", "0.1", "--seed", "1"]
    assert main([*run[:5], *penalties, "--max-tokens", "5"]) == 0
    model, tokenizer = llm.load_model(folder), llm.load_tokenizer(folder)
    vocabulary = llm.Vocabulary(tokenizer, 96, 95)
    made_one = llm.generate(model, "q", 40, tokenizer, constraint=vocabulary.json_schema({"const": [1, "a"]}))[0]
    assert json.loads(made_one.text) == [1, "a"] and made_one.finish_reason == "stop"
    with pytest.raises(lucid.errors.ValueError, match="end token"):
        llm.Vocabulary(tokenizer, 90, 95)
