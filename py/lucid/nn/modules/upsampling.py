"""Resizing images as modules."""

from __future__ import annotations

from typing import Any

from lucid import Tensor
from lucid.nn import functional as F
from lucid.nn.modules.module import Module

__all__ = ["Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"]


class Upsample(Module):
    """Resizes the spatial dimensions; arguments as in `nn.functional.interpolate`.

    Args:
        size (int or tuple of ints, optional): the new sizes; this or `scale_factor` must be given.
        scale_factor (float or tuple of floats, optional): the factors of the sizes.
        mode (str, default: "nearest"): "nearest", "linear", "bilinear", "bicubic", "trilinear", "area" or
            "nearest-exact".
        align_corners (bool, optional): aligns the centres of the corner elements; for the linear and cubic modes.
        recompute_scale_factor (bool, optional): computes the factor anew from the rounded sizes.

    Example:
        >>> from lucid import nn
        >>> nn.Upsample(scale_factor=2)(lucid.tensor([[[1.0, 2.0]]]))
        tensor([[[1., 1., 2., 2.]]])
    """

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        if isinstance(scale_factor, tuple):
            self.scale_factor: Any = tuple(float(factor) for factor in scale_factor)
        else:
            self.scale_factor = float(scale_factor) if scale_factor else None
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            recompute_scale_factor=self.recompute_scale_factor,
        )

    def extra_repr(self) -> str:
        if self.scale_factor is not None:
            return f"scale_factor={self.scale_factor!r}, mode={self.mode!r}"
        return f"size={self.size!r}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """`Upsample` with mode "nearest".

    Args:
        size (int or tuple of ints, optional): the new sizes; this or `scale_factor` must be given.
        scale_factor (float or tuple of floats, optional): the factors of the sizes.

    Example:
        >>> from lucid import nn
        >>> nn.UpsamplingNearest2d(scale_factor=2)(lucid.zeros(1, 1, 2, 2)).shape
        lucid.Size([1, 1, 4, 4])
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """`Upsample` with mode "bilinear" and aligned corners.

    Args:
        size (int or tuple of ints, optional): the new sizes; this or `scale_factor` must be given.
        scale_factor (float or tuple of floats, optional): the factors of the sizes.

    Example:
        >>> from lucid import nn
        >>> nn.UpsamplingBilinear2d(scale_factor=2)(lucid.zeros(1, 1, 2, 2)).shape
        lucid.Size([1, 1, 4, 4])
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)
