"""Pooling over windows of (N, C, space…) or (C, space…): the largest, the mean, a power average, and back."""

from __future__ import annotations

from typing import Any

from lucid import Tensor, errors
from lucid.nn import functional as F
from lucid.nn.modules.module import Module
from lucid.nn.modules.pooling_adaptive import (  # noqa: F401
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    _AdaptiveAvgPoolNd,
    _AdaptiveMaxPoolNd,
)
from lucid.nn.modules.utils import _ntuple, _single

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
]


class _MaxPoolNd(Module):
    """The largest element of each window.

    Args:
        kernel_size: Window size, a number or one per dimension.
        stride: Step between windows. Default: the window's size.
        padding: Elements added at both ends, which never win. Default: 0.
        dilation: Step between a window's elements. Default: 1.
        return_indices: Whether to give the flat index of each largest element too. Default: False.
        ceil_mode: Whether windows may hang over the end. Default: False.
    """

    return_indices: bool
    ceil_mode: bool

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPoolNd):
    """Max-pooling over (N, C, L) or (C, L): the largest element of each window.

    Args:
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        stride (int or tuple of ints, optional): the distance of neighbouring windows; `kernel_size` by default.
        padding (int or tuple of ints, default: 0): elements added on both sides, which never are the largest.
        dilation (int or tuple of ints, default: 1): the distance of neighbouring elements of a window.
        return_indices (bool, default: False): also returns where each element was taken from.
        ceil_mode (bool, default: False): rounds the size of the result up.

    Example:
        >>> from lucid import nn
        >>> nn.MaxPool1d(2)(lucid.zeros(1, 1, 4)).shape
        lucid.Size([1, 1, 2])
    """

    def forward(self, input: Tensor) -> Any:
        return F.max_pool1d(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )


class MaxPool2d(_MaxPoolNd):
    """Max-pooling over (N, C, H, W) or (C, H, W): the largest element of each window.

    Args:
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        stride (int or tuple of ints, optional): the distance of neighbouring windows; `kernel_size` by default.
        padding (int or tuple of ints, default: 0): elements added on both sides, which never are the largest.
        dilation (int or tuple of ints, default: 1): the distance of neighbouring elements of a window.
        return_indices (bool, default: False): also returns where each element was taken from.
        ceil_mode (bool, default: False): rounds the size of the result up.

    Example:
        >>> from lucid import nn
        >>> nn.MaxPool2d(2)(lucid.zeros(1, 1, 4, 4)).shape
        lucid.Size([1, 1, 2, 2])
    """

    def forward(self, input: Tensor) -> Any:
        return F.max_pool2d(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )


class MaxPool3d(_MaxPoolNd):
    """Max-pooling over (N, C, D, H, W) or (C, D, H, W): the largest element of each window.

    Args:
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        stride (int or tuple of ints, optional): the distance of neighbouring windows; `kernel_size` by default.
        padding (int or tuple of ints, default: 0): elements added on both sides, which never are the largest.
        dilation (int or tuple of ints, default: 1): the distance of neighbouring elements of a window.
        return_indices (bool, default: False): also returns where each element was taken from.
        ceil_mode (bool, default: False): rounds the size of the result up.

    Example:
        >>> from lucid import nn
        >>> nn.MaxPool3d(2)(lucid.zeros(1, 1, 4, 4, 4)).shape
        lucid.Size([1, 1, 2, 2, 2])
    """

    def forward(self, input: Tensor) -> Any:
        return F.max_pool3d(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )


class _AvgPoolNd(Module):
    """What all pools of means share."""

    kernel_size: Any
    stride: Any
    padding: Any
    ceil_mode: bool
    count_include_pad: bool

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    """The mean of each window of (N, C, L) or (C, L).

    Args:
        kernel_size (int or tuple of ints): Window size.
        stride (int or tuple of ints, optional): Step between windows.
        padding (int or tuple of ints, default: 0): Zeros added at both ends.
        ceil_mode (bool, default: False): Whether windows may hang over the end.
        count_include_pad (bool, default: True): Whether padding counts in the mean.

    Example:
        >>> from lucid import nn
        >>> nn.AvgPool1d(2)(lucid.tensor([[[1.0, 3.0, 2.0, 4.0]]]))
        tensor([[[2., 3.]]])
    """

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = _single(kernel_size)
        self.stride = _single(kernel_size if stride is None else stride)
        self.padding = _single(padding)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class _AvgPoolWithDivisor(_AvgPoolNd):
    """A pool that may divide by another number than the window's size."""

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override


