"""Adaptive, power-average, fractional and inverse pooling as modules."""

from __future__ import annotations

from typing import Any

from lucid import Tensor, errors
from lucid.nn import functional as F
from lucid.nn.modules.module import Module
from lucid.nn.modules.utils import tuple_of

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
]


class _Adaptive(Module):
    """A pool that is told the output's size; None keeps a dimension's."""

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveMax(Module):
    """An adaptive pool that may also give the indices of what it picked."""

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _LPPool(Module):
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


class _MaxUnpool(Module):
    """Puts what a max-pool picked back where it was, among zeros."""

    _spatial: int

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        n = self._spatial
        self.kernel_size = tuple_of(kernel_size, n)
        self.stride = tuple_of(kernel_size if stride is None else stride, n)
        self.padding = tuple_of(padding, n)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _Fractional(Module):
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
        n, name = self._spatial, type(self).__name__
        self.kernel_size = tuple_of(kernel_size, n)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else tuple_of(output_size, n)
        self.output_ratio = None if output_ratio is None else tuple_of(output_ratio, n)
        if output_size is None and output_ratio is None:
            raise errors.ValueError(f"{name} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise errors.ValueError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < ratio < 1 for ratio in self.output_ratio):
            raise errors.ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")


class AdaptiveAvgPool1d(_Adaptive):
    """Averages (N, C, L) or (C, L) over windows that give `output_size`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveMaxPool1d(_AdaptiveMax):
    """The largest elements of (N, C, L) or (C, L) in windows that give `output_size`."""

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class LPPool1d(_LPPool):
    """`(Σ x^p)^(1/p)` over windows of (N, C, L) or (C, L), with p = `norm_type`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool1d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class MaxUnpool1d(_MaxUnpool):
    """`MaxPool1d` undone for (N, C, L) or (C, L): what it picked is put back among zeros."""

    _spatial = 1

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return F.max_unpool1d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class AdaptiveAvgPool2d(_Adaptive):
    """Averages (N, C, H, W) or (C, H, W) over windows that give `output_size`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveMaxPool2d(_AdaptiveMax):
    """The largest elements of (N, C, H, W) or (C, H, W) in windows that give `output_size`."""

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class LPPool2d(_LPPool):
    """`(Σ x^p)^(1/p)` over windows of (N, C, H, W) or (C, H, W), with p = `norm_type`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool2d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class MaxUnpool2d(_MaxUnpool):
    """`MaxPool2d` undone for (N, C, H, W) or (C, H, W): what it picked is put back among zeros."""

    _spatial = 2

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return F.max_unpool2d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class AdaptiveAvgPool3d(_Adaptive):
    """Averages (N, C, D, H, W) or (C, D, H, W) over windows that give `output_size`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool3d(input, self.output_size)


class AdaptiveMaxPool3d(_AdaptiveMax):
    """The largest elements of (N, C, D, H, W) or (C, D, H, W) in windows that give `output_size`."""

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool3d(input, self.output_size, self.return_indices)


class LPPool3d(_LPPool):
    """`(Σ x^p)^(1/p)` over windows of (N, C, D, H, W) or (C, D, H, W), with p = `norm_type`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool3d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class MaxUnpool3d(_MaxUnpool):
    """`MaxPool3d` undone for (N, C, D, H, W) or (C, D, H, W): what it picked is put back among zeros."""

    _spatial = 3

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return F.max_unpool3d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class FractionalMaxPool2d(_Fractional):
    """Max-pooling of (N, C, H, W) or (C, H, W) at random steps that give `output_size` or `output_ratio`."""

    _spatial = 2

    def forward(self, input: Tensor) -> Any:
        return F.fractional_max_pool2d(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples
        )


class FractionalMaxPool3d(_Fractional):
    """Max-pooling of (N, C, D, H, W) or (C, D, H, W) at random steps that give `output_size` or `output_ratio`."""

    _spatial = 3

    def forward(self, input: Tensor) -> Any:
        return F.fractional_max_pool3d(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples
        )
