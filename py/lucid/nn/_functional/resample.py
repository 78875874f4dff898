"""Resizing and sampling of images: `interpolate`, `grid_sample`, `affine_grid`, shuffles, `fold` and `unfold`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from itertools import product
from typing import Any

import lucid
from lucid import _C, Tensor, errors
from lucid.nn._functional.pooling import _adaptive_avg, each

__all__ = [
    "affine_grid",
    "channel_shuffle",
    "fold",
    "grid_sample",
    "interpolate",
    "native_channel_shuffle",
    "pixel_shuffle",
    "pixel_unshuffle",
    "unfold",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]

_MODES = {3: ("linear",), 4: ("bilinear", "bicubic"), 5: ("trilinear",)}


def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resizes the spatial dimensions of (N, C, L), (N, C, H, W) or (N, C, D, H, W).

    Args:
        input: What to resize.
        size: The new sizes; this or `scale_factor` must be given.
        scale_factor: By what to multiply the sizes.
        mode: "nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear" or "area". Default: "nearest".
        align_corners: Whether the outer elements' centres, not their outer edges, stay in place. Default: False.
        recompute_scale_factor: Whether positions follow from the sizes, not from `scale_factor`. Default: False.
        antialias: Whether "bilinear" and "bicubic" widen their filter when they shrink. Default: False.
    """
    interpolating = ("linear", "bilinear", "bicubic", "trilinear")
    if mode in ("nearest", "area", "nearest-exact"):
        if align_corners is not None:
            raise errors.ValueError(
                f"align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | "
                f"trilinear, got mode {mode}"
            )
    elif align_corners is None:
        align_corners = False
    n = input.dim() - 2
    if size is not None and scale_factor is not None:
        raise errors.ValueError(f"only one of size or scale_factor should be defined, got {size} and {scale_factor}")
    if size is None and scale_factor is None:
        raise errors.ValueError("either size or scale_factor should be defined")
    if n not in (1, 2, 3):
        raise errors.NotImplementedError(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.dim()}D) for the modes: nearest | "
            f"linear | bilinear | bicubic | trilinear | area | nearest-exact (got {mode})"
        )
    if not input.is_floating_point() and mode != "nearest" and mode != "nearest-exact":
        raise errors.RuntimeError(f"interpolate: mode {mode} is not implemented for {input.dtype}")
    given = size if size is not None else scale_factor
    if isinstance(given, (list, tuple)) and len(given) != n:
        what = "output shape" if size is not None else "scale_factor shape"
        raise errors.ValueError(
            f"Input and {what} must have the same number of spatial dimensions, but got input with spatial dimensions "
            f"of {list(input.shape[2:])} and {what} of {given}."
        )
    scales: Sequence[float | None] = [None] * n
    if size is not None:
        sizes = [int(s) for s in each(size, n)]
        if recompute_scale_factor:
            raise errors.ValueError("recompute_scale_factor is not meaningful with an explicit size.")
    else:
        factors = [float(f) for f in each(scale_factor, n)]
        sizes = [math.floor(s * f) for s, f in zip(input.shape[2:], factors, strict=True)]
        if not recompute_scale_factor:
            scales = factors
    if any(s <= 0 for s in sizes) or 0 in input.shape[2:]:
        raise errors.RuntimeError(
            f"Input and output sizes should be greater than 0, but got input {list(input.shape[2:])} output {sizes}"
        )
    if antialias and not (mode in ("bilinear", "bicubic") and n == 2):
        raise errors.ValueError(
            "Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor as input"
        )
    if mode == "area":
        return _adaptive_avg(f"adaptive_avg_pool{n}d", input, sizes, n)
    if mode in interpolating and mode not in _MODES[n + 2]:
        raise errors.NotImplementedError(
            f"Got {input.dim()}D input, but {mode} mode needs another number of dimensions"
        )
    if mode not in (*interpolating, "nearest", "nearest-exact"):
        raise errors.NotImplementedError(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.dim()}D) for the modes: nearest | "
            f"linear | bilinear | bicubic | trilinear | area | nearest-exact (got {mode})"
        )
    half = input.dtype in (lucid.float16, lucid.bfloat16)
    x = input.to(lucid.float32) if half and mode in interpolating else input
    for i, (out, factor) in enumerate(zip(sizes, scales, strict=True)):
        dim = 2 + i
        if mode.startswith("nearest"):
            x = _nearest(x, dim, out, factor, exact=mode == "nearest-exact")
        elif antialias:
            x = _antialiased(x, dim, out, factor, bool(align_corners), cubic=mode == "bicubic")
        else:
            x = _resized(x, dim, out, factor, bool(align_corners), cubic=mode == "bicubic")
    return x.to(input.dtype) if half else x


