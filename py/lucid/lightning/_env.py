"""The environment variables of the runtime, read in one place; a value that cannot be read is an error."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from lucid import errors

__all__ = ["VARIABLES", "Variable", "environment"]


@dataclass(frozen=True)
class Variable:
    """A variable: its name, its kind (`int`, `float`, `flag` or `path`), its default and what it is for."""

    name: str
    kind: str
    default: str
    about: str

    def _bad(self, value: str, wanted: str) -> errors.ValueError:
        return errors.ValueError(
            f"{self.name}: expected {wanted}, got {value!r}; unset it for {self.default or 'none'}"
        )

    @property
    def raw(self) -> str:
        """The text as set, or the default."""
        return os.environ.get(self.name) or self.default

    def integer(self) -> int:
        """The value as a whole number from 0 on."""
        raw = self.raw
        try:
            value = int(raw)
        except ValueError:
            raise self._bad(raw, "a whole number from 0 on") from None
        if not 0 <= value < 1 << 63:
            raise self._bad(raw, "a whole number from 0 on, below 2^63")
        return value

    def number(self) -> float:
        """The value as a finite number from 0 on."""
        raw = self.raw
        try:
            value = float(raw)
        except ValueError:
            raise self._bad(raw, "a number from 0 on") from None
        if not (math.isfinite(value) and value >= 0):
            raise self._bad(raw, "a finite number from 0 on")
        return value

    def flag(self) -> bool:
        """The value as 0 or 1."""
        if self.raw not in ("0", "1"):
            raise self._bad(self.raw, "0 or 1")
        return self.raw == "1"


CONV_CROSSOVER_MACS = Variable(
    "CJ_CONV2D_CPU_CROSSOVER_MACS",
    "int",
    "260000",
    "a convolution of at most this many multiply-accumulates, asked for on a GPU, is computed on the CPU; 0 is never",
)
CONV_CROSSOVER_DYNAMIC = Variable(
    "CJ_CONV2D_CPU_CROSSOVER_DYNAMIC",
    "flag",
    "0",
    "1 reads CJ_CONV2D_CPU_CROSSOVER_MACS again at each call, 0 once",
)
MATMUL_CACHE_FILE = Variable(
    "CJ_MATMUL_TUNE_CACHE_FILE",
    "path",
    "",
    "the tuning cache of products; unset, `LUCID_TUNE_CACHE`, else `tuning.json` of the cache folder",
)
MATMUL_NO_BUCKETS = Variable(
    "CJ_MATMUL_DISABLE_PROMOTED_BUCKETS",
    "flag",
    "0",
    "1 times each shape of a product by itself, 0 promotes a choice to all shapes of its bucket (powers of two)",
)
MATMUL_PREFER_LIBRARY = Variable(
    "CJ_MATMUL_PREFER_MPS_ON_LARGE",
    "flag",
    "0",
    "1 keeps the library's product for large shapes unless another is faster by CJ_MATMUL_MPS_HYST_PCT percent",
)
MATMUL_TRY_KERNEL = Variable(
    "CJ_MATMUL_TRY_KERNEL_ON_LARGE", "flag", "1", "0 never times other ways than the library's product for large shapes"
)
MATMUL_HYSTERESIS = Variable(
    "CJ_MATMUL_MPS_HYST_PCT",
    "float",
    "5.0",
    "by how many percent another way must be faster to replace the library's product where that is preferred",
)
TIMING_RUNS = Variable("LC_BENCH_TIMING_RUNS", "int", "3", "of how many runs a benchmark takes the median")

VARIABLES: tuple[Variable, ...] = (
    CONV_CROSSOVER_MACS,
    CONV_CROSSOVER_DYNAMIC,
    MATMUL_CACHE_FILE,
    MATMUL_NO_BUCKETS,
    MATMUL_PREFER_LIBRARY,
    MATMUL_TRY_KERNEL,
    MATMUL_HYSTERESIS,
    TIMING_RUNS,
)


def environment() -> dict[str, str]:
    """The variables and their values as they stand.

    Example::

        >>> import lucid.lightning as lc
        >>> lc.environment()["CJ_CONV2D_CPU_CROSSOVER_DYNAMIC"] in ("0", "1")
        True
    """
    return {variable.name: variable.raw for variable in VARIABLES}
