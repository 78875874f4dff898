"""State dicts of twelve architectures go from Python to Rust and back: the same names and outputs, on both devices.

The Rust side is examples/architectures, which `cargo test` and `cargo build --examples` build.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import lucid
import pytest
from architectures import ARCHITECTURES
from lucid.serialization import save_safetensors

from tests.python.tolerances import within

ROOT = Path(lucid.__file__).resolve().parents[2]


def program() -> Path:
    """The example that cargo built last."""
    folder = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = [folder / profile / "examples/architectures" for profile in ("release", "develop")]
    there = [path for path in built if path.exists()]
    if not there:
        pytest.fail("the example is not built: `cargo build --release --example architectures`")
    return max(there, key=lambda path: path.stat().st_mtime)


def close(actual: lucid.Tensor, expected: lucid.Tensor) -> None:
    lucid.testing.assert_close(actual.cpu(), expected.detach().cpu(), **within("between languages"))


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_state_dicts_go_to_rust_and_back(device: str, tmp_path: Path) -> None:
    lucid.manual_seed(0)
    models = {}
    for i, (name, (build, make_inputs)) in enumerate(ARCHITECTURES.items()):
        model, inputs = build().to(device), {k: v.to(device) for k, v in make_inputs().items()}
        models[name] = model, inputs
        tensors = {f"model.{key}": value for key, value in model.state_dict().items()}
        tensors |= {f"input.{key}": value for key, value in inputs.items()}
        # Both formats, and of `.pt` the nested form, too.
        if i % 2:
            save_safetensors({k: v.clone() for k, v in tensors.items()}, tmp_path / f"{name}.safetensors")
        else:
            lucid.save({"model": model.state_dict(), "input": inputs}, tmp_path / f"{name}.pt")
    done = subprocess.run([program(), device, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(ARCHITECTURES) == 12

    for name, (model, inputs) in models.items():
        out = lucid.load(tmp_path / f"{name}.out")
        with lucid.no_grad():
            close(out["first"], model.eval()(**inputs))
        # Its weights after a step, in a model that never saw ours.
        returned = {key.removeprefix("model."): value for key, value in out.items() if key.startswith("model.")}
        fresh = ARCHITECTURES[name][0]().to(device)
        assert list(fresh.load_state_dict(returned)) == [[], []]
        with lucid.no_grad():
            close(fresh.eval()(**inputs), out["second"])
        # And the step itself is the one that Python makes.
        sgd = lucid.optim.SGD(model.train().parameters(), lr=0.1)
        loss = model(**inputs).square().mean()
        loss.eval()
        loss.backward()
        sgd.step()
        for key, value in model.state_dict().items():
            close(returned[key], value)
        assert not lucid.equal(out["first"], out["second"]), name
