"""A few random programs, compiled against eager; `python -m tests.python.fuzz compiled` draws more."""

from __future__ import annotations

import random

import lucid
import pytest

from tests.python.parity.compile.random_programs import draw_program, run


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_random_programs(device: str, dynamic: bool) -> None:
    for seed in range(1000, 1012):
        source = draw_program(random.Random(seed))
        why = run(source, seed, device, dynamic)
        assert why is None, f"seed {seed}: {why}\n{source}"
        lucid.compiler.reset()
