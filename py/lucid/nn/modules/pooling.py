"""Pooling over windows of (N, C, space…) or (C, space…): the largest, the mean, a power average, and back."""

from __future__ import annotations

from typing import Any

from lucid import Tensor, errors
from lucid.nn import functional as F
from lucid.nn.modules.module import Module
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
    __doc__ = f"Over (N, C, L) or (C, L): {_MaxPoolNd.__doc__}"

    def forward(self, input: Tensor) -> Any:
        return F.max_pool1d(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )


class MaxPool2d(_MaxPoolNd):
    __doc__ = f"Over (N, C, H, W) or (C, H, W): {_MaxPoolNd.__doc__}"

    def forward(self, input: Tensor) -> Any:
        return F.max_pool2d(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )


class MaxPool3d(_MaxPoolNd):
    __doc__ = f"Over (N, C, D, H, W) or (C, D, H, W): {_MaxPoolNd.__doc__}"

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
        kernel_size: Window size.
        stride: Step between windows. Default: the window's size.
        padding: Zeros added at both ends. Default: 0.
        ceil_mode: Whether windows may hang over the end. Default: False.
        count_include_pad: Whether padding counts in the mean. Default: True.
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
    """`AvgPool2d` for (N, C, D, H, W) or (C, D, H, W)."""

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


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Averages (N, C, L) or (C, L) over windows that give `output_size`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """The largest elements of (N, C, L) or (C, L) in windows that give `output_size`."""

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class LPPool1d(_LPPoolNd):
    """`(Σ x^p)^(1/p)` over windows of (N, C, L) or (C, L), with p = `norm_type`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool1d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class MaxUnpool1d(_MaxUnpoolNd):
    """`MaxPool1d` undone for (N, C, L) or (C, L): what it picked is put back among zeros."""

    _spatial = 1

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return F.max_unpool1d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Averages (N, C, H, W) or (C, H, W) over windows that give `output_size`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """The largest elements of (N, C, H, W) or (C, H, W) in windows that give `output_size`."""

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class LPPool2d(_LPPoolNd):
    """`(Σ x^p)^(1/p)` over windows of (N, C, H, W) or (C, H, W), with p = `norm_type`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool2d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class MaxUnpool2d(_MaxUnpoolNd):
    """`MaxPool2d` undone for (N, C, H, W) or (C, H, W): what it picked is put back among zeros."""

    _spatial = 2

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return F.max_unpool2d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Averages (N, C, D, H, W) or (C, D, H, W) over windows that give `output_size`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool3d(input, self.output_size)


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """The largest elements of (N, C, D, H, W) or (C, D, H, W) in windows that give `output_size`."""

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool3d(input, self.output_size, self.return_indices)


class LPPool3d(_LPPoolNd):
    """`(Σ x^p)^(1/p)` over windows of (N, C, D, H, W) or (C, D, H, W), with p = `norm_type`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool3d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class MaxUnpool3d(_MaxUnpoolNd):
    """`MaxPool3d` undone for (N, C, D, H, W) or (C, D, H, W): what it picked is put back among zeros."""

    _spatial = 3

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return F.max_unpool3d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class FractionalMaxPool2d(_FractionalMaxPool):
    """Max-pooling of (N, C, H, W) or (C, H, W) at random steps that give `output_size` or `output_ratio`."""

    _spatial = 2

    def forward(self, input: Tensor) -> Any:
        return F.fractional_max_pool2d(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples
        )


class FractionalMaxPool3d(_FractionalMaxPool):
    """Max-pooling of (N, C, D, H, W) or (C, D, H, W) at random steps that give `output_size` or `output_ratio`."""

    _spatial = 3

    def forward(self, input: Tensor) -> Any:
        return F.fractional_max_pool3d(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples
        )
