"""The relaxed Bernoulli distribution."""

from __future__ import annotations

from typing import Any, ClassVar

import lucid
import lucid.nn.functional as F
from lucid import Size, Tensor
from lucid.distributions import constraints
from lucid.distributions._probs_or_logits import BinaryParameter
from lucid.distributions.transformed_distribution import TransformedDistribution
from lucid.distributions.transforms import SigmoidTransform
from lucid.distributions.utils import broadcast_all, clamp_probs

__all__ = ["LogitRelaxedBernoulli", "RelaxedBernoulli"]


class LogitRelaxedBernoulli(BinaryParameter):
    """The logits of :class:`RelaxedBernoulli`: `(logit(u) + l) / t` for uniform `u`, logits `l` and temperature `t`.

    `p(x) = t e^d / (1 + e^d)²`, with `d = l - t x`.

    Args:
        temperature (Tensor): `t > 0`, of a shape that broadcasts.
        probs (Tensor or float, optional): probability of 1, any shape.
        logits (Tensor or float, optional): its log odds `l`, of any shape; one of the two is given.
        validate_args (bool, optional): whether to check parameters and values.

    Example:
        >>> LogitRelaxedBernoulli(lucid.tensor(1.0), logits=0.0).log_prob(lucid.tensor(0.0)).exp()
        tensor(0.2500)
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real
    has_rsample = True
    _expandable = {"probs": 0, "logits": 0}

    def __init__(
        self, temperature: Tensor, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self.temperature = temperature
        self._take(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)

    def _expand_into(self, new: Any, batch_shape: Size) -> None:
        super()._expand_into(new, batch_shape)
        new.temperature = self.temperature

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        p = clamp_probs(self.probs.expand(shape))
        u = clamp_probs(lucid.rand(tuple(shape), dtype=p.dtype, device=p.device))
        return (u.log() - (-u).log1p() + p.log() - (-p).log1p()) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        d = logits - value * self.temperature
        return lucid.as_tensor(self.temperature, dtype=d.dtype, device=d.device).log() + d - 2 * F.softplus(d)


class RelaxedBernoulli(TransformedDistribution):
    """The Bernoulli distribution relaxed to (0, 1), with gradients through samples.

    `p(y) = t e^d / ((1 + e^d)² y (1 - y))`, with `d = l - t logit(y)`.
    Samples are `sigmoid((logit(u) + l) / t)`; the lower the temperature `t`, the closer to 0 and 1.

    Reference:
        Maddison, Mnih and Teh, "The concrete distribution: a continuous relaxation of discrete random variables", 2017.

    Args:
        temperature (Tensor): `t > 0`, of a shape that broadcasts.
        probs (Tensor or float, optional): probability of 1, any shape.
        logits (Tensor or float, optional): its log odds `l`, of any shape; one of the two is given.
        validate_args (bool, optional): whether to check parameters and values.

    Raises:
        ValueError: if both or neither of `probs` and `logits` are given, or one is invalid.

    Example:
        >>> RelaxedBernoulli(lucid.tensor(2.2), probs=lucid.tensor([0.1, 0.9])).rsample().shape
        lucid.Size([2])
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _expandable: ClassVar[dict[str, int]] = {}

    def __init__(
        self, temperature: Tensor, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Tensor:
        """The temperature."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """The log odds, of shape `batch_shape`."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """The probabilities, of shape `batch_shape`."""
        return self.base_dist.probs
