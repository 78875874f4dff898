"""The gamma distribution."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import _C, Tensor
from lucid.distributions import constraints
from lucid.distributions.exp_family import ExponentialFamily
from lucid.distributions.utils import broadcast_all

__all__ = ["Gamma"]


class Gamma(ExponentialFamily):
    """The gamma distribution: `p(x) = b^a x^(a-1) e^(-bx) / Γ(a)`.

    Samples have gradients in both parameters; in `a` by implicit reparameterisation.

    Args:
        concentration (Tensor or float): `a > 0`, often called shape; any shape.
        rate (Tensor or float): `b > 0`, of a shape that broadcasts.
        validate_args (bool, optional): whether to check parameters and values.

    Example:
        >>> Gamma(3.0, 2.0).mean
        tensor(1.5000)
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _expandable = {"concentration": 0, "rate": 0}
    _mean_carrier_measure = 0

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.square()

    def sample(self, sample_shape: Any = (), *, generator: Any = None) -> Tensor:
        with lucid.no_grad():
            return self.rsample(sample_shape, generator=generator)

    def rsample(self, sample_shape: Any = (), generator: Any = None) -> Tensor:
        shape = self._extended_shape(sample_shape)
        drawn = _C._standard_gamma(self.concentration.expand(shape), generator=generator)
        value = drawn / self.rate.expand(shape)
        # A number too small for the dtype becomes the smallest; its gradient is left as it is.
        least = lucid.finfo(value.dtype).tiny - value.detach()
        return value + least.clamp(min=0)

    def log_prob(self, value: Tensor) -> Tensor:
        value = lucid.as_tensor(value, dtype=self.rate.dtype, device=self.rate.device)
        if self._validate_args:
            self._validate_sample(value)
        a, b = self.concentration, self.rate
        return lucid.xlogy(a, b) + lucid.xlogy(a - 1, value) - b * value - a.lgamma()

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        shape = lucid.broadcast_shapes(self._batch_shape, value.shape)
        return lucid.special.gammainc(self.concentration.expand(shape), (self.rate * value).expand(shape))

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1.0 - a) * a.digamma()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        return (x + 1).lgamma() - (x + 1) * (-y).log()
