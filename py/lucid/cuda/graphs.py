"""Names of `torch.cuda.graphs`. MLX captures no calls; `lucid.compile` records functions and training steps."""

from __future__ import annotations

from typing import Any

from lucid import errors

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]

_INSTEAD = "calls are not captured as CUDA graphs; lucid.compile records functions, modules and training steps"


class CUDAGraph:
    """Not there: calls are not captured; `lucid.compile` records functions.

    Args:
        *args (object): never used.
        **kwargs (object): never used.

    Raises:
        NotImplementedError: always.

    Example:
        >>> lucid.cuda.CUDAGraph()
        Traceback (most recent call last):
        ...
        lucid.errors.NotImplementedError: CUDAGraph: calls are not captured as CUDA graphs; ...
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise errors.NotImplementedError(f"CUDAGraph: {_INSTEAD}")


class graph:
    """Not there, as `CUDAGraph`.

    Args:
        *args (object): never used.
        **kwargs (object): never used.

    Raises:
        NotImplementedError: always.

    Example:
        >>> lucid.cuda.graph(None)
        Traceback (most recent call last):
        ...
        lucid.errors.NotImplementedError: graph: calls are not captured as CUDA graphs; ...
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise errors.NotImplementedError(f"graph: {_INSTEAD}")


def graph_pool_handle() -> Any:
    """Not there, as `CUDAGraph`.

    Raises:
        NotImplementedError: always.

    Example:
        >>> lucid.cuda.graph_pool_handle()
        Traceback (most recent call last):
        ...
        lucid.errors.NotImplementedError: graph_pool_handle: calls are not captured as CUDA graphs; ...
    """
    raise errors.NotImplementedError(f"graph_pool_handle: {_INSTEAD}")


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: Any = None,
    enable_annotations: bool = False,
    capture_error_mode: str = "global",
) -> Any:
    """Not there, as `CUDAGraph`.

    Args:
        callables (object): never used, nor are the others.
        sample_args (object): never used.
        num_warmup_iters (int): never used.
        allow_unused_input (bool): never used.
        pool (object): never used.
        enable_annotations (bool): never used.
        capture_error_mode (str): never used.

    Returns:
        object: nothing, as it always raises.

    Raises:
        NotImplementedError: always.

    Example:
        >>> lucid.cuda.make_graphed_callables(lucid.nn.ReLU(), (lucid.ones(1),))
        Traceback (most recent call last):
        ...
        lucid.errors.NotImplementedError: make_graphed_callables: calls are not captured as CUDA graphs; ...
    """
    raise errors.NotImplementedError(f"make_graphed_callables: {_INSTEAD}")


def is_current_stream_capturing() -> bool:
    """Are calls captured as a CUDA graph now? They never are.

    Returns:
        bool: False.

    Example:
        >>> lucid.cuda.is_current_stream_capturing()
        False
    """
    return False
