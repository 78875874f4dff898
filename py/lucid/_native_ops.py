"""The `native_…` norms and dropout, and norms of slices, under the names and arguments of `torch`.

They give what a layer works with beside its result: statistics, or the mask. `lucid` looks names up here when they are
first asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

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
    """Gives the number of the GPU that a tensor is on.

    Args:
        input (Tensor): of any shape.

    Returns:
        int: 0 on the GPU device, of which there is one; -1 on the CPU.

    Example:
        >>> lucid.get_device(lucid.ones(1))
        -1
    """
    return input.get_device()


def _int_mm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The product of matrices of int8, summed in int32: (n, k) and (k, m) give (n, m). No gradient.

    Args:
        input, mat2: int8 tensors of two dimensions.
        out: an int32 tensor for the result.

    Raises:
        RuntimeError: other dtypes, dimensions, or sizes that do not fit.

    Differences from PyTorch: any sizes, where CUDA's kernel wants multiples of 8.

    Example:
        >>> lucid._int_mm(lucid.full((1, 2), 100, dtype=lucid.int8), lucid.full((2, 1), 100, dtype=lucid.int8))
        tensor([[20000]], dtype=int32)
    """
    for name, x in (("self", input), ("mat2", mat2)):
        if x.dim() != 2:
            raise errors.RuntimeError(f"_int_mm: Expected {name} to be of dimension 2 but got {x.dim()}")
        if x.dtype is not lucid.int8:
            raise errors.RuntimeError(f"_int_mm: Expected {name} dtype to be of type int8 but got {x.dtype}")
    if input.shape[1] != mat2.shape[0]:
        raise errors.RuntimeError(
            f"_int_mm: self.size(1) needs to match mat2.size(0), got {list(input.shape)} and {list(mat2.shape)}"
        )
    if out is not None and out.dtype is not lucid.int32:
        raise errors.RuntimeError(f"_int_mm: Expected result dtype to be of type int32 but got {out.dtype}")
    made = lucid.mm(input.to(lucid.int32), mat2.to(lucid.int32))
    return made if out is None else lucid.add(made, 0, out=out)


