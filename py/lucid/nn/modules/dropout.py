"""Dropout."""

from __future__ import annotations

from lucid import Tensor, errors
from lucid.nn import functional as F
from lucid.nn.modules.module import Module

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _DropoutNd(Module):
    """What all dropouts share: `p`, the probability of zero, and `inplace`, whether to write over the input."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if p < 0 or p > 1:
            raise errors.ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """Zeroes each element with probability `p` in training and scales the others by 1/(1-p); does nothing otherwise.

    Args:
        p (float, default: 0.5): Probability of zero.
        inplace (bool, default: False): Whether to write over the input.

    Example:
        >>> from lucid import nn
        >>> x = nn.Dropout(0.5)(lucid.ones(100))
        >>> bool(((x == 0) | (x == 2)).all())
        True
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """`Dropout` of whole channels of (N, C, L) or (C, L).

    Args:
        p (float, default: 0.5): the probability that a channel is zeroed.
        inplace (bool, default: False): writes the result over `input`, and returns `input`.

    Example:
        >>> from lucid import nn
        >>> nn.Dropout1d()(lucid.ones(1, 4, 2)).shape
        lucid.Size([1, 4, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """`Dropout` of whole channels of (N, C, H, W).

    Args:
        p (float, default: 0.5): the probability that a channel is zeroed.
        inplace (bool, default: False): writes the result over `input`, and returns `input`.

    Example:
        >>> from lucid import nn
        >>> nn.Dropout2d()(lucid.ones(1, 4, 2, 2)).shape
        lucid.Size([1, 4, 2, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """`Dropout` of whole channels of (N, C, D, H, W) or (C, D, H, W).

    Args:
        p (float, default: 0.5): the probability that a channel is zeroed.
        inplace (bool, default: False): writes the result over `input`, and returns `input`.

    Example:
        >>> from lucid import nn
        >>> nn.Dropout3d()(lucid.ones(1, 4, 2, 2, 2)).shape
        lucid.Size([1, 4, 2, 2, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """Dropout to selu's lowest value, which keeps mean 0 and variance 1.

    Args:
        p (float, default: 0.5): the probability that an element is set to the lowest value.
        inplace (bool, default: False): writes the result over `input`, and returns `input`.

    Example:
        >>> from lucid import nn
        >>> nn.AlphaDropout()(lucid.randn(2, 3)).shape
        lucid.Size([2, 3])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_DropoutNd):
    """`AlphaDropout` of whole channels.

    Args:
        p (float, default: 0.5): the probability that a channel is set to the lowest value.
        inplace (bool, default: False): writes the result over `input`, and returns `input`.

    Example:
        >>> from lucid import nn
        >>> nn.FeatureAlphaDropout()(lucid.randn(2, 3, 4)).shape
        lucid.Size([2, 3, 4])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.feature_alpha_dropout(input, self.p, self.training, self.inplace)
