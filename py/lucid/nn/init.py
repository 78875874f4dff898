"""`lucid.nn.init`: filling tensors in place, unseen by autograd.

Each function fills and gives back its tensor. Distributions and bounds are PyTorch's.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid._public_names import named
from lucid._warnings import warn

__all__ = [
    "calculate_gain",
    "constant",
    "constant_",
    "dirac",
    "dirac_",
    "eye",
    "eye_",
    "kaiming_normal",
    "kaiming_normal_",
    "kaiming_uniform",
    "kaiming_uniform_",
    "normal",
    "normal_",
    "ones_",
    "orthogonal",
    "orthogonal_",
    "sparse",
    "sparse_",
    "trunc_normal_",
    "uniform",
    "uniform_",
    "xavier_normal",
    "xavier_normal_",
    "xavier_uniform",
    "xavier_uniform_",
    "zeros_",
]

_LINEAR = (
    "linear",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "sigmoid",
)


@named
def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which an activation needs the standard deviation of its inputs' weights raised.

    Args:
        nonlinearity (str): The activation's name in `nn.functional`.
        param (float, optional): The slope of `leaky_relu`.

    Returns:
        float: the factor.

    Raises:
        ValueError: another name, or a slope that is no number.

    Example:
        >>> from lucid import nn
        >>> nn.init.calculate_gain("relu")
        1.4142135623730951
    """
    if nonlinearity in _LINEAR:
        return 1.0
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        if param is None:
            slope = 0.01
        elif isinstance(param, (int, float)) and not isinstance(param, bool):
            slope = param
        else:
            raise errors.ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise errors.ValueError(f"Unsupported nonlinearity {nonlinearity}")


@named
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform numbers from `a` to `b`.

    Args:
        tensor (Tensor): the tensor to fill, of any shape; written in place.
        a (float, default: 0.0): the lower bound.
        b (float, default: 1.0): the upper bound.
        generator (lucid.Generator, optional): the source of random bits; the one that `lucid.manual_seed` seeds by
            default.

    Returns:
        Tensor: `tensor` itself.

    Example:
        >>> from lucid import nn
        >>> x = nn.init.uniform_(lucid.empty(100), -1.0, 1.0)
        >>> bool((x.abs() <= 1).all())
        True
    """
    return _no_grad_uniform_(tensor, a, b, generator)


@named
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Normal numbers.

    Args:
        tensor (Tensor): the tensor to fill, of any shape; written in place.
        mean (float, default: 0.0): the mean of the distribution.
        std (float, default: 1.0): the standard deviation.
        generator (lucid.Generator, optional): the source of random bits; the one that `lucid.manual_seed` seeds by
            default.

    Returns:
        Tensor: `tensor` itself.

    Example:
        >>> from lucid import nn
        >>> nn.init.normal_(lucid.empty(2, 3)).shape
        lucid.Size([2, 3])
    """
    return _no_grad_normal_(tensor, mean, std, generator)


@named
def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None
) -> Tensor:
    """Normal numbers within `a` to `b`, by the inverse of the distribution function.

    Args:
        tensor (Tensor): the tensor to fill, of any shape; written in place.
        mean (float, default: 0.0): the mean of the whole distribution.
        std (float, default: 1.0): the standard deviation of the whole distribution.
        a (float, default: -2.0): the lower bound.
        b (float, default: 2.0): the upper bound.
        generator (lucid.Generator, optional): the source of random bits; the one that `lucid.manual_seed` seeds by
            default.

    Returns:
        Tensor: `tensor` itself.

    Example:
        >>> from lucid import nn
        >>> x = nn.init.trunc_normal_(lucid.empty(100), a=-1.0, b=1.0)
        >>> bool((x.abs() <= 1).all())
        True
    """
    return _no_grad_trunc_normal_(tensor, mean, std, a, b, generator)


def _no_grad_uniform_(tensor: Tensor, a: float, b: float, generator: Any = None) -> Tensor:
    with lucid.no_grad():
        return tensor.uniform_(a, b, generator=generator)


def _no_grad_normal_(tensor: Tensor, mean: float, std: float, generator: Any = None) -> Tensor:
    with lucid.no_grad():
        return tensor.normal_(mean, std, generator=generator)


