"""Max pools beyond one call of the engine, and their inverse."""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid import _C, Tensor, errors
from lucid.nn._functional.pooling import _adaptive_sizes, _even, _places, each

__all__ = [
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
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
]


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
    """The largest elements of (N, C, L) or (C, L) in windows that give `output_size` elements.

    Args:
        input (Tensor): (N, C, L) or (C, L).
        output_size (int): the number of windows.
        return_indices (bool, default: False): also returns where each element was taken from.

    Returns:
        Tensor: (N, C, output_size), and the indices of that shape with `return_indices`.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.adaptive_max_pool1d(lucid.tensor([[[1.0, 4.0, 3.0, 2.0]]]), 2, return_indices=True)
        (tensor([[[4., 3.]]]), tensor([[[1, 2]]]))
    """
    return _adaptive_max("adaptive_max_pool1d", input, output_size, return_indices, 1)


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest elements of (N, C, H, W) or (C, H, W) in windows that give `output_size`; None keeps a size.

    Args:
        input (Tensor): (N, C, H, W) or (C, H, W).
        output_size (int or tuple of ints): the numbers of windows.
        return_indices (bool, default: False): also returns where each element was taken from.

    Returns:
        Tensor: (N, C, *output_size), and the indices of that shape with `return_indices`.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.adaptive_max_pool2d(lucid.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), 1)
        tensor([[[[4.]]]])
    """
    return _adaptive_max("adaptive_max_pool2d", input, output_size, return_indices, 2)


def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest elements of (N, C, D, H, W) or (C, D, H, W) in windows that give `output_size`.

    Args:
        input (Tensor): (N, C, D, H, W) or (C, D, H, W).
        output_size (int or tuple of ints): the numbers of windows.
        return_indices (bool, default: False): also returns where each element was taken from.

    Returns:
        Tensor: (N, C, *output_size), and the indices of that shape with `return_indices`.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.adaptive_max_pool3d(lucid.ones(1, 1, 4, 4, 4), 2).shape
        lucid.Size([1, 1, 2, 2, 2])
    """
    return _adaptive_max("adaptive_max_pool3d", input, output_size, return_indices, 3)


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
    """Puts the elements that `max_pool1d` picked back where they were, among zeros.

    Args:
        input (Tensor): (N, C, L') or (C, L').
        indices (Tensor): what `max_pool1d` returned with `return_indices`, of the shape of `input`.
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        stride (int or tuple of ints, optional): the distance of neighbouring windows, a number or one for each spatial
            dimension.
        padding (int or tuple of ints, default: 0): what is added on both sides of each spatial dimension.
        output_size (int or tuple of ints, optional): the size of the result; the smallest possible one by default.

    Returns:
        Tensor: (N, C, L).

    Example:
        >>> import lucid.nn.functional as F
        >>> x, indices = F.max_pool1d(lucid.tensor([[[1.0, 3.0, 2.0, 0.0]]]), 2, return_indices=True)
        >>> F.max_unpool1d(x, indices, 2)
        tensor([[[0., 3., 2., 0.]]])
    """
    return _unpool("max_unpool1d", input, indices, kernel_size, stride, padding, output_size, 1)


def max_unpool2d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """Puts the elements that `max_pool2d` picked back where they were, among zeros.

    Args:
        input (Tensor): (N, C, H', W') or (C, H', W').
        indices (Tensor): what `max_pool2d` returned with `return_indices`, of the shape of `input`.
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        stride (int or tuple of ints, optional): the distance of neighbouring windows, a number or one for each spatial
            dimension.
        padding (int or tuple of ints, default: 0): what is added on both sides of each spatial dimension.
        output_size (int or tuple of ints, optional): the size of the result; the smallest possible one by default.

    Returns:
        Tensor: (N, C, H, W).

    Example:
        >>> import lucid.nn.functional as F
        >>> x, indices = F.max_pool2d(lucid.tensor([[[[1.0, 3.0], [2.0, 0.0]]]]), 2, return_indices=True)
        >>> F.max_unpool2d(x, indices, 2)
        tensor([[[[0., 3.],
                  [0., 0.]]]])
    """
    return _unpool("max_unpool2d", input, indices, kernel_size, stride, padding, output_size, 2)


