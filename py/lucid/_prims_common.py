"""Helpers on shapes, dtypes and determinism that packages take from `torch._prims_common`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import lucid
from lucid import errors
from lucid._warnings import warn

__all__ = [
    "alert_not_deterministic",
    "canonicalize_dim",
    "is_boolean_dtype",
    "is_complex_dtype",
    "is_float_dtype",
    "is_integer_dtype",
    "make_contiguous_strides_for",
]


def alert_not_deterministic(caller: str) -> None:
    """Says that an op has no deterministic kernel, where `lucid.use_deterministic_algorithms` asks for that.

    Raises:
        RuntimeError: deterministic algorithms are asked for, and not only to be warned about.
    """
    if not lucid.are_deterministic_algorithms_enabled():
        return
    text = f"{caller} does not have a deterministic implementation, but you set use_deterministic_algorithms(True)"
    if not lucid.is_deterministic_algorithms_warn_only_enabled():
        raise errors.RuntimeError(text)
    warn(text)


def is_boolean_dtype(dtype: lucid.dtype) -> bool:
    """Is it `bool`?"""
    return dtype is lucid.bool


def is_integer_dtype(dtype: lucid.dtype) -> bool:
    """Is it one of integers, which `bool` is not?"""
    return not (dtype.is_floating_point or dtype.is_complex or dtype is lucid.bool)


def is_float_dtype(dtype: lucid.dtype) -> bool:
    """Is it one of floating-point numbers?"""
    return dtype.is_floating_point


def is_complex_dtype(dtype: lucid.dtype) -> bool:
    """Is it one of complex numbers?"""
    return dtype.is_complex


def canonicalize_dim(rank: int, idx: int, wrap_scalar: bool = True) -> int:
    """A dimension counted from the front.

    Raises:
        IndexError: there is no such dimension.
    """
    rank = max(rank, 1) if wrap_scalar else rank
    if not -rank <= idx < rank:
        raise errors.IndexError(
            f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {idx})"
        )
    return idx % rank


def make_contiguous_strides_for(shape: Sequence[int], row_major: bool = True) -> tuple[int, ...]:
    """The strides of a contiguous tensor of this shape."""
    strides = [math.prod(max(n, 1) for n in shape[i + 1 :]) for i in range(len(shape))]
    if not row_major and len(shape) >= 2:
        strides[-2:] = [1, max(shape[-2], 1)]
    return tuple(strides)
