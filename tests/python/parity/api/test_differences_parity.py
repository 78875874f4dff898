"""What the docs list as different from PyTorch ends so, on both sides."""

from __future__ import annotations

import lucid
import pytest
import torch

from tests.python.differences import DIFFERENCES, Difference
from tests.python.outcomes import differ, outcome


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda d: d.program)
def test_it_ends_as_listed(difference: Difference) -> None:
    assert (outcome(difference.program, torch), outcome(difference.program, lucid)) == (
        difference.torch,
        difference.lucid,
    )
    assert differ(difference.torch, difference.lucid) and difference.reason