class AvgPool2d(_AvgPoolWithDivisor):
    """The mean of each window of (N, C, H, W) or (C, H, W).

    Arguments as in `AvgPool1d`, a number or one per dimension, and `divisor_override`: what sums are divided by instead
    of the window's size.

    Args:
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        stride (int or tuple of ints, optional): the distance of neighbouring windows, a number or one for each
            spatial dimension.
        padding (int or tuple of ints, default: 0): what is added on both sides of each spatial dimension.
        ceil_mode (bool, default: False): rounds the size of the result up.
        count_include_pad (bool, default: True): counts padded zeros in the mean.
        divisor_override (int, optional): divides the sums by this, rather than by the size of the window.

    Example:
        >>> from lucid import nn
        >>> nn.AvgPool2d(2)(lucid.tensor([[[[1.0, 3.0], [2.0, 4.0]]]]))
        tensor([[[[2.5000]]]])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AvgPool3d(_AvgPoolWithDivisor):
    """`AvgPool2d` for (N, C, D, H, W) or (C, D, H, W).

    Args:
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        stride (int or tuple of ints, optional): the distance of neighbouring windows, a number or one for each
            spatial dimension.
        padding (int or tuple of ints, default: 0): what is added on both sides of each spatial dimension.
        ceil_mode (bool, default: False): rounds the size of the result up.
        count_include_pad (bool, default: True): counts padded zeros in the mean.
        divisor_override (int, optional): divides the sums by this, rather than by the size of the window.

    Example:
        >>> from lucid import nn
        >>> nn.AvgPool3d(2)(lucid.ones(1, 1, 4, 4, 4)).shape
        lucid.Size([1, 1, 2, 2, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool3d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class _LPPoolNd(Module):
    """`(Σ x^p)^(1/p)` over windows, with p = `norm_type`."""

    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class _MaxUnpoolNd(Module):
    """Puts what a max-pool picked back where it was, among zeros."""

    _spatial: int

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        sizes = _ntuple(self._spatial)
        self.kernel_size = sizes(kernel_size)
        self.stride = sizes(kernel_size if stride is None else stride)
        self.padding = sizes(padding)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _FractionalMaxPool(Module):
    """Max-pooling over windows at random steps (Graham, 2014)."""

    _spatial: int

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        sizes, name = _ntuple(self._spatial), type(self).__name__
        self.kernel_size = sizes(kernel_size)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else sizes(output_size)
        self.output_ratio = None if output_ratio is None else sizes(output_ratio)
        if output_size is None and output_ratio is None:
            raise errors.ValueError(f"{name} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise errors.ValueError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < ratio < 1 for ratio in self.output_ratio):
            raise errors.ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")


class LPPool1d(_LPPoolNd):
    """`(Σ x^p)^(1/p)` over windows of (N, C, L) or (C, L), with p = `norm_type`.

    Args:
        norm_type (float): the exponent p.
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        stride (int or tuple of ints, optional): the distance of neighbouring windows; `kernel_size` by default.
        ceil_mode (bool, default: False): rounds the size of the result up.

    Example:
        >>> from lucid import nn
        >>> nn.LPPool1d(2, 2)(lucid.ones(1, 1, 4)).shape
        lucid.Size([1, 1, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool1d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class MaxUnpool1d(_MaxUnpoolNd):
    """`MaxPool1d` undone for (N, C, L) or (C, L): what it picked is put back among zeros.

    Args:
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        stride (int or tuple of ints, optional): the distance of neighbouring windows; `kernel_size` by default.
        padding (int or tuple of ints, default: 0): the padding of the pool.

    Example:
        >>> from lucid import nn
        >>> x, indices = nn.MaxPool1d(2, return_indices=True)(lucid.randn(1, 1, 4))
        >>> nn.MaxUnpool1d(2)(x, indices).shape
        lucid.Size([1, 1, 4])
    """

    _spatial = 1

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return F.max_unpool1d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class LPPool2d(_LPPoolNd):
    """`(Σ x^p)^(1/p)` over windows of (N, C, H, W) or (C, H, W), with p = `norm_type`.

    Args:
        norm_type (float): the exponent p.
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        stride (int or tuple of ints, optional): the distance of neighbouring windows; `kernel_size` by default.
        ceil_mode (bool, default: False): rounds the size of the result up.

    Example:
        >>> from lucid import nn
        >>> nn.LPPool2d(2, 2)(lucid.ones(1, 1, 4, 4)).shape
        lucid.Size([1, 1, 2, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool2d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class MaxUnpool2d(_MaxUnpoolNd):
    """`MaxPool2d` undone for (N, C, H, W) or (C, H, W): what it picked is put back among zeros.

    Args:
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        stride (int or tuple of ints, optional): the distance of neighbouring windows; `kernel_size` by default.
        padding (int or tuple of ints, default: 0): the padding of the pool.

    Example:
        >>> from lucid import nn
        >>> x, indices = nn.MaxPool2d(2, return_indices=True)(lucid.randn(1, 1, 4, 4))
        >>> nn.MaxUnpool2d(2)(x, indices).shape
        lucid.Size([1, 1, 4, 4])
    """

    _spatial = 2

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return F.max_unpool2d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class LPPool3d(_LPPoolNd):
    """`(Σ x^p)^(1/p)` over windows of (N, C, D, H, W) or (C, D, H, W), with p = `norm_type`.

    Args:
        norm_type (float): the exponent p.
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        stride (int or tuple of ints, optional): the distance of neighbouring windows; `kernel_size` by default.
        ceil_mode (bool, default: False): rounds the size of the result up.

    Example:
        >>> from lucid import nn
        >>> nn.LPPool3d(2, 2)(lucid.ones(1, 1, 4, 4, 4)).shape
        lucid.Size([1, 1, 2, 2, 2])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool3d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class MaxUnpool3d(_MaxUnpoolNd):
    """`MaxPool3d` undone for (N, C, D, H, W) or (C, D, H, W): what it picked is put back among zeros.

    Args:
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        stride (int or tuple of ints, optional): the distance of neighbouring windows; `kernel_size` by default.
        padding (int or tuple of ints, default: 0): the padding of the pool.

    Example:
        >>> from lucid import nn
        >>> x, indices = nn.MaxPool3d(2, return_indices=True)(lucid.randn(1, 1, 4, 4, 4))
        >>> nn.MaxUnpool3d(2)(x, indices).shape
        lucid.Size([1, 1, 4, 4, 4])
    """

    _spatial = 3

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return F.max_unpool3d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class FractionalMaxPool2d(_FractionalMaxPool):
    """Max-pooling of (N, C, H, W) or (C, H, W) at random steps that give `output_size` or `output_ratio`.

    Args:
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        output_size (int or tuple of ints, optional): the size of the result; this or `output_ratio` must be given.
        output_ratio (float or tuple of floats, optional): the size of the result over that of the input, within 0
            to 1.
        return_indices (bool, default: False): also returns where each element was taken from.

    Example:
        >>> from lucid import nn
        >>> nn.FractionalMaxPool2d(2, output_size=5)(lucid.rand(1, 1, 8, 8)).shape
        lucid.Size([1, 1, 5, 5])
    """

    _spatial = 2

    def forward(self, input: Tensor) -> Any:
        return F.fractional_max_pool2d(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples
        )


class FractionalMaxPool3d(_FractionalMaxPool):
    """Max-pooling of (N, C, D, H, W) or (C, D, H, W) at random steps that give `output_size` or `output_ratio`.

    Args:
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        output_size (int or tuple of ints, optional): the size of the result; this or `output_ratio` must be given.
        output_ratio (float or tuple of floats, optional): the size of the result over that of the input, within 0
            to 1.
        return_indices (bool, default: False): also returns where each element was taken from.

    Example:
        >>> from lucid import nn
        >>> nn.FractionalMaxPool3d(2, output_size=5)(lucid.rand(1, 1, 8, 8, 8)).shape
        lucid.Size([1, 1, 5, 5, 5])
    """

    _spatial = 3

    def forward(self, input: Tensor) -> Any:
        return F.fractional_max_pool3d(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples
        )
