"""PyTorch checks the arguments of its distributions, whatever ran before in the process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def validated() -> Iterator[None]:
    # `torch._dynamo` turns the checks off when it is imported.
    before = torch.distributions.Distribution._validate_args
    torch.distributions.Distribution.set_default_validate_args(True)
    yield
    torch.distributions.Distribution.set_default_validate_args(before)
