"""Parameters as one vector, and from one module to another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid._public_names import named

__all__ = ["copy_parameters_and_buffers", "parameters_to_vector", "vector_to_parameters"]


@named
def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters' elements in a row.

    Args:
        parameters (iterable of Tensors): the parameters, of any shapes.

    Returns:
        Tensor: a vector of all elements, in order.

    Example:
        >>> from lucid import nn
        >>> nn.utils.parameters_to_vector([lucid.zeros(2), lucid.ones(1, 2)])
        tensor([0., 0., 1., 1.])
    """
    return lucid.cat([p.reshape([-1]) for p in parameters])


@named
def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Gives the parameters the elements of a vector, in order.

    Args:
        vec (Tensor): as many elements as the parameters have, in a vector.
        parameters (iterable of Tensors): the parameters that are written, of any shapes.

    Raises:
        TypeError: `vec` is no tensor.

    Example:
        >>> from lucid import nn
        >>> x = lucid.zeros(2)
        >>> nn.utils.vector_to_parameters(lucid.tensor([1.0, 2.0]), [x])
        >>> x
        tensor([1., 2.])
    """
    if not isinstance(vec, Tensor):
        raise errors.TypeError(f"expected lucid.Tensor, but got: {type(vec)}")
    at = 0
    for p in parameters:
        p.data = vec.detach().narrow(0, at, p.numel()).reshape(tuple(p.shape)).clone()
        at += p.numel()


def copy_parameters_and_buffers(source: Any, target: Any) -> None:
    """Copies every parameter and buffer of a module to the one of the same name in another. Not in PyTorch.

    Args:
        source (Module): the module to copy from.
        target (Module): the module that is written, with parameters of the same names and shapes.

    Example:
        >>> from lucid import nn
        >>> a, b = nn.Linear(2, 2), nn.Linear(2, 2)
        >>> nn.utils.copy_parameters_and_buffers(a, b)
        >>> bool((a.weight == b.weight).all())
        True
    """
    target.load_state_dict(source.state_dict())
    buffers = dict(source.named_buffers())
    with lucid.no_grad():
        for name, buffer in target.named_buffers():
            if name in buffers:
                buffer.copy_(buffers[name])
