"""The Weibull distribution."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Size, Tensor
from lucid.distributions import constraints
from lucid.distributions.exponential import Exponential
from lucid.distributions.transformed_distribution import TransformedDistribution
from lucid.distributions.transforms import AffineTransform, PowerTransform
from lucid.distributions.utils import broadcast_all, euler_constant

__all__ = ["Weibull"]


class Weibull(TransformedDistribution):
    """The Weibull distribution: `p(x) = (k/s) (x/s)^(k-1) exp(-(x/s)^k)` for `x > 0`.

    Args:
        scale (Tensor or float): `s > 0`, any shape.
        concentration (Tensor or float): `k > 0`, often called shape, of a shape that broadcasts.
        validate_args (bool, optional): whether to check parameters and values.

    Example:
        >>> Weibull(2.0, 1.0).mean
        tensor(2.)
    """

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive
    _expandable = {"scale": 0, "concentration": 0, "concentration_reciprocal": 0}

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        self.concentration_reciprocal = self.concentration.reciprocal()
        base = Exponential(lucid.ones_like(self.scale), validate_args=validate_args)
        super().__init__(base, self._maps(), validate_args=validate_args)

    def _maps(self) -> list[Any]:
        power = PowerTransform(exponent=self.concentration_reciprocal)
        return [power, AffineTransform(loc=0, scale=self.scale)]

    def _expand_into(self, new: Any, batch_shape: Size) -> None:
        new.base_dist = self.base_dist.expand(batch_shape)
        new.transforms = new._maps()

    def _log_moment(self, n: int) -> Tensor:
        """`log E[(x/s)ⁿ]`."""
        return (1 + n * self.concentration_reciprocal).lgamma()

    @property
    def mean(self) -> Tensor:
        return self.scale * self._log_moment(1).exp()

    @property
    def mode(self) -> Tensor:
        k = self.concentration
        return self.scale * ((k - 1) / k) ** self.concentration_reciprocal

    @property
    def variance(self) -> Tensor:
        return self.scale.square() * (self._log_moment(2).exp() - (2 * self._log_moment(1)).exp())

    def entropy(self) -> Tensor:
        r = self.concentration_reciprocal
        return euler_constant * (1 - r) + (self.scale * r).log() + 1
