"""Convolution of images in NCHW, alone and with relu."""

from __future__ import annotations

import functools
from typing import Any

from lucid import _C, errors
from lucid.lightning import _arrays, _direct, _dispatch
from lucid.lightning._arrays import Given, given, output

__all__ = ["conv2d_nchw", "conv2d_nchw_into"]

Tensor = _C.Tensor


class ConvShape:
    """The operands' shapes, checked: the result's shape and the multiply-accumulates."""

    __slots__ = ("macs", "out", "padding", "stride")

    def __init__(
        self, op: str, x: tuple[int, ...], w: tuple[int, ...], b: tuple[int, ...] | None, steps: tuple[Any, ...]
    ) -> None:
        names = ("stride_h", "stride_w", "pad_h", "pad_w")
        values = []
        for name, value in zip(names, steps, strict=True):
            index = getattr(value, "__index__", None)
            if index is None or isinstance(value, bool):
                raise errors.TypeError(f"{op}: {name} must be an int, got {type(value).__name__}")
            least = 1 if name.startswith("stride") else 0
            number = int(index())
            if not least <= number < 1 << 31:
                raise errors.ValueError(f"{op}: {name} must be from {least} on and below 2^31, got {number}")
            values.append(number)
        if len(x) != 4 or len(w) != 4 or x[1] != w[1]:
            raise errors.ShapeMismatch(f"{op}: expected x (n, c, h, w) and w (out, c, kh, kw), got {x} and {w}")
        if b is not None and b != (w[0],):
            raise errors.ShapeMismatch(f"{op}: b must have shape ({w[0]},), one for each output channel, got {b}")
        height = x[2] + 2 * values[2] - w[2]
        width = x[3] + 2 * values[3] - w[3]
        if height < 0 or width < 0:
            padded = (x[2] + 2 * values[2], x[3] + 2 * values[3])
            raise errors.ShapeMismatch(f"{op}: the kernel {w[2:]} is larger than the padded image {padded}")
        self.stride = (values[0], values[1])
        self.padding = (values[2], values[3])
        self.out = (x[0], w[0], height // values[0] + 1, width // values[1] + 1)
        self.macs = self.out[0] * self.out[1] * self.out[2] * self.out[3] * w[1] * w[2] * w[3]
        if self.macs >= _arrays.MOST_ELEMENTS:
            raise errors.ValueError(f"{op}: {self.macs} multiply-accumulates are too many")


@functools.lru_cache(256)
def _known(op: str, x: Any, w: Any, b: Any, *steps: int) -> ConvShape:
    return ConvShape(op, x, w, b, steps)


def shape_of(
    op: str, x: tuple[int, ...], w: tuple[int, ...], b: tuple[int, ...] | None, steps: tuple[Any, ...]
) -> ConvShape:
    """`ConvShape`, remembered: checking the shapes costs as much as a small convolution."""
    if {*map(type, steps)} == {int}:
        return _known(op, x, w, b, *steps)
    return ConvShape(op, x, w, b, steps)


class Conv:
    """A convolution's attributes as something to call."""

    __slots__ = ("padding", "relu", "stride")

    def __init__(self, shape: ConvShape, relu: bool) -> None:
        self.stride = shape.stride
        self.padding = shape.padding
        self.relu = relu

    def __call__(self, x: Tensor, w: Tensor, b: Tensor | None = None, out: Tensor | None = None) -> Tensor:
        y = _C.conv2d(x, w, b, self.stride, self.padding)
        if not self.relu:
            return y if out is None else out.copy_(y)
        if out is not None:
            return out.copy_(y).relu_()
        return y.relu_() if y.is_cpu and not y.requires_grad else y.relu()


def operands(op: str, x: Any, w: Any, b: Any, steps: tuple[Any, ...]) -> tuple[list[Given], ConvShape]:
    """The operands of a convolution, checked, the bias left out where it is `None`."""
    listed = [given(op, "x", x), given(op, "w", w)]
    if b is not None:
        listed.append(given(op, "b", b))
    shapes = [tuple(g.tensor.shape) for g in listed]
    return listed, shape_of(op, shapes[0], shapes[1], shapes[2] if b is not None else None, steps)


def conv(op: str, x: Any, w: Any, b: Any, steps: tuple[Any, ...], device: Any, relu: bool) -> Any:
    """A convolution, with relu or not, as the operands' kind."""
    if _direct.takes(device) and _direct.arrays(arrays := (x, w) if b is None else (x, w, b)):
        shape = shape_of(op, x.shape, w.shape, None if b is None else b.shape, steps)
        made = _direct.convolution(arrays, shape, relu)
        if made is not None:
            return made
    listed, shape = operands(op, x, w, b, steps)
    kind = _dispatch.kind_of(listed)
    shown_operands = [g.tensor for g in listed]
    return _arrays.result(
        kind, _dispatch.run(op, "conv2d", device, kind, shown_operands, shape.macs, Conv(shape, relu))
    )


def conv_into(op: str, x: Any, w: Any, b: Any, out: Any, steps: tuple[Any, ...], device: Any, relu: bool) -> None:
    """A convolution, with relu or not, into the caller's memory."""
    tensors = _direct.shown(device, (x, w, out) if b is None else (x, w, b, out))
    if tensors is not None:
        shape = shape_of(op, x.shape, w.shape, None if b is None else b.shape, steps)
        target = tensors.pop()
        if out.shape == shape.out and target.is_contiguous() and _direct.apart(target, tensors):
            Conv(shape, relu)(tensors[0], tensors[1], None if b is None else tensors[2], target)
            return
    listed, shape = operands(op, x, w, b, steps)
    target = output(op, out, shape.out)
    tensors = [g.tensor for g in listed]
    _arrays.apart(op, target, **dict(zip("xwb", tensors, strict=False)))
    kind = _dispatch.kind_of(listed)
    _dispatch.run(op, "conv2d", device, kind, tensors, shape.macs, Conv(shape, relu), target)


def conv2d_nchw(
    x: Any,
    w: Any,
    b: Any = None,
    stride_h: int = 1,
    stride_w: int = 1,
    pad_h: int = 0,
    pad_w: int = 0,
    device: Any = "metal",
) -> Any:
    """A convolution (cross-correlation) of images.

    `out[n, o, i, j] = b[o] + sum_{c, p, q} w[o, c, p, q] * x[n, c, i * stride_h + p - pad_h, j * stride_w + q - pad_w]`

    Example::

        >>> import lucid.lightning as lc
        >>> lc.conv2d_nchw([[[[1.0, 2.0]]]], [[[[3.0]]]], [1.0], device="cpu")
        [[[[4.0, 7.0]]]]

    Args:
        x (object): `(n, c, h, w)`, float32: a NumPy array, nested lists or a `lucid.Tensor`.
        w (object): `(out, c, kh, kw)`, as `x`.
        b (object, optional): `(out,)`, as `x`, or `None`.
        stride_h (int, default: 1): From 1 on.
        stride_w (int, default: 1): From 1 on.
        pad_h (int, default: 0): Zeros on both sides, from 0 on.
        pad_w (int, default: 0): Zeros on both sides, from 0 on.
        device (lucid.device or str, default: "metal"): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`. Arrays of at most
            `CJ_CONV2D_CPU_CROSSOVER_MACS` multiply-accumulates are computed on the CPU (see `CrossoverPolicy`).

    Returns:
        `(n, out, h', w')` with `h' = (h + 2 * pad_h - kh) // stride_h + 1`, of the operands' kind.

    Raises:
        ShapeMismatch: The shapes do not fit, or the kernel is larger than the padded image.
        DtypeMismatch: One is not float32.
        ValueError: A stride or padding is out of its range.
    """
    return conv("conv2d_nchw()", x, w, b, (stride_h, stride_w, pad_h, pad_w), device, False)


def conv2d_nchw_into(
    x: Any,
    w: Any,
    b: Any,
    out: Any,
    stride_h: int = 1,
    stride_w: int = 1,
    pad_h: int = 0,
    pad_w: int = 0,
    device: Any = "metal",
) -> None:
    """Computes `conv2d_nchw` into the caller's memory. The engine's convolution makes a result of its own, which is
    copied.

    Args:
        x (array, list or Tensor): images of shape (n, c, h, w), float32.
        w (array, list or Tensor): kernels of shape (out, c, kh, kw), float32.
        b (array, list or Tensor or None): biases of shape (out,), float32; None: no bias.
        out (array or Tensor): of shape (n, out, h', w') or flat, float32, contiguous, writable, apart from the
            operands.
        stride_h (int, optional): rows between windows, from 1 on. Default: 1.
        stride_w (int, optional): columns between windows, from 1 on. Default: 1.
        pad_h (int, optional): rows of zeros above and below. Default: 0.
        pad_w (int, optional): columns of zeros left and right. Default: 0.
        device (device or str, optional): `"metal"`, `"cuda"`, `"cpu"` or `"auto"`; small work is computed on the CPU
            (see `CrossoverPolicy`). Default: `"metal"`.

    Raises:
        ShapeMismatch: the shapes do not fit.
        DtypeMismatch: an operand is not float32.
        ValueError: a stride or padding is out of its range, or `out` cannot be written to.

    Example:
        >>> import numpy as np
        >>> import lucid.lightning as lc
        >>> out = np.empty((1, 1, 1, 2), np.float32)
        >>> lc.conv2d_nchw_into([[[[1.0, 2.0]]]], [[[[3.0]]]], [1.0], out, device="cpu")
        >>> out.ravel()
        array([4., 7.], dtype=float32)
    """
    conv_into("conv2d_nchw_into()", x, w, b, out, (stride_h, stride_w, pad_h, pad_w), device, False)
