"""What is around `lucid.compile`, as `torch.compiler`: questions, explanations, counts, and what is not compiled.

Decorators that steer PyTorch's tracer of Python code return their function: here the call that is recorded runs as it
is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from lucid import _C, errors
from lucid._warnings import warn_once, warn_without_effect
from lucid.compiler import config as config
from lucid.compiler import tune_cache as tune_cache

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "config",
    "cudagraph_mark_step_begin",
    "disable",
    "explain",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe",
    "list_backends",
    "load_cache_artifacts",
    "load_compiled",
    "nested_compile_region",
    "reset",
    "save_cache_artifacts",
    "save_compiled",
    "set_enable_guard_collectives",
    "set_stance",
    "skip_all_guards_unsafe",
    "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
    "statistics",
    "substitute_in_graph",
    "tune_cache",
    "wrap_numpy",
]

F = TypeVar("F", bound=Callable[..., Any])


def is_compiling() -> bool:
    """Whether the call is being recorded for `lucid.compile`."""
    return _C._graph_recording()


def is_dynamo_compiling() -> bool:
    """Whether the call is being recorded for `lucid.compile`."""
    return _C._graph_recording()


def explain(fn: Any, *args: Any, **kwargs: Any) -> Any:
    """Shows what a function is compiled to, and why a call is not one graph where it is not.

    Args:
        fn (callable): a function or module, compiled or not.
        args (object): the positional arguments of a call, which is made and recorded. Without a call, what a compiled
            function has recorded so far is explained.
        kwargs (object): the named arguments of that call.

    Returns:
        Explanation: `graph_count`, `graph_break_count`, `break_reasons`, `op_count`, and `graphs`: per graph its text,
        its steps with shapes, dtypes, bytes and FLOPs, its form in Graphviz's language and as a picture, what each pass
        changed and the groups of element-wise steps. Its text shows all of it; `to_json()`, `to_html()` and
        `save(path)` give it as JSON and as a self-contained page.

    Example:
        >>> print(lucid.compiler.explain(lambda x: x.sum().item(), lucid.ones(2)).break_reasons)
        ['item: the elements of a tensor are read']
    """
    from lucid.compiler import _function, _report

    made = getattr(fn, "_compiled", None)
    if not isinstance(made, _function.Function):
        _function.check(fn)
        made = _function.Function(fn, fullgraph=False, limit=None, name=None)
        made.call(args, kwargs)
    elif args or kwargs:
        made.call(args, kwargs)
    found = _function.explanation(made)
    if args or kwargs:
        found.times_ms = {"compiled": _report.timed(lambda: made.call(args, kwargs))}
    return found


def statistics(fn: Any = None) -> dict[str, Any]:
    """Counts calls, recordings, replays, uncompiled calls and recompiles with their reasons, since the last `reset`.

    Args:
        fn (callable, optional): a compiled function or module. Default: all of them together.

    Returns:
        dict of str to int or dict: `calls`, `recorded`, `replayed` and further counts by name.

    Raises:
        TypeError: `fn` is not compiled.

    Example:
        >>> f = lucid.compile(lambda x: x + 1)
        >>> _ = f(lucid.ones(2)), f(lucid.ones(2))
        >>> [lucid.compiler.statistics(f)[name] for name in ("calls", "recorded", "replayed")]
        [2, 1, 1]
    """
    import dataclasses

    from lucid.compiler import _function

    if fn is None:
        return dataclasses.asdict(_function.TOTAL)
    made = getattr(fn, "_compiled", None)
    if not isinstance(made, _function.Function):
        raise errors.TypeError(f"statistics(): expected a compiled function or module, got {type(fn).__name__}")
    return dataclasses.asdict(made.statistics)


def is_exporting() -> bool:
    """Whether the call is being traced for export: `False`."""
    return False


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Marks a function that is never compiled: who calls it runs uncompiled, too. Also used as `@disable()`.

    Args:
        fn (callable, optional): the function; without it the result is a decorator.
        recursive (bool, optional): functions inside that were compiled by themselves run their graphs in any case,
            and others are not compiled.
        reason (str, optional): a note for readers, without effect; PyTorch shows it in messages.

    Returns:
        callable: the marked function, or a decorator.

    Example:
        >>> @lucid.compiler.disable(recursive=False)
        ... def f(x):
        ...     return x + 1
        >>> f(1)
        2
    """
    from lucid.compiler import _function

    return _function.disabled(fn) if fn is not None else _function.disabled


def allow_in_graph(fn: Any) -> Any:
    """Marks functions that PyTorch's compiler takes as one op. Here a call is recorded as it runs, so that nothing
    changes.

    Args:
        fn (callable or list of callable): the functions.

    Returns:
        callable or list of callable: `fn` itself.

    Raises:
        AssertionError: something in `fn` cannot be called.

    Example:
        >>> @lucid.compiler.allow_in_graph
        ... def scaled(x):
        ...     return x * 2
        >>> scaled(lucid.ones(2))
        tensor([2., 2.])
    """
    for each in fn if isinstance(fn, (list, tuple)) else [fn]:
        if not callable(each):
            raise AssertionError("allow_in_graph expects a callable")
    return fn


