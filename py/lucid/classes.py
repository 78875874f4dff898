"""Classes of compiled libraries, as `torch.classes`: none, since such libraries are compiled for PyTorch."""

from __future__ import annotations

from typing import Any

from lucid import ops as _ops

__all__ = ["load_library", "loaded_libraries"]

loaded_libraries = _ops.loaded_libraries
load_library = _ops.load_library


class _Namespace:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self._name}.{name}"
        raise RuntimeError(f"classes.{full}: a class of a library that was compiled for PyTorch; write it in Python")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Namespace(name)
