"""Batch norms folded into the layer before them, for evaluation."""

from __future__ import annotations

import copy
from typing import Any

import lucid
from lucid import Tensor
from lucid.nn.parameter import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


def _ready(module: Any, bn: Any) -> Any:
    if module.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    return copy.deepcopy(module)


def _fused(
    weight: Tensor,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    eps: float,
    bn_weight: Tensor | None,
    bn_bias: Tensor | None,
    transpose: bool,
) -> tuple[Parameter, Parameter]:
    with lucid.no_grad():
        bias = lucid.zeros_like(mean) if bias is None else bias
        scale = (var + eps).rsqrt() * (1.0 if bn_weight is None else bn_weight.detach())
        shift = lucid.zeros_like(mean) if bn_bias is None else bn_bias.detach()
        view = [1] * weight.dim()
        view[1 if transpose else 0] = -1
        fused = weight.detach() * scale.reshape(view).to(weight.dtype)
        moved = (bias.detach() - mean) * scale + shift
    return Parameter(fused, weight.requires_grad), Parameter(moved, bias.requires_grad or weight.requires_grad)


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """The weight and bias of a convolution that does what the convolution and the batch norm do.

    Args:
        conv_w (Tensor): the weight of the convolution, (out, in, window…).
        conv_b (Tensor, optional): its bias, (out,).
        bn_rm (Tensor): the running mean, (out,).
        bn_rv (Tensor): the running variance, (out,).
        bn_eps (float): what is added to the variance.
        bn_w (Tensor, optional): the scale, (out,).
        bn_b (Tensor, optional): the shift, (out,).
        transpose (bool, default: False): the convolution is a transposed one.

    Returns:
        tuple of Parameters: weight and bias.

    Example:
        >>> from lucid import nn
        >>> ones = lucid.ones(1)
        >>> w, b = nn.utils.fuse_conv_bn_weights(lucid.ones(1, 1, 1), None, ones, ones, 0.0, None, None)
        >>> w.item(), b.item()
        (1.0, -1.0)
    """
    return _fused(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, transpose)


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A convolution that does what `conv` and `bn`, both in evaluation mode, do.

    Args:
        conv (Module): a convolution, in evaluation mode.
        bn (Module): the batch norm after it, in evaluation mode.
        transpose (bool, default: False): the convolution is a transposed one.

    Returns:
        Module: a new convolution.

    Example:
        >>> from lucid import nn
        >>> nn.utils.fuse_conv_bn_eval(nn.Conv2d(1, 2, 3).eval(), nn.BatchNorm2d(2).eval())
        Conv2d(1, 2, kernel_size=(3, 3), stride=(1, 1))
    """
    made = _ready(conv, bn)
    made.weight, made.bias = fuse_conv_bn_weights(
        made.weight, made.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return made


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Parameter, Parameter]:
    """The weight and bias of a linear map that does what the linear map and the batch norm do.

    Args:
        linear_w (Tensor): the weight of the linear map, (out, in).
        linear_b (Tensor, optional): its bias, (out,).
        bn_rm (Tensor): the running mean, (out,).
        bn_rv (Tensor): the running variance, (out,).
        bn_eps (float): what is added to the variance.
        bn_w (Tensor, optional): the scale, (out,).
        bn_b (Tensor, optional): the shift, (out,).

    Returns:
        tuple of Parameters: weight and bias.

    Example:
        >>> from lucid import nn
        >>> ones = lucid.ones(1)
        >>> w, b = nn.utils.fuse_linear_bn_weights(lucid.ones(1, 1), None, ones, ones, 0.0, ones, ones)
        >>> w.item(), b.item()
        (1.0, 0.0)
    """
    return _fused(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, False)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A linear map that does what `linear` and `bn`, both in evaluation mode, do.

    Args:
        linear (Module): a linear layer, in evaluation mode.
        bn (Module): the batch norm after it, in evaluation mode.

    Returns:
        Module: a new linear layer.

    Raises:
        AssertionError: a module is in training mode, or the sizes do not fit.

    Example:
        >>> from lucid import nn
        >>> nn.utils.fuse_linear_bn_eval(nn.Linear(3, 2).eval(), nn.BatchNorm1d(2).eval())
        Linear(in_features=3, out_features=2, bias=True)
    """
    made = _ready(linear, bn)
    if made.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError("To fuse, linear.out_features == bn.num_features or bn.num_features == 1")
    made.weight, made.bias = fuse_linear_bn_weights(
        made.weight, made.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return made
