"""Every module of Python's `lucid.nn` has one in Rust with the same parameter names, which computes the same."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import lucid
import pytest
from lucid import nn
from lucid.serialization import save_safetensors
from nn_modules import MODULES, WITHOUT
from test_architectures import close, program


def python_classes() -> set[str]:
    """The classes of modules, without those that wait for their inputs' sizes."""
    found = {name: getattr(nn, name) for name in nn.__all__}
    kinds = {name for name, kind in found.items() if isinstance(kind, type) and issubclass(kind, nn.Module)}
    return {name for name in kinds if not name.startswith("Lazy")}


def flat(made: Any) -> list[lucid.Tensor]:
    """The tensors of a result."""
    return [made] if isinstance(made, lucid.Tensor) else [t for part in made for t in flat(part)]


def called(name: str, module: nn.Module, inputs: tuple[lucid.Tensor, ...]) -> list[lucid.Tensor]:
    """What the module gives, where its arguments are not all tensors."""
    if name == "CTCLoss":
        return flat(module(*inputs, (6, 5), (3, 2)))
    if name == "LSTMCell":
        return flat(module(inputs[0], inputs[1:]))
    if name.startswith("FractionalMaxPool"):
        module._random_samples = inputs[1]
        return flat(module(inputs[0]))
    return flat(module(*inputs))


def test_every_class_has_a_module_in_rust() -> None:
    assert python_classes() == set(MODULES) | set(WITHOUT)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_state_dicts_and_outputs_are_the_same_in_rust(device: str, tmp_path: Path) -> None:
    lucid.manual_seed(0)
    made = {}
    for name, (build, make_inputs) in MODULES.items():
        module, inputs = build().to(device).eval(), tuple(t.to(device) for t in make_inputs())
        made[name] = module, inputs
        parts = "parts." if any(key.startswith("parts.") for key in module.state_dict()) else ""
        tensors = {f"model.{key.removeprefix(parts)}": t.clone() for key, t in module.state_dict().items()}
        tensors |= {f"input.{i}": t.clone() for i, t in enumerate(inputs)}
        save_safetensors(tensors, tmp_path / f"{name}.safetensors")
    command = [program(), "modules", device, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == set(MODULES)
    wrong = []
    for name, (module, inputs) in made.items():
        out = lucid.load(tmp_path / f"{name}.out")
        returned = {key.removeprefix("model.") for key in out if key.startswith("model.")}
        assert returned == {key.removeprefix("parts.") for key in module.state_dict()}, name
        with lucid.no_grad():
            expected = called(name, module, inputs)
        found = [out[f"out.{i}"] for i in range(len(out) - len(returned))]
        try:
            assert len(found) == len(expected)
            for ours, theirs in zip(found, expected, strict=True):
                close(ours, theirs)
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
    assert not wrong, "\n".join(wrong)
