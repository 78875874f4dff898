"""The negative binomial distribution."""

from __future__ import annotations

from typing import Any

import lucid
import lucid.nn.functional as F
from lucid import Tensor
from lucid.distributions import constraints
from lucid.distributions._probs_or_logits import BinaryParameter
from lucid.distributions.gamma import Gamma
from lucid.distributions.utils import lazy_property

__all__ = ["NegativeBinomial"]


class NegativeBinomial(BinaryParameter):
    """How many trials succeed before `r` fail: `P(k) = Γ(k + r) / (k! Γ(r)) · p^k (1-p)^r`.

    Args:
        total_count (Tensor or float): the number of failures `r >= 0` that ends the trials, of any shape.
        probs (Tensor, optional): the probability of success `p`, in [0, 1), of a shape that broadcasts.
        logits (Tensor, optional): its log odds, of any shape; one of the two is given.
        validate_args (bool, optional): whether to check parameters and values.

    Raises:
        ValueError: if both or neither of `probs` and `logits` are given, or one is invalid.

    Example:
        >>> NegativeBinomial(3.0, probs=lucid.tensor(0.5)).mean
        tensor(3.)
    """

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer
    _expandable = {"total_count": 0, "probs": 0, "logits": 0}

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        (count,) = self._take(probs, logits, total_count)
        self.total_count = count.type_as(self._param)
        super().__init__(self._param.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        return self.mean / lucid.sigmoid(-self.logits)

    @lazy_property
    def _gamma(self) -> Any:
        return Gamma(self.total_count, (-self.logits).exp(), validate_args=False)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with lucid.no_grad():
            # A Poisson number whose rate is a gamma number.
            return lucid.poisson(self._gamma.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        r = self.total_count
        ways = (r + value).lgamma() - (1.0 + value).lgamma() - r.lgamma()
        # Without failures to wait for nothing is counted; both functions are infinite there.
        ways = ways.masked_fill(r + value == 0.0, 0.0)
        return r * F.logsigmoid(-self.logits) + value * F.logsigmoid(self.logits) + ways
