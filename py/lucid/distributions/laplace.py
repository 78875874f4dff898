"""The Laplace distribution."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor
from lucid.distributions import constraints
from lucid.distributions.distribution import Distribution
from lucid.distributions.utils import broadcast_all

__all__ = ["Laplace"]


class Laplace(Distribution):
    """The Laplace distribution: `p(x) = exp(-|x - m| / s) / (2 s)`.

    Args:
        loc (Tensor or float): the mean `m`, any shape.
        scale (Tensor or float): `s > 0`, of a shape that broadcasts.
        validate_args (bool, optional): whether to check parameters and values.

    Example:
        >>> Laplace(0.0, 1.0).variance
        tensor(2.)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _expandable = {"loc": 0, "scale": 0}

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale.square()

    @property
    def stddev(self) -> Tensor:
        return 2**0.5 * self.scale

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        # Off -1, whose logarithm would be infinite.
        low = lucid.finfo(self.loc.dtype).eps - 1
        u = lucid.empty(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        u = u.uniform_(low, 1)
        return self.loc - self.scale * u.sign() * (-u.abs()).log1p()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return -(2 * self.scale).log() - (value - self.loc).abs() / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        d = value - self.loc
        return 0.5 - 0.5 * d.sign() * (-d.abs() / self.scale).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        d = value - 0.5
        return self.loc - self.scale * d.sign() * (-2 * d.abs()).log1p()

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()
