"""`FunctionalTensor` for `isinstance`: PyTorch's compiler traces with such tensors, and none are made here."""

from __future__ import annotations

from typing import Any

from lucid import Tensor, errors

__all__ = ["FunctionalTensor", "mb_unwrap_functional_tensor"]


class FunctionalTensor(Tensor):
    """A tensor whose in-place calls are recorded as calls that make new ones: making one raises an error.

    Args:
        elem (Tensor): a tensor of any shape.
        mode (object, optional): what records.

    Raises:
        NotImplementedError: always.

    Example:
        >>> isinstance(lucid.ones(1), lucid._subclasses.functional_tensor.FunctionalTensor)
        False
    """

    def __new__(cls, elem: Tensor, mode: Any = None) -> FunctionalTensor:
        raise errors.NotImplementedError(
            "FunctionalTensor: in-place calls are not rewritten; lucid.compile and lucid.export record them as they are"
        )


def mb_unwrap_functional_tensor(tensor: Tensor) -> Tensor:
    """The tensor that a `FunctionalTensor` is made of; other tensors as they are, which all are here.

    Args:
        tensor (Tensor): a tensor of any shape.

    Returns:
        Tensor: the tensor.

    Example:
        >>> x = lucid.ones(1)
        >>> lucid._subclasses.functional_tensor.mb_unwrap_functional_tensor(x) is x
        True
    """
    return tensor
