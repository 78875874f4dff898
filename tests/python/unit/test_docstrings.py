"""Docstrings of the public surface: their examples run, and no callable lacks a part."""

from __future__ import annotations

import importlib.util
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


def _tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docstrings", ROOT / "tools" / "docstrings.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DOCSTRINGS = _tool()
#: Public callables by package, which all are looked for once.
SURFACE: dict[str, dict[str, Any]] = defaultdict(dict)
for _name, _value in DOCSTRINGS.public_callables().items():
    SURFACE[".".join(_name.split(".")[:-1][:3])][_name] = _value


@pytest.mark.parametrize("package", sorted(SURFACE))
def test_examples_run_and_show_what_they_say(package: str) -> None:
    reports: list[str] = []
    failed, _ = DOCSTRINGS.run_examples(SURFACE[package], reports.append)
    assert failed == 0, "".join(reports)


def test_every_callable_is_documented() -> None:
    found = {name: value for values in SURFACE.values() for name, value in values.items()}
    assert {name: lacks for name, value in found.items() if (lacks := DOCSTRINGS.missing(value))} == {}


def test_what_counts_as_documentation() -> None:
    def bare(x: int, size: int) -> int:
        return x + size

    def vague(x: int, size: int) -> int:
        """Adds.

        Args:
            x (int): the x.
            size (int): the size.

        Returns:
            int: the sum.

        Example:
            >>> 1 + 1
            2
        """
        return x + size

    def whole(x: int) -> int:
        """Doubles a number.

        Args:
            x (int): what is doubled.

        Returns:
            int: twice `x`.

        Raises:
            ValueError: `x` is negative.

        Example:
            >>> 2 * 2
            4
        """
        if x < 0:
            raise ValueError(x)
        return 2 * x

    assert "a summary" in DOCSTRINGS.missing(bare) and "the argument x" in DOCSTRINGS.missing(bare)
    assert DOCSTRINGS.missing(vague) == ["a description of x", "a description of size"]
    assert DOCSTRINGS.missing(whole) == []
    failed, statements = DOCSTRINGS.run_examples({"whole": whole}, sys.stdout.write)
    assert (failed, statements) == (0, 1)
