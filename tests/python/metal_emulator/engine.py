"""The engine with a GPU of Metal's or CUDA's language, whose kernels the emulator runs."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator

import lucid
import numpy as np

from tools.metal import emulator

LANGUAGES = ["metal", "cuda"]
# The kernels that ran since the tests began, by language.
RAN: dict[str, set[str]] = {language: set() for language in LANGUAGES}


@contextlib.contextmanager
def emulated(language: str) -> Iterator[list[str]]:
    """What runs inside has a GPU of this language; gives the names of the kernels that were launched."""
    seen: list[str] = []

    def run(name: str, *launch: object) -> list[bytes]:
        # What the emulator does is no part of the program that a graph is recorded of.
        profiler = sys.getprofile()
        sys.setprofile(None)
        try:
            found = re.fullmatch(r"lucid_(\w+)_[0-9a-f]{16}", name)
            seen.append(found[1] if found else name)
            RAN[language].add(seen[-1])
            return call(name, *launch)
        finally:
            sys.setprofile(profiler)

    call = emulator.engine_call(language)
    lucid._C._emulate_kernels(language, run)
    try:
        yield seen
    finally:
        lucid._C._emulate_kernels(None, None)


def tensor(
    shape: tuple[int, ...], seed: int, device: str, *, grad: bool = False, special: bool = False
) -> lucid.Tensor:
    """Numbers with ties among them; with `special` ones, infinities and NaN too."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-8, 9, shape).astype(np.float32) / 4
    if special:
        values.reshape(-1)[::13] = np.nan
        values.reshape(-1)[5::17] = np.inf
        values.reshape(-1)[7::19] = -np.inf
    return lucid.tensor(values, device=device, requires_grad=grad)
