"""The binomial distribution."""

from __future__ import annotations

from typing import Any

import lucid
import lucid.nn.functional as F
from lucid import Tensor
from lucid.distributions import constraints
from lucid.distributions._probs_or_logits import BinaryParameter

__all__ = ["Binomial"]


class Binomial(BinaryParameter):
    """How many of `n` trials succeed: `P(k) = n! / (k! (n-k)!) · p^k (1-p)^(n-k)`.

    Args:
        total_count (Tensor or int, default: 1): the number of trials `n`, of any shape.
        probs (Tensor, optional): the probability of success `p`, of a shape that broadcasts with `total_count`.
        logits (Tensor, optional): its log odds, of any shape; one of the two is given.
        validate_args (bool, optional): whether to check parameters and values.

    Raises:
        ValueError: if both or neither of `probs` and `logits` are given, or one is invalid.

    Example:
        >>> Binomial(2, probs=lucid.tensor(0.5)).log_prob(lucid.tensor(1.0)).exp()
        tensor(0.5000)
    """

    arg_constraints = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True
    _expandable = {"total_count": 0, "probs": 0, "logits": 0}

    def __init__(
        self,
        total_count: Any = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        (count,) = self._take(probs, logits, total_count)
        self.total_count = count.type_as(self._param)
        super().__init__(self._param.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().minimum(self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with lucid.no_grad():
            return lucid.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n = self.total_count
        ways = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        # log p = -softplus(-logit), log (1 - p) = -softplus(logit).
        return ways - value * F.softplus(-self.logits) - (n - value) * F.softplus(self.logits)

    def _single_count(self, name: str) -> int:
        count = int(self.total_count.max())
        if not bool((self.total_count == count).all()):
            raise NotImplementedError(f"Inhomogeneous total count not supported by `{name}`.")
        return count

    def entropy(self) -> Tensor:
        self._single_count("entropy")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        count = self._single_count("enumerate_support")
        values = lucid.arange(1 + count, dtype=self._param.dtype, device=self._param.device)
        values = values.reshape((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values
