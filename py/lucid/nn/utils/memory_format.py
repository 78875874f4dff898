"""Memory formats of layers' weights."""

from __future__ import annotations

from typing import Any

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]


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
