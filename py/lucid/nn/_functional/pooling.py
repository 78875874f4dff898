"""Adaptive, power-average, fractional and inverse pooling."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import lucid
from lucid import _C, Tensor, errors

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
]


def each(value: Any, n: int) -> tuple[Any, ...]:
    """One entry per dimension, from one or a sequence."""
    if isinstance(value, Sequence):
        if len(value) == 1:
            return tuple(value) * n
        return tuple(value)
    return (value,) * n


def _adaptive_sizes(op: str, input: Tensor, output_size: Any, n: int) -> tuple[int, ...]:
    if n > 1 and isinstance(output_size, Sequence) and input.dim() <= len(output_size):
        raise errors.ValueError(f"{op}: Input dimension should be at least {len(output_size) + 1}, got {input.dim()}")
    if output_size is None or isinstance(output_size, str):
        kind = type(output_size).__name__
        raise errors.TypeError(f"{op}(): argument 'output_size' must be int or a tuple of ints, not {kind}")
    if input.dim() not in (n + 1, n + 2):
        raise errors.RuntimeError(f"{op}: Expected {n + 1}D or {n + 2}D tensor, but got {list(input.shape)}")
    sizes = tuple(output_size) if isinstance(output_size, Sequence) else (output_size,) * n
    if len(sizes) != n:
        raise errors.RuntimeError(f"{op}: output_size must have {n} elements, got {output_size}")
    for size in sizes:
        if not (size is None and n > 1) and (isinstance(size, bool) or not hasattr(size, "__index__")):
            kind = type(size).__name__
            raise errors.TypeError(f"{op}(): argument 'output_size' must be int or a tuple of ints, not {kind}")
    made = tuple(input.shape[i - n] if size is None else int(size) for i, size in enumerate(sizes))
    if any(size < 0 for size in made):
        raise errors.RuntimeError(f"{op}: elements of output_size must be greater than or equal to 0, got {made}")
    if any(size > 2**31 - 1 for size in made):
        raise errors.RuntimeError(f"{op}: output_size is out of range: {made}")
    if not input.is_floating_point():
        raise errors.NotImplementedError(f"{op}: not implemented for {input.dtype}")
    # Means are of places alone; maxima are of channels, too, unless those come first.
    needed = input.shape[-n:] if op.startswith("adaptive_avg") and n < 3 else input.shape[1:]
    if 0 in needed:
        raise errors.RuntimeError(
            f"{op}: Expected input to have non-zero size for non-batch dimensions, but got {list(input.shape)}"
        )
    size = math.prod((*input.shape[:-n], *made)) * input.element_size()
    if size > _installed_memory():
        raise errors.OutOfMemory(f"{op}: output_size {made} needs {size} bytes, more than there is memory")
    return made


def _installed_memory() -> int:
    """Bytes of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _places(size: int, out: int, like: Tensor) -> Tensor:
    """The indices in each window of an adaptive pool, (out, longest window).

    Window i goes from floor(i size / out) to before ceil((i + 1) size / out), so that the longest begins where i size
    has the largest remainder by `out`, which is `out` less their greatest common divisor. Of a shorter one the last
    index comes again: the first of equal elements wins.
    """
    windows = lucid.arange(out, device=like.device).unsqueeze(1)
    # Of no windows the longest has one place.
    out = max(out, 1)
    first, last = (windows * size) // out, ((windows + 1) * size + out - 1) // out - 1
    longest = -(-(out - math.gcd(size, out) + size) // out)
    return (first + lucid.arange(longest, device=like.device)).minimum(last)


def _even(input: Tensor, sizes: tuple[int, ...]) -> list[int] | None:
    """The windows' sizes where all are equal and do not overlap."""
    n = len(sizes)
    own = input.shape[-n:]
    if all(out and size % out == 0 for size, out in zip(own, sizes, strict=True)):
        return [size // out for size, out in zip(own, sizes, strict=True)]
    return None


def _adaptive_avg(op: str, input: Tensor, output_size: Any, n: int) -> Tensor:
    whole = output_size == 1 or (isinstance(output_size, (list, tuple)) and list(output_size) == [1] * n)
    if whole and not isinstance(output_size, bool) and input.is_floating_point() and (n > 1 or input.dim() in (2, 3)):
        # Of any number of dimensions, and of nothing, as in PyTorch.
        return input.mean(tuple(range(-n, 0)), keepdim=True)
    sizes = _adaptive_sizes(op, input, output_size, n)
    if all(size == 1 for size in sizes):
        return input.mean(tuple(range(-n, 0)), keepdim=True)
    # In one dimension PyTorch's is made of the one in two.
    with _C._Step(f"adaptive_avg_pool{n}d" if n > 1 else "avg_pool1d"):
        return _averages(input, sizes, n)


def _averages(input: Tensor, sizes: tuple[int, ...], n: int) -> Tensor:
    windows = _even(input, sizes)
    if windows is not None:
        pool: Any = (_C.avg_pool1d, _C.avg_pool2d, _C.avg_pool3d)[n - 1]
        averages: Tensor = pool(input, windows)
        return averages
    made = input
    for i, out in enumerate(sizes):
        dim = input.dim() - n + i
        size = input.shape[dim]
        if out == size:
            continue
        places = _places(size, out, input)
        # Where the last index comes again, it counts nothing: not by a product with 0, which would keep NaN.
        again = places == places.roll(1, 1)
        again[:, 0] = False
        own = [*(1 for _ in range(dim)), *places.shape, *(1 for _ in range(n - i - 1))]
        count = places.shape[1] - again.sum(1, keepdim=True)
        each = made.index_select(dim, places.reshape([-1])).unflatten(dim, tuple(places.shape))
        total = each.masked_fill(again.reshape(own), 0).sum(dim + 1)
        made = total / count.reshape([*own[:dim], out, *own[dim + 2 :]])
    return made._result_of(input, n == 3)


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """Averages (N, C, L) or (C, L) over windows that give `output_size` elements.

    Args:
        input (Tensor): (N, C, L) or (C, L).
        output_size (int): the number of windows.

    Returns:
        Tensor: (N, C, output_size).

    Example:
        >>> import lucid.nn.functional as F
        >>> F.adaptive_avg_pool1d(lucid.tensor([[[1.0, 2.0, 3.0, 4.0]]]), 2)
        tensor([[[1.5000, 3.5000]]])
    """
    return _adaptive_avg("adaptive_avg_pool1d", input, output_size, 1)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Averages (N, C, H, W) or (C, H, W) over windows that give `output_size`; None keeps a size.

    Args:
        input (Tensor): (N, C, H, W) or (C, H, W).
        output_size (int or tuple of ints): the numbers of windows.

    Returns:
        Tensor: (N, C, *output_size).

    Example:
        >>> import lucid.nn.functional as F
        >>> F.adaptive_avg_pool2d(lucid.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), 1)
        tensor([[[[2.5000]]]])
    """
    return _adaptive_avg("adaptive_avg_pool2d", input, output_size, 2)


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Averages (N, C, D, H, W) or (C, D, H, W) over windows that give `output_size`; None keeps a size.

    Args:
        input (Tensor): (N, C, D, H, W) or (C, D, H, W).
        output_size (int or tuple of ints): the numbers of windows.

    Returns:
        Tensor: (N, C, *output_size).

    Example:
        >>> import lucid.nn.functional as F
        >>> F.adaptive_avg_pool3d(lucid.ones(1, 1, 4, 4, 4), (2, None, 1)).shape
        lucid.Size([1, 1, 2, 4, 1])
    """
    return _adaptive_avg("adaptive_avg_pool3d", input, output_size, 3)


def _lp_pool(input: Tensor, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool, n: int) -> Tensor:
    if norm_type == 0:
        raise ValueError(f"norm_type must be a non-zero value, but got {norm_type}")
    window = each(kernel_size, n)
    steps = None if stride is None else each(stride, n)
    if math.isinf(norm_type):
        largest: Any = (_C.max_pool1d, _C.max_pool2d, _C.max_pool3d)[n - 1]
        sign = math.copysign(1, norm_type)
        found: Tensor = sign * largest(sign * input.abs(), window, steps, 0, 1, ceil_mode)
        return found
    pool: Any = (_C.avg_pool1d, _C.avg_pool2d, _C.avg_pool3d)[n - 1]
    mean = pool(input.pow(norm_type), window, steps, 0, ceil_mode)
    count = 1
    for size in window:
        count *= size
    total: Tensor = (mean.sign() * mean.abs().relu()) * count
    return total.pow(1.0 / norm_type)


def lp_pool1d(input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
    """`(Σ x^p)^(1/p)` over windows of (N, C, L) or (C, L), with p = `norm_type`.

    Args:
        input (Tensor): (N, C, L) or (C, L).
        norm_type (float): the exponent p.
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        stride (int or tuple of ints, optional): the distance of neighbouring windows, a number or one for each spatial
            dimension.
        ceil_mode (bool, default: False): rounds the size of the result up.

    Returns:
        Tensor: (N, C, L'), with L' = (L − kernel_size) // stride + 1.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.lp_pool1d(lucid.tensor([[[3.0, 4.0]]]), 2, 2)
        tensor([[[5.]]])
    """
    return _lp_pool(input, norm_type, kernel_size, stride, ceil_mode, 1)


def lp_pool2d(input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
    """`(Σ x^p)^(1/p)` over windows of (N, C, H, W) or (C, H, W), with p = `norm_type`.

    Args:
        input (Tensor): (N, C, H, W) or (C, H, W).
        norm_type (float): the exponent p.
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        stride (int or tuple of ints, optional): the distance of neighbouring windows, a number or one for each spatial
            dimension.
        ceil_mode (bool, default: False): rounds the size of the result up.

    Returns:
        Tensor: (N, C, H', W'), with H' = (H − kernel_size) // stride + 1, and W' alike.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.lp_pool2d(lucid.tensor([[[[3.0, 4.0]]]]), 2, (1, 2))
        tensor([[[[5.]]]])
    """
    return _lp_pool(input, norm_type, kernel_size, stride, ceil_mode, 2)


def lp_pool3d(input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
    """`(Σ x^p)^(1/p)` over windows of (N, C, D, H, W) or (C, D, H, W), with p = `norm_type`.

    Args:
        input (Tensor): (N, C, D, H, W) or (C, D, H, W).
        norm_type (float): the exponent p.
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        stride (int or tuple of ints, optional): the distance of neighbouring windows, a number or one for each spatial
            dimension.
        ceil_mode (bool, default: False): rounds the size of the result up.

    Returns:
        Tensor: (N, C, D', H', W'), with D' = (D − kernel_size) // stride + 1, and so on.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.lp_pool3d(lucid.ones(1, 1, 2, 2, 2), 2, 2)
        tensor([[[[[2.8284]]]]])
    """
    return _lp_pool(input, norm_type, kernel_size, stride, ceil_mode, 3)