def _no_grad_trunc_normal_(
    tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any = None
) -> Tensor:
    if mean < a - 2 * std or mean > b + 2 * std:
        warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. The distribution of values may be incorrect."
        )

    def below(x: float) -> float:
        return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0

    low, high = below((a - mean) / std), below((b - mean) / std)
    with lucid.no_grad():
        tensor.uniform_(2 * low - 1, 2 * high - 1, generator=generator)
        tensor.erfinv_()
        tensor.mul_(std * math.sqrt(2.0)).add_(mean)
        # Rounding, and an erfinv at ±1, may be outside.
        return tensor.copy_(tensor.clamp(a, b))


@named
def constant_(tensor: Tensor, val: float) -> Tensor:
    """One number everywhere.

    Args:
        tensor (Tensor): the tensor to fill, of any shape; written in place.
        val (float): the number.

    Returns:
        Tensor: `tensor` itself.

    Example:
        >>> from lucid import nn
        >>> nn.init.constant_(lucid.empty(2), 0.5)
        tensor([0.5000, 0.5000])
    """
    return _no_grad_fill_(tensor, val)


def _no_grad_fill_(tensor: Tensor, val: float) -> Tensor:
    with lucid.no_grad():
        return tensor.fill_(val)


def _no_grad_zero_(tensor: Tensor) -> Tensor:
    with lucid.no_grad():
        return tensor.zero_()


@named
def ones_(tensor: Tensor) -> Tensor:
    """Ones.

    Args:
        tensor (Tensor): the tensor to fill, of any shape; written in place.

    Returns:
        Tensor: `tensor` itself.

    Example:
        >>> from lucid import nn
        >>> nn.init.ones_(lucid.empty(2))
        tensor([1., 1.])
    """
    return constant_(tensor, 1.0)


@named
def zeros_(tensor: Tensor) -> Tensor:
    """Zeros.

    Args:
        tensor (Tensor): the tensor to fill, of any shape; written in place.

    Returns:
        Tensor: `tensor` itself.

    Example:
        >>> from lucid import nn
        >>> nn.init.zeros_(lucid.empty(2))
        tensor([0., 0.])
    """
    return _no_grad_zero_(tensor)


@named
def eye_(tensor: Tensor) -> Tensor:
    """The identity, for a 2-D tensor.

    Args:
        tensor (Tensor): the tensor to fill, (n, m); written in place.

    Returns:
        Tensor: `tensor` itself.

    Raises:
        ValueError: `tensor` is no matrix.

    Example:
        >>> from lucid import nn
        >>> nn.init.eye_(lucid.empty(2, 2))
        tensor([[1., 0.],
                [0., 1.]])
    """
    if tensor.dim() != 2:
        raise errors.ValueError(f"Only tensors with 2 dimensions are supported, got {list(tensor.shape)}")
    with lucid.no_grad():
        return tensor.copy_(lucid.eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device))


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """How many inputs an output sums over, and how many outputs an input goes to."""
    shape = tuple(tensor.shape)
    if len(shape) < 2:
        raise errors.ValueError(
            f"Fan in and fan out can not be computed for tensor with fewer than 2 dimensions, got {list(tensor.shape)}"
        )
    window = math.prod(shape[2:])
    return shape[1] * window, shape[0] * window


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise errors.ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return _calculate_fan_in_and_fan_out(tensor)[mode == "fan_out"]


@named
def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform within ±gain · sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio, 2010).

    Args:
        tensor (Tensor): the tensor to fill, (out, in, window…); written in place.
        gain (float, default: 1.0): a factor of the standard deviation.
        generator (lucid.Generator, optional): the source of random bits; the one that `lucid.manual_seed` seeds by
            default.

    Returns:
        Tensor: `tensor` itself.

    Example:
        >>> from lucid import nn
        >>> x = nn.init.xavier_uniform_(lucid.empty(3, 3))
        >>> bool((x.abs() <= 1).all())
        True
    """
    bound = gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor))) * math.sqrt(3.0)
    return uniform_(tensor, -bound, bound, generator)


@named
def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with deviation gain · sqrt(2 / (fan_in + fan_out)) (Glorot and Bengio, 2010).

    Args:
        tensor (Tensor): the tensor to fill, (out, in, window…); written in place.
        gain (float, default: 1.0): a factor of the standard deviation.
        generator (lucid.Generator, optional): the source of random bits; the one that `lucid.manual_seed` seeds by
            default.

    Returns:
        Tensor: `tensor` itself.

    Example:
        >>> from lucid import nn
        >>> nn.init.xavier_normal_(lucid.empty(3, 5)).shape
        lucid.Size([3, 5])
    """
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor))), generator)


