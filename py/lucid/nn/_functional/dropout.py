"""Dropout of elements and of whole channels."""

from __future__ import annotations

import math

import lucid
from lucid import _C, Tensor, errors
from lucid._warnings import warn

__all__ = [
    "alpha_dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "feature_alpha_dropout",
]


def _check_p(p: float) -> None:
    if not 0 <= p <= 1:
        raise errors.ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _kept(input: Tensor, shape: list[int], p: float) -> Tensor:
    return (lucid.rand(shape, device=input.device) >= p).to(input.dtype)


def _zeroed(name: str, input: Tensor, p: float) -> Tensor | None:
    """The input by 0, of any dtype, where nothing is kept; integers cannot be scaled where some are."""
    if p == 1:
        return input * lucid.zeros((), dtype=input.dtype, device=input.device)
    if not (input.is_floating_point() or input.is_complex()):
        raise errors.RuntimeError(f"{name}: not implemented for {input.dtype} with p = {p}")
    return None


def _channel_dropout(input: Tensor, p: float, training: bool, inplace: bool, unbatched: int | None) -> Tensor:
    _check_p(p)
    if not training or p == 0:
        return input
    alone = unbatched is not None and input.dim() == unbatched
    lead = 1 if alone else 2
    shape = [*input.shape[:lead], *([1] * (input.dim() - lead))]
    read = _C._rewritten(input) if inplace else input
    made = _zeroed("feature_dropout", read, p)
    if made is None:
        made = read * (_kept(input, shape, p) / (1 - p))
    return _C._overwrite(input, made) if inplace else made


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of (N, C, L) or (C, L) with probability `p`, and scales the others by 1/(1-p).

    Args:
        input (Tensor): (N, C, L) or (C, L).
        p (float, default: 0.5): the probability that a channel is zeroed.
        training (bool, default: True): whether the function is used in training; otherwise `input` is returned.
        inplace (bool, default: False): writes the result over `input`, and returns `input`.

    Returns:
        Tensor: the shape and dtype of `input`.

    Raises:
        ValueError: `p` is not within 0 to 1.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.dropout1d(lucid.ones(1, 4, 2), 0.5).sum(2) % 4
        tensor([[0., 0., 0., 0.]])
    """
    if input.dim() not in (2, 3):
        raise errors.RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {input.dim()}D input. Note that dropout1d exists to "
            f"provide channel-wise dropout on inputs with 1 spatial dimension, a channel dimension, and an optional "
            f"batch dimension (i.e. 2D or 3D inputs)."
        )
    return _channel_dropout(input, p, training, inplace, 2)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of (N, C, H, W) with probability `p`, and scales the others by 1/(1-p).

    A tensor of three dimensions counts as (N, C, L), as in PyTorch, with a warning.

    Args:
        input (Tensor): (N, C, H, W).
        p (float, default: 0.5): the probability that a channel is zeroed.
        training (bool, default: True): whether the function is used in training; otherwise `input` is returned.
        inplace (bool, default: False): writes the result over `input`, and returns `input`.

    Returns:
        Tensor: the shape and dtype of `input`.

    Raises:
        ValueError: `p` is not within 0 to 1.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.dropout2d(lucid.ones(1, 4, 2, 2), 0.5).sum((2, 3)) % 8
        tensor([[0., 0., 0., 0.]])
    """
    if input.dim() == 3:
        warn(
            "dropout2d: Received a 3D input, which counts as (N, C, L). In a future release it will count as "
            "(C, H, W): use dropout1d for (N, C, L)."
        )
    elif input.dim() != 4:
        _warn_of_rank("dropout2d", input)
    return _channel_dropout(input, p, training, inplace, None)


def _warn_of_rank(name: str, input: Tensor) -> None:
    warn(
        f"{name}: Received a {input.dim()}-D input, which is deprecated and will be an error in a future release. "
        "Use dropout, which zeroes elements and not channels."
    )


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes whole channels of (N, C, D, H, W) or (C, D, H, W) with probability `p`, and scales the others.

    Args:
        input (Tensor): (N, C, D, H, W) or (C, D, H, W).
        p (float, default: 0.5): the probability that a channel is zeroed.
        training (bool, default: True): whether the function is used in training; otherwise `input` is returned.
        inplace (bool, default: False): writes the result over `input`, and returns `input`.

    Returns:
        Tensor: the shape and dtype of `input`.

    Raises:
        ValueError: `p` is not within 0 to 1.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.dropout3d(lucid.ones(1, 4, 2, 2, 2), 0.5).sum((2, 3, 4)) % 16
        tensor([[0., 0., 0., 0.]])
    """
    if input.dim() not in (4, 5):
        _warn_of_rank("dropout3d", input)
    return _channel_dropout(input, p, training, inplace, 4)


_ALPHA = -1.7580993408473766  # where selu ends far below zero


def _alpha_dropout(input: Tensor, shape: list[int], p: float, training: bool, inplace: bool) -> Tensor:
    _check_p(p)
    if not training or p == 0:
        return input
    read = _C._rewritten(input) if inplace else input
    made = _zeroed("alpha_dropout", read, p)
    if made is None:
        a = 1 / math.sqrt((_ALPHA * _ALPHA * p + 1) * (1 - p))
        kept = _kept(input, shape, p)
        made = read * (kept * a) + ((1 - kept) * (_ALPHA * a) + _ALPHA * a * -p)
    return _C._overwrite(input, made) if inplace else made


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout to selu's lowest value, keeping mean 0 and variance 1 (Klambauer et al., 2017).

    Args:
        input (Tensor): any shape, floating.
        p (float, default: 0.5): the probability that an element is set to the lowest value.
        training (bool, default: False): whether the function is used in training; otherwise `input` is returned.
        inplace (bool, default: False): writes the result over `input`, and returns `input`.

    Returns:
        Tensor: the shape and dtype of `input`.

    Raises:
        ValueError: `p` is not within 0 to 1.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.alpha_dropout(lucid.zeros(2, 3), 0.5, training=True).shape
        lucid.Size([2, 3])
    """
    return _alpha_dropout(input, list(input.shape), p, training, inplace)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """`alpha_dropout` of whole channels of (N, C, …).

    Args:
        input (Tensor): (N, C, …), floating.
        p (float, default: 0.5): the probability that a channel is set to the lowest value.
        training (bool, default: False): whether the function is used in training; otherwise `input` is returned.
        inplace (bool, default: False): writes the result over `input`, and returns `input`.

    Returns:
        Tensor: the shape and dtype of `input`.

    Raises:
        ValueError: `p` is not within 0 to 1.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.feature_alpha_dropout(lucid.zeros(2, 3, 4), 0.5, training=True).shape
        lucid.Size([2, 3, 4])
    """
    shape = [*input.shape[:2], *([1] * max(input.dim() - 2, 0))]
    return _alpha_dropout(input, shape, p, training, inplace)
