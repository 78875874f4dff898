"""PyTorch's older names for sparse tensors: `lucid.sparse.FloatTensor(indices, values, size)`."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor
from lucid._dtypes import CLASSES
from lucid._warnings import warn_once


class sparsetype(type):
    """The type of the names below: calling one makes a COO tensor, and an instance is one of its dtype."""

    dtype: lucid.dtype

    def __call__(cls, *args: Any, device: Any = None) -> Tensor:
        """Of indices and values, with or without a size; or without elements, of a size."""
        warn_once(
            "sparse types",
            "lucid.sparse's tensor types are deprecated. Please use lucid.sparse_coo_tensor(indices, values, shape)",
        )
        if args and isinstance(args[0], Tensor):
            if len(args) not in (2, 3) or not isinstance(args[1], Tensor):
                raise TypeError(f"sparse.{cls.__name__}(): expected indices, values and a size")
            indices, values = args[:2]
            if values.dtype is not cls.dtype:
                raise TypeError(f"sparse.{cls.__name__}(): expected values of {cls.dtype!r}, got {values.dtype!r}")
            return lucid.sparse_coo_tensor(indices, values, *map(tuple, args[2:]), device=device)
        size: Any = args[0] if len(args) == 1 and not isinstance(args[0], int) else args or (0,)
        indices = lucid.zeros(len(size), 0, dtype=lucid.int64, device=device)
        return lucid.sparse_coo_tensor(indices, lucid.zeros(0, dtype=cls.dtype, device=device), tuple(size))

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor) and instance.is_sparse and instance.dtype is cls.dtype

    def __repr__(cls) -> str:
        return f"<class 'lucid.sparse.{cls.__name__}'>"


def _of(short: str) -> sparsetype:
    dtype = CLASSES[short]
    return sparsetype(
        f"{short}Tensor",
        (),
        {"dtype": dtype, "__module__": "lucid.sparse", "__doc__": f"Makes a sparse tensor of {dtype!r}."},
    )


FloatTensor = _of("Float")
DoubleTensor = _of("Double")
HalfTensor = _of("Half")
BFloat16Tensor = _of("BFloat16")
ByteTensor = _of("Byte")
CharTensor = _of("Char")
ShortTensor = _of("Short")
IntTensor = _of("Int")
LongTensor = _of("Long")
