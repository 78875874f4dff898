"""Distributions of what transforms make of samples of another."""

from __future__ import annotations

from typing import Any, ClassVar

import lucid
from lucid import Size, Tensor
from lucid.distributions import constraints
from lucid.distributions.constraints import Constraint
from lucid.distributions.distribution import Distribution
from lucid.distributions.independent import Independent
from lucid.distributions.transforms import ComposeTransform, Transform
from lucid.distributions.utils import _sum_rightmost

__all__ = ["TransformedDistribution"]


class TransformedDistribution(Distribution):
    """The distribution of `y = t(x)` for samples `x` of a base: `log p(y) = log p_base(t⁻¹(y)) - log |dt/dx|`.

    Args:
        base_distribution (Distribution): the distribution of `x`.
        transforms (Transform or list of Transform): what is applied to `x`, the first first.
        validate_args (bool, optional): whether to check parameters and values.

    Raises:
        ValueError: if `transforms` are none, or the base has fewer dimensions than they take.

    Example:
        >>> from lucid.distributions import ExpTransform, Normal
        >>> TransformedDistribution(Normal(0.0, 1.0), ExpTransform()).log_prob(lucid.tensor(1.0))
        tensor(-0.9189)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {}
    _expandable: ClassVar[dict[str, int]] = {}

    def __init__(self, base_distribution: Any, transforms: Any, validate_args: bool | None = None) -> None:
        if isinstance(transforms, Transform):
            transforms = [transforms]
        elif not isinstance(transforms, list):
            raise ValueError(f"transforms must be a Transform or list, but was {transforms}")
        elif not all(isinstance(t, Transform) for t in transforms):
            raise ValueError("transforms must be a Transform or a list of Transforms")
        self.transforms: list[Any] = transforms
        base_shape = base_distribution.batch_shape + base_distribution.event_shape
        base_dims = len(base_distribution.event_shape)
        whole = ComposeTransform(transforms)
        domain_dims, codomain_dims = whole.domain.event_dim, whole.codomain.event_dim
        if len(base_shape) < domain_dims:
            raise ValueError(
                f"base_distribution needs to have shape with size at least {domain_dims}, but got {base_shape}."
            )
        # Parameters of the transforms may broadcast with the base.
        shape = Size(whole.forward_shape(base_shape))
        wide = Size(whole.inverse_shape(shape))
        if wide != base_shape:
            base_distribution = base_distribution.expand(wide[: len(wide) - base_dims])
        if domain_dims > base_dims:
            base_distribution = Independent(base_distribution, domain_dims - base_dims)
        self.base_dist = base_distribution
        cut = len(shape) - max(codomain_dims, base_dims + codomain_dims - domain_dims)
        if cut < 0:
            raise AssertionError(f"the shape {shape} has fewer dimensions than an event")
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    def _expand_into(self, new: Any, batch_shape: Size) -> None:
        shape: Any = batch_shape + self._event_shape
        for t in reversed(self.transforms):
            shape = t.inverse_shape(shape)
        new.base_dist = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        new.transforms = self.transforms

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        own = self.transforms[-1].codomain
        more = len(self._event_shape) - own.event_dim
        return constraints.independent(own, more) if more > 0 else own

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with lucid.no_grad():
            return self._transformed(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._transformed(self.base_dist.rsample(sample_shape))

    def _transformed(self, x: Tensor) -> Tensor:
        for t in self.transforms:
            x = t(x)
        return x

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        dims = len(self._event_shape)
        change: Any = 0.0
        y = value
        for t in reversed(self.transforms):
            x = t.inv(y)
            dims += t.domain.event_dim - t.codomain.event_dim
            change = change + _sum_rightmost(t.log_abs_det_jacobian(x, y), dims - t.domain.event_dim)
            y = x
        base = self.base_dist.log_prob(y)
        return _sum_rightmost(base, dims - len(self.base_dist.event_shape)) - change

    def _by_sign(self, probability: Tensor) -> Tensor:
        """The probability, or its complement where the transforms together are decreasing."""
        sign: Any = 1
        for t in self.transforms:
            sign = sign * t.sign
        if isinstance(sign, int) and sign == 1:
            return probability
        return sign * (probability - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        for t in reversed(self.transforms):
            value = t.inv(value)
        if self._validate_args:
            self.base_dist._validate_sample(value)
        return self._by_sign(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._transformed(self.base_dist.icdf(self._by_sign(value)))
