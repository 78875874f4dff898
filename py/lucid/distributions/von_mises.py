"""The von Mises distribution."""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid import _C, Tensor
from lucid.distributions import constraints
from lucid.distributions.distribution import Distribution
from lucid.distributions.utils import broadcast_all, lazy_property

__all__ = ["VonMises"]


class VonMises(Distribution):
    """The circular normal distribution of angles: `p(x) = exp(κ cos(x - m)) / (2π I₀(κ))`, in [-π, π).

    Samples have gradients in both parameters, by implicit reparameterisation; in PyTorch they have none.

    Args:
        loc (Tensor): the mean `m`, an angle in radians, any shape.
        concentration (Tensor): `κ > 0`, of a shape that broadcasts.
        validate_args (bool, optional): whether to check parameters and values.

    Example:
        >>> VonMises(lucid.tensor(0.5), lucid.tensor(4.0)).mean
        tensor(0.5000)

    Reference:
        Best and Fisher, "Efficient simulation of the von Mises distribution", 1979.
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = True
    _expandable = {"loc": 0, "concentration": 0}

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        angle = _C._standard_von_mises(self.concentration.expand(shape)) + self.loc
        return (angle + math.pi) % (2 * math.pi) - math.pi

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        k = self.concentration
        normalizer = math.log(2 * math.pi) + lucid.special.i0e(k).log()
        return k * ((value - self.loc).cos() - 1) - normalizer

    @property
    def mean(self) -> Tensor:
        """The circular mean, of shape `batch_shape`."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Any:
        """The circular variance `1 - I₁(κ) / I₀(κ)`, of shape `batch_shape`."""
        return 1 - lucid.special.i1e(self.concentration) / lucid.special.i0e(self.concentration)
