"""Devices as functions of `nn.parallel` are given them: by number, by name, or as a device."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import errors

__all__ = ["as_device", "number"]


def number(device: Any, where: str) -> int:
    """The number of a GPU given by number, name or device; -1 for the CPU.

    Raises:
        TypeError: it is none of these.
    """
    if isinstance(device, int) and not isinstance(device, bool):
        return device
    named = lucid.device(device) if isinstance(device, str) else device
    if not isinstance(named, lucid.device):
        raise errors.TypeError(f"{where}: expected a device's number or name, got {type(device).__name__}")
    return -1 if named.type == "cpu" else lucid._C._gpu_index()


def as_device(device: Any, where: str) -> lucid.device:
    """The device of a number or name; PyTorch's number of the CPU is -1.

    Raises:
        RuntimeError: there is no such GPU, or this process computes on another.
        TypeError: it is neither.
    """
    if isinstance(device, str):
        return lucid.device(device)
    n = number(device, where)
    if isinstance(device, lucid.device):
        return device
    return lucid.device("cpu") if n < 0 else lucid.device("gpu", n)
