"""Random programs of views, writes, dtypes and dropped variables end as in PyTorch, on both devices, and convolutions
and norms of random shapes are as its own; see `python -m tests.python.fuzz programs` and `layers`, which run many more.
"""

from __future__ import annotations

import os

import pytest

from tests.python.fuzz import layers, programs
from tests.python.parity.programs.random_programs import case, from_json, shorter, size, source, to_json

#: Programs of each run, of which half run on the GPU device.
PROGRAMS = int(os.environ.get("LUCID_RANDOM_PROGRAMS", "5000"))


def test_random_programs_end_as_in_pytorch() -> None:
    report = programs.run(900, jobs=2, most=PROGRAMS, shrink=3)
    assert not report.findings, report.text()
    assert report.programs == PROGRAMS and report.kinds["same"] > 0.95 * PROGRAMS, report.text()


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_layers_of_random_shapes_are_as_pytorchs_in_float64(device: str) -> None:
    assert [said for seed in range(80) if (said := layers.wrong(seed, device))] == []


@pytest.mark.parametrize("seed", range(20))
def test_programs_travel_between_processes(seed: int) -> None:
    program = case(seed)
    said = to_json(program)
    assert from_json(said) == program
    assert size(min(shorter(program), key=size)) < size(program)
    assert "requires_grad_" in source(program)


def test_what_differs_is_found_and_made_short(monkeypatch: pytest.MonkeyPatch) -> None:
    import lucid

    from tests.python.parity.programs.autograd_programs import difference
    from tests.python.parity.programs.random_programs import WideRun

    wrong = lucid.Tensor.sigmoid_

    monkeypatch.setattr(lucid.Tensor, "sigmoid_", lambda x: wrong(x).add_(1))
    found = [seed for seed in range(300) if "sigmoid_" in source(case(seed)) and difference(case(seed), "cpu", WideRun)]
    assert found
