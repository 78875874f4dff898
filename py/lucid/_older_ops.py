"""Functions of PyTorch's that have no documented name, or an older one, which packages call: of public ops here.

`lucid` looks names up here when they are first asked for.
"""

from __future__ import annotations

from typing import Any

import lucid
from lucid import _C, Tensor


def _cast(name: str) -> Any:
    dtype = getattr(lucid, name)

    def cast(input: Tensor, non_blocking: bool = False) -> Tensor:
        return input.to(dtype, non_blocking=non_blocking)

    cast.__doc__ = f"A tensor in the dtype {dtype!r}, by an older name of `Tensor.to`."
    return cast


def _amp_foreach_non_finite_check_and_unscale_(self: Any, found_inf: Tensor, inv_scale: Tensor) -> None:
    """Multiplies gradients by `inv_scale`, in place; `found_inf` becomes 1 where an element is not finite."""
    if self:
        with lucid.no_grad():
            for found in _C._unscale_(list(self), inv_scale):
                found_inf.copy_(lucid.maximum(found_inf, found.to(found_inf)))


def _amp_update_scale_(
    input: Tensor,
    growth_tracker: Tensor,
    found_inf: Tensor,
    scale_growth_factor: float,
    scale_backoff_factor: float,
    growth_interval: int,
) -> Tensor:
    """The next scale of gradients, in place, and the number of steps since it changed."""
    with lucid.no_grad():
        bad, count = found_inf > 0, growth_tracker + 1
        due = (count == growth_interval) & ~bad
        grown = input * scale_growth_factor
        # A scale that would overflow stays.
        grown = lucid.where(due & grown.isfinite(), grown, input)
        input.copy_(lucid.where(bad, input * scale_backoff_factor, grown))
        growth_tracker.copy_(lucid.where(bad | due, 0, count))
    return input


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
