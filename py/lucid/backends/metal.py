"""Apple's GPU: is it what MLX computes on, and the switches of its kernels.

`deterministic` is `lucid.use_deterministic_algorithms` by another name. `benchmark` is kept and read back, with one
warning
that it has no effect: MLX chooses its kernels by itself.
"""

from __future__ import annotations

import sys
from types import ModuleType

import lucid
from lucid import _gpu
from lucid._warnings import warn_without_effect

__all__ = ["benchmark", "deterministic", "is_available"]


def is_available() -> bool:
    """Does the installed MLX compute on Apple's GPU?"""
    return _gpu.kind() == "metal"


class _Switches(ModuleType):
    """The module's switches, which are checked where they are set."""

    _benchmark = False

    @property
    def deterministic(self) -> bool:
        """Do ops that may give other numbers when run again raise? As `lucid.set_deterministic` says."""
        return lucid.are_deterministic_algorithms_enabled()

    @deterministic.setter
    def deterministic(self, value: bool) -> None:
        lucid.use_deterministic_algorithms(value)

    @property
    def benchmark(self) -> bool:
        """What it was set to; `False` at first."""
        return self._benchmark

    @benchmark.setter
    def benchmark(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise lucid.errors.TypeError(f"benchmark expects a bool, but got {type(value).__name__}")
        warn_without_effect("lucid.backends.metal", "MLX chooses its kernels by itself", benchmark=value)
        self._benchmark = value


deterministic: bool
benchmark: bool
sys.modules[__name__].__class__ = _Switches
