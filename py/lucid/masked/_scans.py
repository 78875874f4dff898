"""Scans and normalisations of the elements where a mask is true."""

from __future__ import annotations

import math

import lucid
from lucid import Tensor
from lucid.masked._reductions import _filled, _mask_of, norm

__all__ = [
    "cumprod",
    "cumsum",
    "log_softmax",
    "logaddexp",
    "normalize",
    "softmax",
    "softmin",
]


def softmax(input: Tensor, dim: int, *, dtype: lucid.dtype | None = None, mask: Tensor | None = None) -> Tensor:
    """The softmax along `dim` of the elements where `mask` is true; 0 elsewhere, NaN along dimensions without any.

    Args:
        input (Tensor): any shape.
        dim (int): the dimension to work along.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        mask (Tensor, optional): which elements count, bool, of a shape that broadcasts to that of `input`; all by
            default.

    Returns:
        Tensor: the shape of `input`.

    Example:
        >>> x, mask = lucid.tensor([1.0, 2.0, 4.0]), lucid.tensor([True, True, False])
        >>> lucid.masked.softmax(x, 0, mask=mask)
        tensor([0.2689, 0.7311, 0.0000])
    """
    x = input if dtype is None else input.to(dtype)
    return lucid.softmax(_filled(x, _mask_of("softmax", x, mask), -math.inf), dim)


def log_softmax(input: Tensor, dim: int, *, dtype: lucid.dtype | None = None, mask: Tensor | None = None) -> Tensor:
    """The logarithm of `softmax`.

    Args:
        input (Tensor): any shape.
        dim (int): the dimension to work along.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        mask (Tensor, optional): which elements count, bool, of a shape that broadcasts to that of `input`; all by
            default.

    Returns:
        Tensor: the shape of `input`.

    Example:
        >>> x, mask = lucid.tensor([1.0, 2.0, 4.0]), lucid.tensor([True, True, False])
        >>> lucid.masked.log_softmax(x, 0, mask=mask)
        tensor([-1.3133, -0.3133,    -inf])
    """
    x = input if dtype is None else input.to(dtype)
    return lucid.log_softmax(_filled(x, _mask_of("log_softmax", x, mask), -math.inf), dim)


def softmin(input: Tensor, dim: int, *, dtype: lucid.dtype | None = None, mask: Tensor | None = None) -> Tensor:
    """The softmax of the negative elements.

    Args:
        input (Tensor): any shape.
        dim (int): the dimension to work along.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        mask (Tensor, optional): which elements count, bool, of a shape that broadcasts to that of `input`; all by
            default.

    Returns:
        Tensor: the shape of `input`.

    Example:
        >>> x, mask = lucid.tensor([1.0, 2.0, 4.0]), lucid.tensor([True, True, False])
        >>> lucid.masked.softmin(x, 0, mask=mask)
        tensor([0.7311, 0.2689, 0.0000])
    """
    return softmax(-input, dim, dtype=dtype, mask=mask)


def normalize(
    input: Tensor,
    ord: float,
    dim: int,
    *,
    eps: float = 1e-12,
    dtype: lucid.dtype | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The elements where `mask` is true over their norm along `dim`, at least `eps`; 0 elsewhere.

    Args:
        input (Tensor): any shape.
        ord (float): the order of the norm.
        dim (int): the dimension whose elements share a norm.
        eps (float, default: 1e-12): the smallest divisor.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        mask (Tensor, optional): which elements count, bool, of a shape that broadcasts to that of `input`; all by
            default.

    Returns:
        Tensor: the shape of `input`.

    Example:
        >>> x, mask = lucid.tensor([3.0, 4.0, 5.0]), lucid.tensor([True, True, False])
        >>> lucid.masked.normalize(x, 2.0, 0, mask=mask)
        tensor([0.6000, 0.8000, 0.0000])
    """
    x = input if dtype is None else input.to(dtype)
    m = _mask_of("normalize", x, mask)
    return _filled(x, m, 0) / norm(x, ord, dim, keepdim=True, mask=m).clamp(min=eps)


def cumsum(input: Tensor, dim: int, *, dtype: lucid.dtype | None = None, mask: Tensor | None = None) -> Tensor:
    """The running sum along `dim` of the elements where `mask` is true.

    Args:
        input (Tensor): any shape.
        dim (int): the dimension to work along.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        mask (Tensor, optional): which elements count, bool, of a shape that broadcasts to that of `input`; all by
            default.

    Returns:
        Tensor: the shape of `input`.

    Example:
        >>> x, mask = lucid.tensor([1.0, 2.0, 4.0]), lucid.tensor([True, True, False])
        >>> lucid.masked.cumsum(x, 0, mask=mask)
        tensor([1., 3., 3.])
    """
    return lucid.cumsum(_filled(input, _mask_of("cumsum", input, mask), 0), dim, dtype=dtype)


def cumprod(input: Tensor, dim: int, *, dtype: lucid.dtype | None = None, mask: Tensor | None = None) -> Tensor:
    """The running product along `dim` of the elements where `mask` is true.

    Args:
        input (Tensor): any shape.
        dim (int): the dimension to work along.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        mask (Tensor, optional): which elements count, bool, of a shape that broadcasts to that of `input`; all by
            default.

    Returns:
        Tensor: the shape of `input`.

    Example:
        >>> x, mask = lucid.tensor([1.0, 2.0, 4.0]), lucid.tensor([True, True, False])
        >>> lucid.masked.cumprod(x, 0, mask=mask)
        tensor([1., 2., 2.])
    """
    return lucid.cumprod(_filled(input, _mask_of("cumprod", input, mask), 1), dim, dtype=dtype)


def logaddexp(
    input: Tensor,
    other: Tensor,
    *,
    dtype: lucid.dtype | None = None,
    input_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
) -> Tensor:
    """`log(exp(input) + exp(other))`, where what a mask leaves out counts as minus infinity.

    Args:
        input (Tensor): the first operand, of any shape.
        other (Tensor): the second operand, of a shape that broadcasts with `input`.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        input_mask (Tensor, optional): which elements of `input` count, of its shape.
        other_mask (Tensor, optional): which elements of `other` count, of its shape.

    Returns:
        Tensor: the shape that both broadcast to.

    Example:
        >>> x = lucid.tensor([0.0, 0.0])
        >>> lucid.masked.logaddexp(x, x, other_mask=lucid.tensor([True, False]))
        tensor([0.6931, 0.0000])
    """
    x, y = (t if dtype is None else t.to(dtype) for t in (input, other))
    left = _filled(x, _mask_of("logaddexp", x, input_mask), -math.inf)
    return lucid.logaddexp(left, _filled(y, _mask_of("logaddexp", y, other_mask), -math.inf))
