"""Sampling and rearranging of images: `grid_sample`, `affine_grid`, shuffles, `fold` and `unfold`."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from itertools import product
from typing import Any

import lucid
from lucid import _C, Tensor, errors
from lucid._warnings import warn
from lucid.nn._functional.pooling import each
from lucid.nn._functional.resize import along, cubic
from lucid.nn._functional.step import step

__all__ = [
    "affine_grid",
    "channel_shuffle",
    "fold",
    "grid_sample",
    "native_channel_shuffle",
    "pixel_shuffle",
    "pixel_unshuffle",
    "unfold",
]

# ---- sampling --------------------------------------------------------------------------------------------------------


@step("affine_grid_generator")
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Where each output element of (N, C, H, W) or (N, C, D, H, W) looks under the affine maps `theta`.

    `theta` is (N, 2, 3) or (N, 3, 4); the result (N, H, W, 2) or (N, D, H, W, 3), as `grid_sample` takes it.

    Args:
        theta (Tensor): the maps, (N, 2, 3) or (N, 3, 4).
        size (Sequence[int]): the shape that is sampled, (N, C, H, W) or (N, C, D, H, W).
        align_corners (bool, optional): -1 and 1 are the centres of the corner elements, rather than their outer
            edges; False by default.

    Returns:
        Tensor: (N, H, W, 2) or (N, D, H, W, 3).

    Raises:
        ValueError: `theta` or `size` of another shape.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.affine_grid(lucid.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), (1, 1, 1, 2), align_corners=False)
        tensor([[[[-0.5000,  0.0000],
                  [ 0.5000,  0.0000]]]])
    """
    if align_corners is None:
        warn(
            "affine_grid and grid_sample have align_corners=False by default since 1.3.0. Please specify "
            "align_corners=True if the old behavior is desired."
        )
    size = tuple(map(operator.index, size))  # Tensors of one element would compute in float32 below.
    n = len(size) - 2
    if not theta.is_floating_point():
        raise errors.ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    if n not in (2, 3):
        raise errors.NotImplementedError(
            f"affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms. Got size {size}."
        )
    if theta.dim() != 3 or tuple(theta.shape[1:]) != (n, n + 1):
        raise errors.ValueError(
            f"Expected a batch of affine matrices of shape Nx{n}x{n + 1} for size {size}. Got {list(theta.shape)}."
        )
    if align_corners and min(size[2:]) == 1:
        warn("affine_grid: with align_corners=True a dimension of size 1 is at its middle, since 1.3.0.")
    if min(size) <= 0:
        raise errors.ValueError(f"Expected non-zero, positive output size. Got {size}")
    space = list(size[2:])
    columns = []
    for i in reversed(range(n)):
        count = space[i]
        line = lucid.linspace(-1, 1, count, dtype=theta.dtype, device=theta.device)
        if count == 1:
            line = line * 0.0
        elif not align_corners:
            line = line * ((count - 1) / count)
        columns.append(along(line, i, n).expand(space))
    columns.append(lucid.ones(space, dtype=theta.dtype, device=theta.device))
    base = lucid.stack(columns, -1).reshape([1, -1, n + 1])
    made = base.expand([theta.shape[0], base.shape[1], n + 1]).matmul(theta.transpose(1, 2))
    return made.reshape([theta.shape[0], *space, n])._result_of(theta, True)


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """The elements of (N, C, H, W) or (N, C, D, H, W) at the places of `grid`, x first, from -1 to 1.

    Args:
        input (Tensor): what to look into, (N, C, H, W) or (N, C, D, H, W).
        grid (Tensor): where to look, (N, H', W', 2) or (N, D', H', W', 3).
        mode (str, default: "bilinear"): "bilinear", "nearest" or "bicubic".
        padding_mode (str, default: "zeros"): What is outside: "zeros", "border" or "reflection".
        align_corners (bool, optional): Whether ±1 are the outer elements' centres, not their outer edges.

    Returns:
        Tensor: (N, C, H', W') or (N, C, D', H', W').

    Raises:
        ValueError: another mode, or shapes that do not fit.

    Example:
        >>> import lucid.nn.functional as F
        >>> x = lucid.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
        >>> F.grid_sample(x, lucid.tensor([[[[0.0, 0.0]]]]), align_corners=False)
        tensor([[[[2.5000]]]])
    """
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise errors.ValueError(
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise errors.ValueError(
            f"nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', "
            f"but got: '{padding_mode}'"
        )
    if align_corners is None:
        warn(
            "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please "
            "specify align_corners=True if the old behavior is desired."
        )
    n = input.dim() - 2
    if n not in (2, 3) or grid.dim() != input.dim() or grid.shape[-1] != n or grid.shape[0] != input.shape[0]:
        raise errors.RuntimeError(
            f"grid_sampler(): expected 4D or 5D input and grid with the same batch size and {n} coordinates, but got "
            f"input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if grid.dtype != input.dtype:
        raise errors.RuntimeError(
            f"grid_sampler(): expected input and grid to have same dtype, but input has {input.dtype} and grid has "
            f"{grid.dtype}"
        )
    if 0 in input.shape[2:]:
        raise errors.RuntimeError(f"grid_sampler(): expected input to have non-empty spatial dimensions: {input.shape}")
    with _C._Step(f"grid_sampler_{n}d"):
        return _sampled(input, grid, mode, padding_mode, bool(align_corners))


def _of_corners(input: Tensor, coords: list[Tensor], targets: list[int]) -> Tensor:
    """Linear interpolation at fixed coordinates, (N, points) in each dimension: weighted sums of the corners."""
    n, (count, channels), space = len(coords), input.shape[:2], list(input.shape[2:])
    corners: list[tuple[Tensor, Tensor]] = []
    for c, size in zip(coords, space, strict=True):
        low = c.detach().floor()
        part, sides = c.detach() - low, []
        for place, weight in ((low, 1 - part), (low + 1, part)):
            held = place.clamp(0, size - 1)
            # Outside nothing counts.
            sides.append((held.to(lucid.int64), weight.masked_fill(place != held, 0.0)))
        if not corners:
            corners = sides
            continue
        corners = [(at * size + index, factor * weight) for at, factor in corners for index, weight in sides]
    batch = lucid.arange(count, device=input.device).unsqueeze(1) * math.prod(space)
    index = lucid.stack([at + batch for at, _ in corners], 2)
    factors = lucid.stack([factor for _, factor in corners], 2)
    table = input.permute([0, *range(2, n + 2), 1]).reshape([count * math.prod(space), channels])
    made: Tensor = _C.embedding_sum(index, table, factors)
    rows = made.permute([0, 2, 1]).contiguous().reshape([count, channels, *targets])
    return rows._result_of(input, True)


def _sampled(input: Tensor, grid: Tensor, mode: str, padding_mode: str, align: bool) -> Tensor:
    n = input.dim() - 2
    count, channels = input.shape[:2]
    space = list(input.shape[2:])
    targets = list(grid.shape[1:-1])
    # Without -1, which says nothing where there are no elements.
    flat, points = input.reshape([count, channels, math.prod(space)]), math.prod(targets)
    coords = []
    for i in range(n):
        # The grid's coordinates are last dimension first.
        c, size = grid[..., n - 1 - i].reshape([count, points]), space[i]
        c = (c + 1) * ((size - 1) / 2) if align else ((c + 1) * size - 1) / 2
        if mode != "bicubic":
            c = _contained(c, size, padding_mode, align)
        coords.append(c)

    def pick(places: list[Tensor]) -> Tensor:
        """Elements at whole places, zeros outside."""
        at = inside = None
        for place, size in zip(places, space, strict=True):
            held = place.clamp(0, size - 1)
            index = held.to(lucid.int64)
            ok = place == held
            at = index if at is None else at * size + index
            inside = ok if inside is None else inside & ok
        assert at is not None and inside is not None
        found = flat.gather(2, at.unsqueeze(1).expand([count, channels, at.shape[1]]))
        return found * inside.to(flat.dtype).unsqueeze(1)

    if mode == "nearest":
        made = pick([c.detach().round() for c in coords])
        if grid.requires_grad:
            # Steps have no slope, but a gradient: zeros, as in PyTorch.
            made = lucid.where(made.new_zeros((), dtype=lucid.bool), grid.sum().to(made.dtype), made)
    elif mode == "bilinear" and not (grid.requires_grad and lucid.is_grad_enabled()):
        return _of_corners(input, coords, targets)
    elif mode == "bilinear":
        lows = [c.detach().floor() for c in coords]
        made = None
        for corner in range(2**n):
            bits = [(corner >> i) & 1 for i in range(n)]
            weight = None
            for c, low, bit in zip(coords, lows, bits, strict=True):
                part = c - low if bit else low + 1 - c
                weight = part if weight is None else weight * part
            assert weight is not None
            term = pick([low + bit for low, bit in zip(lows, bits, strict=True)]) * weight.unsqueeze(1)
            made = term if made is None else made + term
    else:
        made = None
        lows = [c.detach().floor() for c in coords]
        rests = [c - low for c, low in zip(coords, lows, strict=True)]
        weights = [[cubic((t - k).abs(), -0.75) for k in (-1, 0, 1, 2)] for t in rests]
        for at in product(range(4), repeat=n):
            places = [
                _contained(low + k - 1, size, padding_mode, align) for low, k, size in zip(lows, at, space, strict=True)
            ]
            factor = weights[0][at[0]]
            for own, k in zip(weights[1:], at[1:], strict=True):
                factor = factor * own[k]
            term = pick(places) * factor.unsqueeze(1)
            made = term if made is None else made + term
    assert made is not None
    return made.reshape([count, channels, *targets])._result_of(input, True)


def _contained(c: Tensor, size: int, padding_mode: str, align: bool) -> Tensor:
    """Coordinates brought inside as the padding mode says."""
    if padding_mode == "zeros":
        return c
    if padding_mode == "reflection":
        low, high = (0.0, 2.0 * (size - 1)) if align else (-1.0, 2.0 * size - 1)
        span, start = (high - low) / 2, low / 2
        if span == 0:
            return c * 0.0
        distance = (c - start).abs()
        flips = (distance.detach() / span).floor()
        extra = distance - flips * span
        odd = flips % 2 == 1
        c = lucid.where(odd, span - extra, extra) + start
    # No gradient at the border itself, as in PyTorch.
    inside = (c > 0) & (c < size - 1)
    return lucid.where(inside, c, c.detach().clamp(0, size - 1))


# ---- shuffles --------------------------------------------------------------------------------------------------------


def _factor(op: str, name: str, value: int) -> int:
    """A whole number; TypeError where it is none."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{op}(): argument '{name}' (position 2) must be int, not {type(value).__name__}") from None


@step("pixel_shuffle")
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(…, C·r², H, W) to (…, C, H·r, W·r) (Shi et al., 2016).

    Args:
        input (Tensor): (…, C·r², H, W).
        upscale_factor (int): the factor r.

    Returns:
        Tensor: (…, C, H·r, W·r).

    Raises:
        RuntimeError: r² does not divide the channels.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.pixel_shuffle(lucid.arange(4.0).view(1, 4, 1, 1), 2)
        tensor([[[[0., 1.],
                  [2., 3.]]]])
    """
    r = _factor("pixel_shuffle", "upscale_factor", upscale_factor)
    if input.dim() < 3:
        raise errors.RuntimeError(f"pixel_shuffle expects input to have at least 3 dimensions, but got {input.dim()}")
    if r <= 0:
        raise errors.RuntimeError(f"pixel_shuffle expects a positive upscale_factor, but got {r}")
    *lead, c, h, w = input.shape
    if c % (r * r):
        raise errors.RuntimeError(
            f"pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, "
            f"but input.size(-3)={c} is not divisible by {r * r}"
        )
    k = len(lead)
    x = input.reshape([*lead, c // (r * r), r, r, h, w])
    y = x.permute([*range(k), k, k + 3, k + 1, k + 4, k + 2]).reshape([*lead, c // (r * r), h * r, w * r])
    return y._result_of(input)


@step("pixel_unshuffle")
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(…, C, H·r, W·r) to (…, C·r², H, W): `pixel_shuffle` undone.

    Args:
        input (Tensor): (…, C, H·r, W·r).
        downscale_factor (int): the factor r.

    Returns:
        Tensor: (…, C·r², H, W).

    Raises:
        RuntimeError: r does not divide the sizes.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.pixel_unshuffle(lucid.arange(4.0).view(1, 1, 2, 2), 2).flatten()
        tensor([0., 1., 2., 3.])
    """
    r = _factor("pixel_unshuffle", "downscale_factor", downscale_factor)
    if input.dim() < 3:
        raise errors.RuntimeError(f"pixel_unshuffle expects input to have at least 3 dimensions, but got {input.dim()}")
    if r <= 0:
        raise errors.RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
    *lead, c, h, w = input.shape
    if h % r or w % r:
        raise errors.RuntimeError(
            f"pixel_unshuffle expects height and width to be divisible by downscale_factor, but input.size(-2)={h} and "
            f"input.size(-1)={w} are not both divisible by {r}"
        )
    k = len(lead)
    x = input.reshape([*lead, c, h // r, r, w // r, r])
    y = x.permute([*range(k), k, k + 2, k + 4, k + 1, k + 3]).reshape([*lead, c * r * r, h // r, w // r])
    return y._result_of(input)


@step("channel_shuffle")
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """The channels of (N, C, …) with their groups interleaved (Zhang et al., 2018).

    Args:
        input (Tensor): (N, C, …).
        groups (int): the number of groups, which divides C.

    Returns:
        Tensor: the shape and dtype of `input`.

    Raises:
        RuntimeError: `groups` does not divide the channels.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.channel_shuffle(lucid.arange(4.0).view(1, 4, 1, 1), 2).flatten()
        tensor([0., 2., 1., 3.])
    """
    if input.dim() <= 2:
        raise errors.RuntimeError(
            f"channel_shuffle expects input with > 2 dims, but got input with sizes {input.shape}"
        )
    if groups <= 0:
        raise errors.RuntimeError(f"Number of groups to divide channels in must be positive. Value of groups:{groups}")
    count, channels, *space = input.shape
    if channels % groups:
        raise errors.RuntimeError(
            f"Number of channels must be divisible by groups. Got {channels} channels and {groups} groups."
        )
    x = input.reshape([count, groups, channels // groups, *space])
    return x.transpose(1, 2).reshape([count, channels, *space])._result_of(input)


native_channel_shuffle = channel_shuffle


# ---- windows as columns ----------------------------------------------------------------------------------------------


def _window_places(
    op: str, size: Sequence[int], kernel: Any, dilation: Any, padding: Any, stride: Any, device: Any
) -> tuple[Tensor, list[int], tuple[int, ...], list[int]]:
    """Flat indices (window · positions) into the padded plane, its sizes, the padding, and the counts of positions."""
    k, d, p, s = (each(v, 2) for v in (kernel, dilation, padding, stride))
    if any(v < 1 for v in (*k, *d, *s)) or any(v < 0 for v in p):
        raise errors.RuntimeError(
            f"{op}: kernel size, dilation and stride should be greater than zero and padding not negative, but got "
            f"{k}, {d}, {s} and {p}"
        )
    padded = [n + 2 * v for n, v in zip(size, p, strict=True)]
    counts = [(n - e * (w - 1) - 1) // t + 1 for n, w, e, t in zip(padded, k, d, s, strict=True)]
    if any(c < 1 for c in counts):
        raise errors.RuntimeError(
            f"{op}: Given input with spatial size {list(size)}, kernel_size={k}, dilation={d}, padding={p}, "
            f"calculated shape of the array of sliding blocks as {counts}, which is too small (non-positive)"
        )
    rows, columns = (
        (lucid.arange(w, device=device) * e).unsqueeze(1) + lucid.arange(c, device=device) * t
        for w, e, c, t in zip(k, d, counts, s, strict=True)
    )
    places = rows.reshape([k[0], 1, counts[0], 1]) * padded[1] + columns.reshape([1, k[1], 1, counts[1]])
    return places.reshape([-1]), padded, p, counts


@step("im2col")
def unfold(input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """The windows of (N, C, H, W) as columns: (N, C · window, positions). (C, H, W) likewise.

    Args:
        input (Tensor): (N, C, H, W) or (C, H, W).
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        dilation (int or tuple of ints, default: 1): the distance of neighbouring elements of a window.
        padding (int or tuple of ints, default: 0): what is added on both sides of each spatial dimension.
        stride (int or tuple of ints, default: 1): the distance of neighbouring windows, a number or one for each
            spatial dimension.

    Returns:
        Tensor: (N, C · window, positions).

    Raises:
        RuntimeError: `input` of another number of dimensions, or no window fits.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.unfold(lucid.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), (1, 2))
        tensor([[[1., 3.],
                 [2., 4.]]])
    """
    if input.dim() not in (3, 4):
        raise errors.RuntimeError(f"Expected 3D or 4D (batch mode) tensor, but got {list(input.shape)}")
    places, padded, p, counts = _window_places(
        "im2col", list(input.shape[-2:]), kernel_size, dilation, padding, stride, input.device
    )
    x = _C.constant_pad_nd(input, [p[1], p[1], p[0], p[0]]) if any(p) else input
    lead = list(input.shape[:-3])
    flat = x.reshape([*lead, input.shape[-3], padded[0] * padded[1]])
    columns = input.shape[-3] * len(places) // max(counts[0] * counts[1], 1)
    return flat.index_select(-1, places).reshape([*lead, columns, counts[0] * counts[1]])._result_of(input, True)


@step("col2im")
def fold(
    input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Columns (N, C · window, positions) added up where `unfold` took them from: (N, C, H, W).

    Args:
        input (Tensor): (N, C · window, positions) or (C · window, positions).
        output_size (int or tuple of ints): the size (H, W) of the result.
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        dilation (int or tuple of ints, default: 1): the distance of neighbouring elements of a window.
        padding (int or tuple of ints, default: 0): what is added on both sides of each spatial dimension.
        stride (int or tuple of ints, default: 1): the distance of neighbouring windows, a number or one for each
            spatial dimension.

    Returns:
        Tensor: (N, C, H, W).

    Raises:
        RuntimeError: the columns do not fit the sizes.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.fold(lucid.ones(1, 2, 2), (1, 3), (1, 2))
        tensor([[[[1., 2., 1.]]]])
    """
    if input.dim() not in (2, 3):
        raise errors.RuntimeError(f"Expected 2D or 3D (batch mode) tensor for input, but got {list(input.shape)}")
    size, window = each(output_size, 2), each(kernel_size, 2)
    places, padded, p, counts = _window_places("col2im", size, kernel_size, dilation, padding, stride, input.device)
    area = window[0] * window[1]
    if input.shape[-2] % area:
        raise errors.RuntimeError(
            f"Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got "
            f"input.size(1)={input.shape[-2]} and kernel_size={window}."
        )
    if input.shape[-1] != counts[0] * counts[1]:
        raise errors.RuntimeError(
            f"Given output_size={size}, kernel_size={window}, expected size of input's dimension 2 to match the "
            f"calculated number of sliding blocks {counts[0]} * {counts[1]} = {counts[0] * counts[1]}, but got "
            f"input.size(2)={input.shape[-1]}."
        )
    lead = list(input.shape[:-2])
    channels = input.shape[-2] // area
    blank = lucid.zeros([*lead, channels, padded[0] * padded[1]], dtype=input.dtype, device=input.device)
    summed = blank.index_add(-1, places, input.reshape([*lead, channels, -1])).reshape([*lead, channels, *padded])
    return summed.narrow(-2, p[0], size[0]).narrow(-1, p[1], size[1])._result_of(input, True)
