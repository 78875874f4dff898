"""Helpers of distributions: broadcasting, probabilities and logits, lazy properties, triangular matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import update_wrapper
from numbers import Number
from typing import Any

import lucid
import lucid.nn.functional as F
from lucid import Tensor
from lucid.overrides import is_tensor_like

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]

#: Euler and Mascheroni's constant.
euler_constant = 0.57721566490153286060


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Makes tensors of numbers and broadcasts all values to one shape.

    Numbers take the dtype and device of the first tensor; without a tensor, the default dtype.

    Args:
        *values (Tensor or Number): what to broadcast, of any shapes.

    Returns:
        tuple of Tensor: one for each value, all of the same shape.

    Raises:
        ValueError: if a value is neither a number nor a tensor.

    Example:
        >>> a, b = broadcast_all(lucid.zeros(3), 2.0)
        >>> b
        tensor([2., 2., 2.])
    """
    if not all(is_tensor_like(v) or isinstance(v, Number) for v in values):
        raise ValueError(
            "Input arguments must all be instances of Number, lucid.Tensor or objects implementing __torch_function__."
        )
    first = next((v for v in values if isinstance(v, Tensor)), None)
    options: dict[str, Any] = {"dtype": lucid.get_default_dtype()}
    if first is not None:
        options = {"dtype": first.dtype, "device": first.device}
    made = [v if is_tensor_like(v) else lucid.tensor(v, **options) for v in values]
    return tuple(lucid.broadcast_tensors(*made))


def _standard_normal(shape: Sequence[int], dtype: Any, device: Any) -> Tensor:
    return lucid.randn(tuple(shape), dtype=dtype, device=device)


def _sum_rightmost(value: Tensor, dim: int) -> Tensor:
    """Sums over the last `dim` dimensions."""
    return value.sum(tuple(range(-dim, 0))) if dim else value


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Converts logits to probabilities: by a softmax over the last dimension, or, where binary, by the sigmoid.

    Args:
        logits (Tensor): unnormalised log probabilities `(..., K)`, or log odds of any shape.
        is_binary (bool): whether `logits` are log odds. Default: False.

    Returns:
        Tensor: probabilities of the same shape.

    Example:
        >>> logits_to_probs(lucid.zeros(2))
        tensor([0.5000, 0.5000])
    """
    return lucid.sigmoid(logits) if is_binary else F.softmax(logits, dim=-1)


def clamp_probs(probs: Tensor) -> Tensor:
    """Clamps probabilities to `[eps, 1 - eps]`, with `eps` the machine epsilon of their dtype.

    Args:
        probs (Tensor): probabilities of any shape.

    Returns:
        Tensor: the clamped probabilities.

    Example:
        >>> clamp_probs(lucid.tensor([0.0, 0.5])) > 0
        tensor([True, True])
    """
    eps = lucid.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Converts probabilities, clamped by :func:`clamp_probs`, to logits: `log p`, or, binary, `log p - log(1 - p)`.

    Args:
        probs (Tensor): probabilities of any shape.
        is_binary (bool): whether each element is the probability of 1. Default: False.

    Returns:
        Tensor: logits of the same shape.

    Example:
        >>> probs_to_logits(lucid.tensor([0.5]), is_binary=True)
        tensor([0.])
    """
    clamped = clamp_probs(probs)
    return clamped.log() - (-clamped).log1p() if is_binary else clamped.log()


class lazy_property:
    """A property computed when first read, which is an attribute of the instance from then on.

    Computed with gradients enabled, whatever the mode is. On a class it is a `property`.

    Args:
        wrapped (Callable): the method that computes the value.

    Example:
        >>> class Circle:
        ...     @lazy_property
        ...     def area(self):
        ...         return 3.0
        >>> Circle().area
        3.0
    """

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        update_wrapper(self, wrapped)  # type: ignore[arg-type]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return _LazyClassProperty(self.wrapped)
        with lucid.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


class _LazyClassProperty(lazy_property, property):
    """What a class shows of a lazy property."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        property.__init__(self, wrapped)


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """Takes the lower triangle of square matrices as vectors, in row order.

    Args:
        mat (Tensor): matrices `(..., D, D)`.
        diag (int): the last diagonal that belongs to the triangle. Default: 0, the main one.

    Returns:
        Tensor: vectors `(..., N)`.

    Raises:
        ValueError: if there is no such diagonal.

    Example:
        >>> tril_matrix_to_vec(lucid.tensor([[1.0, 0.0], [2.0, 3.0]]))
        tensor([1., 2., 3.])
    """
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, columns = lucid.tril_indices(n, n, offset=diag, device=mat.device)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Fills the lower triangle of square matrices with vectors, in row order: undoes :func:`tril_matrix_to_vec`.

    Args:
        vec (Tensor): vectors `(..., N)`.
        diag (int): the last diagonal that belongs to the triangle. Default: 0, the main one.

    Returns:
        Tensor: matrices `(..., D, D)`, zero above the triangle.

    Raises:
        ValueError: if no square matrix has a triangle of `N` elements.

    Example:
        >>> vec_to_tril_matrix(lucid.tensor([1.0, 2.0, 3.0]))
        tensor([[1., 0.],
                [2., 3.]])
    """
    # The triangle has D (D + 1 + 2 diag) / 2 elements, but for a corner where diag is not 0.
    size = vec.shape[-1]
    b = 1 + 2 * diag
    root = (math.sqrt(b * b + 8 * size + 4 * abs(diag) * (diag + 1)) - b) / 2
    n = round(root)
    if abs(n - root) > lucid.finfo(vec.dtype).eps:
        raise ValueError(
            f"The size of last dimension is {size} which cannot be expressed as "
            "the lower triangular part of a square D x D matrix."
        )
    rows, columns = lucid.tril_indices(n, n, offset=diag, device=vec.device)
    flat = (rows * n + columns).expand(vec.shape)
    return vec.new_zeros((*vec.shape[:-1], n * n)).scatter(-1, flat, vec).reshape((*vec.shape[:-1], n, n))
