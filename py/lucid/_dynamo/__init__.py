"""Names of `torch._dynamo`, the tracer of PyTorch's compiler, that programs use. Calls run as they are written here.

Marks on tensors and functions are taken and change nothing: they only tell a compiler what may vary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid._dynamo import config as config
from lucid._dynamo import eval_frame as eval_frame
from lucid._dynamo import exc as exc
from lucid._dynamo import utils as utils
from lucid._dynamo.eval_frame import OptimizedModule as OptimizedModule
from lucid._dynamo.eval_frame import is_dynamo_supported as is_dynamo_supported
from lucid.compiler import allow_in_graph as allow_in_graph
from lucid.compiler import assume_constant_result as assume_constant_result
from lucid.compiler import disable as disable
from lucid.compiler import is_compiling as is_compiling
from lucid.compiler import list_backends as list_backends
from lucid.compiler import reset as reset
from lucid.compiler import set_stance as set_stance
from lucid.compiler import substitute_in_graph as substitute_in_graph

__all__ = [
    "OptimizedModule",
    "allow_in_graph",
    "assume_constant_result",
    "config",
    "disable",
    "disallow_in_graph",
    "exc",
    "forbid_in_graph",
    "graph_break",
    "is_compiling",
    "is_dynamo_supported",
    "is_inductor_supported",
    "list_backends",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "maybe_mark_dynamic",
    "reset",
    "run",
    "set_stance",
    "substitute_in_graph",
    "utils",
]


def disallow_in_graph(fn: Any) -> Any:
    """Marks a function that a compiler leaves to Python. Returns it."""
    return fn


def forbid_in_graph(fn: Any) -> Any:
    """Marks a function that a compiler refuses. Returns it."""
    return fn


def graph_break(msg: str = "") -> None:
    """Ends the graph that `lucid.compile` records: the call runs as it is written."""
    from lucid import _C
    from lucid.compiler import _trace

    if _C._graph_recording():
        _trace.outside(f"graph_break() is called {msg}".rstrip())


def run(fn: Callable[..., Any] | None = None) -> Any:
    """Marks a function that runs what is compiled and compiles no more. Returns it."""
    return fn if fn is not None else lambda given: given


def is_inductor_supported() -> bool:
    """Whether PyTorch's compiler is there: `False`."""
    return False


def mark_dynamic(t: Any, index: Any, **options: Any) -> None:
    """Tells a compiler that a dimension varies. Sizes may vary between calls here as it is."""


def maybe_mark_dynamic(t: Any, index: Any) -> None:
    """Tells a compiler that a dimension may vary. Sizes may vary between calls here as it is."""


def mark_static(t: Any, index: Any = None) -> None:
    """Tells a compiler that a dimension does not vary. Nothing is compiled for it."""


def mark_static_address(t: Any, guard: bool = False) -> None:
    """Tells a compiler that a tensor stays where it is in memory. Nothing is compiled for it.

    Raises:
        TypeError: `t` is no tensor.
    """
    from lucid import Tensor, errors

    if not isinstance(t, Tensor):
        raise errors.TypeError(f"mark_static_address expects a tensor but received {type(t).__name__}")
