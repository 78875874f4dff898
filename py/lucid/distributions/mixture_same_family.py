"""Mixtures of distributions of one family."""

from __future__ import annotations

from typing import Any, ClassVar

import lucid
from lucid import Size, Tensor
from lucid.distributions import constraints
from lucid.distributions.categorical import Categorical
from lucid.distributions.constraints import Constraint, MixtureSameFamilyConstraint
from lucid.distributions.distribution import Distribution

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """A mixture: `p(x) = Σ_k w_k p_k(x)`, with the components along the last batch dimension of one distribution.

    Args:
        mixture_distribution (Categorical): the weights `w`, with `K` events.
        component_distribution (Distribution): the components, of batch shape `(..., K)`.
        validate_args (bool, optional): whether to check values.

    Raises:
        ValueError: if the weights are not a `Categorical` or do not fit the components.

    Example:
        >>> from lucid.distributions import Normal
        >>> weights = Categorical(lucid.ones(2))
        >>> MixtureSameFamily(weights, Normal(lucid.tensor([-1.0, 3.0]), 1.0)).mean
        tensor(1.)
    """

    arg_constraints: ClassVar[dict[str, Constraint]] = {}
    has_rsample = False
    _expandable: ClassVar[dict[str, int]] = {}

    def __init__(
        self, mixture_distribution: Any, component_distribution: Any, validate_args: bool | None = None
    ) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError("The Mixture distribution needs to be an instance of lucid.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution needs to be an instance of lucid.distributions.Distribution")
        mixture_batch, components = mixture_distribution.batch_shape, component_distribution.batch_shape
        for a, b in zip(reversed(mixture_batch), reversed(components[:-1]), strict=False):
            if a != 1 and b != 1 and a != b:
                raise ValueError(
                    f"`mixture_distribution.batch_shape` ({mixture_batch}) is not compatible with "
                    f"`component_distribution.batch_shape`({components[:-1]})"
                )
        count = mixture_distribution._num_events
        if count != components[-1]:
            raise ValueError(
                f"`mixture_distribution component` ({count}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({components[-1]})"
            )
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        super().__init__(components[:-1], component_distribution.event_shape, validate_args=validate_args)

    def _expand_into(self, new: Any, batch_shape: Size) -> None:
        count = self._mixture_distribution._num_events
        new._component_distribution = self._component_distribution.expand((*batch_shape, count))
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)

    @constraints.dependent_property
    def support(self) -> Any:
        return MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Categorical:
        """The distribution of components."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        """The components, along the last batch dimension."""
        return self._component_distribution

    def _pad(self, x: Tensor) -> Tensor:
        """With a dimension for the components before the event."""
        return x.unsqueeze(-1 - len(self._event_shape))

    def _mixed(self, x: Tensor) -> Tensor:
        """The sum over components of what each has for the event."""
        weights = self._mixture_distribution.probs
        weights = weights.reshape(weights.shape + (1,) * len(self._event_shape))
        return (weights * x).sum(-1 - len(self._event_shape))

    @property
    def mean(self) -> Tensor:
        return self._mixed(self._component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        within, means = self._component_distribution.variance, self._component_distribution.mean
        return self._mixed(within) + self._mixed((means - self._pad(self.mean)).square())

    def cdf(self, value: Tensor) -> Tensor:
        return (self._component_distribution.cdf(self._pad(value)) * self._mixture_distribution.probs).sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        each = self._component_distribution.log_prob(self._pad(value))
        return lucid.logsumexp(each + self._mixture_distribution.logits, dim=-1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with lucid.no_grad():
            shape = Size(sample_shape)
            dims = len(self._event_shape)
            # Weights without a batch of their own choose for each element of the components' batch.
            chosen = self._mixture_distribution.expand(self._batch_shape).sample(shape)
            drawn = self._component_distribution.sample(shape)
            index = chosen.reshape(chosen.shape + (1,) * (dims + 1))
            index = index.expand((*chosen.shape, 1, *self._event_shape))
            dim = -1 - dims
            return drawn.gather(dim, index).squeeze(dim)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self._mixture_distribution},\n  {self._component_distribution})"
