"""Convolution whose kernel's points are moved by offsets."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor, errors
from lucid._vision._regions import bilinear


def deform_conv2d(
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Tensor:
    """Deformable convolution, version 2 with `use_mask`, version 1 without.

    Args:
        input: (N, C, H, W).
        weight: (O, C / groups, kh, kw).
        offset: (N, 2 * offset_groups * kh * kw, OH, OW), for each point of the kernel along y, then along x.
        mask: (N, offset_groups * kh * kw, OH, OW), by which points are multiplied.
        bias: (O,).

    Returns:
        (N, O, OH, OW).

    Raises:
        RuntimeError: shapes do not fit.

    Reference:
        Deformable ConvNets v2 (Zhu et al., 2018).
    """
    if input.dim() != 4 or weight.dim() != 4 or offset.dim() != 4:
        raise errors.RuntimeError(
            f"deform_conv2d: input, weight and offset should have 4 dimensions, got {tuple(input.shape)}, "
            f"{tuple(weight.shape)} and {tuple(offset.shape)}"
        )
    n, channels, height, width = input.shape
    out, per_group, kh, kw = weight.shape
    if min(stride_h, stride_w, dilation_h, dilation_w) < 1 or min(pad_h, pad_w) < 0:
        raise errors.RuntimeError("deform_conv2d: stride and dilation should be positive, padding not negative")
    if per_group * groups != channels or out % groups:
        raise errors.RuntimeError(
            f"deform_conv2d: weight {tuple(weight.shape)} does not fit {channels} channels in {groups} groups"
        )
    oh = (height + 2 * pad_h - (dilation_h * (kh - 1) + 1)) // stride_h + 1
    ow = (width + 2 * pad_w - (dilation_w * (kw - 1) + 1)) // stride_w + 1
    points = kh * kw
    if offset_groups < 1 or channels % offset_groups:
        raise errors.RuntimeError(f"deform_conv2d: {channels} channels do not split into {offset_groups} offset groups")
    if tuple(offset.shape) != (n, 2 * offset_groups * points, oh, ow) or min(oh, ow) < 1:
        raise errors.RuntimeError(
            f"deform_conv2d: offset should have shape {(n, 2 * offset_groups * points, oh, ow)}, got "
            f"{tuple(offset.shape)}"
        )
    if use_mask and tuple(mask.shape) != (n, offset_groups * points, oh, ow):
        raise errors.RuntimeError(
            f"deform_conv2d: mask should have shape {(n, offset_groups * points, oh, ow)}, got {tuple(mask.shape)}"
        )
    g, own = offset_groups, channels // offset_groups
    like: dict[str, Any] = {"dtype": offset.dtype, "device": offset.device}
    moved = offset.reshape(n, g, kh, kw, 2, oh, ow)
    down = lucid.arange(oh, **like) * stride_h - pad_h
    right = lucid.arange(ow, **like) * stride_w - pad_w
    y = moved[:, :, :, :, 0] + (lucid.arange(kh, **like) * dilation_h).reshape(kh, 1, 1, 1) + down.reshape(oh, 1)
    x = moved[:, :, :, :, 1] + (lucid.arange(kw, **like) * dilation_w).reshape(kw, 1, 1) + right
    rows = input.reshape(n * g, own, height * width).transpose(1, 2).reshape(-1, own)
    base = (lucid.arange(n * g, device=input.device) * (height * width)).reshape(n, g, 1, 1, 1, 1)
    taken = bilinear(rows, base, y, x, height, width, border=False)
    if use_mask:
        taken = taken * mask.reshape(n, g, kh, kw, oh, ow, 1)
    columns = taken.permute(0, 1, 6, 2, 3, 4, 5).reshape(n, groups, per_group * points, oh * ow)
    kernels = weight.reshape(1, groups, out // groups, per_group * points)
    return lucid.matmul(kernels, columns).reshape(n, out, oh, ow) + bias.reshape(1, out, 1, 1)
