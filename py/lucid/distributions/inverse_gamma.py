"""The inverse gamma distribution."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import lucid
from lucid import Tensor
from lucid.distributions import constraints
from lucid.distributions.gamma import Gamma
from lucid.distributions.transformed_distribution import TransformedDistribution
from lucid.distributions.transforms import PowerTransform

__all__ = ["InverseGamma"]


class InverseGamma(TransformedDistribution):
    """The reciprocal of a gamma number: `p(x) = b^a x^(-a-1) e^(-b/x) / Γ(a)`.

    Args:
        concentration (Tensor or float): `a > 0`, any shape.
        rate (Tensor or float): `b > 0`, of a shape that broadcasts.
        validate_args (bool, optional): whether to check parameters and values.

    Example:
        >>> InverseGamma(3.0, 4.0).mean
        tensor(2.)
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive
    has_rsample = True
    _expandable: ClassVar[dict[str, int]] = {}

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        base = Gamma(concentration, rate, validate_args=validate_args)
        super().__init__(base, PowerTransform(-base.rate.new_ones(())), validate_args=validate_args)

    @property
    def concentration(self) -> Tensor:
        """The concentration `a`, of shape `batch_shape`."""
        return self.base_dist.concentration

    @property
    def rate(self) -> Tensor:
        """The rate `b`, of shape `batch_shape`."""
        return self.base_dist.rate

    @property
    def mean(self) -> Tensor:
        a = self.concentration
        return lucid.where(a > 1, self.rate / (a - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        return lucid.where(a > 2, self.rate.square() / ((a - 1).square() * (a - 2)), math.inf)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()
