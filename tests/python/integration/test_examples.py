"""The training examples, each in its quick form on both devices: they learn, draw, log, and resume to the last bit."""

from __future__ import annotations

import functools
import importlib
import json
import math
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
Train = Callable[..., dict[str, Any]]


@pytest.fixture(params=["cpu", "gpu"])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def train(device: str, monkeypatch: pytest.MonkeyPatch) -> Train:
    """Runs an example's quick form in this process."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return functools.partial(run, device)


def run(device: str, name: str, *options: str) -> dict[str, Any]:
    made: dict[str, Any] = importlib.import_module(name).main(["--device", device, "--quick", *options])
    assert (made["device"] == "cpu") == (device == "cpu")
    return made


# What several tests compare with, trained once.
plain = functools.cache(run)


def fell(made: dict[str, Any], share: float) -> bool:
    """Did the mean loss of the last epoch fall below this share of that of the first steps?"""
    first = made["losses"][:5]
    return bool(made["loss"] < share * sum(first) / len(first))


def is_png(path: Path) -> bool:
    return path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and path.stat().st_size > 5_000


def test_mlp_fits_the_curve(train: Train, tmp_path: Path) -> None:
    made = train("mlp", "--plot", str(tmp_path / "mlp.png"))
    assert fell(made, 0.1) and made["largest_error"] < 0.4
    assert is_png(tmp_path / "mlp.png")


def test_lenet_reads_digits(train: Train, device: str) -> None:
    made = plain(device, "lenet")
    assert fell(made, 0.4) and made["test_accuracy"] > 0.8
    assert len(made["losses"]) == 2 * 45 and len(made["history"]) == 2


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_lenet_learns_as_well_in_mixed_precision(train: Train, device: str, dtype: str) -> None:
    exact, mixed = plain(device, "lenet"), train("lenet", "--amp", dtype)
    assert mixed["losses"] != exact["losses"]
    # float16 leaves out its first steps, until the scale of the loss fits.
    assert mixed["loss"] < 1.5 * exact["loss"] and mixed["test_accuracy"] > exact["test_accuracy"] - 0.07


def test_transformer_writes_letters(train: Train, device: str) -> None:
    made = plain(device, "char_transformer")
    text = importlib.import_module("texts").text()
    # What one pays who knows how often each letter comes, but not what came before.
    alone = -sum(n / len(text) * math.log(n / len(text)) for n in Counter(text).values())
    assert fell(made, 0.7) and made["loss"] < alone - 0.4 and made["held_out_loss"] < alone - 0.2
    assert len(made["sample"]) == 80 + 32 // 2 and " " in made["sample"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_transformer_learns_as_well_in_mixed_precision(train: Train, device: str, dtype: str) -> None:
    exact, mixed = plain(device, "char_transformer"), train("char_transformer", "--amp", dtype)
    assert mixed["losses"] != exact["losses"]
    assert mixed["loss"] < 1.05 * exact["loss"] and mixed["held_out_loss"] < 1.05 * exact["held_out_loss"]


def test_lstm_solves_the_adding_problem(train: Train, tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "run.pt")
    made = train("lstm", "--checkpoint", checkpoint)
    assert made["solved"] and made["test_error"] < 1 / 60
    # Of a run that is at its end nothing but the result is left.
    again = train("lstm", "--resume", checkpoint)
    assert again["solved"] and again["losses"] == made["losses"] and again["history"] == made["history"]


def test_resnet_reads_turned_digits(train: Train) -> None:
    made = train("resnet")
    assert fell(made, 0.4) and made["test_accuracy"] > 0.85


def test_vae_draws_digits(train: Train, tmp_path: Path) -> None:
    made = train("vae", "--picture", str(tmp_path / "vae.png"))
    # A code that says nothing costs what the mean image costs.
    assert fell(made, 0.8) and made["test_loss"] < 385
    assert is_png(tmp_path / "vae.png")


@pytest.mark.parametrize("example", ["char_transformer", "resnet", "vae"])
def test_a_resumed_run_has_the_same_losses(train: Train, example: str, tmp_path: Path) -> None:
    options = {
        "char_transformer": ("--epochs", "1", "--batch", "64", "--amp", "float16"),
        "resnet": ("--epochs", "2", "--batch", "256"),
        "vae": ("--epochs", "1", "--batch", "256"),
    }[example]
    whole = train(example, *options)
    count = len(whole["losses"])
    every, checkpoint = count * 2 // 3, tmp_path / "run.pt"
    with pytest.raises(SystemExit, match="stopped"):
        train(example, *options, "--checkpoint", str(checkpoint), "--every", str(every), "--stop", str(every + 1))
    resumed = train(example, *options, "--resume", str(checkpoint))
    assert resumed["losses"] == whole["losses"] and resumed["history"] == whole["history"]
    with pytest.raises(SystemExit, match="made with seed 0, not 1"):
        train(example, *options, "--seed", "1", "--resume", str(checkpoint))


def test_resuming_in_a_new_process(device: str) -> None:
    """The script itself, which ends with status 1 where the losses of the processes differ."""
    script = [sys.executable, str(EXAMPLES / "resume.py"), "mlp", "--device", device, "--quick"]
    done = subprocess.run(script, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("the same to the last bit\n")


def test_the_last_line_is_json(device: str) -> None:
    script = [sys.executable, str(EXAMPLES / "mlp.py"), "--device", device, "--epochs", "2", "--json"]
    done = subprocess.run(script, capture_output=True, text=True, check=True)
    made = json.loads(done.stdout.splitlines()[-1])
    assert made["epochs"] == 2 and made["seed"] == 0 and made["losses"][-1] > 0


def test_figures_for_tensorboard(train: Train, tmp_path: Path) -> None:
    from tensorboardX.proto.event_pb2 import Event

    made = train("mlp", "--epochs", "2", "--logdir", str(tmp_path))
    (log,) = tmp_path.glob("events.out.tfevents.*")
    rest, seen = log.read_bytes(), {}
    while rest:
        # A record is its length, a checksum of that, the event, and a checksum of it.
        (length,) = struct.unpack_from("<Q", rest)
        event, rest = Event.FromString(rest[12 : 12 + length]), rest[16 + length :]
        seen |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
    assert seen["step/loss", 3] == pytest.approx(made["losses"][2])
    assert seen["epoch/loss", 2] == pytest.approx(made["loss"])
    assert seen["epoch/largest_error", 2] == pytest.approx(made["largest_error"])


def test_texts_are_found_with_and_without_the_licence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    texts = importlib.import_module("texts")
    assert len(texts.text()) > 5_000
    monkeypatch.setattr(texts.sys, "base_prefix", str(tmp_path))
    monkeypatch.setattr(texts.sysconfig, "get_path", lambda name: str(tmp_path / "lib" / "python"))
    assert texts.licence() is None
    found = texts.text()
    assert len(found) >= texts.ENOUGH and found.isascii() and found.count(" the ") > 100
    (tmp_path / "LICENSE.txt").write_text("A. HISTORY\nPython Software Foundation License Version 2\n" + "x\n" * 5_000)
    assert texts.text().startswith("A. HISTORY")
