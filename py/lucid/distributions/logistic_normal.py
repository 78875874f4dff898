"""The logistic-normal distribution."""

from __future__ import annotations

from typing import Any, ClassVar

from lucid import Tensor
from lucid.distributions import constraints
from lucid.distributions.normal import Normal
from lucid.distributions.transformed_distribution import TransformedDistribution
from lucid.distributions.transforms import StickBreakingTransform

__all__ = ["LogisticNormal"]


class LogisticNormal(TransformedDistribution):
    """A vector of normal numbers brought to the simplex by :class:`StickBreakingTransform`.

    `log p(y) = Σ log N(x_k; m_k, s_k) - log |dy/dx|`, with `x` the inverse of `y`.

    Args:
        loc (Tensor or float): means `(..., K - 1)`.
        scale (Tensor or float): standard deviations, positive, of a shape that broadcasts.
        validate_args (bool, optional): whether to check parameters and values.

    Example:
        >>> LogisticNormal(lucid.zeros(3), lucid.ones(3)).sample().shape
        lucid.Size([4])
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex
    has_rsample = True
    _expandable: ClassVar[dict[str, int]] = {}

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """The means, of shape `batch_shape + (K - 1,)`."""
        return self.base_dist.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The standard deviations, of shape `batch_shape + (K - 1,)`."""
        return self.base_dist.base_dist.scale
