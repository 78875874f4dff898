"""Ops of `lucid.ops.aten` that have no public name of their own: what compilers and exported programs call.

They are made of public ops; signatures and results are PyTorch's. `lucid.ops` finds them here before the public names.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import lucid
import lucid.nn.functional as F
from lucid import Tensor

__all__ = [
    "_adaptive_avg_pool2d",
    "_local_scalar_dense",
    "_log_softmax",
    "_pin_memory",
    "_reshape_alias",
    "_softmax",
    "_sparse_addmm",
    "_to_copy",
    "_unsafe_index",
    "_unsafe_view",
    "alias",
    "gelu_backward",
    "index",
    "lift_fresh",
    "lift_fresh_copy",
    "nll_loss_forward",
    "sigmoid_backward",
    "slice",
    "sym_numel",
    "sym_size",
    "sym_storage_offset",
    "sym_stride",
    "tanh_backward",
    "threshold_backward",
    "upsample_bilinear2d",
    "upsample_nearest2d",
]

_REDUCTIONS = ("none", "mean", "sum")
_ALL = builtins.slice(None)


def sym_size(input: Tensor, dim: int | None = None) -> Any:
    """The sizes, or one of them; sizes are numbers here."""
    return input.size() if dim is None else input.size(dim)


def _pin_memory(input: Tensor, device: Any = None) -> Tensor:
    """The tensor: no memory here is read by a GPU without a copy. `device` has no effect, as in PyTorch."""
    return input.pin_memory()


def _sparse_addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """`beta * input + alpha * (mat1 @ mat2)` of a sparse `mat1`."""
    return lucid.sparse.addmm(input, mat1, mat2, beta=beta, alpha=alpha)


def sym_stride(input: Tensor, dim: int | None = None) -> Any:
    """The strides, or one of them."""
    return input.stride() if dim is None else input.stride(dim)


def sym_numel(input: Tensor) -> int:
    """The number of elements."""
    return int(input.numel())


def sym_storage_offset(input: Tensor) -> int:
    """Where the tensor begins in its storage."""
    return int(input.storage_offset())


def _softmax(input: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """`softmax`; with `half_to_float` float16 becomes float32."""
    return lucid.softmax(input, dim, dtype=lucid.float32 if half_to_float else None)


def _log_softmax(input: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """`log_softmax`; with `half_to_float` float16 becomes float32."""
    return lucid.log_softmax(input, dim, dtype=lucid.float32 if half_to_float else None)


def _to_copy(
    input: Tensor,
    *,
    dtype: lucid.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """`to`, in memory of its own."""
    kept = {} if memory_format is None else {"memory_format": memory_format}
    made: Tensor = input.to(device=device or input.device, dtype=dtype or input.dtype, copy=True, **kept)
    return made


def _unsafe_view(input: Tensor, size: Sequence[int]) -> Tensor:
    """`view`."""
    return input.view(size)


def _reshape_alias(input: Tensor, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    """A view with those strides, which are the ones that `view` gives."""
    return input.as_strided(size, stride)


def alias(input: Tensor) -> Tensor:
    """A view of the whole tensor."""
    return input.view_as(input)


def lift_fresh(input: Tensor) -> Tensor:
    """The tensor itself."""
    return input


def lift_fresh_copy(input: Tensor) -> Tensor:
    """`clone`."""
    return input.clone()


def slice(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    """`input[start:end:step]` along a dimension."""
    size = input.size(dim)
    begin, stop = (
        default if at is None else min(max(at + size if at < 0 else at, 0), size)
        for at, default in ((start, 0), (end, size))
    )
    narrowed = input.narrow(dim, begin, max(stop - begin, 0))
    if step == 1:
        return narrowed
    axis = dim % input.dim()
    made: Tensor = narrowed[(*[_ALL] * axis, builtins.slice(None, None, step))]
    return made


def index(input: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """`input[indices]`, where `None` takes a whole dimension."""
    made: Tensor = input[tuple(_ALL if i is None else i for i in indices)]
    return made


_unsafe_index = index


def _local_scalar_dense(input: Tensor) -> Any:
    """The one element as a number."""
    return input.item()


def _adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """`adaptive_avg_pool2d`."""
    return F.adaptive_avg_pool2d(input, output_size)


def upsample_nearest2d(input: Tensor, output_size: Any, scales_h: Any = None, scales_w: Any = None) -> Tensor:
    """`interpolate` to a size by the nearest element."""
    return F.interpolate(input, tuple(output_size), mode="nearest")


def upsample_bilinear2d(
    input: Tensor, output_size: Any, align_corners: bool, scales_h: Any = None, scales_w: Any = None
) -> Tensor:
    """`interpolate` to a size, bilinear."""
    return F.interpolate(input, tuple(output_size), mode="bilinear", align_corners=align_corners)


def threshold_backward(grad_output: Tensor, input: Tensor, threshold: float) -> Tensor:
    """The gradient of `threshold`: that of the output where `input` is above it, else 0."""
    return lucid.where(input > threshold, grad_output, 0)


def sigmoid_backward(grad_output: Tensor, output: Tensor) -> Tensor:
    """`g · y (1 - y)`."""
    return grad_output * (output * (1 - output))


def tanh_backward(grad_output: Tensor, output: Tensor) -> Tensor:
    """`g · (1 - y²)`."""
    return grad_output * (1 - output * output)


def gelu_backward(grad_output: Tensor, input: Tensor, *, approximate: str = "none") -> Tensor:
    """The gradient of `gelu`."""
    with lucid.enable_grad():
        x = input.detach().requires_grad_()
        made: Tensor = lucid.autograd.grad(F.gelu(x, approximate=approximate), x, grad_output)[0]
    return made


def nll_loss_forward(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """`nll_loss`, and the sum of the weights that it divides by (0 where it does not)."""
    loss = F.nll_loss(input, target, weight, ignore_index=ignore_index, reduction=_REDUCTIONS[reduction])
    if reduction == 0:
        return loss, input.new_zeros(())
    used = target != ignore_index
    each = input.new_ones(input.shape[1]) if weight is None else weight
    return loss, (each[lucid.where(used, target, 0)] * used).sum()
