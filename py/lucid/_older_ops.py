"""Functions of PyTorch's that have no documented name, or an older one, which packages call: of public ops here.

`lucid` looks names up here when they are first asked for.
"""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor


def _cast(name: str) -> Any:
    dtype = getattr(lucid, name)

    def cast(input: Tensor, non_blocking: bool = False) -> Tensor:
        return input.to(dtype, non_blocking=non_blocking)

    cast.__doc__ = f"A tensor in the dtype {dtype!r}, by an older name of `Tensor.to`."
    return cast


_cast_Byte = _cast("uint8")
_cast_Char = _cast("int8")
_cast_Short = _cast("int16")
_cast_Int = _cast("int32")
_cast_Long = _cast("int64")
_cast_Half = _cast("float16")
_cast_Float = _cast("float32")
_cast_Double = _cast("float64")


def _convert_indices_from_coo_to_csr(input: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    """Where each of `size` rows begins among sorted row indices, (n,), as the CSR layout has it: (size + 1,)."""
    bounds = lucid.arange(size + 1, dtype=input.dtype, device=input.device)
    return lucid.searchsorted(input.contiguous(), bounds, out_int32=out_int32)


def _convert_indices_from_csr_to_coo(
    crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Tensor:
    """The row and column indices of a matrix in CSR layout, (2, n), with `transpose` the columns first."""
    rows = lucid.arange(len(crow_indices) - 1, device=crow_indices.device)
    rows = rows.repeat_interleave(crow_indices[1:] - crow_indices[:-1])
    dtype = lucid.int32 if out_int32 else lucid.int64
    both = (col_indices, rows) if transpose else (rows, col_indices)
    return lucid.stack([indices.to(dtype) for indices in both])


def _segment_reduce(data: Tensor, reduce: str, **options: Any) -> Tensor:
    """`segment_reduce` by its older name."""
    return lucid.segment_reduce(data, reduce, **options)


def _nested_view_from_buffer(
    buffer: Tensor, nested_size: Tensor, nested_strides: Tensor, storage_offsets: Tensor
) -> Tensor:
    """A nested tensor of parts of a buffer: row `i` of `nested_size` has the sizes of part `i`, and likewise strides.

    Differs from PyTorch: the layout is jagged, so that sizes may differ in one dimension alone, and the parts are
    copied.
    """
    tables = (nested_size.tolist(), nested_strides.tolist(), storage_offsets.tolist())
    parts = [buffer.as_strided(size, strides, offset) for size, strides, offset in zip(*tables, strict=True)]
    return lucid.nested.as_nested_tensor(parts)


# What PyTorch was built with, by older names of questions to `lucid.backends`.
has_cuda = lucid.backends.cuda.is_built()
has_cudnn = lucid.backends.cudnn.is_available()
has_mps = lucid.backends.mps.is_built()
