"""Pooling over regions of interest: `roi_align`, `roi_pool` and their position-sensitive kin.

Elements are taken as rows of all channels, in blocks of regions, so that what is held at once is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import lucid
from lucid import Tensor, errors

# The most elements that a block of regions reads at once.
_LIMIT = 1 << 24


def _check(op: str, input: Tensor, rois: Tensor, height: int, width: int, sensitive: bool = False) -> None:
    if input.dim() != 4:
        raise errors.RuntimeError(f"{op}: input should have shape (N, C, H, W), got {tuple(input.shape)}")
    if rois.dim() != 2 or rois.size(1) != 5:
        raise errors.RuntimeError(f"{op}: rois must have shape as Tensor[K, 5], got {tuple(rois.shape)}")
    if input.dtype != rois.dtype:
        raise errors.RuntimeError(
            f"{op}: expected input to have the same type as rois; but {input.dtype} does not equal {rois.dtype}"
        )
    if height < 1 or width < 1:
        raise errors.RuntimeError(f"{op}: the pooled size should be positive, got {height} x {width}")
    if sensitive and input.size(1) % (height * width):
        raise errors.RuntimeError(
            f"{op}: input channels must be a multiple of pooling height * pooling width, got {input.size(1)} and "
            f"{height} * {width}"
        )
    if rois.size(0):
        images = rois[:, 0]
        if not bool(((images >= 0) & (images < input.size(0))).all()):
            raise errors.RuntimeError(f"{op}: the first column of rois names an image outside of 0 to {input.size(0)}")


def _blocks(rois: Tensor, samples: int, one: Callable[[Tensor], Any]) -> list[Any]:
    """What `one` makes of the regions, block by block."""
    size = max(_LIMIT // max(samples, 1), 1)
    return [one(block) for block in rois.split(size)] if rois.size(0) else [one(rois)]


def rows_of(input: Tensor) -> Tensor:
    """(N, C, H, W) as (N * H * W, C)."""
    return input.permute(0, 2, 3, 1).reshape(-1, input.size(1))


def bilinear(rows: Tensor, base: Tensor, y: Tensor, x: Tensor, height: int, width: int, border: bool) -> Tensor:
    """Elements between the grid's points, of rows of channels.

    Args:
        rows: (… * height * width, C).
        base: the row of the first element of each point's image; broadcasts with `y` and `x`.
        y, x: where; they broadcast with one another.
        border: outside by less than one the border's elements are taken; else zeros.

    Returns:
        The shape of `y` and `x`, and C.
    """
    inside = (y > -1) & (y < height) & (x > -1) & (x < width)
    if border:
        inside = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
        y, x = y.clamp(min=0), x.clamp(min=0)
    y0, x0 = y.detach().floor(), x.detach().floor()
    if border:
        # At the last row and column both neighbours are the border itself.
        y0, x0 = y0.clamp(max=height - 1), x0.clamp(max=width - 1)
        y = lucid.where(y0 >= height - 1, y0, y)
        x = lucid.where(x0 >= width - 1, x0, x)
    below, beside = y - y0, x - x0
    result: Any = 0
    for up, by_row in enumerate((1 - below, below)):
        for right, by_column in enumerate((1 - beside, beside)):
            row, column = y0 + up, x0 + right
            there = inside & (row >= 0) & (row < height) & (column >= 0) & (column < width)
            weight = by_row * by_column
            index = base + row.clamp(0, height - 1).long() * width + column.clamp(0, width - 1).long()
            taken = rows.index_select(0, index.reshape(-1)).reshape(*index.shape, rows.size(1))
            result = result + lucid.where(there, weight, 0).unsqueeze(-1) * taken
    return result  # type: ignore[no-any-return]


def roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """The mean over each bin of each region of elements that are interpolated between the grid's points.

    Args:
        input: (N, C, H, W).
        rois: regions (K, 5) as image, x1, y1, x2, y2.
        spatial_scale: by which the regions' coordinates are multiplied.
        pooled_height, pooled_width: bins.
        sampling_ratio: points a bin along each dimension; `ceil(size / bins)` where it is not positive.
        aligned: whether the coordinates are shifted by half a point, and regions may be smaller than one.

    Returns:
        (K, C, pooled_height, pooled_width).

    Reference:
        Mask R-CNN (He et al., 2017).
    """
    _check("roi_align", input, rois, pooled_height, pooled_width)
    _, channels, height, width = input.shape
    dtype = input.dtype
    low = dtype in (lucid.float16, lucid.bfloat16)
    rows = rows_of(input.float() if low else input)
    rois = rois.float() if low else rois
    size = rois[:, 3:] - rois[:, 1:3]
    points = [sampling_ratio, sampling_ratio]
    if sampling_ratio <= 0:
        points = [1, 1]
        if rois.size(0):
            whole = size * spatial_scale if aligned else (size * spatial_scale).clamp(min=1)
            most = whole.amax(0).tolist()
            if not all(math.isfinite(v) for v in most):
                raise errors.RuntimeError("roi_align: a region's size is not finite")
            points = [max(math.ceil(most[0] / pooled_width), 1), max(math.ceil(most[1] / pooled_height), 1)]

    def along(block: Tensor, axis: int, bins: int) -> tuple[Tensor, Tensor, Tensor]:
        """The points (K, bins, points), which of them count (K, 1, points), and how many do (K)."""
        start = block[:, 1 + axis] * spatial_scale - (0.5 if aligned else 0.0)
        extent = block[:, 3 + axis] * spatial_scale - (0.5 if aligned else 0.0) - start
        if not aligned:
            extent = extent.clamp(min=1)
        step = extent / bins
        most = points[axis]
        count = step.ceil() if sampling_ratio <= 0 else lucid.full_like(step, sampling_ratio)
        place = lucid.arange(most, device=block.device, dtype=block.dtype)
        bin_ = lucid.arange(bins, device=block.device, dtype=block.dtype)
        inner = (place + 0.5)[None, None, :] * (step / count.clamp(min=1))[:, None, None]
        at = start[:, None, None] + bin_[None, :, None] * step[:, None, None] + inner
        return at, (place[None, :] < count[:, None])[:, None, :], count

    def one(block: Tensor) -> Tensor:
        k = block.size(0)
        x, x_counts, across = along(block, 0, pooled_width)
        y, y_counts, down = along(block, 1, pooled_height)
        base = (block[:, 0].long() * (height * width))[:, None, None, None, None]
        taken = bilinear(rows, base, y[:, :, :, None, None], x[:, None, None, :, :], height, width, border=True)
        counts = y_counts[:, :, :, None, None] & x_counts[:, None, None, :, :]
        total = lucid.where(counts.unsqueeze(-1), taken, 0).sum((2, 4))
        mean = total / (down * across).clamp(min=1).reshape(k, 1, 1, 1)
        return mean.permute(0, 3, 1, 2)

    samples = channels * pooled_height * pooled_width * points[0] * points[1]
    return lucid.cat(_blocks(rois, samples, one)).to(dtype)


def _rounded(x: Tensor) -> Tensor:
    """Rounded as C rounds: halves away from zero."""
    return x.sign() * (x.abs() + 0.5).floor()


def _bins(start: Tensor, extent: Tensor, bins: int, low: int, high: int) -> tuple[Tensor, Tensor]:
    """The first element and the end of each bin (K, bins), as integers from `low` to `high`."""
    place = lucid.arange(bins, device=start.device, dtype=start.dtype)
    step = (extent / bins)[:, None]
    first = ((place * step).floor() + start[:, None]).clamp(low, high)
    end = (((place + 1) * step).ceil() + start[:, None]).clamp(low, high)
    return first.long(), end.long()


def _in_bins(
    rows: Tensor, block: Tensor, ys: tuple[Tensor, Tensor], xs: tuple[Tensor, Tensor], height: int, width: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The elements of all bins (K, PH, h, PW, w, C), where they are in their image, and which count (without C)."""
    tall = max(int((ys[1] - ys[0]).amax()), 1)
    wide = max(int((xs[1] - xs[0]).amax()), 1)
    y = ys[0][:, :, None] + lucid.arange(tall, device=block.device)
    x = xs[0][:, :, None] + lucid.arange(wide, device=block.device)
    counts = (y < ys[1][:, :, None])[:, :, :, None, None] & (x < xs[1][:, :, None])[:, None, None, :, :]
    place = y.clamp(max=height - 1)[:, :, :, None, None] * width + x.clamp(max=width - 1)[:, None, None, :, :]
    index = place + (block[:, 0].long() * (height * width))[:, None, None, None, None]
    taken = rows.index_select(0, index.reshape(-1)).reshape(*index.shape, rows.size(1))
    return taken, place, counts


def roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """The largest element of each bin of each region, whose corners are rounded to the grid.

    Args:
        input: (N, C, H, W).
        rois: regions (K, 5) as image, x1, y1, x2, y2.
        spatial_scale: by which the regions' coordinates are multiplied.
        pooled_height, pooled_width: bins.

    Returns:
        The elements (K, C, pooled_height, pooled_width), 0 where a bin is empty; and where each is in its image, int32,
        -1 where the bin is empty.

    Reference:
        Fast R-CNN (Girshick, 2015).
    """
    _check("roi_pool", input, rois, pooled_height, pooled_width)
    _, channels, height, width = input.shape
    rows = rows_of(input)
    if not rois.size(0):
        empty = input.new_zeros(0, channels, pooled_height, pooled_width)
        return empty, empty.to(lucid.int32)

    def one(block: Tensor) -> tuple[Tensor, Tensor]:
        corners = _rounded(block[:, 1:].float() * spatial_scale)
        extent = (corners[:, 2:] - corners[:, :2] + 1).clamp(min=1)
        xs = _bins(corners[:, 0], extent[:, 0], pooled_width, 0, width)
        ys = _bins(corners[:, 1], extent[:, 1], pooled_height, 0, height)
        taken, place, counts = _in_bins(rows, block, ys, xs, height, width)
        k, p, tall, q, wide, _ = taken.shape
        masked = lucid.where(counts.unsqueeze(-1), taken, float("-inf"))
        flat = masked.permute(0, 5, 1, 3, 2, 4).reshape(k, channels, p, q, tall * wide)
        best, which = flat.max(-1)
        places = place.permute(0, 1, 3, 2, 4).reshape(k, 1, p, q, tall * wide).expand(flat.shape)
        empty = ~counts.permute(0, 1, 3, 2, 4).reshape(k, 1, p, q, -1).any(-1)
        at = places.gather(-1, which.unsqueeze(-1)).squeeze(-1)
        return lucid.where(empty, 0, best), lucid.where(empty, -1, at).to(lucid.int32)

    largest = (rois[:, 3:] - rois[:, 1:3]).amax(0).tolist()
    wide, tall = (min(max(v * spatial_scale, 0.0) + 3, side) for v, side in zip(largest, (width, height), strict=True))
    parts = _blocks(rois, int(channels * (tall + 2 * pooled_height) * (wide + 2 * pooled_width)), one)
    return lucid.cat([a for a, _ in parts]), lucid.cat([b for _, b in parts])


