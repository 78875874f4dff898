"""The categorical distribution with one-hot vectors as values."""

from __future__ import annotations

from typing import Any, ClassVar

import lucid
import lucid.nn.functional as F
from lucid import Tensor
from lucid.distributions import constraints
from lucid.distributions._probs_or_logits import CategoricalParameter
from lucid.distributions.categorical import Categorical

__all__ = ["OneHotCategorical", "OneHotCategoricalStraightThrough"]


class OneHotCategorical(CategoricalParameter):
    """One of `K` unit vectors: `P(e_k) = probs[k]`.

    Args:
        probs (Tensor, optional): event probabilities `(..., K)`, normalised here.
        logits (Tensor, optional): unnormalised log probabilities `(..., K)`; one of the two is given.
        validate_args (bool, optional): whether to check parameters and values.

    Raises:
        ValueError: if both or neither of `probs` and `logits` are given, or one is invalid.

    Example:
        >>> OneHotCategorical(lucid.tensor([0.0, 1.0])).sample()
        tensor([0., 1.])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.one_hot
    has_enumerate_support = True
    _expandable: ClassVar[dict[str, int]] = {}

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        self._categorical = Categorical(probs, logits)
        super().__init__(self._categorical.batch_shape, self.param_shape[-1:], validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return F.one_hot(self.probs.argmax(dim=-1), self.probs.shape[-1]).to(self.probs)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return F.one_hot(self._categorical.sample(sample_shape), self._event_shape[0]).to(self.probs)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return self._categorical.log_prob(value.argmax(dim=-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n = self._event_shape[0]
        values = lucid.eye(n, dtype=self._param.dtype, device=self._param.device)
        values = values.reshape((n, *((1,) * len(self._batch_shape)), n))
        return values.expand((n, *self._batch_shape, n)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """:class:`OneHotCategorical` whose samples have the gradient of their probabilities: `sample + p - stop(p)`.

    Args:
        probs (Tensor, optional): event probabilities `(..., K)`, normalised here.
        logits (Tensor, optional): unnormalised log probabilities `(..., K)`; one of the two is given.
        validate_args (bool, optional): whether to check parameters and values.

    Example:
        >>> logits = lucid.zeros(2, requires_grad=True)
        >>> OneHotCategoricalStraightThrough(logits=logits).rsample().requires_grad
        True

    Reference:
        Bengio, Léonard and Courville, "Estimating or propagating gradients through stochastic neurons", 2013.
    """

    has_rsample = True
    _expandable: ClassVar[dict[str, int]] = {}

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())
