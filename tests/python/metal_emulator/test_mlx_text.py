"""The copy of MLX's rules writes what MLX writes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.python.metal_emulator.cases import cases, words
from tools.metal import mlx_text, toolchain

CASES = cases()
CUDA = json.loads((Path(__file__).parent / "cuda_texts.json").read_text())


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that asks the installed MLX."""
    program, mlx = tmp_path_factory.mktemp("probe") / "probe", toolchain.ROOT / "vendor" / "mlx"
    command = ["c++", "-std=c++20", "-O0", "-rdynamic", str(toolchain.HERE / "mlx_probe.cpp"), f"-I{mlx}/include"]
    libraries = [f"-L{mlx}/lib", "-lmlx", f"-Wl,-rpath,{(mlx / 'lib').resolve()}"]
    subprocess.run([*command, *libraries, "-o", str(program)], check=True)
    return program


@pytest.mark.parametrize("label", CASES)
def test_metal_text_is_that_of_mlx(label: str, probe: Path) -> None:
    said = subprocess.run([str(probe), *words(CASES[label])], capture_output=True, text=True, check=True).stdout
    whole = said.split("```\n", 1)[1].rsplit("\n```\n", 1)[0]
    name, text = mlx_text.metal(*CASES[label])
    assert text == whole
    assert f"void {name}(" in text


@pytest.mark.parametrize("label", CUDA)
def test_cuda_text_is_that_of_mlx(label: str) -> None:
    # Recorded from the library of mlx-cuda-12 0.32.2 by tools/metal/mlx_probe.cpp.
    assert mlx_text.cuda(*CASES[label][:6])[1] == CUDA[label]


def test_every_case_without_atomics_is_recorded_for_cuda() -> None:
    assert set(CUDA) == {label for label, case in CASES.items() if not case[6]}