def assume_constant_result(fn: F) -> F:
    """Marks a function whose result PyTorch's compiler may keep. Here nothing changes.

    Args:
        fn (callable): the function.

    Returns:
        callable: `fn` itself.

    Example:
        >>> lucid.compiler.assume_constant_result(lambda: 3)()
        3
    """
    return fn


def nested_compile_region(fn: Any = None, **options: Any) -> Any:
    """Marks a function that PyTorch compiles once for all its calls. Here nothing changes.

    Args:
        fn (callable, optional): the function; without it the result is a decorator.
        options (object): PyTorch's others; ignored.

    Returns:
        callable: `fn` itself, or a decorator that returns its function.

    Example:
        >>> @lucid.compiler.nested_compile_region
        ... def layer(x):
        ...     return x.relu()
        >>> lucid.compile(lambda x: layer(layer(x)))(lucid.tensor([-1.0, 1.0]))
        tensor([0., 1.])
    """
    warn_without_effect(
        "nested_compile_region", "the region is part of the graph around it", **dict.fromkeys(options, True)
    )
    return fn if fn is not None else lambda given: given


def substitute_in_graph(original_fn: Any, **options: Any) -> Callable[[F], F]:
    """Marks a function that PyTorch's compiler traces in place of another. Here calls are recorded, so that nothing
    changes.

    Args:
        original_fn (callable): the function that is replaced while PyTorch traces.
        options (object): PyTorch's others; ignored.

    Returns:
        callable: a decorator that returns its function.

    Example:
        >>> import math
        >>> @lucid.compiler.substitute_in_graph(math.hypot)
        ... def hypot(a, b):
        ...     return (a * a + b * b) ** 0.5
        >>> hypot(3, 4)
        5.0
    """
    return lambda given: given


def cudagraph_mark_step_begin() -> None:
    """Says that a step begins, to PyTorch's graphs of CUDA calls. There are none, and nothing is kept between steps."""


def reset() -> None:
    """Forgets all recorded graphs, and all counts."""
    from lucid.compiler import _function

    _function.reset_all()


def save_compiled(fn: Any, path: Any, *args: Any, dynamic_shapes: Any = None, **kwargs: Any) -> None:
    """Writes a function or module, compiled or not, as a file that `load_compiled` and Rust programs read.

    Args:
        fn (callable): the function or module.
        path (str, os.PathLike or binary file): where it is written.
        args (object): the positional arguments of a call, which is recorded.
        dynamic_shapes (dict or sequence, optional): which sizes may vary, as `lucid.export.export` takes it. Default:
            none.
        kwargs (object): the named arguments of that call.

    Raises:
        RuntimeError: the call is no graph.

    Example:
        >>> import io
        >>> file, f = io.BytesIO(), lucid.compile(lambda x: x + 1)
        >>> lucid.compiler.save_compiled(f, file, lucid.ones(2))
        >>> _ = file.seek(0)
        >>> lucid.compiler.load_compiled(file)(lucid.ones(2))
        tensor([2., 2.])
    """
    from lucid import export
    from lucid.compiler import _function

    made = getattr(fn, "_compiled", None)
    plain = made.fn if isinstance(made, _function.Function) else fn
    export.save(export.export(plain, args, kwargs, dynamic_shapes=dynamic_shapes), path)


def load_compiled(path: Any, device: Any = None) -> Any:
    """Reads what `save_compiled` wrote, as a module.

    Args:
        path (str, os.PathLike or binary file): the file to read.
        device (device or str, optional): the device that it runs on. Default: the one that it was recorded on.

    Returns:
        Module: called like the function that was saved, with tensors of the recorded shapes.

    Raises:
        LucidError: the file cannot be read, is of another format or version, or is damaged.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> lucid.compiler.save_compiled(lambda x: x * 2, file, lucid.ones(2))
        >>> _ = file.seek(0)
        >>> lucid.compiler.load_compiled(file)(lucid.tensor([1.0, 3.0]))
        tensor([2., 6.])
    """
    from lucid import export

    return export.load(path, device=device).module()


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """Lists the compilers that `lucid.compile(…, backend=)` can be given.

    Args:
        exclude_tags (sequence of str, optional): which of PyTorch's kinds to leave out; Lucid's one has no tags.

    Returns:
        list of str: `["lucid"]`.

    Example:
        >>> lucid.compiler.list_backends()
        ['lucid']
    """
    return ["lucid"]


def save_cache_artifacts() -> None:
    """What was compiled, as bytes: `None`, for nothing is."""
    return None


