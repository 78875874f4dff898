"""The continuous Bernoulli distribution."""

from __future__ import annotations

import math
from typing import Any

import lucid
import lucid.nn.functional as F
from lucid import Size, Tensor
from lucid.distributions import constraints
from lucid.distributions._probs_or_logits import BinaryParameter
from lucid.distributions.exp_family import ExponentialFamily
from lucid.distributions.utils import broadcast_all, clamp_probs, lazy_property, logits_to_probs, probs_to_logits

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(BinaryParameter, ExponentialFamily):
    """A distribution on [0, 1] in the form of the Bernoulli: `p(x) = C(λ) λ^x (1-λ)^(1-x)`.

    `C(λ) = 2 artanh(1 - 2λ) / (1 - 2λ)`, and 2 at `λ = 1/2`; near there a series is used.

    Reference:
        Loaiza-Ganem and Cunningham, "The continuous Bernoulli: fixing a pervasive error in variational autoencoders",
        2019.

    Args:
        probs (Tensor or float, optional): `λ`, in (0, 1), any shape.
        logits (Tensor or float, optional): its log odds, of any shape; one of the two is given.
        lims (tuple of float, optional): between these values of `λ` series are used. Default: (0.499, 0.501).
        validate_args (bool, optional): whether to check parameters and values.

    Raises:
        ValueError: if both or neither of `probs` and `logits` are given, or one is invalid.

    Example:
        >>> ContinuousBernoulli(lucid.tensor(0.5)).mean
        tensor(0.5000)
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _expandable = {"probs": 0, "logits": 0}
    _mean_carrier_measure = 0

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        self._take(probs, logits)
        if probs is not None:
            # Checked before it is brought off 0 and 1.
            if validate_args is not None and not bool(constraints.unit_interval.check(self._param).all()):
                raise ValueError("The parameter probs has invalid values")
            self.probs = clamp_probs(self.probs)
        self._lims = lims
        super().__init__(self._param.shape, validate_args=validate_args)

    def _expand_into(self, new: Any, batch_shape: Size) -> None:
        super()._expand_into(new, batch_shape)
        new._lims = self._lims

    @lazy_property
    def logits(self) -> Any:
        """The log odds of `λ`, of shape `batch_shape`."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Any:
        """The parameter `λ`, of shape `batch_shape`."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _far(self) -> Tensor:
        """Where the closed forms are exact."""
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _safe(self) -> Tensor:
        """The parameter, or the lower limit where series are used."""
        return lucid.where(self._far(), self.probs, self._lims[0])

    def _cont_bern_log_norm(self) -> Tensor:
        p = self._safe()
        closed = ((-p).log1p() - p.log()).abs().log() - (1.0 - 2.0 * p).abs().log()
        x = (self.probs - 0.5).square()
        return lucid.where(self._far(), closed, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x)

    @property
    def mean(self) -> Tensor:
        p = self._safe()
        closed = p / (2.0 * p - 1.0) + 1.0 / ((-p).log1p() - p.log())
        x = self.probs - 0.5
        return lucid.where(self._far(), closed, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.square()) * x)

    @property
    def variance(self) -> Tensor:
        p = self._safe()
        closed = p * (p - 1.0) / (1.0 - 2.0 * p).square() + ((-p).log1p() - p.log()).square().reciprocal()
        x = (self.probs - 0.5).square()
        return lucid.where(self._far(), closed, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)

    @property
    def stddev(self) -> Tensor:
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with lucid.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(lucid.rand(tuple(shape), dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_all(self.logits, value)
        cross_entropy = F.binary_cross_entropy_with_logits(logits, value, reduction="none")
        return self._cont_bern_log_norm() - cross_entropy

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        p = self._safe()
        closed = (p**value * (1.0 - p) ** (1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        inner = lucid.where(self._far(), closed, value)
        return lucid.where(value <= 0.0, 0.0, lucid.where(value >= 1.0, 1.0, inner))

    def icdf(self, value: Tensor) -> Tensor:
        p = self._safe()
        low = (-p).log1p()
        closed = ((value * (2.0 * p - 1.0) - p).log1p() - low) / (p.log() - low)
        return lucid.where(self._far(), closed, value)

    def entropy(self) -> Tensor:
        low, high = (-self.probs).log1p(), self.probs.log()
        return self.mean * (low - high) - self._cont_bern_log_norm() - low

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # type: ignore[override]
        far = (x <= self._lims[0] - 0.5) | (x > self._lims[1] - 0.5)
        safe = lucid.where(far, x, self._lims[0] - 0.5)
        closed = safe.expm1().abs().log() - safe.abs().log()
        return lucid.where(far, closed, 0.5 * x + x.square() / 24.0 - x**4 / 2880.0)
