"""Every test draws the same random numbers in each run, whichever run beside it and in however many processes."""

from __future__ import annotations

import os
import random
import sys
import zlib

import pytest

#: Another one shows which tests pass by the luck of their numbers: `LUCID_TEST_SEED=1 make test`.
_SEED = os.environ.get("LUCID_TEST_SEED", "0")


@pytest.fixture(autouse=True)
def seeded(request: pytest.FixtureRequest) -> None:
    """The global generators, seeded from the test's name; PyTorch's and NumPy's where a test has imported them."""
    seed = zlib.crc32(f"{_SEED} {request.node.nodeid}".encode())
    random.seed(seed)
    for name, seeding in (("numpy", "random.seed"), ("torch", "manual_seed"), ("lucid", "manual_seed")):
        function = sys.modules.get(name)
        for part in seeding.split("."):
            function = getattr(function, part, None)
        if function is not None:
            function(seed)
