"""Random programs about the tape end as in PyTorch; see `autograd_programs` for how to run more of them."""

from __future__ import annotations

import pytest

from tests.python.parity.programs.autograd_programs import difference

DEVICES = ["cpu", "gpu"]
SEEDS = range(400)
#: What those that end otherwise do, by seed.
KNOWN: dict[int, str] = {
    11: "writes a tensor by what it shows of itself, element after element: PyTorch reads what it has written",
    65: "writes a Hessian that leads nowhere, which PyTorch says requires a gradient",
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("first", range(SEEDS.start, SEEDS.stop, 20))
def test_random_programs(first: int, device: str) -> None:
    for seed in range(first, first + 20):
        found = difference(seed, device)
        assert (found is not None) == (seed in KNOWN), f"program {seed}: {found}"
