"""The relaxed categorical distribution, also known as Gumbel-softmax."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import lucid
import lucid.nn.functional as F
from lucid import Size, Tensor
from lucid.distributions import constraints
from lucid.distributions._probs_or_logits import CategoricalParameter
from lucid.distributions.categorical import Categorical
from lucid.distributions.transformed_distribution import TransformedDistribution
from lucid.distributions.transforms import ExpTransform
from lucid.distributions.utils import broadcast_all, clamp_probs

__all__ = ["ExpRelaxedCategorical", "RelaxedOneHotCategorical"]


class ExpRelaxedCategorical(CategoricalParameter):
    """The logarithms of :class:`RelaxedOneHotCategorical`: `log softmax((l + g) / t)` for Gumbel noise `g`.

    `p(x) = (K-1)! t^(K-1) Π softmax(l - t x)_k`.

    Args:
        temperature (Tensor): `t > 0`, of a shape that broadcasts.
        probs (Tensor, optional): event probabilities `(..., K)`, normalised here.
        logits (Tensor, optional): unnormalised log probabilities `l`, `(..., K)`; one of the two is given.
        validate_args (bool, optional): whether to check parameters and values.

    Example:
        >>> ExpRelaxedCategorical(lucid.tensor(1.0), logits=lucid.zeros(3)).rsample().shape
        lucid.Size([3])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    # What is sampled is on a submanifold of these.
    support = constraints.real_vector
    has_rsample = True
    _expandable: ClassVar[dict[str, int]] = {}

    def __init__(
        self,
        temperature: Tensor,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._categorical = Categorical(probs, logits)
        self.temperature = temperature
        super().__init__(self._categorical.batch_shape, self.param_shape[-1:], validate_args=validate_args)

    def _expand_into(self, new: Any, batch_shape: Size) -> None:
        super()._expand_into(new, batch_shape)
        new.temperature = self.temperature

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        u = clamp_probs(lucid.rand(tuple(shape), dtype=self.logits.dtype, device=self.logits.device))
        return F.log_softmax((self.logits - (-u.log()).log()) / self.temperature, dim=-1)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        k = self._event_shape[0]
        logits, value = broadcast_all(self.logits, value)
        temperature = lucid.as_tensor(self.temperature, dtype=logits.dtype, device=logits.device)
        scores = F.log_softmax(logits - value * temperature, dim=-1).sum(-1)
        return scores + (k - 1) * temperature.log() + math.lgamma(k)


class RelaxedOneHotCategorical(TransformedDistribution):
    """The one-hot categorical distribution relaxed to the simplex, with gradients through samples.

    `p(y) = (K-1)! t^(K-1) Π softmax(l - t log y)_k / y_k`.
    Samples are `softmax((l + g) / t)` for Gumbel noise `g`; the lower the temperature `t`, the closer to one-hot.

    Reference:
        Jang, Gu and Poole, "Categorical reparameterization with Gumbel-softmax", 2017.

    Args:
        temperature (Tensor): `t > 0`, of a shape that broadcasts.
        probs (Tensor, optional): event probabilities `(..., K)`, normalised here.
        logits (Tensor, optional): unnormalised log probabilities `l`, `(..., K)`; one of the two is given.
        validate_args (bool, optional): whether to check parameters and values.

    Raises:
        ValueError: if both or neither of `probs` and `logits` are given, or one is invalid.

    Example:
        >>> RelaxedOneHotCategorical(lucid.tensor(0.5), logits=lucid.zeros(3)).rsample((2,)).shape
        lucid.Size([2, 3])
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex
    has_rsample = True
    _expandable: ClassVar[dict[str, int]] = {}

    def __init__(
        self,
        temperature: Tensor,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Tensor:
        """The temperature."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """The normalised logits, of shape `batch_shape + (K,)`."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """The probabilities, of shape `batch_shape + (K,)`."""
        return self.base_dist.probs
