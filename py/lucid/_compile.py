"""`lucid.compile` for programs that call it; there is no compiler of whole functions yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid._warnings import warn_once


def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    dynamic_shapes: Any = None,
) -> Any:
    """Returns a function or module as it is, and warns once that nothing is compiled.

    Args:
        model: a function or module, or `None` for a decorator.
        fullgraph, dynamic, backend, mode, options, name: of PyTorch's compiler; without meaning here.
        disable: whether to compile at all; with `True` there is no warning.
        recompile_limit, isolate_recompiles, dynamic_shapes: as `fullgraph`.

    Returns:
        `model` itself, or the decorator.

    Differences from PyTorch: there the result is compiled on its first call. The GPU device records lazily and fuses.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")
        ...     f = lucid.compile(lambda x: x + 1)
        >>> f(lucid.ones(2))
        tensor([2., 2.])
    """
    if model is not None and not callable(model):
        raise TypeError(f"compile(): expected a function or a module, got {type(model).__name__}")
    if not disable:
        warn_once("compile", "compile(): nothing is compiled; the call runs as it is (the GPU device fuses lazily)")
    return model if model is not None else lambda given: given
