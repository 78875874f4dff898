"""Normalisation by the statistics of batches, channel by channel, and what it shares with that of instances."""

from __future__ import annotations

from typing import Any, ClassVar

import lucid
from lucid import Tensor, errors
from lucid.nn import functional as F
from lucid.nn.modules.lazy import LazyModuleMixin, blank_buffer, blank_parameter
from lucid.nn.modules.module import Module, weight_and_bias
from lucid.nn.modules.normalization import _blank, _reset
from lucid.nn.parameter import Parameter

__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "SyncBatchNorm",
]


class _NormBase(Module):
    """What norms of batches and of instances share: parameters, running statistics, state.

    `_dims` are the numbers of dimensions that inputs may have.
    """

    _version = 2
    _dims: ClassVar[tuple[int, ...]] = ()
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
        if not self._dims:
            raise NotImplementedError
        if input.dim() not in self._dims:
            allowed = " or ".join(f"{n}D" for n in self._dims)
            raise errors.ValueError(f"expected {allowed} input (got {input.dim()}D input)")

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


class _BatchNorm(_NormBase):
    """Batch normalisation, of whichever dimensions a subclass allows."""

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


class BatchNorm1d(_BatchNorm):
    """Normalises each channel of (N, C) or (N, C, L).

    In training by the batch's mean and variance, which also update the running ones; after it by these.

    Args:
        num_features (int): C.
        eps (float, default: 1e-05): Added to the variance.
        momentum (float, default: 0.1): Weight of the newest batch in the running statistics; None takes the plain
            mean.
        affine (bool, default: True): Whether to learn `weight` (ones at first).
        track_running_stats (bool, default: True): Whether to keep running statistics; else batches' are always
            used.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        bias (bool, default: True): Whether to learn `bias` (zeros at first) too.

    Example:
        >>> from lucid import nn
        >>> nn.BatchNorm1d(1)(lucid.tensor([[1.0], [3.0]])).detach()
        tensor([[-1.0000],
                [ 1.0000]])
    """

    _dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """`BatchNorm1d` for (N, C, H, W).

    Args:
        num_features (int): the number C of channels.
        eps (float, default: 1e-05): what is added to the variance, for numerical stability.
        momentum (float, default: 0.1): the weight of the newest batch in the running statistics; None is the
            cumulative mean.
        affine (bool, default: True): learns a scale (ones at first) and a shift (zeros at first) for each channel.
        track_running_stats (bool, default: True): keeps running statistics, which are used in evaluation mode.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        bias (bool, default: True): learns an additive bias.

    Example:
        >>> from lucid import nn
        >>> nn.BatchNorm2d(3)(lucid.randn(2, 3, 4, 4)).shape
        lucid.Size([2, 3, 4, 4])
    """

    _dims = (4,)


class BatchNorm3d(_BatchNorm):
    """`BatchNorm1d` for (N, C, D, H, W).

    Args:
        num_features (int): the number C of channels.
        eps (float, default: 1e-05): what is added to the variance, for numerical stability.
        momentum (float, default: 0.1): the weight of the newest batch in the running statistics; None is the
            cumulative mean.
        affine (bool, default: True): learns a scale (ones at first) and a shift (zeros at first) for each channel.
        track_running_stats (bool, default: True): keeps running statistics, which are used in evaluation mode.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        bias (bool, default: True): learns an additive bias.

    Example:
        >>> from lucid import nn
        >>> nn.BatchNorm3d(3)(lucid.randn(2, 3, 4, 4, 4)).shape
        lucid.Size([2, 3, 4, 4, 4])
    """

    _dims = (5,)