@named
def kaiming_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Uniform within ±gain · sqrt(3 / fan) (He et al., 2015).

    Args:
        tensor (Tensor): the tensor to fill, (out, in, window…); written in place.
        a (float, default: 0): Slope of the leaky ReLU that follows.
        mode (str, default: "fan_in"): "fan_in" keeps the variance forward, "fan_out" backward.
        nonlinearity (str, default: "leaky_relu"): The activation's name.
        generator (lucid.Generator, optional): Where the numbers come from.

    Returns:
        Tensor: `tensor` itself.

    Example:
        >>> from lucid import nn
        >>> nn.init.kaiming_uniform_(lucid.empty(3, 5), nonlinearity="relu").shape
        lucid.Size([3, 5])
    """
    if 0 in tensor.shape:
        warn("Initializing zero-element tensors is a no-op")
        return tensor
    fan = _calculate_correct_fan(tensor, mode)
    bound = math.sqrt(3.0) * calculate_gain(nonlinearity, a) / math.sqrt(fan)
    return uniform_(tensor, -bound, bound, generator)


@named
def kaiming_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Normal with deviation gain / sqrt(fan) (He et al., 2015). Arguments as in `kaiming_uniform_`.

    Args:
        tensor (Tensor): the tensor to fill, (out, in, window…); written in place.
        a (float, default: 0): the slope of the leaky ReLU that follows.
        mode (str, default: "fan_in"): "fan_in" keeps the variance forward, "fan_out" backward.
        nonlinearity (str, default: "leaky_relu"): the activation that follows.
        generator (lucid.Generator, optional): the source of random bits; the one that `lucid.manual_seed` seeds by
            default.

    Returns:
        Tensor: `tensor` itself.

    Example:
        >>> from lucid import nn
        >>> nn.init.kaiming_normal_(lucid.empty(3, 5), nonlinearity="relu").shape
        lucid.Size([3, 5])
    """
    if 0 in tensor.shape:
        warn("Initializing zero-element tensors is a no-op")
        return tensor
    return normal_(
        tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode)), generator
    )


