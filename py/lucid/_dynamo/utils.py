"""Helpers of `torch._dynamo.utils` that programs use."""

from __future__ import annotations

from typing import Any


def is_compile_supported(device_type: Any) -> bool:
    """Whether PyTorch's compiler works for a device: `False`."""
    return False


def compile_times(repr: str = "str", aggregate: bool = False) -> Any:
    """How long compiling took: nothing was compiled."""
    return ([], []) if repr == "csv" else "nothing was compiled"
