"""Adaptive and fractional pools."""

from __future__ import annotations

from typing import Any

from lucid import Tensor
from lucid.nn import functional as F
from lucid.nn.modules.module import Module

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
]


class _AdaptiveAvgPoolNd(Module):
    """A pool that is told the output's size; None keeps a dimension's."""

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveMaxPoolNd(Module):
    """An adaptive pool that may also give the indices of what it picked."""

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Averages (N, C, L) or (C, L) over windows that give `output_size`.

    Args:
        output_size (int or tuple of ints): the numbers of windows; None keeps a size.

    Example:
        >>> from lucid import nn
        >>> nn.AdaptiveAvgPool1d(2)(lucid.zeros(1, 1, 5)).shape
        lucid.Size([1, 1, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """The largest elements of (N, C, L) or (C, L) in windows that give `output_size`.

    Args:
        output_size (int or tuple of ints): the numbers of windows; None keeps a size.
        return_indices (bool, default: False): also returns where each element was taken from.

    Example:
        >>> from lucid import nn
        >>> nn.AdaptiveMaxPool1d(2)(lucid.zeros(1, 1, 5)).shape
        lucid.Size([1, 1, 2])
    """

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Averages (N, C, H, W) or (C, H, W) over windows that give `output_size`.

    Args:
        output_size (int or tuple of ints): the numbers of windows; None keeps a size.

    Example:
        >>> from lucid import nn
        >>> nn.AdaptiveAvgPool2d(2)(lucid.zeros(1, 1, 5, 5)).shape
        lucid.Size([1, 1, 2, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """The largest elements of (N, C, H, W) or (C, H, W) in windows that give `output_size`.

    Args:
        output_size (int or tuple of ints): the numbers of windows; None keeps a size.
        return_indices (bool, default: False): also returns where each element was taken from.

    Example:
        >>> from lucid import nn
        >>> nn.AdaptiveMaxPool2d(2)(lucid.zeros(1, 1, 5, 5)).shape
        lucid.Size([1, 1, 2, 2])
    """

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Averages (N, C, D, H, W) or (C, D, H, W) over windows that give `output_size`.

    Args:
        output_size (int or tuple of ints): the numbers of windows; None keeps a size.

    Example:
        >>> from lucid import nn
        >>> nn.AdaptiveAvgPool3d(2)(lucid.zeros(1, 1, 5, 5, 5)).shape
        lucid.Size([1, 1, 2, 2, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool3d(input, self.output_size)


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """The largest elements of (N, C, D, H, W) or (C, D, H, W) in windows that give `output_size`.

    Args:
        output_size (int or tuple of ints): the numbers of windows; None keeps a size.
        return_indices (bool, default: False): also returns where each element was taken from.

    Example:
        >>> from lucid import nn
        >>> nn.AdaptiveMaxPool3d(2)(lucid.zeros(1, 1, 5, 5, 5)).shape
        lucid.Size([1, 1, 2, 2, 2])
    """

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool3d(input, self.output_size, self.return_indices)


# Programs look for these classes in `pooling`, which is where PyTorch has them.
for _cls in (
    _AdaptiveAvgPoolNd,
    _AdaptiveMaxPoolNd,
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
):
    _cls.__module__ = "lucid.nn.modules.pooling"
