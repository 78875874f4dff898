"""What the tests need that `make metal-check` fetches."""

from __future__ import annotations

import pytest

from tools.metal import toolchain


@pytest.fixture(scope="session")
def compiler() -> None:
    """The compiler of the kernels."""
    if not toolchain.available():
        pytest.skip("the compiler of Metal's kernels is not there: `make metal-check` fetches it")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What asks whether every kernel ran comes last."""
    items.sort(key=lambda item: item.name.startswith("test_every_kernel_ran"))