@named
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """The convolution that gives back its input, as far as there are channels; `tensor` is 3-D to 5-D.

    Args:
        tensor (Tensor): the tensor to fill, (out, in, window…); written in place.
        groups (int, default: 1): the number of groups of the convolution.

    Returns:
        Tensor: `tensor` itself.

    Raises:
        ValueError: `tensor` has fewer than 3 or more than 5 dimensions, or `groups` does not divide it.

    Example:
        >>> from lucid import nn
        >>> nn.init.dirac_(lucid.empty(1, 1, 3))
        tensor([[[0., 1., 0.]]])
    """
    if tensor.dim() not in (3, 4, 5):
        raise errors.ValueError(f"Only tensors with 3, 4, or 5 dimensions are supported, got {list(tensor.shape)}")
    outs, ins, *window = tensor.shape
    if groups < 1 or outs % groups:
        raise errors.ValueError(f"dim 0 must be divisible by groups, got {list(tensor.shape)} and {groups}")
    per_group = outs // groups
    with lucid.no_grad():
        tensor.zero_()
        for group in range(groups):
            for i in range(min(per_group, ins)):
                tensor[(group * per_group + i, i, *(size // 2 for size in window))] = 1
    return tensor


@named
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """Orthonormal rows or columns, whichever are fewer, times `gain` (Saxe et al., 2013).

    By Householder reflections of normal numbers, on the CPU in float64.

    Args:
        tensor (Tensor): the tensor to fill, (n, …); written in place.
        gain (float, default: 1): a factor of the standard deviation.
        generator (lucid.Generator, optional): the source of random bits; the one that `lucid.manual_seed` seeds by
            default.

    Returns:
        Tensor: `tensor` itself.

    Raises:
        ValueError: `tensor` has fewer than two dimensions.

    Example:
        >>> from lucid import nn
        >>> x = nn.init.orthogonal_(lucid.empty(2, 2))
        >>> lucid.allclose(x @ x.T, lucid.eye(2), atol=1e-6)
        True
    """
    if tensor.dim() < 2:
        raise errors.ValueError(f"Only tensors with 2 or more dimensions are supported, got {list(tensor.shape)}")
    if tensor.numel() == 0:
        return tensor
    rows = tensor.shape[0]
    columns = tensor.numel() // rows
    with lucid.no_grad():
        flat = lucid.empty((rows, columns), device="cpu").normal_(0, 1, generator=generator).to(lucid.float64)
        a = flat.t() if rows < columns else flat
        q = _orthonormal(a)
        made = q.t() if rows < columns else q
        return tensor.copy_((made * gain).to(lucid.float32).reshape(tuple(tensor.shape)))


def _orthonormal(a: Tensor) -> Tensor:
    """Q of the QR decomposition of a tall matrix, with signs such that R's diagonal is positive."""
    tall, wide = a.shape
    a = a.clone()
    reflections = []
    signs = []
    for j in range(wide):
        x = a[j:, j]
        size = x.square().sum().sqrt()
        first = x[0]
        sign = 1.0 if first.item() >= 0 else -1.0
        v = x.clone()
        v[0] = first + sign * size
        length = v.square().sum()
        v = v / length.sqrt() if length.item() > 0 else v
        block = a[j:, j:]
        a[j:, j:] = block - 2.0 * v.unsqueeze(1) * v.unsqueeze(0).matmul(block)
        reflections.append(v)
        signs.append(-sign)
    q = lucid.eye(tall, wide, dtype=a.dtype, device=a.device)
    for j in reversed(range(wide)):
        v = reflections[j]
        block = q[j:, :]
        q[j:, :] = block - 2.0 * v.unsqueeze(1) * v.unsqueeze(0).matmul(block)
    return q * lucid.tensor(signs, dtype=a.dtype, device=a.device)


@named
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Normal numbers, with a share `sparsity` of each column zero (Martens, 2010); `tensor` is 2-D.

    Args:
        tensor (Tensor): the tensor to fill, (n, m); written in place.
        sparsity (float): the share of each column that is zero.
        std (float, default: 0.01): the standard deviation of the other elements.
        generator (lucid.Generator, optional): the source of random bits; the one that `lucid.manual_seed` seeds by
            default.

    Returns:
        Tensor: `tensor` itself.

    Raises:
        ValueError: `tensor` is no matrix.

    Example:
        >>> from lucid import nn
        >>> int((nn.init.sparse_(lucid.empty(10, 2), 0.5) == 0).sum())
        10
    """
    if tensor.dim() != 2:
        raise errors.ValueError(f"Only tensors with 2 dimensions are supported, got {list(tensor.shape)}")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with lucid.no_grad():
        tensor.normal_(0, std, generator=generator)
        for column in range(columns):
            picked = lucid.randperm(rows, generator=generator, device=tensor.device)[:zeros]
            tensor[picked, column] = 0
    return tensor


def _deprecated(new: Any) -> Any:
    old = new.__name__.rstrip("_")

    def call(*args: Any, **kwargs: Any) -> Any:
        warn(f"`nn.init.{old}` is now deprecated in favor of `nn.init.{new.__name__}`.", FutureWarning)
        return new(*args, **kwargs)

    call.__name__ = call.__qualname__ = old
    # Its arguments, result and example are those of the new name.
    _, _, sections = inspect.cleandoc(new.__doc__).partition("\n")
    call.__doc__ = f"`{new.__name__}` by its old name; warns.\n{sections}"
    return call


uniform = _deprecated(uniform_)
normal = _deprecated(normal_)
constant = _deprecated(constant_)
eye = _deprecated(eye_)
dirac = _deprecated(dirac_)
xavier_uniform = _deprecated(xavier_uniform_)
xavier_normal = _deprecated(xavier_normal_)
kaiming_uniform = _deprecated(kaiming_uniform_)
kaiming_normal = _deprecated(kaiming_normal_)
orthogonal = _deprecated(orthogonal_)
sparse = _deprecated(sparse_)
