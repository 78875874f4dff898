"""Moving pixels between space and channels, as modules."""

from __future__ import annotations

from lucid import Tensor
from lucid.nn import functional as F
from lucid.nn.modules.module import Module

__all__ = ["PixelShuffle", "PixelUnshuffle"]


class PixelShuffle(Module):
    """(…, C·r², H, W) to (…, C, H·r, W·r), with r = `upscale_factor`.

    Args:
        upscale_factor (int): the factor r.

    Example:
        >>> from lucid import nn
        >>> nn.PixelShuffle(2)(lucid.zeros(1, 8, 2, 2)).shape
        lucid.Size([1, 2, 4, 4])
    """

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """(…, C, H·r, W·r) to (…, C·r², H, W), with r = `downscale_factor`.

    Args:
        downscale_factor (int): the factor r.

    Example:
        >>> from lucid import nn
        >>> nn.PixelUnshuffle(2)(lucid.zeros(1, 2, 4, 4)).shape
        lucid.Size([1, 8, 2, 2])
    """

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"
