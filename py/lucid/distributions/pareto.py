"""The Pareto distribution."""

from __future__ import annotations

from typing import Any

from lucid import Size, Tensor
from lucid.distributions import constraints
from lucid.distributions.exponential import Exponential
from lucid.distributions.transformed_distribution import TransformedDistribution
from lucid.distributions.transforms import AffineTransform, ExpTransform
from lucid.distributions.utils import broadcast_all

__all__ = ["Pareto"]


class Pareto(TransformedDistribution):
    """The Pareto distribution: `p(x) = a s^a / x^(a+1)` for `x >= s`.

    Args:
        scale (Tensor or float): the lower end `s > 0`, any shape.
        alpha (Tensor or float): the tail's index `a > 0`, of a shape that broadcasts.
        validate_args (bool, optional): whether to check parameters and values.

    Example:
        >>> Pareto(1.0, 2.0).mean
        tensor(2.)
    """

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}
    _expandable = {"scale": 0, "alpha": 0}

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        super().__init__(
            Exponential(self.alpha, validate_args=validate_args), self._maps(), validate_args=validate_args
        )

    def _maps(self) -> list[Any]:
        return [ExpTransform(), AffineTransform(loc=0, scale=self.scale)]

    def _expand_into(self, new: Any, batch_shape: Size) -> None:
        new.base_dist = self.base_dist.expand(batch_shape)
        new.transforms = new._maps()

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.greater_than_eq(self.scale)

    @property
    def mean(self) -> Tensor:
        # Infinite up to an index of 1.
        a = self.alpha.clamp(min=1)
        return a * self.scale / (a - 1)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        a = self.alpha.clamp(min=2)
        return self.scale.square() * a / ((a - 1).square() * (a - 2))

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + (1 + self.alpha.reciprocal())
