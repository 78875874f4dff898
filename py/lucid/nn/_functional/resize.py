"""Resizing of images: `interpolate`, by every mode, and its older names.

Each spatial dimension is resized by itself. Bytes are weighted in whole numbers and rounded after each dimension, as
Pillow and PyTorch do it, so that the results are the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import lucid
from lucid import _C, Tensor, errors
from lucid._warnings import warn
from lucid.nn._functional.pooling import _adaptive_avg, each

__all__ = ["interpolate", "upsample", "upsample_bilinear", "upsample_nearest"]

_MODES = {3: ("linear",), 4: ("bilinear", "bicubic", "lanczos"), 5: ("trilinear",)}


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
        input (Tensor): (N, C, L), (N, C, H, W) or (N, C, D, H, W); uint8 for "nearest", "nearest-exact",
            "bilinear", "bicubic" and "lanczos".
        size (int or tuple of ints, optional): the new sizes; this or `scale_factor` must be given.
        scale_factor (float or tuple of floats, optional): the factors of the sizes.
        mode (str, default: "nearest"): "nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear",
            "lanczos" (of three lobes, with `antialias`) or "area".
        align_corners (bool, optional): Whether the outer elements' centres, not their outer edges, stay in place.
        recompute_scale_factor (bool, optional): Whether positions follow from the sizes, not from `scale_factor`.
        antialias (bool, default: False): Whether "bilinear", "bicubic" and "lanczos" widen their filter when they
            shrink.

    Returns:
        Tensor: the shape of `input`, but for the new spatial sizes.

    Raises:
        ValueError: neither or both of `size` and `scale_factor` are given, or another mode.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.interpolate(lucid.tensor([[[1.0, 2.0]]]), scale_factor=2)
        tensor([[[1., 1., 2., 2.]]])
    """
    interpolating = ("linear", "bilinear", "bicubic", "trilinear", "lanczos")
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
    given = size if size is not None else scale_factor
    if isinstance(given, (list, tuple)) and len(given) != n:
        what = "output shape" if size is not None else "scale_factor shape"
        raise errors.ValueError(
            f"Input and {what} must have the same number of spatial dimensions, but got input with spatial dimensions "
            f"of {list(input.shape[2:])} and {what} of {given}."
        )
    scales: Sequence[float | None] = [None] * n
    if n not in (1, 2, 3):
        raise errors.NotImplementedError(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.dim()}D) for the modes: nearest | "
            f"linear | bilinear | bicubic | trilinear | area | nearest-exact (got {mode})"
        )
    if size is not None:
        sizes = [int(s) for s in each(size, n)]
        if recompute_scale_factor:
            raise errors.ValueError("recompute_scale_factor is not meaningful with an explicit size.")
    else:
        factors = [float(f) for f in each(scale_factor, n)]
        if not (recompute_scale_factor or mode == "area" or all(map(math.isfinite, factors))):
            raise errors.RuntimeError(f"scale_factor must be of finite numbers, but got {scale_factor}")
        sizes = [math.floor(s * f) for s, f in zip(input.shape[2:], factors, strict=True)]
        if not recompute_scale_factor:
            scales = factors
    if mode == "lanczos" and (align_corners or not antialias):
        what = "does not support align_corners=True" if align_corners else "requires antialias=True"
        raise errors.ValueError(f"Lanczos mode {what}")
    if mode == "area" and all(s >= 0 for s in sizes):
        # Of nothing there are means, and none of them.
        pass
    elif any(s <= 0 for s in sizes) or 0 in input.shape[2:]:
        raise errors.RuntimeError(
            f"Input and output sizes should be greater than 0, but got input {list(input.shape[2:])} output {sizes}"
        )
    if antialias and not (mode in ("bilinear", "bicubic", "lanczos") and n == 2):
        raise errors.ValueError(
            "Anti-alias option is restricted to bilinear, bicubic and lanczos modes and requires a 4-D tensor as input"
        )
    whole = input.dtype == lucid.uint8 and mode in ("bilinear", "bicubic", "lanczos")
    if not (input.is_floating_point() or whole or mode.startswith("nearest")):
        raise errors.NotImplementedError(f"interpolate: mode {mode} is not implemented for {input.dtype}")
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
    dims = list(zip(range(2, 2 + n), sizes, scales, strict=True))
    if whole:
        # Rounding in between makes the order matter.
        x = input
        for dim, out, factor in reversed(dims):
            x = _in_bytes(x, dim, _Grid(x.shape[dim], out, factor, bool(align_corners)), mode, antialias)
        return x._result_of(input)
    named = "nearest_exact" if mode == "nearest-exact" else mode
    with _C._Step(f"upsample_{named}{'2d_aa' if antialias else f'{n}d'}"):
        return _along_all(input, dims, mode, bool(align_corners), antialias)


