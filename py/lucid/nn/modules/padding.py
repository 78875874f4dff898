"""Padding as modules."""

from __future__ import annotations

from typing import Any, ClassVar

from lucid import Tensor, errors
from lucid.nn import functional as F
from lucid.nn.modules.module import Module
from lucid.nn.modules.utils import _ntuple

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]


class _Pad(Module):
    """Adds elements around the last dimensions; `padding` is a number, or low and high, last dimension first."""

    _spatial: ClassVar[int]
    _mode: ClassVar[str]

    def __init_subclass__(cls, spatial: int | None = None, mode: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if spatial is not None:
            cls._spatial = spatial
        if mode is not None:
            cls._mode = mode

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _ntuple(2 * self._spatial)(padding)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPadNd(_Pad, mode="constant"):
    """Padding with a number."""

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPadNd):
    """Padding with zeros."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _CircularPadNd(_Pad, mode="circular"):
    """Padding with the elements of the other end, of inputs with channels only."""

    def forward(self, input: Tensor) -> Tensor:
        least = self._spatial + 1
        if input.dim() not in (least, least + 1):
            raise errors.ValueError(f"expected {least}D or {least + 1}D input (got {input.dim()}D input)")
        return super().forward(input)


class _ReflectionPadNd(_Pad, mode="reflect"):
    """Padding with the elements mirrored at the edge."""


class _ReplicationPadNd(_Pad, mode="replicate"):
    """Padding with the outermost elements."""


class CircularPad1d(_CircularPadNd, spatial=1):
    """Pads (N, C, L) or (C, L) with the elements of the other end.

    Args:
        padding (int or tuple of ints): how many elements on each side, or (low, high) of the last dimension, then
            of the one before.

    Example:
        >>> from lucid import nn
        >>> nn.CircularPad1d(1)(lucid.ones(1, 1, 2)).shape
        lucid.Size([1, 1, 4])
    """


class CircularPad2d(_CircularPadNd, spatial=2):
    """Pads (N, C, H, W) or (C, H, W) with the elements of the other end.

    Args:
        padding (int or tuple of ints): how many elements on each side, or (low, high) of the last dimension, then
            of the one before.

    Example:
        >>> from lucid import nn
        >>> nn.CircularPad2d(1)(lucid.ones(1, 1, 2, 2)).shape
        lucid.Size([1, 1, 4, 4])
    """


class CircularPad3d(_CircularPadNd, spatial=3):
    """Pads (N, C, D, H, W) or (C, D, H, W) with the elements of the other end.

    Args:
        padding (int or tuple of ints): how many elements on each side, or (low, high) of the last dimension, then
            of the one before.

    Example:
        >>> from lucid import nn
        >>> nn.CircularPad3d(1)(lucid.ones(1, 1, 2, 2, 2)).shape
        lucid.Size([1, 1, 4, 4, 4])
    """


class ConstantPad1d(_ConstantPadNd, spatial=1):
    """Pads (…, L) with `value`.

    Args:
        padding (int or tuple of ints): how many elements on each side, or (low, high) of the last dimension, then
            of the one before.
        value (float): the number to pad with.

    Example:
        >>> from lucid import nn
        >>> nn.ConstantPad1d(1, 2.0)(lucid.ones(1, 1, 2)).shape
        lucid.Size([1, 1, 4])
    """


class ConstantPad2d(_ConstantPadNd, spatial=2):
    """Pads (…, H, W) with `value`.

    Args:
        padding (int or tuple of ints): how many elements on each side, or (low, high) of the last dimension, then
            of the one before.
        value (float): the number to pad with.

    Example:
        >>> from lucid import nn
        >>> nn.ConstantPad2d(1, 2.0)(lucid.ones(1, 1, 2, 2)).shape
        lucid.Size([1, 1, 4, 4])
    """


class ConstantPad3d(_ConstantPadNd, spatial=3):
    """Pads (…, D, H, W) with `value`.

    Args:
        padding (int or tuple of ints): how many elements on each side, or (low, high) of the last dimension, then
            of the one before.
        value (float): the number to pad with.

    Example:
        >>> from lucid import nn
        >>> nn.ConstantPad3d(1, 2.0)(lucid.ones(1, 1, 2, 2, 2)).shape
        lucid.Size([1, 1, 4, 4, 4])
    """


class ReflectionPad1d(_ReflectionPadNd, spatial=1):
    """Pads (…, L) with the elements mirrored at the edge, without the edge itself.

    Args:
        padding (int or tuple of ints): how many elements on each side, or (low, high) of the last dimension, then
            of the one before.

    Example:
        >>> from lucid import nn
        >>> nn.ReflectionPad1d(1)(lucid.ones(1, 1, 2)).shape
        lucid.Size([1, 1, 4])
    """


class ReflectionPad2d(_ReflectionPadNd, spatial=2):
    """Pads (…, H, W) with the elements mirrored at the edge, without the edge itself.

    Args:
        padding (int or tuple of ints): how many elements on each side, or (low, high) of the last dimension, then
            of the one before.

    Example:
        >>> from lucid import nn
        >>> nn.ReflectionPad2d(1)(lucid.ones(1, 1, 2, 2)).shape
        lucid.Size([1, 1, 4, 4])
    """


class ReflectionPad3d(_ReflectionPadNd, spatial=3):
    """Pads (…, D, H, W) with the elements mirrored at the edge, without the edge itself.

    Args:
        padding (int or tuple of ints): how many elements on each side, or (low, high) of the last dimension, then
            of the one before.

    Example:
        >>> from lucid import nn
        >>> nn.ReflectionPad3d(1)(lucid.ones(1, 1, 2, 2, 2)).shape
        lucid.Size([1, 1, 4, 4, 4])
    """


class ReplicationPad1d(_ReplicationPadNd, spatial=1):
    """Pads (…, L) with the outermost elements.

    Args:
        padding (int or tuple of ints): how many elements on each side, or (low, high) of the last dimension, then
            of the one before.

    Example:
        >>> from lucid import nn
        >>> nn.ReplicationPad1d(1)(lucid.ones(1, 1, 2)).shape
        lucid.Size([1, 1, 4])
    """


class ReplicationPad2d(_ReplicationPadNd, spatial=2):
    """Pads (…, H, W) with the outermost elements.

    Args:
        padding (int or tuple of ints): how many elements on each side, or (low, high) of the last dimension, then
            of the one before.

    Example:
        >>> from lucid import nn
        >>> nn.ReplicationPad2d(1)(lucid.ones(1, 1, 2, 2)).shape
        lucid.Size([1, 1, 4, 4])
    """


class ReplicationPad3d(_ReplicationPadNd, spatial=3):
    """Pads (…, D, H, W) with the outermost elements.

    Args:
        padding (int or tuple of ints): how many elements on each side, or (low, high) of the last dimension, then
            of the one before.

    Example:
        >>> from lucid import nn
        >>> nn.ReplicationPad3d(1)(lucid.ones(1, 1, 2, 2, 2)).shape
        lucid.Size([1, 1, 4, 4, 4])
    """


class ZeroPad1d(_ZeroPad, ConstantPad1d):
    """Pads (…, L) with zeros.

    Args:
        padding (int or tuple of ints): how many elements on each side, or (low, high) of the last dimension, then
            of the one before.

    Example:
        >>> from lucid import nn
        >>> nn.ZeroPad1d(1)(lucid.ones(1, 1, 2)).shape
        lucid.Size([1, 1, 4])
    """


class ZeroPad2d(_ZeroPad, ConstantPad2d):
    """Pads (…, H, W) with zeros.

    Args:
        padding (int or tuple of ints): how many elements on each side, or (low, high) of the last dimension, then
            of the one before.

    Example:
        >>> from lucid import nn
        >>> nn.ZeroPad2d(1)(lucid.ones(1, 1, 2, 2)).shape
        lucid.Size([1, 1, 4, 4])
    """


class ZeroPad3d(_ZeroPad, ConstantPad3d):
    """Pads (…, D, H, W) with zeros.

    Args:
        padding (int or tuple of ints): how many elements on each side, or (low, high) of the last dimension, then
            of the one before.

    Example:
        >>> from lucid import nn
        >>> nn.ZeroPad3d(1)(lucid.ones(1, 1, 2, 2, 2)).shape
        lucid.Size([1, 1, 4, 4, 4])
    """