def _scaled_mm(
    input: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: lucid.dtype | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """The product of `scale_a · input` and `scale_b · mat2`, matrices of 8-bit floats, added up in float32.

    Args:
        input, mat2: (M, K) and (K, N) of float8_e4m3fn or float8_e5m2.
        scale_a, scale_b: one number each, or (M, 1) and (1, N).
        bias: (N), added to the product.
        scale_result: accepted as in PyTorch, whose kernels for the CPU do not use it either.
        out_dtype: the result's dtype; that of `input` by default.
        use_fast_accum: accepted: sums are always in float32.

    Raises:
        RuntimeError: other dtypes, or shapes that do not fit.

    Example:
        >>> x = lucid.ones(2, 4).to(lucid.float8_e4m3fn)
        >>> one = lucid.tensor(1.0)
        >>> lucid._scaled_mm(x, x.t(), one * 3, one, out_dtype=lucid.float32)
        tensor([[12., 12.],
                [12., 12.]])
    """
    for name, x in (("mat1", input), ("mat2", mat2)):
        if x.dtype not in (lucid.float8_e4m3fn, lucid.float8_e5m2):
            raise errors.RuntimeError(f"_scaled_mm: Expected {name} to be Float8 matrix got {x.dtype}")
    if input.dim() != 2 or mat2.dim() != 2 or input.shape[1] != mat2.shape[0]:
        a, b = ("x".join(map(str, x.shape)) for x in (input, mat2))
        raise errors.RuntimeError(f"_scaled_mm: mat1 and mat2 shapes cannot be multiplied ({a} and {b})")
    for name, scale, shape in (("scale_a", scale_a, (input.shape[0], 1)), ("scale_b", scale_b, (1, mat2.shape[1]))):
        if scale.numel() != 1 and tuple(scale.shape) != shape:
            raise errors.RuntimeError(f"_scaled_mm: expected {name} of one number or {shape}, got {list(scale.shape)}")
    product = (input.float() * scale_a.float()) @ (mat2.float() * scale_b.float())
    if bias is not None:
        product = product + bias.float()
    return product.to(out_dtype or input.dtype)


def _grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: lucid.dtype | None = None,
) -> Tensor:
    """Products of groups, as in mixtures of experts: each expert's rows with its own matrix.

    With `offs`, the ends of the groups (G), rising: (M, K) and (G, K, N) give (M, N), group g being rows
    `offs[g-1]` to `offs[g]`, and rows beyond the last end are 0; (M, K) and (K, N) give (G, M, N), group g being
    those elements of K; (G, M, K) and (K, N) give (M, N), group g being those columns. Without, (G, M, K) and
    (G, K, N) give (G, M, N). Gradients go through. `offs` is read, so that a GPU evaluates.

    Args:
        mat_a, mat_b: floating tensors of the same dtype.
        offs: int32.
        bias: not taken, as in PyTorch.
        out_dtype: the inputs' dtype, which is the default.

    Raises:
        RuntimeError: shapes or dtypes that do not fit, ends that do not rise or are beyond the size.

    Differences from PyTorch: all floating dtypes, where PyTorch's kernels want bfloat16 and rows of 16 bytes.
    """

    def fail(why: str) -> NoReturn:
        raise errors.RuntimeError(f"_grouped_mm: {why} (shapes: {list(mat_a.shape)}, {list(mat_b.shape)})")

    if bias is not None:
        fail("Bias not supported yet")
    if mat_a.dtype != mat_b.dtype or not mat_a.is_floating_point():
        fail(f"expected both matrices of one floating dtype, got {mat_a.dtype} and {mat_b.dtype}")
    if out_dtype is not None and out_dtype != mat_a.dtype:
        fail("Grouped gemm output dtype must match `mat_a` dtype")
    if mat_a.dim() not in (2, 3) or mat_b.dim() not in (2, 3):
        fail("mat_a and mat_b have to be 2 or 3 dim")
    if mat_a.shape[-1] != mat_b.shape[-2]:
        fail("contraction dimension of mat_a and mat_b must match")
    if mat_a.dim() == 3 and mat_b.dim() == 3:
        if offs is not None:
            fail("Have to provide offsets for 2d/3d cases alone")
        return lucid.bmm(mat_a, mat_b)
    if offs is None:
        fail("Have to provide offsets if there is a 2d matrix")
    if offs.dim() != 1 or offs.dtype is not lucid.int32:
        fail(f"Offsets have to be int32 and 1D, got {offs.dtype} and {offs.dim()}D")
    groups = mat_a.shape[0] if mat_a.dim() == 3 else mat_b.shape[0] if mat_b.dim() == 3 else len(offs)
    if len(offs) != groups:
        fail(f"matrix batch sizes have to match the {len(offs)} offsets")
    ends = [int(n) for n in offs.tolist()]
    size = mat_b.shape[-1] if mat_a.dim() == 3 else mat_a.shape[-1] if mat_b.dim() == 2 else mat_a.shape[0]
    starts = [0, *ends[:-1]]
    if any(a > b for a, b in zip(starts, ends, strict=False)) or (ends and ends[-1] > size):
        fail(f"offsets must rise to at most {size}, got {ends}")
    pairs = list(zip(starts, ends, strict=True))
    if mat_a.dim() == 2 and mat_b.dim() == 2:
        parts = [mat_a[:, a:b] @ mat_b[a:b] for a, b in pairs]
        return lucid.stack(parts) if parts else mat_a.new_zeros([0, mat_a.shape[0], mat_b.shape[1]])
    if mat_a.dim() == 2:
        parts = [mat_a[a:b] @ mat_b[g] for g, (a, b) in enumerate(pairs)]
        rest = size - (ends[-1] if ends else 0)
        return lucid.cat([*parts, mat_a.new_zeros([rest, mat_b.shape[-1]])])
    parts = [mat_a[g] @ mat_b[:, a:b] for g, (a, b) in enumerate(pairs)]
    rest = size - (ends[-1] if ends else 0)
    return lucid.cat([*parts, mat_a.new_zeros([mat_a.shape[1], rest])], 1)


def _shape_as_tensor(input: Tensor) -> Tensor:
    """The sizes as an int64 tensor on the CPU."""
    return lucid.tensor(list(input.shape), dtype=lucid.int64)


def _softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: lucid.dtype) -> Tensor:
    """The gradient of softmax along a dimension, from its result: `(grad - sum(grad * output)) * output`."""
    scaled = grad_output * output
    return (scaled - output * scaled.sum(dim, keepdim=True)).to(input_dtype)
