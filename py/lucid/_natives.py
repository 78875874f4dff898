"""The `native_…` norms and dropout, and norms of slices, under the names and arguments of `torch`.

They give what a layer works with beside its result: statistics, or the mask. `lucid` looks names up here when they are
first asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

import lucid
from lucid import Tensor, errors
from lucid.nn import functional as F


def _statistics(x: Tensor, dims: Sequence[int], eps: float, keepdim: bool) -> tuple[Tensor, Tensor]:
    """Mean and one over the standard deviation, computed in float32 where `x` has 16 bits."""
    wide = x.float() if x.element_size() == 2 else x
    rstd = (lucid.var(wide, list(dims), correction=0, keepdim=keepdim) + eps).rsqrt()
    return wide.mean(list(dims), keepdim).to(x.dtype), rstd.to(x.dtype)


def native_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`layer_norm`, and the mean and one over the standard deviation of each sample, with ones in place of the
    dimensions that are gone. The latter two have no gradient.

    Raises:
        RuntimeError: the shapes do not fit, as for `layer_norm`.
        TypeError: `normalized_shape` is no sequence.
    """
    if not isinstance(normalized_shape, (tuple, list)):
        raise errors.TypeError(
            "native_layer_norm(): argument 'normalized_shape' must be tuple of ints, not "
            f"{lucid.typename(normalized_shape)}"
        )
    out = F.layer_norm(input, normalized_shape, weight, bias, eps)
    last = range(input.ndim - len(normalized_shape), input.ndim)
    with lucid.no_grad():
        return out, *_statistics(input.detach(), last, eps, keepdim=True)


def native_group_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """`group_norm` of `N` samples of `C` channels of `HxW` elements, and the mean and one over the standard deviation
    of each sample's groups, (N, group).

    Raises:
        RuntimeError: the sizes are not the input's, or the channels do not fall into groups.
    """
    if input.numel() != N * C * HxW:
        raise errors.RuntimeError(
            f"native_group_norm: expected {N} x {C} x {HxW} elements, got a tensor of shape {tuple(input.shape)}"
        )
    if group < 1 or C % group:
        raise errors.RuntimeError(
            "native_group_norm: expected number of channels in input to be divisible by num_groups, got "
            f"{C} and {group}"
        )
    out = F.group_norm(input.reshape(N, C, HxW), group, weight, bias, eps).reshape(input.shape)
    made = _statistics(input.reshape(N, group, C // group * HxW), [2], eps, keepdim=False)
    return out._result_of(input), *made


def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """`batch_norm`, and the batch's mean and one over its standard deviation per channel; nothing of either unless
    `training`. The latter two have no gradient.

    Raises:
        IndexError: the input has no second dimension.
        ValueError: statistics are wanted in evaluation, and none are given.
    """
    if input.ndim < 2:
        raise errors.IndexError("Dimension out of range (native_batch_norm takes tensors of two dimensions and more)")
    if not training and running_mean is None:
        raise errors.ValueError("running_mean must be defined in evaluation mode")
    if not training and running_var is None:
        raise errors.ValueError("running_var must be defined in evaluation mode")
    out = F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if not training:
        return out, input.new_empty(0), input.new_empty(0)
    with lucid.no_grad():
        return out, *_statistics(input.detach(), [0, *range(2, input.ndim)], eps, keepdim=False)


def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """Each element with probability `p` zero, the others divided by `1 - p`; and which were kept. With `train=False`
    all are.

    Raises:
        RuntimeError: `p` is no probability, or the dtype is no floating or complex one.
    """
    if not 0.0 <= p <= 1.0:
        raise errors.RuntimeError(f"dropout probability has to be between 0 and 1, but got {p}")
    if train is False:
        return input.clone(), lucid.ones(input.shape, dtype=lucid.bool, device=input.device)
    if not input.is_floating_point() and not input.is_complex():
        raise errors.RuntimeError(f"result type Float can't be cast to the desired output type {input.dtype}")
    kept = lucid.bernoulli(lucid.full(input.shape, 1.0 - p, device=input.device)).bool()
    return input * kept * (0.0 if p == 1.0 else 1.0 / (1.0 - p)), kept


def frobenius_norm(
    input: Tensor, dim: int | Sequence[int], keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """The 2-norm of the elements along one or two dimensions; of all where `dim` is empty.

    Raises:
        RuntimeError: more than two dimensions, or a dtype that is neither floating nor complex.
    """
    dims = [dim] if isinstance(dim, int) else list(dim)
    if len(dims) > 2:
        raise errors.RuntimeError(f"Expected at most 2 dimensions, but got {len(dims)} dimensions instead.")
    return lucid.linalg.vector_norm(input, 2, dims or None, keepdim, out=out)


def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norm of order `pow` of each slice along `dim`, with ones in place of the other dimensions; of all where `dim`
    is -1.

    Raises:
        IndexError: there is no such dimension.
    """
    if dim == -1:
        return v.norm(pow)
    if not -v.ndim <= dim < v.ndim:
        raise errors.IndexError(
            f"norm_except_dim: Dimension out of range (got {dim} for a tensor of {v.ndim} dimensions)"
        )
    others = [d for d in range(v.ndim) if d != dim % v.ndim]
    return v.norm(pow, others, True) if others else v.abs()


def get_device(input: Tensor) -> int:
    """The number of the tensor's GPU; -1 on the CPU."""
    return input.get_device()


def _shape_as_tensor(input: Tensor) -> Tensor:
    """The sizes as an int64 tensor on the CPU."""
    return lucid.tensor(list(input.shape), dtype=lucid.int64)


def _softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: lucid.dtype) -> Tensor:
    """The gradient of softmax along a dimension, from its result: `(grad - sum(grad * output)) * output`."""
    scaled = grad_output * output
    return (scaled - output * scaled.sum(dim, keepdim=True)).to(input_dtype)
