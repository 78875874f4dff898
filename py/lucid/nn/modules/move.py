"""What `Module.to` does to each tensor: a device, a dtype for floating tensors, or both."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor, errors

__all__ = ["Conversion", "parse_to"]


class Conversion:
    """Moves a tensor to `device` and, where it is floating or complex, casts it to `dtype`."""

    def __init__(self, device: Any = None, dtype: Any = None) -> None:
        self.device = device
        self.dtype = getattr(lucid, dtype) if isinstance(dtype, str) else dtype

    def __call__(self, tensor: Tensor) -> Tensor:
        if self.dtype is not None and (tensor.is_floating_point() or tensor.is_complex()):
            # Cast where both dtypes are at home: float64 is not on the GPU.
            if self.device is None:
                return tensor.to(self.dtype)
            return tensor.to(self.device, self.dtype)
        return tensor if self.device is None else tensor.to(self.device)


def parse_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Conversion:
    """Reads the arguments of `Module.to`: a device, a dtype, both, or a tensor to be like."""
    given = dict(kwargs)
    given.pop("non_blocking", None)
    device, dtype = given.pop("device", None), given.pop("dtype", None)
    tensor = given.pop("tensor", None)
    if given:
        raise errors.TypeError(f"to() got an unexpected keyword argument '{next(iter(given))}'")
    for arg in args:
        if isinstance(arg, Tensor):
            tensor = arg
        elif isinstance(arg, lucid.dtype):
            dtype = arg
        elif isinstance(arg, bool):
            continue  # non_blocking
        elif arg is not None:
            device = arg
    if tensor is not None:
        device, dtype = tensor.device, tensor.dtype
    if device is None and dtype is None:
        raise errors.TypeError("to() needs a device, a dtype or a tensor")
    made = Conversion(device, dtype)
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        raise errors.TypeError(
            f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}"
        )
    return made
