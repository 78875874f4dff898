"""The categorical distribution."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Size, Tensor
from lucid.distributions import constraints
from lucid.distributions._probs_or_logits import check_one
from lucid.distributions.distribution import Distribution
from lucid.distributions.utils import lazy_property, logits_to_probs, probs_to_logits

__all__ = ["Categorical"]


class Categorical(Distribution):
    """One of the integers 0 to `K - 1`: `P(k) = probs[k]`.

    Args:
        probs (Tensor, optional): event probabilities `(..., K)`, normalised here; not negative, with a positive sum.
        logits (Tensor, optional): unnormalised log probabilities `(..., K)`; one of the two is given.
        validate_args (bool, optional): whether to check parameters and values.

    Raises:
        ValueError: if both or neither of `probs` and `logits` are given, or one is invalid.

    Example:
        >>> m = Categorical(lucid.tensor([0.25, 0.75]))
        >>> m.log_prob(lucid.tensor(1)).exp()
        tensor(0.7500)
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True
    _expandable = {"probs": 1, "logits": 1}
    _given: str

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        check_one(probs, logits)
        self._given = "logits" if probs is None else "probs"
        value: Any = logits if probs is None else probs
        if value.dim() < 1:
            raise ValueError(f"`{self._given}` parameter must be at least one-dimensional.")
        if probs is None:
            self.logits = value - value.logsumexp(dim=-1, keepdim=True)
        else:
            self.probs = value / value.sum(-1, keepdim=True)
        self._num_events = value.shape[-1]
        super().__init__(value.shape[:-1], validate_args=validate_args)

    def _expand_into(self, new: Any, batch_shape: Size) -> None:
        new._given = self._given
        new._num_events = self._num_events

    @property
    def _param(self) -> Tensor:
        return self.__dict__[self._given]

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self._num_events - 1)

    @lazy_property
    def logits(self) -> Any:
        """The normalised log probabilities, of shape `batch_shape + (K,)`."""
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> Any:
        """The probabilities, of shape `batch_shape + (K,)`."""
        return logits_to_probs(self.logits)

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter that was given."""
        return self._param.shape

    @property
    def mean(self) -> Tensor:
        return lucid.full(self._extended_shape(), lucid.nan, dtype=self._param.dtype, device=self._param.device)

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(dim=-1)

    @property
    def variance(self) -> Tensor:
        return self.mean

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = Size(sample_shape)
        with lucid.no_grad():
            rows = self.probs.reshape(-1, self._num_events)
            drawn = lucid.multinomial(rows, shape.numel(), True)
        return drawn.T.reshape(self._extended_shape(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        shape = lucid.broadcast_shapes(value.shape, self._batch_shape)
        index = value.long().expand(shape).unsqueeze(-1)
        return self.logits.expand((*shape, self._num_events)).gather(-1, index).squeeze(-1)

    def entropy(self) -> Tensor:
        # An impossible event adds nothing: 0 times the least number, not 0 times -inf.
        logits = self.logits.clamp(min=lucid.finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = lucid.arange(self._num_events, dtype=lucid.long, device=self._param.device)
        values = values.reshape((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values
