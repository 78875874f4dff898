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

__all__ = ["BatchNorm1d", "BatchNorm2d", "GroupNorm", "LayerNorm", "RMSNorm"]


class LayerNorm(Module):
    """`(x - mean) / sqrt(var + eps) * weight + bias` over the last dimensions.

    Args:
        normalized_shape: Sizes of those dimensions, or the last one's.
        eps: Added to the variance. Default: 1e-5.
        elementwise_affine: Whether to learn `weight` (ones at first). Default: True.
        bias: Whether to learn `bias` (zeros at first) too. Default: True.
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
        normalized_shape: Sizes of those dimensions, or the last one's.
        eps: Added to the mean square. Default: the dtype's machine epsilon.
        elementwise_affine: Whether to learn `weight` (ones at first). Default: True.
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

    def forward(self, input: Tensor) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Normalises groups of channels of (N, C, …), with a weight and a bias per channel.

    Args:
        num_groups: How many groups.
        num_channels: C, a multiple of it.
        eps: Added to the variance. Default: 1e-5.
        affine: Whether to learn `weight` (ones at first). Default: True.
        bias: Whether to learn `bias` (zeros at first) too. Default: True.
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
        if num_channels % num_groups != 0:
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


class _BatchNorm(Module):
    """Batch normalisation but for the check of the input's dimensions."""

    _version = 2
    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        self.register_parameter("weight", _blank(affine, (num_features,), device, dtype))
        self.register_parameter("bias", _blank(affine and bias, (num_features,), device, dtype))
        tracked = track_running_stats
        self.register_buffer("running_mean", lucid.zeros(num_features, device=device, dtype=dtype) if tracked else None)
        self.register_buffer("running_var", lucid.ones(num_features, device=device, dtype=dtype) if tracked else None)
        self.register_buffer(
            "num_batches_tracked", lucid.tensor(0, dtype=lucid.int64, device=device) if tracked else None
        )
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forgets the statistics seen so far."""
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Forgets the statistics, sets the weight to ones and the bias to zeros."""
        self.reset_running_stats()
        _reset(self.weight, self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                # The plain mean over all batches so far.
                momentum = 1.0 / float(self.num_batches_tracked.item())
        mean, var = self.running_mean, self.running_var
        if self.training:
            if not self.track_running_stats:
                mean = var = None
            use_batch = True
        else:
            use_batch = mean is None and var is None
        return F.batch_norm(input, mean, var, *weight_and_bias(self), use_batch, momentum, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        key = prefix + "num_batches_tracked"
        if local_metadata.get("version") in (None, 1) and self.track_running_stats and key not in state_dict:
            # State dicts before version 2 had no count.
            count = self.num_batches_tracked
            state_dict[key] = lucid.tensor(0, dtype=lucid.int64) if count is None else count
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


class BatchNorm1d(_BatchNorm):
    """Normalises each channel of (N, C) or (N, C, L).

    In training by the batch's mean and variance, which also update the running ones; after it by these.

    Args:
        num_features: C.
        eps: Added to the variance. Default: 1e-5.
        momentum: Weight of the newest batch in the running statistics; None takes the plain mean. Default: 0.1.
        affine: Whether to learn `weight` (ones at first). Default: True.
        track_running_stats: Whether to keep running statistics; else batches' are always used. Default: True.
        bias: Whether to learn `bias` (zeros at first) too. Default: True.
    """

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in (2, 3):
            raise errors.ValueError(f"expected 2D or 3D input (got {input.dim()}D input)")


class BatchNorm2d(_BatchNorm):
    """`BatchNorm1d` for (N, C, H, W)."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() != 4:
            raise errors.ValueError(f"expected 4D input (got {input.dim()}D input)")


def _blank(wanted: bool, shape: Sequence[int], device: Any, dtype: Any) -> Parameter | None:
    return Parameter(lucid.empty(tuple(shape), device=device, dtype=dtype)) if wanted else None


def _reset(weight: Parameter | None, bias: Parameter | None) -> None:
    if weight is not None:
        init.ones_(weight)
    if bias is not None:
        init.zeros_(bias)
