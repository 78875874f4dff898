"""Distances as modules."""

from __future__ import annotations

from lucid import Tensor
from lucid.nn import functional as F
from lucid.nn.modules.module import Module

__all__ = ["CosineSimilarity", "PairwiseDistance"]


class PairwiseDistance(Module):
    """`‖x1 - x2 + eps‖_p` along the last dimension.

    Args:
        p (float, default: 2.0): the order of the norm.
        eps (float, default: 1e-06): what is added to each difference.
        keepdim (bool, default: False): keeps the last dimension, with size 1.

    Example:
        >>> from lucid import nn
        >>> nn.PairwiseDistance()(lucid.tensor([[0.0, 0.0]]), lucid.tensor([[3.0, 4.0]]))
        tensor([5.0000])
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineSimilarity(Module):
    """The cosine of the angle between `x1` and `x2` along `dim`.

    Args:
        dim (int, default: 1): the dimension of the vectors.
        eps (float, default: 1e-08): the smallest norm.

    Example:
        >>> from lucid import nn
        >>> nn.CosineSimilarity()(lucid.tensor([[1.0, 0.0]]), lucid.tensor([[1.0, 1.0]]))
        tensor([0.7071])
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)
