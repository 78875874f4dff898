"""Normalisation of single samples, channel by channel."""

from __future__ import annotations

from typing import Any

from lucid import Tensor, errors
from lucid._warnings import warn
from lucid.nn import functional as F
from lucid.nn.modules.batchnorm import _LazyNormBase, _NormBase
from lucid.nn.modules.module import weight_and_bias

__all__ = [
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
]


class _InstanceNorm(_NormBase):
    """Instance normalisation, of whichever dimensions a subclass allows, the fewer without a batch."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def _get_no_batch_dim(self) -> int:
        """How many dimensions an input without a batch has."""
        return self._dims[0]

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        unbatched = self._get_no_batch_dim()
        channels = input.shape[-unbatched]
        if channels != self.num_features and self.affine:
            raise errors.ValueError(
                f"expected input's size at dim={input.dim() - unbatched} to match num_features "
                f"({self.num_features}), but got: {channels}."
            )
        if channels != self.num_features:
            warn(
                f"input's size at dim={input.dim() - unbatched} does not match num_features, which is not used "
                "because affine=False."
            )
        alone = input.dim() == unbatched
        made = F.instance_norm(
            input.unsqueeze(0) if alone else input,
            self.running_mean,
            self.running_var,
            *weight_and_bias(self),
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )
        return made.squeeze(0) if alone else made

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
        if local_metadata.get("version") is None and not self.track_running_stats:
            kept = [prefix + name for name in ("running_mean", "running_var") if prefix + name in state_dict]
            for key in kept:
                error_msgs.append(
                    f"Unexpected running stats buffer(s) {key!r} for {type(self).__name__} with "
                    f"track_running_stats=False; they were kept by default before and are no longer."
                )
                state_dict.pop(key)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


class InstanceNorm1d(_InstanceNorm):
    """Normalises each channel of each sample of (N, C, L) or (C, L).

    Args:
        num_features (int): C.
        eps (float, default: 1e-05): Added to the variance.
        momentum (float, default: 0.1): Weight of the newest batch in the running statistics.
        affine (bool, default: False): Whether to learn `weight` (ones at first) and `bias` (zeros).
        track_running_stats (bool, default: False): Whether to keep running statistics, used in evaluation.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        bias (bool, default: True): learns an additive bias.

    Example:
        >>> from lucid import nn
        >>> nn.InstanceNorm1d(1)(lucid.tensor([[[1.0, 3.0]]]))
        tensor([[[-1.0000,  1.0000]]])
    """

    _dims = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """`InstanceNorm1d` for (N, C, H, W) or (C, H, W).

    Args:
        num_features (int): the number C of channels.
        eps (float, default: 1e-05): what is added to the variance, for numerical stability.
        momentum (float, default: 0.1): the weight of the newest batch in the running statistics; None is the
            cumulative mean.
        affine (bool, default: False): learns a scale (ones at first) and a shift (zeros at first) for each
            channel.
        track_running_stats (bool, default: False): keeps running statistics, which are used in evaluation mode.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        bias (bool, default: True): learns a shift for each channel.

    Example:
        >>> from lucid import nn
        >>> nn.InstanceNorm2d(3)(lucid.randn(2, 3, 4, 4)).shape
        lucid.Size([2, 3, 4, 4])
    """

    _dims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """`InstanceNorm1d` for (N, C, D, H, W) or (C, D, H, W).

    Args:
        num_features (int): the number C of channels.
        eps (float, default: 1e-05): what is added to the variance, for numerical stability.
        momentum (float, default: 0.1): the weight of the newest batch in the running statistics; None is the
            cumulative mean.
        affine (bool, default: False): learns a scale (ones at first) and a shift (zeros at first) for each
            channel.
        track_running_stats (bool, default: False): keeps running statistics, which are used in evaluation mode.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        bias (bool, default: True): learns a shift for each channel.

    Example:
        >>> from lucid import nn
        >>> nn.InstanceNorm3d(3)(lucid.randn(2, 3, 4, 4, 4)).shape
        lucid.Size([2, 3, 4, 4, 4])
    """

    _dims = (4, 5)


class LazyInstanceNorm1d(_LazyNormBase, _InstanceNorm, become=InstanceNorm1d):
    """`InstanceNorm1d` whose `num_features` are the first input's channels.

    Args:
        eps (float, default: 1e-05): what is added to the variance, for numerical stability.
        momentum (float, default: 0.1): the weight of the newest batch in the running statistics; None is the
            cumulative mean.
        affine (bool, default: True): learns a scale (ones at first) and a shift (zeros at first) for each channel.
        track_running_stats (bool, default: True): keeps running statistics, which are used in evaluation mode.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        bias (bool, default: True): learns a shift for each channel.

    Example:
        >>> from lucid import nn
        >>> nn.LazyInstanceNorm1d()(lucid.randn(2, 3, 4)).shape
        lucid.Size([2, 3, 4])
    """

    _dims = InstanceNorm1d._dims


class LazyInstanceNorm2d(_LazyNormBase, _InstanceNorm, become=InstanceNorm2d):
    """`InstanceNorm2d` whose `num_features` are the first input's channels.

    Args:
        eps (float, default: 1e-05): what is added to the variance, for numerical stability.
        momentum (float, default: 0.1): the weight of the newest batch in the running statistics; None is the
            cumulative mean.
        affine (bool, default: True): learns a scale (ones at first) and a shift (zeros at first) for each channel.
        track_running_stats (bool, default: True): keeps running statistics, which are used in evaluation mode.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        bias (bool, default: True): learns a shift for each channel.

    Example:
        >>> from lucid import nn
        >>> nn.LazyInstanceNorm2d()(lucid.randn(2, 3, 4, 4)).shape
        lucid.Size([2, 3, 4, 4])
    """

    _dims = InstanceNorm2d._dims


class LazyInstanceNorm3d(_LazyNormBase, _InstanceNorm, become=InstanceNorm3d):
    """`InstanceNorm3d` whose `num_features` are the first input's channels.

    Args:
        eps (float, default: 1e-05): what is added to the variance, for numerical stability.
        momentum (float, default: 0.1): the weight of the newest batch in the running statistics; None is the
            cumulative mean.
        affine (bool, default: True): learns a scale (ones at first) and a shift (zeros at first) for each channel.
        track_running_stats (bool, default: True): keeps running statistics, which are used in evaluation mode.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        bias (bool, default: True): learns a shift for each channel.

    Example:
        >>> from lucid import nn
        >>> nn.LazyInstanceNorm3d()(lucid.randn(2, 3, 4, 4, 4)).shape
        lucid.Size([2, 3, 4, 4, 4])
    """

    _dims = InstanceNorm3d._dims
