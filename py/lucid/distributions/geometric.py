"""The geometric distribution."""

from __future__ import annotations

from typing import Any

import lucid
import lucid.nn.functional as F
from lucid import Tensor
from lucid.distributions import constraints
from lucid.distributions._probs_or_logits import BinaryParameter
from lucid.distributions.utils import broadcast_all

__all__ = ["Geometric"]


class Geometric(BinaryParameter):
    """How many trials fail before the first success: `P(k) = (1 - p)^k p`, for `k = 0, 1, …`.

    `Tensor.geometric_` counts the success too, and so starts at 1.

    Args:
        probs (Tensor or float, optional): the probability of success `p`, in (0, 1], any shape.
        logits (Tensor or float, optional): its log odds, of any shape; one of the two is given.
        validate_args (bool, optional): whether to check parameters and values.

    Raises:
        ValueError: if both or neither of `probs` and `logits` are given, or one is invalid.

    Example:
        >>> Geometric(0.5).mean
        tensor(1.)
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer
    _expandable = {"probs": 0, "logits": 0}

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._take(probs, logits)
        super().__init__(self._param.shape, validate_args=validate_args)
        if self._validate_args and probs is not None:
            value = self.probs
            if not bool((value > 0).all()):
                raise ValueError(
                    f"Expected parameter probs ({type(value).__name__} of shape {tuple(value.shape)}) "
                    f"of distribution {self!r} to be positive but found invalid values:\n{value[value <= 0]}"
                )

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        return lucid.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with lucid.no_grad():
            time = lucid.empty(self._extended_shape(sample_shape), dtype=self.probs.dtype, device=self.probs.device)
            # The failures that an exponential time spans.
            return (time.exponential_() / -(-self.probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        # Certain success leaves no failures: 0 times log 0 is 0.
        probs = lucid.where((probs == 1) & (value == 0), 0.0, probs)
        return value * (-probs).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs
