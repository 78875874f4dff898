"""The Bernoulli distribution."""

from __future__ import annotations

from typing import Any

import lucid
import lucid.nn.functional as F
from lucid import Tensor
from lucid.distributions import constraints
from lucid.distributions._probs_or_logits import BinaryParameter
from lucid.distributions.exp_family import ExponentialFamily
from lucid.distributions.utils import broadcast_all

__all__ = ["Bernoulli"]


class Bernoulli(BinaryParameter, ExponentialFamily):
    """One trial: `P(1) = probs`, `P(0) = 1 - probs`.

    Args:
        probs (Tensor or float, optional): probability of 1, any shape.
        logits (Tensor or float, optional): its log odds, of any shape; one of the two is given.
        validate_args (bool, optional): whether to check parameters and values.

    Raises:
        ValueError: if both or neither of `probs` and `logits` are given, or one is invalid.

    Example:
        >>> m = Bernoulli(lucid.tensor([0.25]))
        >>> m.log_prob(lucid.tensor([1.0])).exp()
        tensor([0.2500])
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True
    _expandable = {"probs": 0, "logits": 0}
    _mean_carrier_measure = 0

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._take(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        likelier = (self.probs >= 0.5).to(self.probs)
        return lucid.where(self.probs == 0.5, lucid.nan, likelier)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with lucid.no_grad():
            return lucid.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = lucid.arange(2, dtype=self._param.dtype, device=self._param.device)
        values = values.reshape((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (lucid.logit(self.probs),)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return lucid.log1p(lucid.exp(x))
