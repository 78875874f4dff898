"""Reductions and normalizations of the elements that a mask leaves: those left out count as the reduction's identity.

Each takes a plain tensor with `mask=`, a bool tensor that broadcasts to it (all elements where it is not given), and
gives a plain tensor. Where no element is left a reduction gives its identity, as PyTorch's do: 0, 1, infinities;
`mean`, `var` and `median` give NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import lucid
from lucid import Tensor, errors

__all__ = [
    "amax",
    "amin",
    "argmax",
    "argmin",
    "logsumexp",
    "mean",
    "median",
    "norm",
    "prod",
    "std",
    "sum",
    "var",
]

Dims = int | Sequence[int] | None


def _mask_of(op: str, input: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return lucid.ones(input.shape, dtype=lucid.bool, device=input.device)
    if mask.dtype is not lucid.bool:
        raise errors.TypeError(f"masked.{op}: expected a bool mask, got {mask.dtype}")
    return mask.expand(input.shape)


def _dims(input: Tensor, dim: Dims) -> list[int]:
    if dim is None or (not isinstance(dim, int) and not list(dim)):
        return list(range(input.ndim))
    return [dim] if isinstance(dim, int) else list(dim)


def _lowest(dtype: lucid.dtype) -> Any:
    return -math.inf if dtype.is_floating_point else 0 if dtype is lucid.bool else lucid.iinfo(dtype).min


def _highest(dtype: lucid.dtype) -> Any:
    return math.inf if dtype.is_floating_point else True if dtype is lucid.bool else lucid.iinfo(dtype).max


def _filled(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    return lucid.where(mask, input, lucid.full([], value, dtype=input.dtype, device=input.device))


def sum(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: lucid.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The sum of the elements where `mask` is true, along `dim`; all where not given.

    Args:
        input (Tensor): any shape.
        dim (Dims, optional): the dimensions to reduce; all by default.
        keepdim (bool, default: False): keeps the reduced dimensions, with size 1.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        mask (Tensor, optional): which elements count, bool, of a shape that broadcasts to that of `input`; all by
            default.

    Returns:
        Tensor: the shape of `input` without the dimensions `dim`, which have size 1 with `keepdim`.

    Example:
        >>> x, mask = lucid.tensor([1.0, 2.0, 4.0]), lucid.tensor([True, True, False])
        >>> lucid.masked.sum(x, mask=mask)
        tensor(3.)
    """
    m = _mask_of("sum", input, mask)
    return lucid.sum(_filled(input, m, 0), _dims(input, dim), keepdim, dtype=dtype)


