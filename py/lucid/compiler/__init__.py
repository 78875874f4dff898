"""PyTorch's names around its compiler, as `torch.compiler`.

Calls run as they are written, so decorators that steer a compiler return their function, and questions about it are
answered: nothing is compiling, nothing is exported. The GPU device records lazily and fuses as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from lucid import errors
from lucid._warnings import warn_once
from lucid.compiler import config as config

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "config",
    "cudagraph_mark_step_begin",
    "disable",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe",
    "list_backends",
    "load_cache_artifacts",
    "nested_compile_region",
    "reset",
    "save_cache_artifacts",
    "set_enable_guard_collectives",
    "set_stance",
    "skip_all_guards_unsafe",
    "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
    "substitute_in_graph",
    "wrap_numpy",
]

F = TypeVar("F", bound=Callable[..., Any])


def is_compiling() -> bool:
    """Whether the call is being traced for compilation: `False`."""
    return False


def is_dynamo_compiling() -> bool:
    """Whether the call is being traced for compilation: `False`."""
    return False


def is_exporting() -> bool:
    """Whether the call is being traced for export: `False`."""
    return False


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Marks a function that is never compiled. Returns the function; also used as `@disable()` and `@disable(...)`.

    Args:
        fn: the function, or `None` for a decorator.
        recursive: whether what it calls is not compiled either.
        reason: why, for PyTorch's messages.

    Example:
        >>> @lucid.compiler.disable(recursive=False)
        ... def f(x):
        ...     return x + 1
        >>> f(1)
        2
    """
    return fn if fn is not None else lambda given: given


def allow_in_graph(fn: Any) -> Any:
    """Marks a function, or a list of functions, that a compiler takes as one op. Returns it.

    Raises:
        AssertionError: it cannot be called.
    """
    for each in fn if isinstance(fn, (list, tuple)) else [fn]:
        if not callable(each):
            raise AssertionError("allow_in_graph expects a callable")
    return fn


def assume_constant_result(fn: F) -> F:
    """Marks a function whose result a compiler may keep. Returns the function."""
    return fn


def nested_compile_region(fn: Any = None, **options: Any) -> Any:
    """Marks a function that a compiler compiles once for all its calls. Returns the function."""
    return fn if fn is not None else lambda given: given


def substitute_in_graph(original_fn: Any, **options: Any) -> Callable[[F], F]:
    """Marks a function that a compiler traces in the place of another. Returns a decorator that changes nothing."""
    return lambda given: given


def cudagraph_mark_step_begin() -> None:
    """Says that a step begins, to PyTorch's graphs of CUDA calls. There are none, and nothing is kept between steps."""


def reset() -> None:
    """Forgets what was compiled, which is nothing."""


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """The compilers that can be chosen: none."""
    return []


def save_cache_artifacts() -> None:
    """What was compiled, as bytes: `None`, for nothing is."""
    return None


def load_cache_artifacts(serialized_artifacts: bytes) -> None:
    """Takes what `save_cache_artifacts` of PyTorch gave.

    Raises:
        NotImplementedError: always; code compiled by PyTorch cannot run here.
    """
    raise errors.NotImplementedError("load_cache_artifacts(): code that PyTorch compiled cannot run here; leave it out")


def set_enable_guard_collectives(enabled: bool) -> bool:
    """A switch of PyTorch's compiler; warns once that it changes nothing. Returns the former value, `False`."""
    warn_once("set_enable_guard_collectives", "set_enable_guard_collectives(): changes nothing; there are no guards")
    return False


@contextlib.contextmanager
def _stance() -> Iterator[None]:
    yield


def set_stance(stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None) -> Any:
    """Says how compiled functions behave: each stance gives the results that calls give without a compiler.

    Args:
        stance: `"default"`, `"force_eager"`, `"eager_on_recompile"`, `"eager_then_compile"`, `"fail_on_recompile"`.

    Returns:
        A context manager.

    Raises:
        RuntimeError: another stance, or `force_backend` beside one that is not the default.
    """
    known = ("default", "force_eager", "eager_on_recompile", "eager_then_compile", "aot_eager_then_compile")
    if stance not in (*known, "fail_on_recompile"):
        raise errors.RuntimeError(f"invalid torch.compile stance '{stance}'")
    if force_backend is not None and stance != "default":
        raise errors.RuntimeError("non-default stance cannot have force_backend set")
    return _stance()


def _guards(name: str) -> Callable[[list[Any]], list[bool]]:
    def keep(guard_entries: list[Any]) -> list[bool]:
        return [True for _ in guard_entries]

    keep.__name__ = keep.__qualname__ = name
    keep.__doc__ = "Which guards of compiled code are kept: all that are given. There are none here."
    return keep


keep_portable_guards_unsafe = _guards("keep_portable_guards_unsafe")
keep_tensor_guards_unsafe = _guards("keep_tensor_guards_unsafe")
skip_all_guards_unsafe = _guards("skip_all_guards_unsafe")
skip_guard_on_all_nn_modules_unsafe = _guards("skip_guard_on_all_nn_modules_unsafe")
skip_guard_on_globals_unsafe = _guards("skip_guard_on_globals_unsafe")
skip_guard_on_inbuilt_nn_modules_unsafe = _guards("skip_guard_on_inbuilt_nn_modules_unsafe")


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function of NumPy arrays one of tensors.

    Args:
        fn: takes and gives arrays, in containers too.

    Returns:
        A function of tensors on the CPU device, without gradients.

    Example:
        >>> import numpy
        >>> lucid.compiler.wrap_numpy(numpy.exp)(lucid.zeros(2))
        tensor([1., 1.])
    """
    import functools

    import numpy as np

    import lucid
    from lucid.utils import _pytree

    def array(x: Any) -> Any:
        return x.numpy() if isinstance(x, lucid.Tensor) else x

    def tensor(x: Any) -> Any:
        return lucid.from_numpy(np.asarray(x)) if isinstance(x, (np.ndarray, np.generic)) else x

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = _pytree.tree_map(array, (args, kwargs))
        return _pytree.tree_map(tensor, fn(*args, **kwargs))

    return call


def compile(*args: Any, **kwargs: Any) -> Any:
    """`lucid.compile`."""
    import lucid

    return lucid.compile(*args, **kwargs)
