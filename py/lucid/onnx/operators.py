"""Sizes as tensors, as `torch.onnx.operators`."""

from __future__ import annotations

import lucid
from lucid import Tensor, errors

__all__ = ["reshape_from_tensor_shape", "shape_as_tensor"]


def shape_as_tensor(x: Tensor) -> Tensor:
    """The sizes of a tensor as a tensor.

    Args:
        x (Tensor): any tensor.

    Returns:
        Tensor: the sizes, int64, of shape `(x.dim(),)`, on the CPU device.

    Example:
        >>> lucid.onnx.operators.shape_as_tensor(lucid.ones(2, 3))
        tensor([2, 3])
    """
    return lucid.tensor(list(x.shape), dtype=lucid.int64)


def reshape_from_tensor_shape(x: Tensor, shape: Tensor) -> Tensor:
    """`x.reshape` to sizes that are a tensor.

    Args:
        x (Tensor): any tensor.
        shape (Tensor): the sizes, whole numbers of one dimension.

    Returns:
        Tensor: the elements of `x` in that shape.

    Raises:
        RuntimeError: the sizes are not of one dimension, no whole numbers, or do not fit.

    Example:
        >>> lucid.onnx.operators.reshape_from_tensor_shape(lucid.arange(4), lucid.tensor([2, 2]))
        tensor([[0, 1],
                [2, 3]])
    """
    if shape.dim() != 1 or shape.is_floating_point() or shape.is_complex():
        raise errors.RuntimeError(
            "reshape_from_tensor_shape: expected whole numbers of one dimension as the shape, got a tensor of shape "
            f"{tuple(shape.shape)} and dtype {shape.dtype}"
        )
    return x.reshape(shape.tolist())
