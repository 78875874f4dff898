"""The tiny transformer: training that resumes to the same numbers, checkpoints, generation, the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lucid
import pytest
from lucid import errors
from lucid.lightning import runner
from lucid.lightning.runner.cli import main

from tests.python.tolerances import TABLE

TEXT = b"the quick brown fox jumps over the lazy dog. " * 4
CONFIG = runner.TransformerConfig(context=16, width=16, heads=2, layers=1)


def fresh() -> runner.TinyTransformer:
    lucid.manual_seed(0)
    return runner.TinyTransformer(CONFIG)


def test_training_resumes_to_the_same_numbers(tmp_path: Path) -> None:
    whole = runner.train(fresh(), TEXT, steps=8, batch=4)
    model = fresh()
    first = runner.train(model, TEXT, steps=5, batch=4)
    path = tmp_path / "c.lucid"
    runner.save_checkpoint(path, model, first["optimizer"], first["step"])
    again, state = runner.load_checkpoint(path)
    optimizer = lucid.optim.AdamW(again.parameters(), lr=1.0)
    optimizer.load_state_dict(state["optimizer"])
    second = runner.train(again, TEXT, steps=3, batch=4, optimizer=optimizer, begin=state["step"])
    assert first["losses"] + second["losses"] == whole["losses"]
    assert whole["losses"][-1] < whole["losses"][0]
    assert [p.name for p in tmp_path.iterdir()] == ["c.lucid"], "nothing is left beside it"


def test_both_devices_agree() -> None:
    cpu, gpu = fresh(), fresh()
    gpu.to("gpu")
    one, other = (runner.train(m, TEXT, steps=3, batch=2)["losses"] for m in (cpu, gpu))
    assert one == pytest.approx(other, rel=TABLE["training"].rtol)


def test_generation() -> None:
    model = fresh()
    out = runner.generate(model, "the", count=5)
    assert out.startswith(b"the") and len(out) == 8 and out == runner.generate(model, b"the", count=5)
    drawn = [runner.generate(model, "the", count=20, temperature=1.0, seed=s) for s in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    report = runner.bench(model, batch=2, warmup=0, iters=2)
    assert report["tokens_per_s"] > 0 and report["device"] == "cpu"


@pytest.mark.parametrize(
    "call",
    [
        lambda: runner.TransformerConfig(width=10, heads=4),
        lambda: runner.TransformerConfig(layers=0),
        lambda: runner.TransformerConfig(context="a"),  # type: ignore[arg-type]
        lambda: runner.train(fresh(), b"short"),
        lambda: runner.train(fresh(), TEXT, steps=0),
        lambda: runner.train(fresh(), TEXT, lr=float("nan")),
        lambda: runner.train(runner.TinyTransformer(runner.TransformerConfig(vocab=10, context=4)), TEXT),
        lambda: runner.generate(fresh(), ""),
        lambda: runner.generate(fresh(), "a", temperature=-1.0),
        lambda: runner.bench(fresh(), iters=0),
        lambda: fresh()(lucid.zeros(1, 99, dtype=lucid.int64)),
        lambda: runner.save_checkpoint("x", lucid.nn.Linear(1, 1)),  # type: ignore[arg-type]
    ],
)
def test_what_is_refused(call: Any) -> None:
    with pytest.raises(errors.LucidError):
        call()


def test_checkpoints_that_are_broken(tmp_path: Path) -> None:
    path = tmp_path / "c.lucid"
    with pytest.raises(FileNotFoundError):
        runner.load_checkpoint(path)
    runner.save_checkpoint(path, fresh())
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises((errors.LucidError, RuntimeError, ValueError)):
        runner.load_checkpoint(path)
    data = {"format": "lucid-lightning-transformer", "version": 1, "config": "{}", "model": {}}
    for change in ({"format": "other"}, {"version": 9}, {"config": '{"width": 7}'}, {"model": {"x": lucid.ones(1)}}):
        lucid.save({**data, **change}, path)
        with pytest.raises(errors.ValueError, match="load_checkpoint"):
            runner.load_checkpoint(path)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, checkpoint = tmp_path / "text", tmp_path / "c"
    text.write_bytes(TEXT)
    sizes = ["--context", "16", "--width", "16", "--heads", "2", "--layers", "1"]
    train = ["train", "--text", str(text), "--checkpoint", str(checkpoint), "--steps", "3", "--json", *sizes]
    assert main(train) == 0 and main([*train, "--resume"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["step"], second["step"]) == (3, 6)
    assert main(["infer", "--checkpoint", str(checkpoint), "--prompt", "the", "--count", "4"]) == 0
    assert capsys.readouterr().out.startswith("the")
    assert main(["bench", "--iters", "1", "--warmup", "0", *sizes]) == 0
    assert "forward_ms" in capsys.readouterr().out
    for bad in (
        ["infer", "--prompt", "a"],
        ["infer", "--prompt", "a", "--checkpoint", str(tmp_path / "none")],
        ["train", "--text", str(tmp_path / "none")],
        ["train", "--text", str(text), "--resume"],
        ["bench", "--width", "7"],
        ["bench", "--device", "tpu"],
    ):
        assert main(bad) == 2, bad
        assert "lc-run" in capsys.readouterr().err
