"""Marks for NVIDIA's tools, as `torch.cuda.nvtx`: scopes of `lucid.profiler`, which a running profiler records."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from lucid.profiler import _trace, record_function

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]

_open = threading.local()
_started: dict[int, Any] = {}


def range_push(msg: str) -> int:
    """Begins a scope inside of this thread's others; gives how many are around it.

    Args:
        msg (str): the name of the scope.

    Returns:
        int: the number of scopes around it.

    Example:
        >>> lucid.cuda.nvtx.range_push("step")
        0
        >>> lucid.cuda.nvtx.range_pop()
        0
    """
    stack: list[Any] = _open.__dict__.setdefault("stack", [])
    scope = record_function(msg)
    scope.__enter__()
    stack.append(scope)
    return len(stack) - 1


def range_pop() -> int:
    """Ends the innermost scope; gives how many are around it, -1 if there was none."""
    stack: list[Any] = _open.__dict__.setdefault("stack", [])
    if not stack:
        return -1
    stack.pop().__exit__(None, None, None)
    return len(stack)


def range_start(msg: str) -> int:
    """Begins a scope that ends wherever `range_end` is called with the number that this gives.

    Args:
        msg (str): the name of the scope.

    Returns:
        int: its number.

    Example:
        >>> lucid.cuda.nvtx.range_end(lucid.cuda.nvtx.range_start("step"))
    """
    scope = record_function(msg)
    # Without a profiler nothing is recorded, and a scope that nobody ends would be kept for ever.
    if _trace._running is None:
        return 0
    scope.__enter__()
    _started[id(scope)] = scope
    return id(scope)


def range_end(range_id: int) -> None:
    """Ends a scope that `range_start` began; one that is not open is left alone.

    Args:
        range_id (int): what `range_start` returned.

    Example:
        >>> lucid.cuda.nvtx.range_end(lucid.cuda.nvtx.range_start("step"))
    """
    scope = _started.pop(range_id, None)
    if scope is not None:
        scope.__exit__(None, None, None)


def mark(msg: str) -> None:
    """Records a moment: a scope with nothing in it.

    Args:
        msg (str): the name of the moment.

    Example:
        >>> lucid.cuda.nvtx.mark("here")
    """
    with record_function(msg):
        pass


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """Opens a scope for a `with` block; the message is formatted with the arguments.

    Args:
        msg (str): the name of the scope, with the places of `str.format`.
        args (object): what is put in its numbered places.
        kwargs (object): what is put in its named places.

    Returns:
        context manager: the block.

    Example:
        >>> with lucid.profiler.profile() as p, lucid.cuda.nvtx.range("step {}", 3):
        ...     _ = lucid.ones(1) + 1
        >>> "step 3" in [e.name for e in p.events()]
        True
    """
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