def _line(n: int, like: Tensor) -> Tensor:
    """0 to n-1, in the precision that positions are worked out in."""
    dtype = lucid.float64 if like.dtype == lucid.float64 else lucid.float32
    return lucid.arange(n, device=like.device).to(dtype)


def _nearest(x: Tensor, dim: int, out: int, factor: float | None, exact: bool) -> Tensor:
    size = x.shape[dim]
    if out == size and factor in (None, 1.0):
        return x
    step = 1.0 / factor if factor else size / out
    # Positions are float32 for every dtype, as in PyTorch.
    line = lucid.arange(out, device=x.device).to(lucid.float32)
    places = ((line + 0.5) * step if exact else line * step).floor()
    return x.index_select(dim, places.to(lucid.int64).clamp(0, size - 1))


def _step(size: int, out: int, factor: float | None, align: bool) -> float:
    if align:
        return (size - 1) / (out - 1) if out > 1 else 0.0
    return 1.0 / factor if factor else size / out


def _along(values: Tensor, dim: int, ndim: int) -> Tensor:
    view = [1] * ndim
    view[dim] = -1
    return values.reshape(view)


def _cubic(t: Tensor, a: float) -> Tensor:
    """Keys' kernel at distances `t` from 0 to 2."""
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return lucid.where(t <= 1, near, far.masked_fill(t >= 2, 0.0))


def _resized(x: Tensor, dim: int, out: int, factor: float | None, align: bool, cubic: bool) -> Tensor:
    size = x.shape[dim]
    step = _step(size, out, factor, align)
    line = _line(out, x)
    real = line * step if align else (line + 0.5) * step - 0.5
    if not cubic:
        real = real.clamp(min=0)
    low = real.floor().clamp(max=size - 1) if not cubic else real.floor()
    t = (real - low).clamp(0, 1)
    place = low.to(lucid.int64)
    if cubic:
        taps = [(place + k, _cubic((t - k).abs(), -0.75)) for k in (-1, 0, 1, 2)]
    else:
        taps = [(place, 1 - t), (place + 1, t)]
    total = None
    for at, weight in taps:
        part = x.index_select(dim, at.clamp(0, size - 1)) * _along(weight, dim, x.dim()).to(x.dtype)
        total = part if total is None else total + part
    assert total is not None
    return total


def _antialiased(x: Tensor, dim: int, out: int, factor: float | None, align: bool, cubic: bool) -> Tensor:
    size = x.shape[dim]
    step = _step(size, out, factor, align)
    widened = max(step, 1.0)
    support = (2.0 if cubic else 1.0) * widened
    centre = ((_line(out, x) + 0.5) * step).unsqueeze(1)
    first = (centre - support + 0.5).trunc().clamp(min=0)
    end = (centre + support + 0.5).trunc().clamp(max=size)
    place = _line(size, x).unsqueeze(0)
    distance = ((place - centre + 0.5) / widened).abs()
    weights = _cubic(distance, -0.5) if cubic else (1 - distance).clamp(min=0)
    weights = weights.masked_fill((place < first) | (place >= end), 0.0)
    weights = (weights / weights.sum(1, True)).to(x.dtype)
    return x.transpose(dim, -1).matmul(weights.t()).transpose(dim, -1)


