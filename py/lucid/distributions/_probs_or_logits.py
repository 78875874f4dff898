"""Parameters that are given as probabilities or as logits; the other is computed when it is read."""

from __future__ import annotations

from typing import Any

from lucid import Size, Tensor
from lucid.distributions.distribution import Distribution
from lucid.distributions.utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits


def check_one(probs: Any, logits: Any) -> None:
    """Refuses both, and neither."""
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")


class BinaryParameter(Distribution):
    """A distribution with the probability of success `probs`, or its log odds `logits`."""

    _given: str

    def _take(self, probs: Any, logits: Any, *others: Any) -> tuple[Tensor, ...]:
        """Sets the one that is given and broadcasts it with others, which are given back."""
        check_one(probs, logits)
        self._given = "logits" if probs is None else "probs"
        value, *rest = broadcast_all(logits if probs is None else probs, *others)
        self.__dict__[self._given] = value
        return tuple(rest)

    def _expand_into(self, new: Any, batch_shape: Size) -> None:
        new._given = self._given

    @property
    def _param(self) -> Tensor:
        return self.__dict__[self._given]

    @lazy_property
    def logits(self) -> Any:
        """The log odds, of shape `batch_shape`."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Any:
        """The probabilities, of shape `batch_shape`."""
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter that was given."""
        return self._param.shape


class CategoricalParameter(Distribution):
    """A distribution made of a :class:`Categorical`, which holds the probabilities or logits of its events."""

    _categorical: Any

    def _expand_into(self, new: Any, batch_shape: Size) -> None:
        new._categorical = self._categorical.expand(batch_shape)

    @property
    def _param(self) -> Tensor:
        return self._categorical._param

    @property
    def probs(self) -> Tensor:
        """The probabilities, of shape `batch_shape + (K,)`."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """The normalised logits, of shape `batch_shape + (K,)`."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter that was given."""
        return self._param.shape
