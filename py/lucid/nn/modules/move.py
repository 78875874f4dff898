"""What `Module.to` does to each tensor: a device, a dtype for floating tensors, a memory format for images."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor, errors
from lucid._warnings import warn

__all__ = ["Conversion", "parse_to"]


class Conversion:
    """Moves a tensor to `device` and, where it is floating or complex, casts it to `dtype`; where it has four or five
    dimensions, these are in memory as `memory_format` says.

    Args:
        device (lucid.device or str, optional): the device to move to.
        dtype (lucid.dtype, optional): the dtype for floating and complex tensors.
        memory_format (lucid.memory_format, optional): the order of tensors of four or five dimensions.

    Example:
        >>> from lucid import nn
        >>> nn.modules.move.Conversion(dtype=lucid.float64)(lucid.zeros(1)).dtype
        lucid.float64
    """

    def __init__(self, device: Any = None, dtype: Any = None, memory_format: Any = None) -> None:
        self.device = device
        self.dtype = getattr(lucid, dtype) if isinstance(dtype, str) else dtype
        self.memory_format = memory_format

    def __call__(self, tensor: Tensor) -> Tensor:
        if self.memory_format is not None and tensor.ndim in (4, 5):
            floating = tensor.is_floating_point() or tensor.is_complex()
            dtype = self.dtype if floating and self.dtype is not None else tensor.dtype
            device = tensor.device if self.device is None else self.device
            return tensor.to(device, dtype, memory_format=self.memory_format)
        if self.dtype is not None and (tensor.is_floating_point() or tensor.is_complex()):
            # Cast where both dtypes are at home: float64 is not on the GPU.
            if self.device is None:
                return tensor.to(self.dtype)
            return tensor.to(self.device, self.dtype)
        return tensor if self.device is None else tensor.to(self.device)


def parse_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Conversion:
    """Reads the arguments of `Module.to`: a device, a dtype, both, or a tensor to be like; and a memory format.

    Args:
        args (tuple[Any, ...]): the arguments of `Module.to`.
        kwargs (dict[str, Any]): the keyword arguments of `Module.to`.

    Returns:
        Conversion: what moves each tensor.

    Raises:
        TypeError: other arguments, or a dtype that is not floating.

    Example:
        >>> from lucid import nn
        >>> nn.modules.move.parse_to((lucid.float64,), {})(lucid.zeros(1)).dtype
        lucid.float64
    """
    given = dict(kwargs)
    given.pop("non_blocking", None)
    device, dtype = given.pop("device", None), given.pop("dtype", None)
    tensor = given.pop("tensor", None)
    memory_format = given.pop("memory_format", None)
    if given:
        raise errors.TypeError(f"to() got an unexpected keyword argument '{next(iter(given))}'")
    for arg in args:
        if isinstance(arg, Tensor):
            tensor = arg
        elif isinstance(arg, lucid.dtype):
            dtype = arg
        elif isinstance(arg, bool):
            continue  # non_blocking
        elif isinstance(arg, lucid.memory_format):
            raise errors.TypeError("to(): a memory format is given by name: to(memory_format=...)")
        elif arg is not None:
            device = arg
    if tensor is not None:
        device, dtype = tensor.device, tensor.dtype
    if memory_format is not None and not isinstance(memory_format, lucid.memory_format):
        got = type(memory_format).__name__
        raise errors.TypeError(f"to(): argument 'memory_format' must be lucid.memory_format, not {got}")
    if device is None and dtype is None and memory_format is None:
        raise errors.TypeError("to() needs a device, a dtype, a tensor or a memory format")
    if dtype is not None and dtype.is_complex:
        warn("Complex modules are new: some modules might not work as expected with complex parameters or buffers.")
    made = Conversion(device, dtype, memory_format)
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        raise errors.TypeError(
            f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}"
        )
    return made
