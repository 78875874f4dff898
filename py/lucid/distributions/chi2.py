"""The chi-squared distribution."""

from __future__ import annotations

from typing import Any

from lucid import Tensor
from lucid.distributions import constraints
from lucid.distributions.gamma import Gamma

__all__ = ["Chi2"]


class Chi2(Gamma):
    """The sum of the squares of `df` standard normal numbers: the gamma distribution of `df / 2` and rate 1/2.

    `p(x) = x^(k/2 - 1) e^(-x/2) / (2^(k/2) Γ(k/2))`, with `k = df`.

    Args:
        df (Tensor or float): degrees of freedom, positive, any shape.
        validate_args (bool, optional): whether to check parameters and values.

    Example:
        >>> Chi2(3.0).mean
        tensor(3.)
    """

    arg_constraints = {"df": constraints.positive}
    _expandable = {"concentration": 0, "rate": 0}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    @property
    def df(self) -> Tensor:
        """The degrees of freedom, of shape `batch_shape`."""
        return self.concentration * 2
