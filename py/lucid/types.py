"""Names for annotations under the names of `torch.types`. `lucid` has more: `DTypeLike`, `ShapeLike`, `TensorLike`."""

from __future__ import annotations

import os
from builtins import bool as _bool
from builtins import complex as _complex
from builtins import float as _float
from builtins import int as _int
from typing import IO, TypeAlias

from lucid import Size as _Size
from lucid._C import device as _device
from lucid._C import dtype as _dtype
from lucid._C import layout as _layout
from lucid._storage import TypedStorage, UntypedStorage

__all__ = [
    "Device",
    "FileLike",
    "Number",
    "Storage",
    "_Number",
    "_bool",
    "_complex",
    "_device",
    "_dtype",
    "_float",
    "_int",
    "_layout",
    "_size",
]

#: A real number of Python's.
Number: TypeAlias = int | float | bool
#: The classes of real numbers of Python's, for `isinstance`.
_Number = (_int, _float, _bool)
#: A device, its name, a GPU's index, or `None` for the default.
Device: TypeAlias = _device | str | int | None
#: What `save` and `load` take: a path or an open binary file.
FileLike: TypeAlias = str | os.PathLike[str] | IO[bytes]
#: A tensor's memory.
Storage: TypeAlias = TypedStorage | UntypedStorage
_size: TypeAlias = _Size | list[int] | tuple[int, ...]
