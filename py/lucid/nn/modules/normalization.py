"""Normalisation over features, groups of channels, or the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.nn import functional as F
from lucid.nn import init
from lucid.nn.modules.module import Module, weight_and_bias
from lucid.nn.parameter import Parameter

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


class LayerNorm(Module):
    """`(x - mean) / sqrt(var + eps) * weight + bias` over the last dimensions.

    Args:
        normalized_shape (int | Sequence[int]): Sizes of those dimensions, or the last one's.
        eps (float, default: 1e-05): Added to the variance.
        elementwise_affine (bool, default: True): Whether to learn `weight` (ones at first).
        bias (bool, default: True): Whether to learn `bias` (zeros at first) too.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Example:
        >>> from lucid import nn
        >>> nn.LayerNorm(2)(lucid.tensor([[1.0, 3.0]])).detach()
        tensor([[-1.0000,  1.0000]])
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.register_parameter("weight", _blank(elementwise_affine, self.normalized_shape, device, dtype))
        self.register_parameter("bias", _blank(elementwise_affine and bias, self.normalized_shape, device, dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the weight to ones and the bias to zeros."""
        _reset(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, *weight_and_bias(self), self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """`x / sqrt(mean(x²) + eps) * weight` over the last dimensions.

    Args:
        normalized_shape (int | Sequence[int]): Sizes of those dimensions, or the last one's.
        eps (float, optional): Added to the mean square.
        elementwise_affine (bool, default: True): Whether to learn `weight` (ones at first).
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Example:
        >>> from lucid import nn
        >>> nn.RMSNorm(2)(lucid.tensor([[3.0, 4.0]])).detach()
        tensor([[0.8485, 1.1314]])
    """

    weight: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.register_parameter("weight", _blank(elementwise_affine, self.normalized_shape, device, dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the weight to ones."""
        _reset(self.weight, None)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Normalises groups of channels of (N, C, …), with a weight and a bias per channel.

    Args:
        num_groups (int): How many groups.
        num_channels (int): C, a multiple of it.
        eps (float, default: 1e-05): Added to the variance.
        affine (bool, default: True): Whether to learn `weight` (ones at first).
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        bias (bool, default: True): Whether to learn `bias` (zeros at first) too.

    Raises:
        ValueError: `num_groups` does not divide `num_channels`.

    Example:
        >>> from lucid import nn
        >>> nn.GroupNorm(2, 4)(lucid.randn(1, 4, 3)).shape
        lucid.Size([1, 4, 3])
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups != 0:
            raise errors.ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self.register_parameter("weight", _blank(affine, (num_channels,), device, dtype))
        self.register_parameter("bias", _blank(affine and bias, (num_channels,), device, dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the weight to ones and the bias to zeros."""
        _reset(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, *weight_and_bias(self), self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class LocalResponseNorm(Module):
    """Divides each element by a power of the mean square over neighbouring channels: `x / (k + alpha · mean)^beta`.

    Args:
        size (int): Over how many channels.
        alpha (float, default: 0.0001): the factor of the mean square.
        beta (float, default: 0.75): the exponent.
        k (float, default: 1.0): the additive constant.

    Example:
        >>> from lucid import nn
        >>> nn.LocalResponseNorm(3)(lucid.ones(1, 3, 2)).shape
        lucid.Size([1, 3, 2])
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(Module):
    """`x / (k + alpha / size · Σ x²)^beta` over the channels around each of (N, C, H, W), as PyTorch computes it.

    That is not quite `LocalResponseNorm`: an even `size` looks at one channel less, the first channel counts for all
    after it. Difference from PyTorch: the gradient is that of this value, where PyTorch's leaves the first
    channel's part out.

    Args:
        size (int): the number of neighbouring channels.
        alpha (float, default: 0.0001): the factor of the mean square.
        beta (float, default: 0.75): the exponent.
        k (float, default: 1): the additive constant.

    Example:
        >>> from lucid import nn
        >>> nn.CrossMapLRN2d(3)(lucid.ones(1, 3, 2, 2)).shape
        lucid.Size([1, 3, 2, 2])
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() != 4:
            raise errors.ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.dim()}D instead.")
        around, channels = (self.size - 1) // 2, input.shape[1]
        squares = input.square()
        padded = F.pad(squares, (0, 0, 0, 0, around, around))
        total = padded.narrow(1, 0, channels)
        for i in range(1, 2 * around + 1):
            total = total + padded.narrow(1, i, channels)
        if around + 1 < channels:
            first = squares[:, :1].expand([-1, channels - around - 1, -1, -1])
            total = total + F.pad(first, (0, 0, 0, 0, around + 1, 0))
        return input / (self.k + self.alpha / self.size * total).pow(self.beta)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


def _blank(wanted: bool, shape: Sequence[int], device: Any, dtype: Any) -> Parameter | None:
    return Parameter(lucid.empty(tuple(shape), device=device, dtype=dtype)) if wanted else None


def _reset(weight: Parameter | None, bias: Parameter | None) -> None:
    if weight is not None:
        init.ones_(weight)
    if bias is not None:
        init.zeros_(bias)
