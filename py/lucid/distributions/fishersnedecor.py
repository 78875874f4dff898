"""Fisher and Snedecor's F distribution."""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid import Size, Tensor
from lucid.distributions import constraints
from lucid.distributions.distribution import Distribution
from lucid.distributions.gamma import Gamma
from lucid.distributions.utils import broadcast_all

__all__ = ["FisherSnedecor"]


class FisherSnedecor(Distribution):
    """The ratio of two chi-squared numbers over their degrees of freedom.

    `p(x) = (d1/d2)^(d1/2) x^(d1/2 - 1) (1 + d1 x / d2)^(-(d1+d2)/2) / B(d1/2, d2/2)`. Samples have gradients.

    Args:
        df1 (Tensor or float): degrees of freedom of the numerator `d1 > 0`, any shape.
        df2 (Tensor or float): degrees of freedom of the denominator `d2 > 0`, of a shape that broadcasts.
        validate_args (bool, optional): whether to check parameters and values.

    Example:
        >>> FisherSnedecor(1.0, 4.0).mean
        tensor(2.)
    """

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True
    _expandable = {"df1": 0, "df2": 0}

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        # The ratio of means of these is that of the chi-squared numbers over their degrees of freedom.
        self._gamma1 = Gamma(self.df1 * 0.5, self.df1)
        self._gamma2 = Gamma(self.df2 * 0.5, self.df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    def _expand_into(self, new: Any, batch_shape: Size) -> None:
        new._gamma1 = self._gamma1.expand(batch_shape)
        new._gamma2 = self._gamma2.expand(batch_shape)

    @property
    def mean(self) -> Tensor:
        return lucid.where(self.df2 > 2, self.df2 / (self.df2 - 2), math.nan)

    @property
    def mode(self) -> Tensor:
        inner = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return lucid.where(self.df1 > 2, inner, math.nan)

    @property
    def variance(self) -> Tensor:
        d1, d2 = self.df1, self.df2
        closed = 2 * d2.square() * (d1 + d2 - 2) / (d1 * (d2 - 2).square() * (d2 - 4))
        return lucid.where(d2 > 4, closed, math.nan)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        tiny = lucid.finfo(self.df1.dtype).tiny
        ratio = self._gamma1.rsample(sample_shape) / self._gamma2.rsample(sample_shape).clamp(min=tiny)
        return ratio.clamp(min=tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        a, b, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        beta = a.lgamma() + b.lgamma() - (a + b).lgamma()
        return a * ratio.log() + (a - 1) * value.log() - (a + b) * (ratio * value).log1p() - beta
