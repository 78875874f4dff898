"""Fixtures of the tests without PyTorch."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["cpu", "gpu"])
def device(request: pytest.FixtureRequest) -> str:
    """Each device in turn."""
    return str(request.param)