def _own_channels(pooled: Tensor, height: int, width: int) -> Tensor:
    """Of (K, C * height * width, height, width) the channel of each bin's own place, (K, C, height, width)."""
    k, channels = pooled.shape[:2]
    parts = pooled.reshape(k, channels // (height * width), height, width, height, width)
    return parts.diagonal(0, 2, 4).diagonal(0, 2, 3)


def _mapping(pooled: Tensor, height: int, width: int) -> Tensor:
    """Which channel each element came from, int32."""
    channels = lucid.arange(pooled.size(1) * height * width, device=pooled.device, dtype=lucid.int32)
    return channels.reshape(1, -1, height, width).expand(pooled.shape).contiguous()


def ps_roi_align(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int
) -> tuple[Tensor, Tensor]:
    """`roi_align`, aligned, where each bin has channels of its own.

    Returns:
        (K, C / bins, pooled_height, pooled_width), and the channel of each, int32.

    Reference:
        R-FCN (Dai et al., 2016), Light-Head R-CNN (Li et al., 2017).
    """
    _check("ps_roi_align", input, rois, pooled_height, pooled_width, sensitive=True)
    pooled = roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, True)
    own = _own_channels(pooled, pooled_height, pooled_width)
    return own.contiguous(), _mapping(own, pooled_height, pooled_width)


def ps_roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, last: int = 1
) -> tuple[Tensor, Tensor]:
    """The mean of each bin of each region, where each bin has channels of its own; 0 where a bin is empty.

    Returns:
        (K, C / bins, pooled_height, pooled_width), and the channel of each, int32.

    Reference:
        R-FCN (Dai et al., 2016).
    """
    _check("ps_roi_pool", input, rois, pooled_height, pooled_width, sensitive=True)
    _, channels, height, width = input.shape
    rows = rows_of(input)

    def one(block: Tensor) -> Tensor:
        corners = _rounded(block[:, 1:].float() * spatial_scale)
        extent = (corners[:, 2:] - corners[:, :2]).clamp(min=1)
        # torchvision's bins end before the last row and column; its gradient's do not (`last=0`).
        xs = _bins(corners[:, 0], extent[:, 0], pooled_width, 0, width - last)
        ys = _bins(corners[:, 1], extent[:, 1], pooled_height, 0, height - last)
        taken, _, counts = _in_bins(rows, block, ys, xs, height, width)
        total = lucid.where(counts.unsqueeze(-1), taken, 0).sum((2, 4))
        mean = total / counts.sum((2, 4)).clamp(min=1).unsqueeze(-1).to(total.dtype)
        return _own_channels(mean.permute(0, 3, 1, 2), pooled_height, pooled_width)

    if rois.size(0):
        own = lucid.cat(_blocks(rois, channels * height * width, one)).contiguous()
    else:
        own = input.new_zeros(0, channels // (pooled_height * pooled_width), pooled_height, pooled_width)
    return own, _mapping(own, pooled_height, pooled_width)
