"""Padding as modules."""

from __future__ import annotations

from typing import Any

from lucid import Tensor
from lucid.nn import functional as F
from lucid.nn.modules.module import Module
from lucid.nn.modules.utils import tuple_of

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

    _spatial: int
    _mode: str

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = tuple_of(padding, 2 * self._spatial)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    """Padding with a number."""

    _mode = "constant"

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPad):
    """Padding with zeros."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class CircularPad1d(_Pad):
    """Pads (…, L) with the elements of the other end."""

    _spatial = 1
    _mode = "circular"


class CircularPad2d(_Pad):
    """Pads (…, H, W) with the elements of the other end."""

    _spatial = 2
    _mode = "circular"


class CircularPad3d(_Pad):
    """Pads (…, D, H, W) with the elements of the other end."""

    _spatial = 3
    _mode = "circular"


class ConstantPad1d(_ConstantPad):
    """Pads (…, L) with `value`."""

    _spatial = 1


class ConstantPad2d(_ConstantPad):
    """Pads (…, H, W) with `value`."""

    _spatial = 2


class ConstantPad3d(_ConstantPad):
    """Pads (…, D, H, W) with `value`."""

    _spatial = 3


class ReflectionPad1d(_Pad):
    """Pads (…, L) with the elements mirrored at the edge, without the edge itself."""

    _spatial = 1
    _mode = "reflect"


class ReflectionPad2d(_Pad):
    """Pads (…, H, W) with the elements mirrored at the edge, without the edge itself."""

    _spatial = 2
    _mode = "reflect"


class ReflectionPad3d(_Pad):
    """Pads (…, D, H, W) with the elements mirrored at the edge, without the edge itself."""

    _spatial = 3
    _mode = "reflect"


class ReplicationPad1d(_Pad):
    """Pads (…, L) with the outermost elements."""

    _spatial = 1
    _mode = "replicate"


class ReplicationPad2d(_Pad):
    """Pads (…, H, W) with the outermost elements."""

    _spatial = 2
    _mode = "replicate"


class ReplicationPad3d(_Pad):
    """Pads (…, D, H, W) with the outermost elements."""

    _spatial = 3
    _mode = "replicate"


class ZeroPad1d(_ZeroPad):
    """Pads (…, L) with zeros."""

    _spatial = 1


class ZeroPad2d(_ZeroPad):
    """Pads (…, H, W) with zeros."""

    _spatial = 2


class ZeroPad3d(_ZeroPad):
    """Pads (…, D, H, W) with zeros."""

    _spatial = 3