def _along_all(input: Tensor, dims: list[Any], mode: str, align: bool, antialias: bool) -> Tensor:
    interpolating = not mode.startswith("nearest")
    half = input.dtype in (lucid.float16, lucid.bfloat16)
    x = input.to(lucid.float32) if half and interpolating else input
    for dim, out, factor in dims:
        grid = _Grid(x.shape[dim], out, factor, align)
        if mode.startswith("nearest"):
            x = _nearest(x, dim, grid, exact=mode == "nearest-exact")
        elif antialias:
            x = _antialiased(x, dim, grid, mode)
        else:
            x = _resized(x, dim, grid, cubic_too=mode == "bicubic")
    return (x.to(input.dtype) if half else x)._result_of(input)


class _Grid:
    """The places of `out` new elements among `size` old ones."""

    def __init__(self, size: int, out: int, factor: float | None, align: bool) -> None:
        self.size, self.out, self.align = size, out, align
        self.same = out == size and factor in (None, 1.0)
        self.ratio = 1.0 / factor if factor else size / out
        self.step = ((size - 1) / (out - 1) if out > 1 else 0.0) if align else self.ratio

    def places(self, line: Tensor) -> Tensor:
        """Where in the old ones the new ones are, for the numbers of the new ones."""
        return line * self.step if self.align else (line + 0.5) * self.step - 0.5


def _line(n: int, like: Tensor) -> Tensor:
    """0 to n-1, in the precision that positions are worked out in."""
    dtype = lucid.float64 if like.dtype == lucid.float64 else lucid.float32
    return lucid.arange(n, device=like.device).to(dtype)


def along(values: Tensor, dim: int, ndim: int) -> Tensor:
    """A vector along one of `ndim` dimensions."""
    view = [1] * ndim
    view[dim] = -1
    return values.reshape(view)


def cubic(t: Tensor, a: float) -> Tensor:
    """Keys' kernel at distances `t` from 0 on (1981)."""
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return lucid.where(t <= 1, near, far.masked_fill(t >= 2, 0.0))


# The filters that shrinking widens: how far each reaches, and its values at distances from 0 on.
_FILTERS: dict[str, tuple[float, Callable[[Tensor], Tensor]]] = {
    "bilinear": (1.0, lambda t: (1 - t).clamp(min=0)),
    "bicubic": (2.0, lambda t: cubic(t, -0.5)),
    "lanczos": (3.0, lambda t: (t.sinc() * (t / 3).sinc()).masked_fill(t >= 3, 0.0)),
}


def _nearest(x: Tensor, dim: int, grid: _Grid, exact: bool) -> Tensor:
    if grid.same:
        return x
    # Positions are float32 for every dtype, as in PyTorch.
    line = lucid.arange(grid.out, device=x.device).to(lucid.float32)
    places = ((line + 0.5) * grid.ratio if exact else line * grid.ratio).floor()
    return x.index_select(dim, places.to(lucid.int64).clamp(0, grid.size - 1))


def _taps(grid: _Grid, line: Tensor, cubic_too: bool) -> list[tuple[Tensor, Tensor]]:
    """The neighbours of each new element, which may be outside, with their weights."""
    real = grid.places(line)
    if not cubic_too:
        real = real.clamp(min=0)
    low = real.floor().clamp(max=grid.size - 1)
    t = (real - low).clamp(0, 1)
    place = low.to(lucid.int64)
    if cubic_too:
        return [(place + k, cubic((t - k).abs(), -0.75)) for k in (-1, 0, 1, 2)]
    return [(place, 1 - t), (place + 1, t)]


