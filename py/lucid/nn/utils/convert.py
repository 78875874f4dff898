"""Parameters as one vector, and modules with given parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid._naming import named

__all__ = [
    "convert_conv2d_weight_memory_format",
    "convert_conv3d_weight_memory_format",
    "copy_parameters_and_buffers",
    "parameters_to_vector",
    "skip_init",
    "vector_to_parameters",
]


@named
def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All parameters' elements in a row."""
    return lucid.cat([p.reshape([-1]) for p in parameters])


@named
def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Gives the parameters the elements of a vector, in order."""
    if not isinstance(vec, Tensor):
        raise errors.TypeError(f"expected lucid.Tensor, but got: {type(vec)}")
    at = 0
    for p in parameters:
        p.data = vec.detach().narrow(0, at, p.numel()).reshape(tuple(p.shape)).clone()
        at += p.numel()


def _with_weights_in(module: Any, kinds: tuple[Any, ...], memory_format: Any) -> Any:
    for part in module.modules():
        if isinstance(part, kinds):
            part.weight.data = part.weight.detach().clone(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """The module, with the weights of its `Conv2d` and `ConvTranspose2d` in a memory format, which results get."""
    from lucid.nn import Conv2d, ConvTranspose2d

    return _with_weights_in(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """The module, with the weights of its `Conv3d` and `ConvTranspose3d` in a memory format."""
    from lucid.nn import Conv3d, ConvTranspose3d

    return _with_weights_in(module, (Conv3d, ConvTranspose3d), memory_format)


def copy_parameters_and_buffers(source: Any, target: Any) -> None:
    """Copies every parameter and buffer of a module to the one of the same name in another. Not in PyTorch."""
    target.load_state_dict(source.state_dict())
    buffers = dict(source.named_buffers())
    with lucid.no_grad():
        for name, buffer in target.named_buffers():
            if name in buffers:
                buffer.copy_(buffers[name])


def skip_init(module_cls: type[Any], *args: Any, **kwargs: Any) -> Any:
    """A module whose parameters may hold anything. (Here they hold what they would anyway.)"""
    from lucid.nn import Module

    if not issubclass(module_cls, Module):
        raise errors.RuntimeError(f"Expected a Module; got {module_cls}")
    return module_cls(*args, **kwargs)
