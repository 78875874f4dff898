"""`torch.device` with the device `meta`, for as long as `lucid.device` has none.

Packages compare devices with it. Modules cannot be built under it, nor tensors made on it.
"""

from __future__ import annotations

from typing import Any

import lucid
from lucid import errors


class _Meta:
    """The device `meta`, as a value."""

    type, index = "meta", None

    def __enter__(self) -> _Meta:
        raise errors.NotImplementedError('with torch.device("meta"): there are no tensors without memory')

    def __exit__(self, *exc: Any) -> None:
        pass

    def __repr__(self) -> str:
        return "device(type='meta')"

    def __str__(self) -> str:
        return "meta"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Meta)

    def __hash__(self) -> int:
        return hash("meta")

    def __reduce__(self) -> Any:
        return _Meta, ()


class _DeviceType(type):
    """Calls make Lucid's devices, of which instances are, and one named `meta`."""

    def __call__(cls, type: Any = None, index: Any = None) -> Any:
        if type == "meta" or isinstance(type, _Meta):
            return _Meta()
        return lucid.device(type) if index is None else lucid.device(type, index)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, lucid.device | _Meta)


class device(metaclass=_DeviceType):
    """Where tensors are: `lucid.device`, and `meta`."""


def device_type() -> Any:
    """The class that `torch.device` is: Lucid's own if it has `meta`."""
    try:
        lucid.device("meta")
    except lucid.errors.RuntimeError:
        return device
    return lucid.device
