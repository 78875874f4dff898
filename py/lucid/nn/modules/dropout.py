"""Dropout."""

from __future__ import annotations

from lucid import Tensor, errors
from lucid.nn import functional as F
from lucid.nn.modules.module import Module

__all__ = ["Dropout"]


class Dropout(Module):
    """Zeroes each element with probability `p` in training and scales the others by 1/(1-p); does nothing otherwise.

    Args:
        p: Probability of zero. Default: 0.5.
        inplace: Whether to write over the input. Default: False.
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if p < 0 or p > 1:
            raise errors.ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"