def max_unpool3d(
    input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Tensor:
    """Puts the elements that `max_pool3d` picked back where they were, among zeros.

    Args:
        input (Tensor): (N, C, D', H', W') or (C, D', H', W').
        indices (Tensor): what `max_pool3d` returned with `return_indices`, of the shape of `input`.
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        stride (int or tuple of ints, optional): the distance of neighbouring windows, a number or one for each spatial
            dimension.
        padding (int or tuple of ints, default: 0): what is added on both sides of each spatial dimension.
        output_size (int or tuple of ints, optional): the size of the result; the smallest possible one by default.

    Returns:
        Tensor: (N, C, D, H, W).

    Example:
        >>> import lucid.nn.functional as F
        >>> x, indices = F.max_pool3d(lucid.arange(8.0).view(1, 1, 2, 2, 2), 2, return_indices=True)
        >>> F.max_unpool3d(x, indices, 2).flatten()
        tensor([0., 0., 0., 0., 0., 0., 0., 7.])
    """
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
    """Max-pooling of (N, C, H, W) over windows at random steps that give `output_size` (Graham, 2014).

    Args:
        input (Tensor): (N, C, H, W) or (C, H, W).
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        output_size (int or tuple of ints, optional): the size of the result; this or `output_ratio` must be given.
        output_ratio (float or tuple of floats, optional): the size of the result over that of the input, within 0 to 1.
        return_indices (bool, default: False): also returns where each element was taken from.

    Returns:
        Tensor: (N, C, *output_size), and the indices of that shape with `return_indices`.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.fractional_max_pool2d(lucid.rand(1, 1, 8, 8), 2, output_size=5).shape
        lucid.Size([1, 1, 5, 5])
    """
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
    """Max-pooling of (N, C, D, H, W) over windows at random steps that give `output_size` (Graham, 2014).

    Args:
        input (Tensor): (N, C, D, H, W) or (C, D, H, W).
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        output_size (int or tuple of ints, optional): the size of the result; this or `output_ratio` must be given.
        output_ratio (float or tuple of floats, optional): the size of the result over that of the input, within 0 to 1.
        return_indices (bool, default: False): also returns where each element was taken from.

    Returns:
        Tensor: (N, C, *output_size), and the indices of that shape with `return_indices`.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.fractional_max_pool3d(lucid.rand(1, 1, 8, 8, 8), 2, output_size=5).shape
        lucid.Size([1, 1, 5, 5, 5])
    """
    return _fractional(
        "fractional_max_pool3d", input, kernel_size, output_size, output_ratio, return_indices, _random_samples, 3
    )


def adaptive_max_pool1d_with_indices(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """`adaptive_max_pool1d` with `return_indices`.

    Args:
        input (Tensor): (N, C, L) or (C, L).
        output_size (int or tuple of ints): the numbers of windows.
        return_indices (bool, default: False): has no effect; the indices are always returned.

    Returns:
        tuple (values, indices): both (N, C, *output_size); the indices int64.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.adaptive_max_pool1d_with_indices(lucid.arange(8.0).view(1, 1, 8), 1)
        (tensor([[[7.]]]), tensor([[[7]]]))
    """
    found: tuple[Tensor, Tensor] = adaptive_max_pool1d(input, output_size, True)
    return found


def adaptive_max_pool2d_with_indices(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """`adaptive_max_pool2d` with `return_indices`.

    Args:
        input (Tensor): (N, C, H, W) or (C, H, W).
        output_size (int or tuple of ints): the numbers of windows.
        return_indices (bool, default: False): has no effect; the indices are always returned.

    Returns:
        tuple (values, indices): both (N, C, *output_size); the indices int64.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.adaptive_max_pool2d_with_indices(lucid.arange(8.0).view(1, 1, 1, 8), 1)
        (tensor([[[[7.]]]]), tensor([[[[7]]]]))
    """
    found: tuple[Tensor, Tensor] = adaptive_max_pool2d(input, output_size, True)
    return found


def adaptive_max_pool3d_with_indices(
    input: Tensor, output_size: Any, return_indices: bool = False
) -> tuple[Tensor, Tensor]:
    """`adaptive_max_pool3d` with `return_indices`.

    Args:
        input (Tensor): (N, C, D, H, W) or (C, D, H, W).
        output_size (int or tuple of ints): the numbers of windows.
        return_indices (bool, default: False): has no effect; the indices are always returned.

    Returns:
        tuple (values, indices): both (N, C, *output_size); the indices int64.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.adaptive_max_pool3d_with_indices(lucid.arange(8.0).view(1, 1, 1, 1, 8), 1)
        (tensor([[[[[7.]]]]]), tensor([[[[[7]]]]]))
    """
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
    """`fractional_max_pool2d` with `return_indices`.

    Args:
        input (Tensor): (N, C, H, W) or (C, H, W).
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        output_size (int or tuple of ints, optional): the size of the result; this or `output_ratio` must be given.
        output_ratio (float or tuple of floats, optional): the size of the result over that of the input, within 0 to 1.
        return_indices (bool, default: False): has no effect; the indices are always returned.

    Returns:
        tuple (values, indices): both (N, C, *output_size); the indices int64.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.fractional_max_pool2d_with_indices(lucid.rand(1, 1, 8, 8), 2, output_size=5)[1].shape
        lucid.Size([1, 1, 5, 5])
    """
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
    """`fractional_max_pool3d` with `return_indices`.

    Args:
        input (Tensor): (N, C, D, H, W) or (C, D, H, W).
        kernel_size (int or tuple of ints): the size of the window, a number or one for each spatial dimension.
        output_size (int or tuple of ints, optional): the size of the result; this or `output_ratio` must be given.
        output_ratio (float or tuple of floats, optional): the size of the result over that of the input, within 0 to 1.
        return_indices (bool, default: False): has no effect; the indices are always returned.

    Returns:
        tuple (values, indices): both (N, C, *output_size); the indices int64.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.fractional_max_pool3d_with_indices(lucid.rand(1, 1, 8, 8, 8), 2, output_size=5)[1].shape
        lucid.Size([1, 1, 5, 5, 5])
    """
    found: tuple[Tensor, Tensor] = fractional_max_pool3d(
        input, kernel_size, output_size, output_ratio, True, _random_samples
    )
    return found
