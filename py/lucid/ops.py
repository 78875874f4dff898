"""Ops by namespace and name, as `torch.ops`: custom ops, and Lucid's own as `lucid.ops.aten.name`.

`lucid.ops.mylib.f` is the custom op `mylib::f`; `.default` of it is the same. `lucid.ops.aten.add` calls `lucid.add`
whichever signature is named (`add.Tensor`, `sum.dim_IntList`).
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from lucid import errors

__all__ = ["load_library"]

loaded_libraries: set[str] = set()

# The libraries in torchvision's wheel, by the names of its versions.
_VISION = ("_C", "_C_stable", "image", "image_stable")


class _Native:
    """One of Lucid's own ops; every signature of it is the same function."""

    def __init__(self, name: str, function: Any) -> None:
        self.__name__, self._function = name, function
        self._opname, self._qualified_op_name = name, f"aten::{name}"

    @property
    def tags(self) -> list[Any]:
        """What the op says of itself: see `lucid.Tag`."""
        from lucid import _tags

        return list(_tags.of(self._opname))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._function(*args, **kwargs)
        except TypeError:
            # Graphs hold calls as they were made, which may have been the method's or the layer's.
            for form in self._forms():
                try:
                    return form(*args, **kwargs)
                except TypeError:
                    continue
            raise

    def _forms(self) -> list[Any]:
        """The other functions of this name: the tensor's method and that of `nn.functional`."""
        from lucid import Tensor
        from lucid.nn import functional

        found = (getattr(place, self._opname, None) for place in (Tensor, functional))
        return [form for form in found if callable(form)]

    def __getattr__(self, overload: str) -> Any:
        if overload.startswith("__"):
            raise AttributeError(overload)
        return self

    def __eq__(self, other: object) -> bool:
        # What a dispatch mode is given compares equal, too.
        return type(other).__name__ in ("Op", "_Native") and getattr(other, "_opname", None) == self._opname

    def __hash__(self) -> int:
        return hash(("aten", self._opname))

    def __repr__(self) -> str:
        return f"<op aten.{self.__name__}>"


class _Namespace:
    """The ops of one namespace."""

    def __init__(self, name: str) -> None:
        self._name = self.__name__ = name

    def __getattr__(self, op: str) -> Any:
        if op.startswith("__"):
            raise AttributeError(op)
        from lucid.library._operator import OPERATORS

        found: Any = OPERATORS.get(f"{self._name}::{op}")
        if found is None and self._name in ("torchvision", "image"):
            importlib.import_module("lucid._vision")
            found = OPERATORS.get(f"{self._name}::{op}")
        if found is None and self._name in ("aten", "prims"):
            import lucid
            from lucid import _aten

            if callable(function := getattr(_aten, op, None)) and op in _aten.__all__:
                return _Native(op, function)
            for place in (lucid, lucid.nn.functional, lucid.linalg, lucid.special, lucid.Tensor):
                function = getattr(place, op.removeprefix("linalg_").removeprefix("special_"), None)
                if callable(function) and not isinstance(function, type):
                    return _Native(op, function)
        if found is None:
            raise AttributeError(f"'_OpNamespace' '{self._name}' object has no attribute '{op}'")
        return found

    def __dir__(self) -> list[str]:
        from lucid.library._operator import OPERATORS

        return [q.split("::")[1] for q in OPERATORS if q.startswith(f"{self._name}::")]

    def __repr__(self) -> str:
        return f"<namespace lucid.ops.{self._name}>"


def load_library(path: str | os.PathLike[str]) -> None:
    """Registers the ops of a library that was compiled for PyTorch, where Lucid has ops of its own in their place.

    These are torchvision's: the file itself is not loaded.

    Args:
        path (str | os.PathLike[str]): the library's file.

    Raises:
        OSError: another library, which needs PyTorch. Define its ops with `lucid.library.custom_op`.

    Example:
        >>> lucid.ops.load_library("my_ops.so")
        Traceback (most recent call last):
        ...
        lucid.errors.FileError: ops.load_library('my_ops.so'): a library that was compiled for PyTorch ...
    """
    file = Path(path)
    if file.parent.name == "torchvision" and file.name.split(".")[0] in _VISION:
        importlib.import_module("lucid._vision")
        loaded_libraries.add(str(file))
        return
    raise errors.FileError(
        f"ops.load_library({os.fspath(path)!r}): a library that was compiled for PyTorch needs PyTorch; define its ops "
        "with lucid.library.custom_op"
    )


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module 'lucid.ops' has no attribute {name!r}")
    return globals().setdefault(name, _Namespace(name))