def upsample(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
) -> Tensor:
    """`interpolate` by its old name."""
    warnings.warn("`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=3)
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode "nearest"."""
    return interpolate(input, size, scale_factor)


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode "bilinear" and aligned corners."""
    return interpolate(input, size, scale_factor, "bilinear", True)


# ---- sampling --------------------------------------------------------------------------------------------------------


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Where each output element of (N, C, H, W) or (N, C, D, H, W) looks under the affine maps `theta`.

    `theta` is (N, 2, 3) or (N, 3, 4); the result (N, H, W, 2) or (N, D, H, W, 3), as `grid_sample` takes it.
    """
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
        columns.append(_along(line, i, n).expand(space))
    columns.append(lucid.ones(space, dtype=theta.dtype, device=theta.device))
    base = lucid.stack(columns, -1).reshape([1, -1, n + 1])
    made = base.expand([theta.shape[0], base.shape[1], n + 1]).matmul(theta.transpose(1, 2))
    return made.reshape([theta.shape[0], *space, n])


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """The elements of (N, C, H, W) or (N, C, D, H, W) at the places of `grid`, x first, from -1 to 1.

    Args:
        input: What to look into.
        grid: (N, H', W', 2) or (N, D', H', W', 3).
        mode: "bilinear", "nearest" or "bicubic". Default: "bilinear".
        padding_mode: What lies outside: "zeros", "border" or "reflection". Default: "zeros".
        align_corners: Whether ±1 are the outer elements' centres, not their outer edges. Default: False.
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
        warnings.warn(
            "Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please "
            "specify align_corners=True if the old behavior is desired.",
            stacklevel=3,
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
    align = bool(align_corners)
    count, channels = input.shape[:2]
    space = list(input.shape[2:])
    flat = input.reshape([count, channels, -1])
    targets = list(grid.shape[1:-1])
    coords = []
    for i in range(n):
        # The grid's coordinates are last dimension first.
        c, size = grid[..., n - 1 - i].reshape([count, -1]), space[i]
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
        weights = [[_cubic((t - k).abs(), -0.75) for k in (-1, 0, 1, 2)] for t in rests]
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
    return made.reshape([count, channels, *targets])


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


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(…, C·r², H, W) to (…, C, H·r, W·r) (Shi et al., 2016)."""
    r = upscale_factor
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
    return x.permute([*range(k), k, k + 3, k + 1, k + 4, k + 2]).reshape([*lead, c // (r * r), h * r, w * r])


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(…, C, H·r, W·r) to (…, C·r², H, W): `pixel_shuffle` undone."""
    r = downscale_factor
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
    return x.permute([*range(k), k, k + 2, k + 4, k + 1, k + 3]).reshape([*lead, c * r * r, h // r, w // r])


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """The channels of (N, C, …) with their groups interleaved (Zhang et al., 2018)."""
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
    return x.transpose(1, 2).reshape([count, channels, *space])


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


def unfold(input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """The windows of (N, C, H, W) as columns: (N, C · window, positions). (C, H, W) likewise."""
    if input.dim() not in (3, 4):
        raise errors.RuntimeError(f"Expected 3D or 4D (batch mode) tensor, but got {list(input.shape)}")
    places, padded, p, counts = _window_places(
        "im2col", list(input.shape[-2:]), kernel_size, dilation, padding, stride, input.device
    )
    x = _C.constant_pad_nd(input, [p[1], p[1], p[0], p[0]]) if any(p) else input
    lead = list(input.shape[:-3])
    flat = x.reshape([*lead, input.shape[-3], padded[0] * padded[1]])
    columns = input.shape[-3] * len(places) // max(counts[0] * counts[1], 1)
    return flat.index_select(-1, places).reshape([*lead, columns, counts[0] * counts[1]])


def fold(
    input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Columns (N, C · window, positions) added up where `unfold` took them from: (N, C, H, W)."""
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
    return summed.narrow(-2, p[0], size[0]).narrow(-1, p[1], size[1])
