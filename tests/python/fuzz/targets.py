"""What is fuzzed: every public callable, found by walking the package."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any

#: What starts as many processes as it is asked for, and what counts its own calls, so that no two give the same.
LEFT_OUT = {
    "lucid.multiprocessing.spawn",
    "lucid.multiprocessing.start_processes",
    "lucid.cuda.nvtx.range_push",
    "lucid.cuda.nvtx.range_pop",
}


def targets() -> dict[str, Any]:
    """Every public callable by its path."""
    import lucid

    found: dict[str, Any] = {}
    modules = [lucid]
    for info in pkgutil.walk_packages(lucid.__path__, "lucid."):
        # `as_torch` takes PyTorch's place when it is imported, which is refused where PyTorch is there.
        if any(part.startswith("_") for part in info.name.split(".")) or info.name.startswith("lucid.as_torch"):
            continue
        modules.append(importlib.import_module(info.name))
    for module in modules:
        # Names that are imported on first use are in the one alone.
        for name in sorted({*getattr(module, "__all__", ()), *dir(module)}):
            value = getattr(module, name, None)
            home = getattr(value, "__module__", None) or "lucid"
            # Programs end the process, `main` of a command line.
            if name.startswith("_") or name == "main" or not callable(value) or not str(home).startswith("lucid"):
                continue
            if isinstance(value, type) and issubclass(value, BaseException):
                continue
            found.setdefault(f"{module.__name__}.{name}", value)
    for name in dir(lucid.Tensor):
        value = getattr(lucid.Tensor, name)
        special = name.startswith("_") and name not in OPERATORS
        if not special and callable(value):
            found[f"lucid.Tensor.{name}"] = value
    # One callable under several paths is one target: the shortest path.
    unique: dict[int, str] = {}
    for path in sorted(found, key=lambda p: (len(p), p)):
        unique.setdefault(id(found[path]), path)
    return {path: found[path] for path in sorted(unique.values()) if path not in LEFT_OUT}


_OPERATORS = """
add radd mul sub rsub truediv rtruediv floordiv mod pow rpow matmul and or xor eq ne lt le gt ge neg abs invert lshift
rshift getitem setitem iadd imul isub len iter
"""
OPERATORS = {f"__{n}__" for n in _OPERATORS.split()}


def parameters(callable_: Any) -> list[inspect.Parameter]:
    """The parameters of a callable, as far as it says."""
    try:
        return list(inspect.signature(callable_).parameters.values())
    except (TypeError, ValueError):
        return [inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)]


def schemas() -> dict[str, Any]:
    """Rows of the op table by name."""
    import lucid

    return {s["name"]: s for s in lucid.op_schemas()}
