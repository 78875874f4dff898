"""The Gumbel distribution."""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid import Size, Tensor
from lucid.distributions import constraints
from lucid.distributions.transformed_distribution import TransformedDistribution
from lucid.distributions.transforms import AffineTransform, ExpTransform
from lucid.distributions.uniform import Uniform
from lucid.distributions.utils import broadcast_all, euler_constant

__all__ = ["Gumbel"]


class Gumbel(TransformedDistribution):
    """The Gumbel distribution of maxima: `p(x) = exp(-z - e^(-z)) / s`, with `z = (x - m) / s`.

    Args:
        loc (Tensor or float): the mode `m`, any shape.
        scale (Tensor or float): `s > 0`, of a shape that broadcasts.
        validate_args (bool, optional): whether to check parameters and values.

    Example:
        >>> Gumbel(0.0, 1.0).mean
        tensor(0.5772)
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    _expandable = {"loc": 0, "scale": 0}

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        # -log(-log u): both ends of the uniform numbers are cut where a logarithm would be infinite.
        info = lucid.finfo(self.loc.dtype)
        ends = (lucid.full_like(self.loc, info.tiny), lucid.full_like(self.loc, 1 - info.eps))
        base = Uniform(*ends, validate_args=validate_args)
        super().__init__(base, self._maps(), validate_args=validate_args)

    def _maps(self) -> list[Any]:
        flip = AffineTransform(loc=0, scale=-lucid.ones_like(self.scale))
        move = AffineTransform(loc=self.loc, scale=-self.scale)
        return [ExpTransform().inv, flip, ExpTransform().inv, move]

    def _expand_into(self, new: Any, batch_shape: Size) -> None:
        new.base_dist = self.base_dist.expand(batch_shape)
        new.transforms = new._maps()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        z = (self.loc - value) / self.scale
        return z - z.exp() - self.scale.log()

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * euler_constant

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev.square()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + euler_constant)
