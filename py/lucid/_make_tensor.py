"""Tensors for tests: `lucid.testing.make_tensor`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid._warnings import warn


def make_tensor(
    *shape: int | Sequence[int],
    dtype: lucid.dtype,
    device: Any,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Draws a tensor uniformly from `[low, high)`.

    Differences from PyTorch: unsigned integers begin at 0 by default; the numbers are Lucid's generator's.

    Args:
        *shape (int | Sequence[int]): sizes, or one sequence of sizes.
        dtype (lucid.dtype): any but the quantized ones.
        device (lucid.device or str): where it is.
        low (float, optional): by default -9 and 10 for integers, 0 and 10 for uint8, 0 and 2 for bool, -9 and 9
            otherwise; cut to the dtype's range. Of complex numbers the range of both parts.
        high (float, optional): by default -9 and 10 for integers, 0 and 10 for uint8, 0 and 2 for bool, -9 and 9
            otherwise; cut to the dtype's range. Of complex numbers the range of both parts.
        requires_grad (bool, default: False): of floating-point and complex tensors.
        noncontiguous (bool, default: False): whether every second element of a larger tensor is taken; not with
            `memory_format`.
        exclude_zero (bool, default: False): whether zeros become 1, or the smallest normal number of the dtype.
        memory_format (object, optional): see `Tensor.clone`.

    Returns:
        A tensor of that shape, dtype and device.

    Raises:
        ValueError: the range is empty, NaN or out of the dtype's, or arguments exclude one another.

    Example:
        >>> x = lucid.testing.make_tensor(2, 3, dtype=lucid.int64, device="cpu", low=0, high=5)
        >>> x.shape, bool((x < 5).all())
        (lucid.Size([2, 3]), True)
    """
    if len(shape) == 1 and not isinstance(shape[0], int):
        shape = tuple(shape[0])
    sizes: list[int] = [int(n) for n in shape]  # type: ignore[arg-type]
    if noncontiguous and memory_format is not None:
        raise errors.ValueError("The parameters `noncontiguous` and `memory_format` are mutually exclusive")
    discrete = not (dtype.is_floating_point or dtype.is_complex)
    if requires_grad and discrete:
        raise errors.ValueError(
            f"`requires_grad=True` is not supported for boolean and integral dtypes, but got {dtype}"
        )
    if dtype is lucid.bool:
        least, most, defaults = 0.0, 2.0, (0, 2)
    elif discrete:
        info = lucid.iinfo(dtype)
        # `randint` counts in int64.
        least, most = info.min, min(info.max + 1, 2**63 - 1)
        defaults = (max(-9, info.min), 10)
    else:
        limits = lucid.finfo(dtype)
        least, most, defaults = limits.min, limits.max, (-9, 9)
    a: float = defaults[0] if low is None else low
    b: float = defaults[1] if high is None else high
    if math.isnan(a) or math.isnan(b):
        raise errors.ValueError(f"`low` and `high` cannot be NaN, but got low={low} and high={high}")
    if a == b and not discrete:
        warn("make_tensor: low == high is deprecated for floating and complex dtypes; use lucid.full", FutureWarning)
    elif a >= b:
        raise errors.ValueError(f"`low` must be less than `high`, but got {a} >= {b}")
    elif b < least or a >= most:
        raise errors.ValueError(
            f"The value interval specified by `low` and `high` is [{a}, {b}), but {dtype} only supports "
            f"[{least}, {most})"
        )
    a, b = min(max(a, least), most), min(max(b, least), most)
    strided = noncontiguous and math.prod(sizes) > 1
    drawn = [*sizes[:-1], 2 * sizes[-1]] if strided else sizes
    if discrete:
        result = lucid.randint(math.ceil(a), math.ceil(b), drawn, dtype=dtype, device=device)
    elif dtype.itemsize == 1:
        # Floats of 8 bits are computed in float32.
        result = lucid.empty(drawn, device=device).uniform_(a / 2, b / 2).mul_(2).clamp_(a, b).to(dtype)
    else:
        result = lucid.empty(drawn, dtype=dtype, device=device)
        parts = lucid.view_as_real(result) if dtype.is_complex else result
        if b - a >= most:
            parts.uniform_(a / 2, b / 2).mul_(2)
        else:
            parts.uniform_(a, b)
    if strided:
        result = result[..., 1::2]
    elif memory_format is not None:
        result = result.clone(memory_format=memory_format)
    if exclude_zero:
        result[result == 0] = 1 if discrete else lucid.finfo(dtype).tiny
    if requires_grad:
        result.requires_grad_()
    return result
