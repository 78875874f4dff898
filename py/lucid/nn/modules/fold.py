"""Windows of images as columns, and back, as modules."""

from __future__ import annotations

from typing import Any

from lucid import Tensor
from lucid.nn import functional as F
from lucid.nn.modules.module import Module

__all__ = ["Fold", "Unfold"]


class Unfold(Module):
    """The windows of (N, C, H, W) as columns: (N, C · window, positions).

    Args:
        kernel_size (int or tuple of ints): The window's sizes.
        dilation (int or tuple of ints, default: 1): Steps between a window's elements.
        padding (int or tuple of ints, default: 0): Zeros added at both ends.
        stride (int or tuple of ints, default: 1): Steps between windows.

    Example:
        >>> from lucid import nn
        >>> nn.Unfold(2)(lucid.zeros(1, 3, 4, 4)).shape
        lucid.Size([1, 12, 9])
    """

    def __init__(self, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"


class Fold(Module):
    """Columns added up where `Unfold` took them from: (N, C · window, positions) to (N, C, H, W).

    `output_size` is (H, W); the other arguments are those of `Unfold`.

    Args:
        output_size (int or tuple of ints): the size (H, W) of the result.
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        dilation (int or tuple of ints, default: 1): the distance of neighbouring elements of a window.
        padding (int or tuple of ints, default: 0): what is added on both sides of each spatial dimension.
        stride (int or tuple of ints, default: 1): the distance of neighbouring windows, a number or one for each
            spatial dimension.

    Example:
        >>> from lucid import nn
        >>> nn.Fold((4, 4), 2)(lucid.zeros(1, 12, 9)).shape
        lucid.Size([1, 3, 4, 4])
    """

    def __init__(
        self, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        return F.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )
