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
    "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool2d",
    "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d",
    "adaptive_max_pool3d_with_indices",
    "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
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
    """Averages (N, C, L) or (C, L) over windows that give `output_size` elements."""
    return _adaptive_avg("adaptive_avg_pool1d", input, output_size, 1)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Averages (N, C, H, W) or (C, H, W) over windows that give `output_size`; None keeps a size."""
    return _adaptive_avg("adaptive_avg_pool2d", input, output_size, 2)


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Averages (N, C, D, H, W) or (C, D, H, W) over windows that give `output_size`; None keeps a size."""
    return _adaptive_avg("adaptive_avg_pool3d", input, output_size, 3)


def _windowed_max(input: Tensor, places: list[Tensor], n: int) -> tuple[Tensor, Tensor]:
    """Largest elements and their flat indices, for windows listed per dimension as (out, window) indices."""
    shape = list(input.shape)
    lead, space = shape[:-n], shape[-n:]
    x = input
    for i, place in enumerate(places):
        x = x.index_select(x.dim() - n + i, place.reshape([-1]))
    outs, windows = [p.shape[0] for p in places], [p.shape[1] for p in places]
    split = [size for pair in zip(outs, windows, strict=True) for size in pair]
    k = len(lead)
    order = [*range(k), *(k + 2 * i for i in range(n)), *(k + 2 * i + 1 for i in range(n))]
    x = x.reshape([*lead, *split]).permute(order).reshape([*lead, *outs, math.prod(windows)])
    flat = None
    for i, place in enumerate(places):
        view = [1] * (2 * n)
        view[i], view[n + i] = outs[i], windows[i]
        part = place.reshape(view)
        flat = part if flat is None else flat * space[i] + part
    assert flat is not None
    table = flat.expand([*outs, *windows]).reshape([*outs, -1])
    best = x.argmax(-1, keepdim=True)
    values = x.gather(-1, best).squeeze(-1)
    indices = table.expand([*lead, *table.shape]).gather(-1, best).squeeze(-1)
    return values, indices


def _adaptive_max(op: str, input: Tensor, output_size: Any, return_indices: bool, n: int) -> Any:
    sizes = _adaptive_sizes(op, input, output_size, n)
    with _C._Step(f"adaptive_max_pool{n}d" if n > 1 else "max_pool1d"):
        return _maxima(input, sizes, return_indices, n)


def _maxima(input: Tensor, sizes: tuple[int, ...], return_indices: bool, n: int) -> Any:
    windows = _even(input, sizes) if input.numel() > 0 else None
    if windows is not None and not return_indices:
        pool: Any = (_C.max_pool1d, _C.max_pool2d, _C.max_pool3d)[n - 1]
        return pool(input, windows)
    if 0 in sizes or input.numel() == 0:
        empty = input.new_zeros([*input.shape[:-n], *sizes])
        return (empty, empty.to(lucid.int64)) if return_indices else empty
    places = [_places(input.shape[i - n], out, input) for i, out in enumerate(sizes)]
    values, indices = (found._result_of(input, n == 3) for found in _windowed_max(input, places, n))
    return (values, indices) if return_indices else values


def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest elements of (N, C, L) or (C, L) in windows that give `output_size` elements."""
    return _adaptive_max("adaptive_max_pool1d", input, output_size, return_indices, 1)


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest elements of (N, C, H, W) or (C, H, W) in windows that give `output_size`; None keeps a size."""
    return _adaptive_max("adaptive_max_pool2d", input, output_size, return_indices, 2)


def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest elements of (N, C, D, H, W) or (C, D, H, W) in windows that give `output_size`."""
    return _adaptive_max("adaptive_max_pool3d", input, output_size, return_indices, 3)


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
    """`(Σ x^p)^(1/p)` over windows of (N, C, L) or (C, L), with p = `norm_type`."""
    return _lp_pool(input, norm_type, kernel_size, stride, ceil_mode, 1)


def lp_pool2d(input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
    """`(Σ x^p)^(1/p)` over windows of (N, C, H, W) or (C, H, W), with p = `norm_type`."""
    return _lp_pool(input, norm_type, kernel_size, stride, ceil_mode, 2)


def lp_pool3d(input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
    """`(Σ x^p)^(1/p)` over windows of (N, C, D, H, W) or (C, D, H, W), with p = `norm_type`."""
    return _lp_pool(input, norm_type, kernel_size, stride, ceil_mode, 3)


def _unpool(
    op: str, input: Tensor, indices: Tensor, kernel_size: Any, stride: Any, padding: Any, output_size: Any, n: int
) -> Tensor:
    window, pad = each(kernel_size, n), each(padding, n)
    steps = window if stride is None else each(stride, n)
    if input.dim() not in (n + 1, n + 2):
        raise errors.RuntimeError(f"{op}: Input to {op} should be a {n + 1}d or {n + 2}d Tensor, got {input.dim()}d")
    if indices.shape != input.shape:
        raise errors.RuntimeError(
            f"{op}: Expected shape of indices to be that of the input {list(input.shape)} but got {list(indices.shape)}"
        )
    if indices.dtype != lucid.int64:
        raise errors.RuntimeError(f"{op}: elements in indices should be type int64 but got: {indices.dtype}")
    if n == 3 and any(step <= 0 for step in steps):
        raise errors.RuntimeError(f"{op}: strides should be greater than zero, but got stride: {list(steps)}")
    default = [(input.shape[i - n] - 1) * steps[i] + window[i] - 2 * pad[i] for i in range(n)]
    if output_size is None:
        sizes = default
    else:
        sizes = list(output_size)[-n:] if len(output_size) == n + 2 else list(output_size)
        if len(sizes) != n:
            raise errors.ValueError(
                f"output_size should be a sequence containing {n} or {n + 2} elements, but it has a length of "
                f"'{len(output_size)}'"
            )
        for i, (size, usual) in enumerate(zip(sizes, default, strict=True)):
            if not usual - steps[i] < size < usual + steps[i]:
                raise errors.ValueError(
                    f'invalid output_size "{output_size}" (dim {i} must be between {usual - steps[i]} and '
                    f"{usual + steps[i]})"
                )
    total = 1
    for size in sizes:
        total *= size
    lead = list(input.shape[:-n])
    flat, places = input.reshape([*lead, -1]), indices.reshape([*lead, -1])
    blank = lucid.zeros([*lead, total], dtype=input.dtype, device=input.device)
    try:
        made = blank.scatter(len(lead), places, flat)
    except errors.IndexError as error:
        raise errors.RuntimeError(f"{op}: Found an invalid max index ({error})") from None
    made = made.reshape([*lead, *sizes])
    return made._result_of(input, n != 2)


def max_unpool1d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """Puts the elements that `max_pool1d` picked back where they were, among zeros."""
    return _unpool("max_unpool1d", input, indices, kernel_size, stride, padding, output_size, 1)


def max_unpool2d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """Puts the elements that `max_pool2d` picked back where they were, among zeros."""
    return _unpool("max_unpool2d", input, indices, kernel_size, stride, padding, output_size, 2)


def max_unpool3d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """Puts the elements that `max_pool3d` picked back where they were, among zeros."""
    return _unpool("max_unpool3d", input, indices, kernel_size, stride, padding, output_size, 3)


def _fractional(
    op: str,
    input: Tensor,
    kernel_size: Any,
    output_size: Any,
    output_ratio: Any,
    return_indices: bool,
    samples: Tensor | None,
    n: int,
) -> Any:
    if input.dim() not in (n + 1, n + 2):
        raise errors.RuntimeError(f"{op}: Expected {n + 1}D or {n + 2}D tensor, but got {list(input.shape)}")
    if output_size is None and output_ratio is None:
        raise errors.ValueError(f"{op} requires specifying either an output_size or an output_ratio")
    window = each(kernel_size, n)
    space = list(input.shape[-n:])
    if output_size is None:
        ratios = each(output_ratio, n)
        sizes = [int(size * ratio) for size, ratio in zip(space, ratios, strict=True)]
    else:
        sizes = list(each(output_size, n))
    for size, out, k in zip(space, sizes, window, strict=True):
        if out < 1 or out + k - 1 > size:
            raise errors.RuntimeError(f"{op}: pool size {k} with output {out} is too large for input size {size}")
    alone = input.dim() == n + 1
    x = input.unsqueeze(0) if alone else input
    count, channels = x.shape[:2]
    if samples is None:
        samples = lucid.rand([count, channels, n], device=x.device, dtype=x.dtype)
    # There may be samples for a larger batch.
    samples = samples[:count]
    # PyTorch's samples list the last dimension first in 2-d, and the first one first in 3-d.
    order = [1, 0] if n == 2 else list(range(n))
    flat = None
    for i in range(n):
        u = samples[:, :, order[i]].detach()
        size, out, k = space[i], sizes[i], window[i]
        if out > 1:
            alpha = (size - k) / (out - 1)
            step = lucid.arange(out - 1, device=x.device).to(u.dtype)
            begins = ((step + u.unsqueeze(-1)) * alpha).to(lucid.int64) - (u.unsqueeze(-1) * alpha).to(lucid.int64)
            last = lucid.full([count, channels, 1], size - k, device=x.device)
            begins = lucid.cat([begins, last], 2)
        else:
            begins = lucid.full([count, channels, 1], size - k, device=x.device)
        part = begins.unsqueeze(-1) + lucid.arange(k, device=x.device)
        view = [count, channels, *([1] * (2 * n))]
        view[2 + i], view[2 + n + i] = out, k
        part = part.reshape(view)
        flat = part if flat is None else flat * size + part
    assert flat is not None
    table = flat.reshape([count, channels, *sizes, math.prod(window)])
    found = x.reshape([count, channels, math.prod(space)]).gather(2, table.flatten(2)).reshape(table.shape)
    best = found.argmax(-1, keepdim=True)
    values, indices = found.gather(-1, best).squeeze(-1), table.gather(-1, best).squeeze(-1)
    if alone:
        values, indices = values.squeeze(0), indices.squeeze(0)
    values, indices = values._result_of(input, True), indices._result_of(input, True)
    return (values, indices) if return_indices else values


def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Max-pooling of (N, C, H, W) over windows at random steps that give `output_size` (Graham, 2014)."""
    return _fractional(
        "fractional_max_pool2d", input, kernel_size, output_size, output_ratio, return_indices, _random_samples, 2
    )


def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Max-pooling of (N, C, D, H, W) over windows at random steps that give `output_size` (Graham, 2014)."""
    return _fractional(
        "fractional_max_pool3d", input, kernel_size, output_size, output_ratio, return_indices, _random_samples, 3
    )


def adaptive_max_pool1d_with_indices(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """`adaptive_max_pool1d` with `return_indices`."""
    found: tuple[Tensor, Tensor] = adaptive_max_pool1d(input, output_size, True)
    return found


def adaptive_max_pool2d_with_indices(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """`adaptive_max_pool2d` with `return_indices`."""
    found: tuple[Tensor, Tensor] = adaptive_max_pool2d(input, output_size, True)
    return found


def adaptive_max_pool3d_with_indices(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """`adaptive_max_pool3d` with `return_indices`."""
    found: tuple[Tensor, Tensor] = adaptive_max_pool3d(input, output_size, True)
    return found


def fractional_max_pool2d_with_indices(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`fractional_max_pool2d` with `return_indices`."""
    found: tuple[Tensor, Tensor] = fractional_max_pool2d(
        input, kernel_size, output_size, output_ratio, True, _random_samples
    )
    return found


def fractional_max_pool3d_with_indices(
    input: Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`fractional_max_pool3d` with `return_indices`."""
    found: tuple[Tensor, Tensor] = fractional_max_pool3d(
        input, kernel_size, output_size, output_ratio, True, _random_samples
    )
    return found
