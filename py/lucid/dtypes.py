"""The dtypes by name, and all of them: `lucid.dtypes.float32`, `for dtype in lucid.dtypes`.

Iterating gives every dtype once, smaller and real ones first; `len` and `in` are of the same. PyTorch has no such
module.

    >>> lucid.dtypes.float32 is lucid.float32, lucid.int8 in lucid.dtypes
    (True, True)
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from types import ModuleType

from lucid._C import bfloat16 as bfloat16
from lucid._C import bool as bool
from lucid._C import complex64 as complex64
from lucid._C import complex128 as complex128
from lucid._C import dtype as dtype
from lucid._C import float8_e4m3fn as float8_e4m3fn
from lucid._C import float8_e5m2 as float8_e5m2
from lucid._C import float16 as float16
from lucid._C import float32 as float32
from lucid._C import float64 as float64
from lucid._C import int8 as int8
from lucid._C import int16 as int16
from lucid._C import int32 as int32
from lucid._C import int64 as int64
from lucid._C import uint8 as uint8
from lucid._C import uint16 as uint16
from lucid._C import uint32 as uint32
from lucid._C import uint64 as uint64
from lucid._dtypes import dtypes as _all

double = float64
float = float32
half = float16
cdouble = complex128
cfloat = complex64
short = int16
int = int32
long = int64

__all__ = [
    "bfloat16",
    "bool",
    "cdouble",
    "cfloat",
    "complex64",
    "complex128",
    "double",
    "dtype",
    "float",
    "float8_e4m3fn",
    "float8_e5m2",
    "float16",
    "float32",
    "float64",
    "half",
    "int",
    "int8",
    "int16",
    "int32",
    "int64",
    "long",
    "short",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]


class _Dtypes(ModuleType):
    """The module as the collection of its dtypes."""

    def __iter__(self) -> Iterator[dtype]:
        return iter(_all)

    def __len__(self) -> builtins.int:
        return len(_all)

    def __contains__(self, item: object) -> builtins.bool:
        return item in _all


sys.modules[__name__].__class__ = _Dtypes
