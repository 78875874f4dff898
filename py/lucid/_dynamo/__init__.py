"""Names of `torch._dynamo`, the tracer of PyTorch's compiler, that programs use. Calls run as they are written here.

Marks on tensors and functions are taken and change nothing: they only tell a compiler what may vary.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from lucid._dynamo import config as config
from lucid._dynamo import eval_frame as eval_frame
from lucid._dynamo import exc as exc
from lucid._dynamo import utils as utils
from lucid._dynamo.eval_frame import OptimizedModule as OptimizedModule
from lucid._dynamo.eval_frame import is_dynamo_supported as is_dynamo_supported
from lucid._warnings import warn_without_effect
from lucid.compiler import allow_in_graph as allow_in_graph
from lucid.compiler import assume_constant_result as assume_constant_result
from lucid.compiler import disable as disable
from lucid.compiler import explain as explain
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
    "disable_nested_graph_breaks",
    "disallow_in_graph",
    "dont_skip_tracing",
    "error_on_graph_break",
    "exc",
    "explain",
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
    "nonstrict_trace",
    "optimize",
    "optimize_assert",
    "reset",
    "reset_code_caches",
    "reset_frame_count",
    "run",
    "set_stance",
    "skip_frame",
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


def optimize(backend: Any = "lucid", *, nopython: bool = False, dynamic: bool | None = None, **options: Any) -> Any:
    """A decorator that compiles a function or module, as `lucid.compile`.

    Args:
        backend (str, default: "lucid"): "lucid" or "inductor", or "eager", which compiles nothing.
        nopython (bool, default: False): whether what cannot be recorded is an error.
        dynamic (bool, optional): as for `lucid.compile`.
        **options (object): PyTorch's others; each gives one warning that it has no effect.

    Returns:
        A decorator.

    Example:
        >>> lucid._dynamo.optimize()(lambda x: x + 1)(lucid.ones(1))
        tensor([2.])
    """
    import lucid

    warn_without_effect("optimize", "lucid.compile has no such option", **dict.fromkeys(options, True))
    return lambda fn: lucid.compile(fn, backend=backend, fullgraph=nopython, dynamic=dynamic)


def optimize_assert(backend: Any = "lucid", **options: Any) -> Any:
    """`optimize` with `nopython`: what cannot be recorded is an error.

    Args:
        backend (str | Callable, default: "lucid"): as for `optimize`.
        **options (object): as for `optimize`.

    Returns:
        A decorator.

    Example:
        >>> lucid._dynamo.optimize_assert()(lambda x: x * 3)(lucid.ones(1))
        tensor([3.])
    """
    return optimize(backend, nopython=True, **options)


@contextlib.contextmanager
def error_on_graph_break(error_on_graph_break: bool) -> Iterator[None]:
    """Within it, says whether `graph_break` is an error in what is compiled.

    Raises:
        NotImplementedError: with `True`: give `fullgraph=True` to `lucid.compile`.
    """
    from lucid import errors

    if error_on_graph_break:
        raise errors.NotImplementedError("error_on_graph_break: give fullgraph=True to lucid.compile")
    yield


def skip_frame(msg: str = "") -> None:
    """Leaves the calling function to Python: as `graph_break`."""
    graph_break(msg)


def nonstrict_trace(traceable_fn: Any) -> Any:
    """Marks a function that is recorded by running it, as everything is here. Returns it."""
    return traceable_fn


def dont_skip_tracing(fn: Any = None) -> Any:
    """Marks a function that is recorded, as everything is here. Returns it."""
    return fn if fn is not None else lambda given: given


def disable_nested_graph_breaks(fn: Any = None) -> Any:
    """Marks a function whose calls are recorded as one or not at all, as every function's are here. Returns it."""
    return fn if fn is not None else lambda given: given


def reset_code_caches() -> None:
    """Forgets what is compiled: `lucid.compiler.reset`."""
    reset()


def reset_frame_count() -> None:
    """Starts the counts of `lucid.compiler.statistics` anew, and forgets what is compiled."""
    reset()


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
