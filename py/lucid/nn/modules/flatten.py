"""Reshaping as modules."""

from __future__ import annotations

from typing import Any

from lucid import Tensor, errors
from lucid.nn.modules.module import Module

__all__ = ["Flatten", "Unflatten"]


class Flatten(Module):
    """Merges the dimensions from `start_dim` (default: 1) to `end_dim` (default: -1) into one.

    Args:
        start_dim (int, default: 1): the first dimension to merge.
        end_dim (int, default: -1): the last dimension to merge.

    Example:
        >>> from lucid import nn
        >>> nn.Flatten()(lucid.zeros(2, 3, 4)).shape
        lucid.Size([2, 12])
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Splits the dimension `dim` into several of the sizes `unflattened_size`.

    Args:
        dim (int or str): the dimension to split.
        unflattened_size (tuple of ints): the sizes that replace that of `dim`; one may be -1.

    Raises:
        TypeError: sizes of other kinds than integers.

    Example:
        >>> from lucid import nn
        >>> nn.Unflatten(1, (3, 4))(lucid.zeros(2, 12)).shape
        lucid.Size([2, 3, 4])
    """

    def __init__(self, dim: int | str, unflattened_size: Any) -> None:
        super().__init__()
        if isinstance(dim, str):
            raise errors.TypeError("Unflatten: named dimensions are not supported; give the dimension's number")
        if not isinstance(unflattened_size, (tuple, list)):
            raise errors.TypeError(
                f"unflattened_size must be a tuple of ints, but found type {type(unflattened_size).__name__}"
            )
        for i, size in enumerate(unflattened_size):
            if not isinstance(size, int):
                raise errors.TypeError(
                    f"unflattened_size must be tuple of ints, but found a {type(size).__name__} at pos {i}"
                )
        self.dim = dim
        self.unflattened_size = unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
