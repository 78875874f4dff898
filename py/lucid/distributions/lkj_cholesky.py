"""The LKJ distribution of factors of correlation matrices."""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid import Size, Tensor
from lucid.distributions import constraints
from lucid.distributions.beta import Beta
from lucid.distributions.distribution import Distribution
from lucid.distributions.utils import broadcast_all

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Cholesky factors `L` of correlation matrices with the density `p(L Lᵀ) ∝ det(L Lᵀ)^(c - 1)`.

    `c = 1` is uniform over correlation matrices; the larger `c`, the closer these are to the identity.

    Samples of matrices with more than two rows have this density; PyTorch's have another one.

    Args:
        dim (int): rows of the matrices, 2 or more.
        concentration (Tensor or float): `c > 0`, any shape. Default: 1.
        validate_args (bool, optional): whether to check parameters and values.

    Raises:
        ValueError: if `dim` is below 2.

    Example:
        >>> LKJCholesky(3, 0.5).sample().shape
        lucid.Size([3, 3])

    Reference:
        Lewandowski, Kurowicka and Joe, "Generating random correlation matrices based on vines and extended onion
        method", 2009.
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky
    _expandable = {"concentration": 0}

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        # The squared length of the part of row i below the diagonal, by the onion method; the first row has none.
        c = self.concentration
        row = lucid.arange(dim - 1, dtype=c.dtype, device=c.device)
        row = lucid.cat([row.new_zeros(1), row])
        self._beta = Beta(0.5 * row + 0.5, (c + 0.5 * (dim - 2)).unsqueeze(-1) - 0.5 * row)
        super().__init__(c.shape, (dim, dim), validate_args)

    def _expand_into(self, new: Any, batch_shape: Size) -> None:
        new.dim = self.dim
        new._beta = self._beta.expand((*batch_shape, self.dim))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with lucid.no_grad():
            length = self._beta.sample(sample_shape).unsqueeze(-1)
            shape = self._extended_shape(sample_shape)
            noise = lucid.randn(tuple(shape), dtype=length.dtype, device=length.device).tril(-1)
            norm = noise.square().sum(-1, keepdim=True).sqrt()
            lower = length.sqrt() * lucid.where(norm > 0, noise / norm, 0.0)
            rest = (1 - lower.square().sum(-1)).clamp(min=lucid.finfo(lower.dtype).tiny)
            return lower + rest.sqrt().diag_embed()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        c, n = self.concentration, self.dim - 1
        row = lucid.arange(2, self.dim + 1, device=c.device)
        power = 2 * (c - 1).unsqueeze(-1) + self.dim - row
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        a = c + 0.5 * n
        normalizer = 0.5 * n * math.log(math.pi) + lucid.mvlgamma(a - 0.5, n) - a.lgamma() * n
        return (power * diagonal.log()).sum(-1) - normalizer
