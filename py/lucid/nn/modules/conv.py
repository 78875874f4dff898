"""Convolutions over (N, C, space…) or (C, space…)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import lucid
from lucid import _C, Tensor, errors
from lucid._docs import share_arguments
from lucid.nn import functional as F
from lucid.nn import init
from lucid.nn.modules.lazy import LazyModuleMixin, blank_parameter
from lucid.nn.modules.module import Module, weight_and_bias
from lucid.nn.modules.utils import _ntuple
from lucid.nn.parameter import Parameter

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
]

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """What all convolutions share: arguments, parameters, repr. Sizes are tuples, one number per dimension."""

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, ...],
        stride: tuple[int, ...],
        padding: str | tuple[int, ...],
        dilation: tuple[int, ...],
        transposed: bool,
        output_padding: tuple[int, ...],
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if groups <= 0:
            raise errors.ValueError(f"groups must be a positive integer, got {groups}")
        if in_channels % groups != 0:
            raise errors.ValueError(f"in_channels must be divisible by groups, got {in_channels} and {groups}")
        if out_channels % groups != 0:
            raise errors.ValueError(f"out_channels must be divisible by groups, got {out_channels} and {groups}")
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise errors.ValueError(f"Invalid padding string {padding!r}, should be one of 'valid', 'same'")
        if padding_mode not in _PADDING_MODES:
            raise errors.ValueError(
                f"padding_mode must be one of {{{', '.join(map(repr, _PADDING_MODES))}}}, "
                f"but got padding_mode='{padding_mode}'"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        if padding == "same" and any(step != 1 for step in self.stride):
            raise errors.ValueError(f"padding='same' is not supported for strided convolutions, got {stride}")
        self.transposed = transposed
        self.output_padding = output_padding
        self.groups = groups
        self.padding_mode = padding_mode
        # What `pad` takes for this padding, where it is not with zeros: low and high per dimension, the last first.
        self._reversed_padding_repeated_twice = F._around(padding, kernel_size, dilation)
        shape = (in_channels, out_channels // groups) if transposed else (out_channels, in_channels // groups)
        self.weight = Parameter(lucid.empty((*shape, *self.kernel_size), device=device, dtype=dtype))
        self.register_parameter(
            "bias", Parameter(lucid.empty(out_channels, device=device, dtype=dtype)) if bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new parameters: uniform within ±1/sqrt(inputs that a weight sums over)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        n = len(self.kernel_size)
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0,) * n:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * n:
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * n:
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


class _Conv(_ConvNd):
    """A convolution that is not transposed."""

    _spatial: ClassVar[int]
    _function: Callable[..., Tensor]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        sizes = _ntuple(self._spatial)
        super().__init__(
            in_channels,
            out_channels,
            sizes(kernel_size),
            sizes(stride),
            padding if isinstance(padding, str) else sizes(padding),
            sizes(dilation),
            False,
            sizes(0),
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, *weight_and_bias(self))

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution with these parameters; a subclass may give it others than its own."""
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        elif isinstance(padding, str):
            input, padding = F._string_padding(input, weight, padding, self.stride, self.dilation, self._spatial)
        return self._function(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(_Conv):
    """1-D convolution: (N, C_in, L) or (C_in, L) to (N, C_out, L') or (C_out, L').

    `weight` (out_channels, in_channels / groups, window) and `bias` (out_channels) start uniform within
    ±1/sqrt(in_channels / groups · window).

    Args:
        in_channels (int): Channels of the input.
        out_channels (int): Channels of the output.
        kernel_size (int or tuple of ints): Window size.
        stride (int or tuple of ints, default: 1): Step between windows.
        padding (int or tuple of ints, default: 0): Elements added at both ends, or "same" or "valid".
        dilation (int or tuple of ints, default: 1): Step between a window's elements.
        groups (int, default: 1): Groups of channels that do not see each other.
        bias (bool, default: True): Whether to add a learned bias.
        padding_mode (str, default: "zeros"): "zeros", "reflect", "replicate" or "circular".
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Example:
        >>> from lucid import nn
        >>> nn.Conv1d(2, 4, 3)(lucid.zeros(1, 2, 8)).shape
        lucid.Size([1, 4, 6])
    """

    _spatial = 1
    _function = staticmethod(_C.conv1d)


class Conv2d(_Conv):
    """2-D convolution: (N, C_in, H, W) or (C_in, H, W) to (N, C_out, H', W') or (C_out, H', W').

    Arguments and parameters as in `Conv1d`; sizes are a number or one per dimension.

    Example:
        >>> from lucid import nn
        >>> nn.Conv2d(1, 6, 5, padding=2)(lucid.zeros(1, 1, 28, 28)).shape
        lucid.Size([1, 6, 28, 28])
    """

    _spatial = 2
    _function = staticmethod(_C.conv2d)


class Conv3d(_Conv):
    """3-D convolution: (N, C_in, D, H, W) or (C_in, D, H, W) to (N, C_out, D', H', W') or (C_out, D', H', W').

    Arguments and parameters as in `Conv1d`; sizes are a number or one per dimension.

    Example:
        >>> from lucid import nn
        >>> nn.Conv3d(1, 2, 3)(lucid.zeros(1, 1, 4, 4, 4)).shape
        lucid.Size([1, 2, 2, 2, 2])
    """

    _spatial = 3
    _function = staticmethod(_C.conv3d)


class _ConvTransposeNd(_ConvNd):
    """A transposed convolution."""

    _spatial: ClassVar[int]
    _function: Callable[..., Tensor]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise errors.ValueError(
                f'Only "zeros" padding mode is supported for {type(self).__name__}, got "{padding_mode}"'
            )
        sizes = _ntuple(self._spatial)
        super().__init__(
            in_channels,
            out_channels,
            sizes(kernel_size),
            sizes(stride),
            padding if isinstance(padding, str) else sizes(padding),
            sizes(dilation),
            True,
            sizes(output_padding),
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        extra = self.output_padding if output_size is None else self._output_padding(input, list(output_size))
        weight, bias = weight_and_bias(self)
        padding: Any = self.padding
        return self._function(input, weight, bias, self.stride, padding, extra, self.groups, self.dilation)

    def _output_padding(self, input: Tensor, size: list[int]) -> tuple[int, ...]:
        """What must be added to the smallest output to give one of `size`."""
        n = self._spatial
        if len(size) == n + 2 or (len(size) == n + 1 and input.dim() == n + 1):
            size = size[-n:]
        if len(size) != n:
            raise errors.ValueError(
                f"ConvTranspose{n}D: for {input.dim()}D input, output_size must have {n} or {n + 2} elements"
            )
        extra = []
        for i, wanted in enumerate(size):
            least = (
                (input.shape[i - n] - 1) * self.stride[i]
                - 2 * int(self.padding[i])
                + self.dilation[i] * (self.kernel_size[i] - 1)
                + 1
            )
            if not least <= wanted < least + max(self.stride[i], self.dilation[i]):
                raise errors.ValueError(
                    f"requested an output size of {size}, but valid sizes start at {least} in dimension {i}"
                )
            extra.append(wanted - least)
        return tuple(extra)


class ConvTranspose1d(_ConvTransposeNd):
    """1-D transposed convolution, the gradient of `Conv1d` towards its input: (N, C_in, L) to (N, C_out, L').

    L' = (L - 1) · stride - 2 · padding + dilation · (window - 1) + output_padding + 1. `weight` is
    (in_channels, out_channels / groups, window).

    Args:
        in_channels (int): the number of channels of the input.
        out_channels (int): the number of channels of the output.
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        stride (int or tuple of ints, default: 1): the distance of neighbouring windows, a number or one for each
            spatial dimension.
        padding (int or tuple of ints, default: 0): what is added on both sides of each spatial dimension.
        output_padding (int or tuple of ints, default: 0): what is added to the size of the result on one side,
            less than `stride` or `dilation`.
        groups (int, default: 1): the channels are split into this many groups that do not see each other; divides
            both numbers of channels.
        bias (bool, default: True): learns an additive bias.
        dilation (int or tuple of ints, default: 1): the distance of neighbouring elements of a window.
        padding_mode (str, default: "zeros"): "zeros", "reflect", "replicate" or "circular".
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Example:
        >>> from lucid import nn
        >>> nn.ConvTranspose1d(2, 4, 3, stride=2)(lucid.zeros(1, 2, 8)).shape
        lucid.Size([1, 4, 17])
    """

    _spatial = 1
    _function = staticmethod(_C.conv_transpose1d)


class ConvTranspose2d(_ConvTransposeNd):
    """2-D transposed convolution, the gradient of `Conv2d` towards its input: (N, C_in, H, W) to (N, C_out, H', W').

    Sizes as in `ConvTranspose1d`, for each dimension.

    Example:
        >>> from lucid import nn
        >>> nn.ConvTranspose2d(2, 4, 3, stride=2)(lucid.zeros(1, 2, 8, 8)).shape
        lucid.Size([1, 4, 17, 17])
    """

    _spatial = 2
    _function = staticmethod(_C.conv_transpose2d)


class ConvTranspose3d(_ConvTransposeNd):
    """3-D transposed convolution: (N, C_in, D, H, W) to (N, C_out, D', H', W'). Sizes as in `ConvTranspose1d`.

    Example:
        >>> from lucid import nn
        >>> nn.ConvTranspose3d(2, 4, 3)(lucid.zeros(1, 2, 4, 4, 4)).shape
        lucid.Size([1, 4, 6, 6, 6])
    """

    _spatial = 3
    _function = staticmethod(_C.conv_transpose3d)


class _LazyConvXdMixin(LazyModuleMixin):
    """A convolution whose `in_channels` are the first input's."""

    def _blank(self, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        this: Any = self
        this.out_channels = out_channels
        this.weight = blank_parameter(device, dtype)
        if bias:
            this.bias = blank_parameter(device, dtype)

    def reset_parameters(self) -> None:
        this: Any = self
        if not self.has_uninitialized_params() and this.in_channels != 0:
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Takes `in_channels` from the input, and draws parameters."""
        this: Any = self
        if not self.has_uninitialized_params():
            return
        n = this._spatial
        if input.dim() not in (n + 1, n + 2):
            raise errors.RuntimeError(
                f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input to {type(self).__name__}, "
                f"but got input of size: {tuple(input.shape)}"
            )
        this.in_channels = input.shape[-n - 1]
        if this.in_channels % this.groups != 0:
            raise errors.ValueError(
                f"in_channels must be divisible by groups, got {this.in_channels} and {this.groups}"
            )
        shape = (this.out_channels, this.in_channels // this.groups)
        if this.transposed:
            shape = (this.in_channels, this.out_channels // this.groups)
        with lucid.no_grad():
            this.weight.materialize((*shape, *this.kernel_size))
            if this.bias is not None:
                this.bias.materialize((this.out_channels,))
            self.reset_parameters()


class _LazyPlain(_LazyConvXdMixin):
    """A convolution that is not transposed."""

    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode, device, dtype)
        self._blank(out_channels, bias, device, dtype)


class _LazyTransposed(_LazyConvXdMixin):
    """A transposed convolution."""

    def __init__(
        self,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode, device, dtype
        )
        self._blank(out_channels, bias, device, dtype)


class LazyConv1d(_LazyPlain, Conv1d, become=Conv1d):
    """`Conv1d` whose `in_channels` are the first input's.

    Example:
        >>> from lucid import nn
        >>> nn.LazyConv1d(4, 3)(lucid.zeros(1, 2, 8)).shape
        lucid.Size([1, 4, 6])
    """


class LazyConv2d(_LazyPlain, Conv2d, become=Conv2d):
    """`Conv2d` whose `in_channels` are the first input's.

    Example:
        >>> from lucid import nn
        >>> nn.LazyConv2d(4, 3)(lucid.zeros(1, 2, 8, 8)).shape
        lucid.Size([1, 4, 6, 6])
    """


class LazyConv3d(_LazyPlain, Conv3d, become=Conv3d):
    """`Conv3d` whose `in_channels` are the first input's.

    Example:
        >>> from lucid import nn
        >>> nn.LazyConv3d(4, 3)(lucid.zeros(1, 2, 4, 4, 4)).shape
        lucid.Size([1, 4, 2, 2, 2])
    """


class LazyConvTranspose1d(_LazyTransposed, ConvTranspose1d, become=ConvTranspose1d):
    """`ConvTranspose1d` whose `in_channels` are the first input's.

    Example:
        >>> from lucid import nn
        >>> nn.LazyConvTranspose1d(4, 3)(lucid.zeros(1, 2, 8)).shape
        lucid.Size([1, 4, 10])
    """


class LazyConvTranspose2d(_LazyTransposed, ConvTranspose2d, become=ConvTranspose2d):
    """`ConvTranspose2d` whose `in_channels` are the first input's.

    Example:
        >>> from lucid import nn
        >>> nn.LazyConvTranspose2d(4, 3)(lucid.zeros(1, 2, 8, 8)).shape
        lucid.Size([1, 4, 10, 10])
    """


class LazyConvTranspose3d(_LazyTransposed, ConvTranspose3d, become=ConvTranspose3d):
    """`ConvTranspose3d` whose `in_channels` are the first input's.

    Example:
        >>> from lucid import nn
        >>> nn.LazyConvTranspose3d(4, 3)(lucid.zeros(1, 2, 4, 4, 4)).shape
        lucid.Size([1, 4, 6, 6, 6])
    """


# Layers of two and three dimensions have the arguments of those of one; lazy ones all but the first.
for _name in __all__:
    _like: type = ConvTranspose1d if "Transpose" in _name else Conv1d
    if globals()[_name] is not _like:
        share_arguments(globals()[_name], _like, *(["in_channels"] if _name.startswith("Lazy") else []))
