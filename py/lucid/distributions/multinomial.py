"""The multinomial distribution."""

from __future__ import annotations

from typing import Any, ClassVar

import lucid
from lucid import Size, Tensor
from lucid.distributions import constraints
from lucid.distributions._probs_or_logits import CategoricalParameter
from lucid.distributions.binomial import Binomial
from lucid.distributions.categorical import Categorical
from lucid.distributions.utils import broadcast_all

__all__ = ["Multinomial"]


class Multinomial(CategoricalParameter):
    """How often each of `K` events occurs in `n` trials: `P(k) = n! / Π k_i! · Π p_i^k_i`.

    Args:
        total_count (int): the number of trials `n`, the same for all. Default: 1.
        probs (Tensor, optional): event probabilities `(..., K)`, normalised here.
        logits (Tensor, optional): unnormalised log probabilities `(..., K)`; one of the two is given.
        validate_args (bool, optional): whether to check parameters and values.

    Raises:
        NotImplementedError: if `total_count` is not an int.
        ValueError: if both or neither of `probs` and `logits` are given, or one is invalid.

    Example:
        >>> Multinomial(4, lucid.tensor([0.25, 0.75])).mean
        tensor([1., 3.])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    _expandable: ClassVar[dict[str, int]] = {}

    def __init__(
        self,
        total_count: int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs=probs, logits=logits)
        self._binomial = Binomial(total_count=total_count, probs=self.probs)
        super().__init__(self._categorical.batch_shape, self.param_shape[-1:], validate_args=validate_args)

    def _expand_into(self, new: Any, batch_shape: Size) -> None:
        super()._expand_into(new, batch_shape)
        new.total_count = self.total_count
        new._binomial = self._binomial.expand(batch_shape + self._event_shape)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = Size(sample_shape)
        drawn = self._categorical.sample((self.total_count, *shape)).movedim(0, -1)
        counts = lucid.zeros(self._extended_shape(shape), dtype=drawn.dtype, device=drawn.device)
        return counts.scatter_add(-1, drawn, lucid.ones_like(drawn)).type_as(self.probs)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        # An impossible event that does not occur adds nothing.
        logits = lucid.where((value == 0) & (logits == -lucid.inf), 0.0, logits)
        ways = (value.sum(-1) + 1).lgamma() - (value + 1).lgamma().sum(-1)
        return ways + (logits * value).sum(-1)

    def entropy(self) -> Tensor:
        n = lucid.tensor(float(self.total_count), dtype=self.probs.dtype, device=self.probs.device)
        # E[log k_i!] of each event, whose counts are binomial.
        counts = self._binomial.enumerate_support(expand=False)[1:]
        chances = self._binomial.log_prob(counts).exp()
        factorials = (chances * (counts + 1).lgamma()).sum(0).sum(-1)
        return n * self._categorical.entropy() - (n + 1).lgamma() + factorials
