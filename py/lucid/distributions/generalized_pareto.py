"""The generalised Pareto distribution."""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid import Tensor
from lucid.distributions import constraints
from lucid.distributions.distribution import Distribution
from lucid.distributions.utils import broadcast_all

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Distribution):
    """The generalised Pareto distribution: `p(x) = (1 + c z)^(-1/c - 1) / s`, with `z = (x - m) / s`.

    At `c = 0` it is the exponential distribution; for `c < 0` it ends at `m - s / c`.

    Args:
        loc (Tensor or float): the lower end `m`, any shape.
        scale (Tensor or float): `s > 0`, of a shape that broadcasts.
        concentration (Tensor or float): the tail's index `c`, of a shape that broadcasts.
        validate_args (bool, optional): whether to check parameters and values.

    Example:
        >>> GeneralizedPareto(0.0, 1.0, 0.5).mean
        tensor(2.)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True
    _expandable = {"loc": 0, "scale": 0, "concentration": 0}

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        end = self.loc - self.scale / self.concentration
        return constraints.interval(self.loc, lucid.where(self.concentration < 0, end, math.inf))

    def _tail(self) -> tuple[Tensor, Tensor]:
        """Where the concentration is 0, and the concentration with ones there."""
        zero = lucid.isclose(self.concentration, lucid.zeros_like(self.concentration))
        return zero, lucid.where(zero, 1.0, self.concentration)

    def _standardized(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return (value - self.loc) / self.scale

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(lucid.rand(tuple(shape), dtype=self.loc.dtype, device=self.loc.device))

    def log_prob(self, value: Tensor) -> Tensor:
        z = self._standardized(value)
        zero, c = self._tail()
        power = c.reciprocal() + 1 + lucid.zeros_like(z)
        fall = lucid.where(power == 0, power, power * (c * z).log1p())
        return -self.scale.log() - lucid.where(zero, z, fall)

    def log_survival_function(self, value: Tensor) -> Tensor:
        """Gives `log P(X > value)`.

        Args:
            value (Tensor): of a shape that broadcasts with `batch_shape`.

        Returns:
            Tensor: of the broadcast shape.

        Example:
            >>> GeneralizedPareto(0.0, 1.0, 0.0).log_survival_function(lucid.tensor(2.0))
            tensor(-2.)
        """
        z = self._standardized(value)
        zero, c = self._tail()
        return -lucid.where(zero, z, (c * z).log1p() / c)

    def log_cdf(self, value: Tensor) -> Tensor:
        """Gives `log P(X <= value)`.

        Args:
            value (Tensor): of a shape that broadcasts with `batch_shape`.

        Returns:
            Tensor: of the broadcast shape.

        Example:
            >>> GeneralizedPareto(0.0, 1.0, 0.5).log_cdf(lucid.tensor(2.0)).exp()
            tensor(0.7500)
        """
        return (-self.log_survival_function(value).exp()).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        return -self.log_survival_function(value).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        log = (-value).log1p()
        zero, c = self._tail()
        return self.loc + self.scale * lucid.where(zero, -log, (-c * log).expm1() / c)

    @property
    def mean(self) -> Tensor:
        exists = self.concentration < 1
        c = lucid.where(exists, self.concentration, 0.5)
        return lucid.where(exists, self.loc + self.scale / (1 - c), math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        exists = self.concentration < 0.5
        c = lucid.where(exists, self.concentration, 0.25)
        return lucid.where(exists, self.scale.square() / ((1 - c).square() * (1 - 2 * c)), math.nan)

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1