def _resized(x: Tensor, dim: int, grid: _Grid, cubic_too: bool) -> Tensor:
    parts = [
        x.index_select(dim, at.clamp(0, grid.size - 1)) * along(weight, dim, x.dim()).to(x.dtype)
        for at, weight in _taps(grid, _line(grid.out, x), cubic_too)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _widened(grid: _Grid, line: Tensor, mode: str) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
    """The first old element that counts for each new one, the one behind the last, and the weights of places."""
    reach, weight = _FILTERS[mode]
    width = max(grid.step, 1.0)
    support = reach * width
    centre = ((line + 0.5) * grid.step).unsqueeze(1)
    first = (centre - support + 0.5).trunc().clamp(min=0)
    end = (centre + support + 0.5).trunc().clamp(max=grid.size)

    def weights(place: Tensor) -> Tensor:
        found = weight(((place - centre + 0.5) / width).abs())
        found = found.masked_fill((place < first) | (place >= end), 0.0)
        return found / found.sum(1, True)

    return first, end, weights


def _antialiased(x: Tensor, dim: int, grid: _Grid, mode: str) -> Tensor:
    _, _, weights = _widened(grid, _line(grid.out, x), mode)
    found = weights(_line(grid.size, x).unsqueeze(0)).to(x.dtype)
    return x.matmul(found.t()) if dim == x.dim() - 1 else found.matmul(x)


def _in_bytes(x: Tensor, dim: int, grid: _Grid, mode: str, antialias: bool) -> Tensor:
    if grid.same:
        return x
    line = lucid.arange(grid.out, dtype=lucid.float64, device="cpu")
    if antialias:
        first, end, weights = _widened(grid, line, mode)
        count = int((end - first).max().item())
        place = first + lucid.arange(count, dtype=lucid.float64, device="cpu")
        weight = weights(place)
        highest = weight.max().item()
        place = place.to(lucid.int64).clamp(0, grid.size - 1)
    else:
        places: list[Tensor] = []
        shares: list[Tensor] = []
        highest = 0.0
        for at, share in _taps(grid, line, mode == "bicubic"):
            # Neighbours outside are the outermost elements, whose weights are rounded together.
            at = at.clamp(0, grid.size - 1)
            for i, other in enumerate(places):
                taken = other == at
                shares[i] = shares[i] + share.masked_fill(taken.logical_not(), 0.0)
                share = share.masked_fill(taken, 0.0)
                highest = max(highest, shares[i].max().item())
            places.append(at)
            shares.append(share)
            highest = max(highest, share.max().item())
        place, weight = lucid.stack(places, 1), lucid.stack(shares, 1)
    # The most bits with which every weight fits into 16.
    bits = next((p for p in range(22) if int(0.5 + highest * (1 << (p + 1))) >= 1 << 15), 22)
    scaled = weight * (1 << bits)
    whole = (scaled + lucid.where(scaled < 0, -0.5, 0.5)).trunc().to(lucid.int32).to(x.device)
    y = x.movedim(dim, -1).to(lucid.int32)
    near = y.index_select(-1, place.reshape(-1).to(x.device)).reshape([*y.shape[:-1], *place.shape])
    summed = (near * whole).sum(-1, dtype=lucid.int32) + (1 << (bits - 1))
    return (summed >> bits).clamp(0, 255).to(lucid.uint8).movedim(-1, dim)


def upsample(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
) -> Tensor:
    """`interpolate` by its old name.

    Args:
        input (Tensor): (N, C, L), (N, C, H, W) or (N, C, D, H, W).
        size (int or tuple of ints, optional): the new sizes; this or `scale_factor` must be given.
        scale_factor (float or tuple of floats, optional): the factors of the sizes.
        mode (str, default: "nearest"): what `interpolate` takes.
        align_corners (bool, optional): what `interpolate` takes.

    Returns:
        Tensor: the shape of `input`, but for the new spatial sizes.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.upsample(lucid.tensor([[[1.0, 2.0]]]), scale_factor=2)
        tensor([[[1., 1., 2., 2.]]])
    """
    warn("`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.")
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode "nearest".

    Args:
        input (Tensor): (N, C, L), (N, C, H, W) or (N, C, D, H, W).
        size (int or tuple of ints, optional): the new sizes; this or `scale_factor` must be given.
        scale_factor (float or tuple of floats, optional): the factors of the sizes.

    Returns:
        Tensor: the shape of `input`, but for the new spatial sizes.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.upsample_nearest(lucid.tensor([[[1.0, 2.0]]]), scale_factor=2)
        tensor([[[1., 1., 2., 2.]]])
    """
    warn("`nn.functional.upsample_nearest` is deprecated. Use `nn.functional.interpolate` instead.")
    return interpolate(input, size, scale_factor)


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` with mode "bilinear" and aligned corners.

    Args:
        input (Tensor): (N, C, H, W).
        size (int or tuple of ints, optional): the new sizes; this or `scale_factor` must be given.
        scale_factor (float or tuple of floats, optional): the factors of the sizes.

    Returns:
        Tensor: the shape of `input`, but for the new spatial sizes.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.upsample_bilinear(lucid.tensor([[[[1.0, 2.0]]]]), scale_factor=2)
        tensor([[[[1.0000, 1.3333, 1.6667, 2.0000],
                  [1.0000, 1.3333, 1.6667, 2.0000]]]])
    """
    warn("`nn.functional.upsample_bilinear` is deprecated. Use `nn.functional.interpolate` instead.")
    return interpolate(input, size, scale_factor, "bilinear", True)