def load_cache_artifacts(serialized_artifacts: bytes) -> None:
    """Refuses what `torch.compiler.save_cache_artifacts` gave: code that PyTorch compiled cannot run here.

    Args:
        serialized_artifacts (bytes): PyTorch's cache.

    Raises:
        NotImplementedError: always.

    Example:
        >>> lucid.compiler.load_cache_artifacts(b"")
        Traceback (most recent call last):
        ...
        lucid.errors.NotImplementedError: load_cache_artifacts(): code that PyTorch compiled cannot run here; ...
    """
    raise errors.NotImplementedError("load_cache_artifacts(): code that PyTorch compiled cannot run here; leave it out")


def set_enable_guard_collectives(enabled: bool) -> bool:
    """Accepts a switch of PyTorch's compiler; warns once that it changes nothing.

    Args:
        enabled (bool): whether PyTorch's guards are checked on all ranks together.

    Returns:
        bool: the former value, which is always False.

    Example:
        >>> lucid.compiler.set_enable_guard_collectives(False)
        False
    """
    warn_once("set_enable_guard_collectives", "set_enable_guard_collectives(): changes nothing; there are no guards")
    return False


_STANCE = "default"


def _stance_name() -> str:
    from lucid._dynamo import config

    return "force_eager" if config.disable else _STANCE


@contextlib.contextmanager
def _stance(former: str) -> Iterator[None]:
    global _STANCE
    try:
        yield
    finally:
        _STANCE = former


def set_stance(stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None) -> Any:
    """Sets how compiled functions behave, from now on, or within a `with` block of what it returns.

    With `"force_eager"` they run uncompiled. The other stances change nothing: calls give the same results whenever
    they are recorded.

    Args:
        stance (str, optional): `"default"`, `"force_eager"`, `"eager_on_recompile"`, `"eager_then_compile"`,
            `"aot_eager_then_compile"` or `"fail_on_recompile"`. Default: `"default"`.
        skip_guard_eval_unsafe (bool, optional): there are no guards to skip; True gives one warning.
        force_backend (object, optional): there is one backend; one that is given gives one warning.

    Returns:
        context manager: at its end the former stance holds again.

    Raises:
        RuntimeError: another stance, or `force_backend` beside one that is not the default.

    Example:
        >>> f = lucid.compile(lambda x: x + 1)
        >>> with lucid.compiler.set_stance("force_eager"):
        ...     f(lucid.ones(2))
        tensor([2., 2.])
    """
    warn_without_effect("set_stance", "there are no guards", skip_guard_eval_unsafe=skip_guard_eval_unsafe)
    warn_without_effect("set_stance", "there is one backend", force_backend=force_backend is not None)
    known = ("default", "force_eager", "eager_on_recompile", "eager_then_compile", "aot_eager_then_compile")
    if stance not in (*known, "fail_on_recompile"):
        raise errors.RuntimeError(f"invalid torch.compile stance '{stance}'")
    if force_backend is not None and stance != "default":
        raise errors.RuntimeError("non-default stance cannot have force_backend set")
    global _STANCE
    former, _STANCE = _STANCE, stance
    return _stance(former)


def _guards(name: str) -> Callable[[list[Any]], list[bool]]:
    def keep(guard_entries: list[Any]) -> list[bool]:
        return [True for _ in guard_entries]

    keep.__name__ = keep.__qualname__ = name
    keep.__doc__ = f"""Says which guards of PyTorch's compiled code are kept: all. Here there are none.

    Args:
        guard_entries (list): PyTorch's descriptions of guards.

    Returns:
        list of bool: True for each of them.

    Example:
        >>> lucid.compiler.{name}([])
        []
    """
    return keep


keep_portable_guards_unsafe = _guards("keep_portable_guards_unsafe")
keep_tensor_guards_unsafe = _guards("keep_tensor_guards_unsafe")
skip_all_guards_unsafe = _guards("skip_all_guards_unsafe")
skip_guard_on_all_nn_modules_unsafe = _guards("skip_guard_on_all_nn_modules_unsafe")
skip_guard_on_globals_unsafe = _guards("skip_guard_on_globals_unsafe")
skip_guard_on_inbuilt_nn_modules_unsafe = _guards("skip_guard_on_inbuilt_nn_modules_unsafe")


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function of tensors from a function of NumPy arrays.

    Args:
        fn (callable): takes and gives arrays, in containers too.

    Returns:
        callable: a function of tensors on the CPU device, without gradients.

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
    """Compiles a function or module: `lucid.compile` by PyTorch's other name.

    Args:
        args (object): the arguments of `lucid.compile`: the function or module.
        kwargs (object): the options of `lucid.compile`, such as `fullgraph` and `dynamic`.

    Returns:
        callable: the compiled function or module, or a decorator.

    Example:
        >>> lucid.compiler.compile(lambda x: x + 1)(lucid.ones(2))
        tensor([2., 2.])
    """
    import lucid

    return lucid.compile(*args, **kwargs)
