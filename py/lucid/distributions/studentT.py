"""Student's t distribution."""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid import Size, Tensor
from lucid.distributions import constraints
from lucid.distributions.chi2 import Chi2
from lucid.distributions.distribution import Distribution
from lucid.distributions.utils import _standard_normal, broadcast_all

__all__ = ["StudentT"]


class StudentT(Distribution):
    """Student's t distribution: `p(x) = Γ((v+1)/2) / (Γ(v/2) √(πv) s) · (1 + z²/v)^(-(v+1)/2)`, with `z = (x - m) / s`.

    Samples have gradients in all parameters.

    Args:
        df (Tensor or float): degrees of freedom `v > 0`, any shape.
        loc (Tensor or float): the centre `m`, of a shape that broadcasts. Default: 0.
        scale (Tensor or float): `s > 0`, of a shape that broadcasts. Default: 1.
        validate_args (bool, optional): whether to check parameters and values.

    Example:
        >>> StudentT(4.0).variance
        tensor(2.)
    """

    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _expandable = {"df": 0, "loc": 0, "scale": 0}

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        self._chi2 = Chi2(self.df)
        super().__init__(self.df.shape, validate_args=validate_args)

    def _expand_into(self, new: Any, batch_shape: Size) -> None:
        new._chi2 = self._chi2.expand(batch_shape)

    @property
    def mean(self) -> Tensor:
        return lucid.where(self.df > 1, self.loc, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        finite = lucid.where(self.df > 2, self.scale.square() * self.df / (self.df - 2), math.inf)
        return lucid.where(self.df > 1, finite, math.nan)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        noise = _standard_normal(self._extended_shape(sample_shape), self.df.dtype, self.df.device)
        z = noise * (self._chi2.rsample(sample_shape) / self.df).rsqrt()
        return self.loc + self.scale * z

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        v, z = self.df, (value - self.loc) / self.scale
        beta = (0.5 * v).lgamma() - (0.5 * (v + 1.0)).lgamma()
        normalizer = self.scale.log() + 0.5 * v.log() + 0.5 * math.log(math.pi) + beta
        return -0.5 * (v + 1.0) * (z.square() / v).log1p() - normalizer

    def entropy(self) -> Tensor:
        v = self.df
        half, more = 0.5 * v, 0.5 * (v + 1)
        beta = half.lgamma() + math.lgamma(0.5) - more.lgamma()
        return self.scale.log() + more * (more.digamma() - half.digamma()) + 0.5 * v.log() + beta
