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
    """The module, with the weights of its `Conv2d` and `ConvTranspose2d` in a memory format, which results get.

    Args:
        module (Module): the module whose weights are converted, in place.
        memory_format (lucid.memory_format): `lucid.channels_last`, for example.

    Returns:
        Module: `module` itself.

    Example:
        >>> from lucid import nn
        >>> conv = nn.utils.convert_conv2d_weight_memory_format(nn.Conv2d(2, 3, 3), lucid.channels_last)
        >>> conv.weight.is_contiguous(memory_format=lucid.channels_last)
        True
    """
    from lucid.nn import Conv2d, ConvTranspose2d

    return _with_weights_in(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """The module, with the weights of its `Conv3d` and `ConvTranspose3d` in a memory format.

    Args:
        module (Module): the module whose weights are converted, in place.
        memory_format (lucid.memory_format): `lucid.channels_last_3d`, for example.

    Returns:
        Module: `module` itself.

    Example:
        >>> from lucid import nn
        >>> conv = nn.utils.convert_conv3d_weight_memory_format(nn.Conv3d(2, 3, 3), lucid.channels_last_3d)
        >>> conv.weight.is_contiguous(memory_format=lucid.channels_last_3d)
        True
    """
    from lucid.nn import Conv3d, ConvTranspose3d

    return _with_weights_in(module, (Conv3d, ConvTranspose3d), memory_format)