class SyncBatchNorm(_BatchNorm):
    """`BatchNorm1d` for any number of dimensions, by the statistics of the batches of all processes of a group.

    In training, where `lucid.distributed` is initialised and the group has several members, mean and variance are those
    of all members' inputs, which may be of different lengths; their gradients are summed over the members too.
    Otherwise it is `BatchNorm1d`.

    `process_group`: the group; all processes where it is None. The other arguments are `BatchNorm1d`'s.

    Args:
        num_features (int): the number C of channels.
        eps (float, default: 1e-05): what is added to the variance, for numerical stability.
        momentum (float, default: 0.1): the weight of the newest batch in the running statistics; None is the
            cumulative mean.
        affine (bool, default: True): learns a scale (ones at first) and a shift (zeros at first) for each channel.
        track_running_stats (bool, default: True): keeps running statistics, which are used in evaluation mode.
        process_group (ProcessGroup, optional): the processes whose batches are counted; all by default.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        bias (bool, default: True): learns an additive bias.

    Example:
        >>> from lucid import nn
        >>> nn.SyncBatchNorm(3)(lucid.randn(2, 3, 4)).shape
        lucid.Size([2, 3, 4])
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise errors.ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        from lucid import distributed as dist

        batch = self.training or (self.running_mean is None and self.running_var is None)
        if not (batch and self.training and dist.is_initialized() and dist.get_world_size(self.process_group) > 1):
            return super().forward(input)
        self._check_input_dim(input)
        from lucid.distributed.nn.functional import all_reduce

        dims = [d for d in range(input.dim()) if d != 1]
        # Float32 sums, of the inputs and then of the squares about their mean.
        x = input if input.dtype in (lucid.float32, lucid.float64) else input.float()
        shape = [1, -1] + [1] * (input.dim() - 2)
        own = x.new_full((1,), float(input.numel() // input.shape[1]))
        sums = all_reduce(lucid.cat([x.sum(dims), own]), group=self.process_group)
        count = sums[-1]
        mean = sums[:-1] / count
        centred = x - mean.view(shape)
        var = all_reduce((centred * centred).sum(dims), group=self.process_group) / count
        out = centred * lucid.rsqrt(var + self.eps).view(shape)
        weight, bias = weight_and_bias(self)
        if weight is not None:
            out = out * weight.view(shape)
        if bias is not None:
            out = out + bias.view(shape)
        if self.track_running_stats and self.num_batches_tracked is not None:
            assert self.running_mean is not None and self.running_var is not None
            with lucid.no_grad():
                self.num_batches_tracked.add_(1)
                plain = 1.0 / float(self.num_batches_tracked.item()) if self.momentum is None else self.momentum
                n = float(count.item())
                self.running_mean.lerp_(mean.detach().to(self.running_mean.dtype), plain)
                self.running_var.lerp_((var.detach() * (n / max(n - 1.0, 1.0))).to(self.running_var.dtype), plain)
        return out.to(input.dtype)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """The module with every batch norm in it made one of this class."""
        made: Module = module
        if isinstance(module, _BatchNorm):
            made = cls(
                module.num_features,
                module.eps,
                module.momentum,
                module.affine,
                module.track_running_stats,
                process_group,
            )
            made._parameters, made._buffers, made.training = module._parameters, module._buffers, module.training
        for name, child in module.named_children():
            made.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return made


class _LazyNormBase(LazyModuleMixin, _NormBase):
    """A norm whose `num_features` are the first input's channels."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False, device, dtype)
        this: Any = self
        this.affine, this.track_running_stats = affine, track_running_stats
        if affine:
            this.weight = blank_parameter(device, dtype)
            if bias:
                this.bias = blank_parameter(device, dtype)
        if track_running_stats:
            this.register_buffer("running_mean", blank_buffer(device, dtype))
            this.register_buffer("running_var", blank_buffer(device, dtype))
            this.register_buffer("num_batches_tracked", lucid.tensor(0, dtype=lucid.int64, device=device))

    def reset_parameters(self) -> None:
        this: Any = self
        if not self.has_uninitialized_params() and this.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Takes `num_features` from the input, and sets the parameters to their first values."""
        this: Any = self
        if not self.has_uninitialized_params():
            this.num_features = this.num_features or input.shape[1]
            return
        this.num_features = input.shape[1]
        with lucid.no_grad():
            for tensor in (this.weight, this.bias, this.running_mean, this.running_var):
                if tensor is not None:
                    tensor.materialize((this.num_features,))
            self.reset_parameters()


class LazyBatchNorm1d(_LazyNormBase, _BatchNorm, become=BatchNorm1d):
    """`BatchNorm1d` whose `num_features` are the first input's channels.

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
        >>> nn.LazyBatchNorm1d()(lucid.randn(2, 3)).shape
        lucid.Size([2, 3])
    """

    _dims = BatchNorm1d._dims


class LazyBatchNorm2d(_LazyNormBase, _BatchNorm, become=BatchNorm2d):
    """`BatchNorm2d` whose `num_features` are the first input's channels.

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
        >>> nn.LazyBatchNorm2d()(lucid.randn(2, 3, 4, 4)).shape
        lucid.Size([2, 3, 4, 4])
    """

    _dims = BatchNorm2d._dims


class LazyBatchNorm3d(_LazyNormBase, _BatchNorm, become=BatchNorm3d):
    """`BatchNorm3d` whose `num_features` are the first input's channels.

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
        >>> nn.LazyBatchNorm3d()(lucid.randn(2, 3, 4, 4, 4)).shape
        lucid.Size([2, 3, 4, 4, 4])
    """

    _dims = BatchNorm3d._dims