def prod(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: lucid.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The product of the elements where `mask` is true, along `dim`; all where not given.

    Args:
        input (Tensor): any shape.
        dim (Dims, optional): the dimensions to reduce; all by default.
        keepdim (bool, default: False): keeps the reduced dimensions, with size 1.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        mask (Tensor, optional): which elements count, bool, of a shape that broadcasts to that of `input`; all by
            default.

    Returns:
        Tensor: the shape of `input` without the dimensions `dim`, which have size 1 with `keepdim`.

    Example:
        >>> x, mask = lucid.tensor([1.0, 2.0, 4.0]), lucid.tensor([True, True, False])
        >>> lucid.masked.prod(x, mask=mask)
        tensor(2.)
    """
    m = _mask_of("prod", input, mask)
    made = _filled(input, m, 1)
    dims = sorted((d % input.ndim for d in _dims(input, dim)), reverse=True) if input.ndim else []
    for d in dims:
        made = lucid.prod(made, d, keepdim, dtype=dtype)
    return made if dtype is None else made.to(dtype)


def amax(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: lucid.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The largest element where `mask` is true, along `dim`.

    Args:
        input (Tensor): any shape.
        dim (Dims, optional): the dimensions to reduce; all by default.
        keepdim (bool, default: False): keeps the reduced dimensions, with size 1.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        mask (Tensor, optional): which elements count, bool, of a shape that broadcasts to that of `input`; all by
            default.

    Returns:
        Tensor: the shape of `input` without the dimensions `dim`, which have size 1 with `keepdim`.

    Example:
        >>> x, mask = lucid.tensor([1.0, 2.0, 4.0]), lucid.tensor([True, True, False])
        >>> lucid.masked.amax(x, mask=mask)
        tensor(2.)
    """
    x = input if dtype is None else input.to(dtype)
    return lucid.amax(_filled(x, _mask_of("amax", x, mask), _lowest(x.dtype)), _dims(x, dim), keepdim)


def amin(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: lucid.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The smallest element where `mask` is true, along `dim`.

    Args:
        input (Tensor): any shape.
        dim (Dims, optional): the dimensions to reduce; all by default.
        keepdim (bool, default: False): keeps the reduced dimensions, with size 1.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        mask (Tensor, optional): which elements count, bool, of a shape that broadcasts to that of `input`; all by
            default.

    Returns:
        Tensor: the shape of `input` without the dimensions `dim`, which have size 1 with `keepdim`.

    Example:
        >>> x, mask = lucid.tensor([1.0, 2.0, 4.0]), lucid.tensor([True, True, False])
        >>> lucid.masked.amin(x, mask=mask)
        tensor(1.)
    """
    x = input if dtype is None else input.to(dtype)
    return lucid.amin(_filled(x, _mask_of("amin", x, mask), _highest(x.dtype)), _dims(x, dim), keepdim)


def argmax(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool = False,
    dtype: lucid.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Where the largest element is of those where `mask` is true.

    Args:
        input (Tensor): any shape.
        dim (int, optional): the dimension to reduce; the flattened tensor by default.
        keepdim (bool, default: False): keeps the reduced dimensions, with size 1.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        mask (Tensor, optional): which elements count, bool, of a shape that broadcasts to that of `input`; all by
            default.

    Returns:
        Tensor: the shape of `input` without the dimensions `dim`, which have size 1 with `keepdim`.

    Example:
        >>> x, mask = lucid.tensor([1.0, 2.0, 4.0]), lucid.tensor([True, True, False])
        >>> lucid.masked.argmax(x, mask=mask)
        tensor(1)
    """
    x = input if dtype is None else input.to(dtype)
    return lucid.argmax(_filled(x, _mask_of("argmax", x, mask), _lowest(x.dtype)), dim, keepdim)


def argmin(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool = False,
    dtype: lucid.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Where the smallest element is of those where `mask` is true.

    Args:
        input (Tensor): any shape.
        dim (int, optional): the dimension to reduce; the flattened tensor by default.
        keepdim (bool, default: False): keeps the reduced dimensions, with size 1.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        mask (Tensor, optional): which elements count, bool, of a shape that broadcasts to that of `input`; all by
            default.

    Returns:
        Tensor: the shape of `input` without the dimensions `dim`, which have size 1 with `keepdim`.

    Example:
        >>> x, mask = lucid.tensor([1.0, 2.0, 4.0]), lucid.tensor([True, True, False])
        >>> lucid.masked.argmin(x, mask=mask)
        tensor(0)
    """
    x = input if dtype is None else input.to(dtype)
    return lucid.argmin(_filled(x, _mask_of("argmin", x, mask), _highest(x.dtype)), dim, keepdim)


def _count(mask: Tensor, dims: list[int], keepdim: bool, dtype: lucid.dtype) -> Tensor:
    return lucid.sum(mask, dims, keepdim).to(dtype)


def mean(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: lucid.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The mean of the elements where `mask` is true, along `dim`; NaN where there are none.

    Args:
        input (Tensor): any shape.
        dim (Dims, optional): the dimensions to reduce; all by default.
        keepdim (bool, default: False): keeps the reduced dimensions, with size 1.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        mask (Tensor, optional): which elements count, bool, of a shape that broadcasts to that of `input`; all by
            default.

    Returns:
        Tensor: the shape of `input` without the dimensions `dim`, which have size 1 with `keepdim`.

    Raises:
        NotImplementedError: a dtype that the reduction is not defined for.

    Example:
        >>> x, mask = lucid.tensor([1.0, 2.0, 4.0]), lucid.tensor([True, True, False])
        >>> lucid.masked.mean(x, mask=mask)
        tensor(1.5000)
    """
    x = input if dtype is None else input.to(dtype)
    if not (x.is_floating_point() or x.is_complex()):
        raise errors.ValueError(f"masked.mean: expects a floating or complex dtype, got {x.dtype}; give dtype=")
    m, dims = _mask_of("mean", x, mask), _dims(x, dim)
    return sum(x, dims, keepdim=keepdim, mask=m) / _count(m, dims, keepdim, x.dtype)


def median(
    input: Tensor,
    dim: int = -1,
    *,
    keepdim: bool = False,
    dtype: lucid.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The lower median of the elements where `mask` is true, along `dim`; NaN where there are none.

    Args:
        input (Tensor): any shape.
        dim (int, default: -1): the dimension to reduce.
        keepdim (bool, default: False): keeps the reduced dimensions, with size 1.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        mask (Tensor, optional): which elements count, bool, of a shape that broadcasts to that of `input`; all by
            default.

    Returns:
        Tensor: the shape of `input` without the dimensions `dim`, which have size 1 with `keepdim`.

    Raises:
        NotImplementedError: a dtype that the reduction is not defined for.

    Example:
        >>> x, mask = lucid.tensor([1.0, 2.0, 4.0]), lucid.tensor([True, True, False])
        >>> lucid.masked.median(x, 0, mask=mask)
        tensor(1.)
    """
    x = input if dtype is None else input.to(dtype)
    if not x.is_floating_point():
        raise errors.ValueError(f"masked.median: expects a floating dtype, got {x.dtype}; give dtype=")
    found: Tensor = lucid.nanmedian(_filled(x, _mask_of("median", x, mask), math.nan), dim, keepdim)[0]
    return found


def logsumexp(
    input: Tensor,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: lucid.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The logarithm of the sum of exponentials where `mask` is true, along `dim`.

    Args:
        input (Tensor): any shape.
        dim (Dims, optional): the dimensions to reduce; all by default.
        keepdim (bool, default: False): keeps the reduced dimensions, with size 1.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        mask (Tensor, optional): which elements count, bool, of a shape that broadcasts to that of `input`; all by
            default.

    Returns:
        Tensor: the shape of `input` without the dimensions `dim`, which have size 1 with `keepdim`.

    Example:
        >>> x, mask = lucid.tensor([1.0, 2.0, 4.0]), lucid.tensor([True, True, False])
        >>> lucid.masked.logsumexp(x, mask=mask)
        tensor(2.3133)
    """
    x = input if dtype is None else input.to(dtype)
    return lucid.logsumexp(_filled(x, _mask_of("logsumexp", x, mask), -math.inf), _dims(x, dim), keepdim)


def norm(
    input: Tensor,
    ord: float | None = 2.0,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: lucid.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The vector norm of order `ord` of the elements where `mask` is true, along `dim`.

    Args:
        input (Tensor): any shape.
        ord (float, default: 2.0): the order of the norm.
        dim (Dims, optional): the dimensions to reduce; all by default.
        keepdim (bool, default: False): keeps the reduced dimensions, with size 1.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        mask (Tensor, optional): which elements count, bool, of a shape that broadcasts to that of `input`; all by
            default.

    Returns:
        Tensor: the shape of `input` without the dimensions `dim`, which have size 1 with `keepdim`.

    Example:
        >>> x, mask = lucid.tensor([1.0, 2.0, 4.0]), lucid.tensor([True, True, False])
        >>> lucid.masked.norm(x, mask=mask)
        tensor(2.2361)
    """
    x = input if dtype is None else input.to(dtype)
    identity = math.inf if ord == -math.inf else 0.0
    filled = _filled(x, _mask_of("norm", x, mask), identity)
    return lucid.linalg.vector_norm(filled, 2.0 if ord is None else ord, _dims(x, dim), keepdim)


def var(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: lucid.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The variance of the elements where `mask` is true, along `dim`, over their number less `correction` (1).

    Args:
        input (Tensor): any shape.
        dim (Dims, optional): the dimensions to reduce; all by default.
        unbiased (bool, optional): subtracts 1 from the number of elements in the divisor.
        correction (float, optional): what is subtracted from it; 1 by default.
        keepdim (bool, default: False): keeps the reduced dimensions, with size 1.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        mask (Tensor, optional): which elements count, bool, of a shape that broadcasts to that of `input`; all by
            default.

    Returns:
        Tensor: the shape of `input` without the dimensions `dim`, which have size 1 with `keepdim`.

    Raises:
        NotImplementedError: a dtype that the reduction is not defined for.

    Example:
        >>> x, mask = lucid.tensor([1.0, 2.0, 4.0]), lucid.tensor([True, True, False])
        >>> lucid.masked.var(x, mask=mask)
        tensor(0.5000)
    """
    if unbiased is not None and correction is not None:
        raise errors.ValueError("masked.var: Only one of unbiased and correction may be given")
    less = correction if correction is not None else 0.0 if unbiased is False else 1.0
    x = input if dtype is None else input.to(dtype)
    m, dims = _mask_of("var", x, mask), _dims(x, dim)
    middle = mean(x, dims, keepdim=True, mask=m)
    squares = sum((x - middle).square(), dims, keepdim=keepdim, mask=m)
    return squares / (_count(m, dims, keepdim, x.dtype) - less).clamp(min=0)


def std(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: lucid.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The square root of `var`.

    Args:
        input (Tensor): any shape.
        dim (Dims, optional): the dimensions to reduce; all by default.
        unbiased (bool, optional): subtracts 1 from the number of elements in the divisor.
        correction (float, optional): what is subtracted from it; 1 by default.
        keepdim (bool, default: False): keeps the reduced dimensions, with size 1.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        mask (Tensor, optional): which elements count, bool, of a shape that broadcasts to that of `input`; all by
            default.

    Returns:
        Tensor: the shape of `input` without the dimensions `dim`, which have size 1 with `keepdim`.

    Example:
        >>> x, mask = lucid.tensor([1.0, 2.0, 4.0]), lucid.tensor([True, True, False])
        >>> lucid.masked.std(x, mask=mask)
        tensor(0.7071)
    """
    return var(input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask).sqrt()
