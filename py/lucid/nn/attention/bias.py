"""Causal masks as tensors: `causal_upper_left` and `causal_lower_right`."""

from __future__ import annotations

import enum
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.utils import _pytree

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(enum.IntEnum):
    """Where the triangle of a mask that is not square begins."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(Tensor):
    """A mask of shape `(seq_len_q, seq_len_kv)`, true where a query sees a key, for the `attn_mask` of attention.

    Args:
        variant (CausalVariant): where the triangle of a mask that is not square begins: UPPER_LEFT or LOWER_RIGHT.
        seq_len_q (int): how many queries there are.
        seq_len_kv (int): how many keys; at least as many as queries for LOWER_RIGHT, so that each query sees a key.

    Raises:
        TypeError: `variant` is no `CausalVariant`.
        RuntimeError: LOWER_RIGHT with more queries than keys.

    Example:
        >>> from lucid.nn.attention.bias import CausalBias, CausalVariant
        >>> CausalBias(CausalVariant.LOWER_RIGHT, 1, 3).int()
        tensor([[1, 1, 1]], dtype=lucid.int32)
    """

    variant: CausalVariant
    seq_len_q: int
    seq_len_kv: int
    _mask: Tensor

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> CausalBias:
        if not isinstance(variant, CausalVariant):
            raise errors.TypeError(f"CausalBias: expected a CausalVariant, got {variant!r}")
        if variant is CausalVariant.LOWER_RIGHT and seq_len_q > seq_len_kv:
            raise errors.RuntimeError(
                "Lower right causal bias will produce NaNs in the output when seq_len_q > seq_len_kv!"
            )
        at = seq_len_kv - seq_len_q if variant is CausalVariant.LOWER_RIGHT else 0
        mask = lucid.ones(seq_len_q, seq_len_kv, dtype=lucid.bool, device="cpu").tril(at)
        made: CausalBias = Tensor._make_subclass(cls, mask)
        made.variant, made.seq_len_q, made.seq_len_kv, made._mask = variant, seq_len_q, seq_len_kv, mask
        return made

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        pass

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [a for a in _pytree.tree_leaves((args, kwargs or {})) if isinstance(a, Tensor)]
        device = next((a.device for a in given if not isinstance(a, CausalBias)), None)

        def plain(a: Any) -> Any:
            if not isinstance(a, CausalBias):
                return a
            return a._mask if device is None else a._mask.to(device)

        args, kwargs = _pytree.tree_map(plain, (tuple(args), dict(kwargs or {})))
        return func(*args, **kwargs)


def causal_upper_left(*size: int) -> CausalBias:
    """Makes a causal mask in which query `i` sees keys `0 … i`.

    Args:
        size (int): how many queries, and how many keys: two numbers.

    Returns:
        CausalBias: of shape `(queries, keys)`, for the `attn_mask` of attention.

    Raises:
        ValueError: there are not two sizes.

    Example:
        >>> from lucid.nn.attention.bias import causal_upper_left
        >>> causal_upper_left(2, 3).int()
        tensor([[1, 0, 0],
                [1, 1, 0]], dtype=lucid.int32)
    """
    if len(size) != 2:
        raise errors.ValueError("causal_upper_left only supports 2D tensors")
    return CausalBias(CausalVariant.UPPER_LEFT, size[0], size[1])


def causal_lower_right(*size: int) -> CausalBias:
    """Makes a causal mask in which the last query sees every key, the one before it all but the last, and so on.

    Args:
        size (int): how many queries, and how many keys: two numbers.

    Returns:
        CausalBias: of shape `(queries, keys)`, for the `attn_mask` of attention.

    Raises:
        ValueError: there are not two sizes.
        RuntimeError: there are more queries than keys.

    Example:
        >>> from lucid.nn.attention.bias import causal_lower_right
        >>> causal_lower_right(2, 3).int()
        tensor([[1, 1, 0],
                [1, 1, 1]], dtype=lucid.int32)
    """
    if len(size) != 2:
        raise errors.ValueError("causal_lower_right only supports 2D tensors")
    return CausalBias(CausalVariant.LOWER_RIGHT, size[0], size[1])
