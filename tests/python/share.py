"""A share of the tests, drawn at random: `pytest -p tests.python.share --share 2/8`, the second of eight.

The shares of one seed hold every test once between them.
"""

from __future__ import annotations

import argparse
import random

import pytest


def share(text: str) -> tuple[int, int]:
    """``K/N`` as two numbers."""
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise argparse.ArgumentTypeError(f"{text!r} is no share: say 2/8 for the second of eight")
    return int(number), int(of)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--share", type=share, default=(1, 1), metavar="K/N", help="the K-th of N shares of the tests")
    parser.addoption("--share-seed", type=int, default=0, help="how the tests are dealt out")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    number, of = config.getoption("--share")
    dealt = sorted(item.nodeid for item in items)
    random.Random(config.getoption("--share-seed")).shuffle(dealt)
    mine = set(dealt[number - 1 :: of])
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in mine])
    items[:] = [item for item in items if item.nodeid in mine]
