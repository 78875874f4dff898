"""Runs in parts, and on machines without PyTorch: shares of the tests, and recorded references."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.python import share
from tests.python.references import Reference, Values, recorded


def dealt(number: int, of: int, seed: int) -> list[str]:
    items: Any = [SimpleNamespace(nodeid=f"test_{i:03}") for i in range(101)]
    options = {"--share": (number, of), "--share-seed": seed}
    hook = SimpleNamespace(pytest_deselected=lambda items: None)
    config: Any = SimpleNamespace(getoption=options.__getitem__, hook=hook)
    share.pytest_collection_modifyitems(config, items)
    return [item.nodeid for item in items]


@pytest.mark.parametrize("of", [1, 4, 101])
def test_the_shares_hold_each_test_once(of: int) -> None:
    shares = [dealt(number + 1, of, seed=0) for number in range(of)]
    assert sorted(name for names in shares for name in names) == [f"test_{i:03}" for i in range(101)]
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert all(names == sorted(names) for names in shares)


def test_a_share_is_drawn_at_random() -> None:
    first = dealt(1, 4, seed=0)
    assert first == dealt(1, 4, seed=0) != dealt(1, 4, seed=1)
    assert first != [f"test_{i:03}" for i in range(len(first))]


@pytest.mark.parametrize("text", ["0/8", "9/8", "1", "a/b", "-1/8"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no share"):
        share.share(text)


def test_a_reference_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = Reference(results=(Values("float32", np.arange(3.0)), 7), gradients=(None, np.ones(2)))
    monkeypatch.setenv("LUCID_REFERENCES", str(tmp_path / "references.sqlite"))
    assert recorded("exp(N(3))", lambda: given) is given
    read = recorded("exp(N(3))", lambda: pytest.fail("computed again"))
    assert read.refused is None and read.results[1] == 7 and read.results[0].dtype == "float32"
    assert read.gradients is not None and read.gradients[0] is None
    np.testing.assert_array_equal(read.results[0].numbers, np.arange(3.0))
    monkeypatch.delenv("LUCID_REFERENCES")
    assert recorded("exp(N(3))", Reference) == Reference()
