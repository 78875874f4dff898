"""`lucid.compile`: functions, modules and whole training steps that run recorded graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid import errors
from lucid._warnings import warn_without_effect

_MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
_BACKENDS = (None, "lucid", "inductor", "eager")


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
    """A function or module that runs a recorded graph in the place of its Python code.

    The first call with inputs of certain shapes, strides, dtypes and devices runs as it is, and the primitives that it
    dispatches are recorded: of the forward pass, of a backward pass inside of it, or else of the one that its results
    lead to. The graph is checked, folded and freed of what is not needed; calls alike run it. Parameters, buffers and
    what else the function reaches are read anew in each call. `optimizer.step()` is called between the parts of the
    graph, so that a whole training step can be compiled.

    A call is alike where its other arguments and all Python values that the function reaches (closure, globals,
    attributes, `training`, hooks) are the same, and grad mode and autocast are. Where a call reads elements (`item`,
    `tolist`, a shape that depends on values), prints, changes Python state or registers hooks, no graph is all of it.
    Where the line is known, what comes before and behind it is compiled each by itself, and the line runs as it is
    written; else the whole call does, every time. `lucid.compiler.explain` says why.

    Args:
        model (callable, optional): a function or module; without it the result is a decorator.
        fullgraph (bool, optional): whether what cannot be one graph is an error, raised at the line that it is in.
            Default: False.
        dynamic (bool, optional): whether one recording holds for other sizes, too. The first call is then also recorded
            at smaller and larger sizes of the dimensions that can vary; what differs has to be a polynomial of the
            sizes, and holds between the sizes that were recorded. Calls with effects (writes, backward passes,
            optimizers) have a graph per shape, and so have functions that compare sizes with `==`: `statistics` says
            why. Default: no.
        backend (str, optional): `"lucid"` (or `"inductor"`, its name in PyTorch) or `"eager"`, which records nothing.
        mode (str, optional): one of PyTorch's names; all give the same graphs, of which others than "default" warn
            once.
        options (dict, optional): there are none: anything but an empty dict is an error.
        name (str, optional): a name for reports.
        disable (bool, optional): whether not to compile; then `model` itself is given back. Default: False.
        recompile_limit (int, optional): how many graphs there may be; calls beyond run uncompiled. Default: 8, or what
            `lucid._dynamo.config.recompile_limit` says.
        isolate_recompiles (bool, optional): functions never share graphs in any case.
        dynamic_shapes (object, optional): without effect, with one warning: sizes vary as `dynamic` says.

    Returns:
        The compiled function; for a module a module that shares its parameters (`_orig_mod` is the one given).

    Raises:
        TypeError: `model` cannot be called.
        RuntimeError: an unknown mode, option or backend; with `fullgraph` what no graph can hold.

    Differences from PyTorch: a graph breaks at whole statements; backends of one's own are not taken; gradients of
    gradients do not go through a compiled call.

    Example:
        >>> @lucid.compile
        ... def f(x, y):
        ...     return (x * y + 1).sum()
        >>> f(lucid.ones(3), lucid.ones(3)), f(lucid.ones(3), lucid.ones(3) * 2)
        (tensor(6.), tensor(9.))
        >>> lucid.compiler.explain(f).graph_count
        1
    """
    warn_without_effect("compile", "sizes vary as `dynamic` says", dynamic_shapes=dynamic_shapes is not None)
    warn_without_effect("compile", "all modes give the same graphs", mode=mode not in (None, "default"))
    from lucid.compiler import _function

    if mode not in _MODES:
        known = ", ".join(str(m) for m in _MODES if m)
        raise errors.RuntimeError(f"compile(): unrecognized mode={mode!r}, should be one of: {known}")
    if mode is not None and options is not None:
        raise errors.RuntimeError(
            "compile(): either mode or options can be specified, but both can't be specified at once"
        )
    if options:
        raise errors.RuntimeError(f"compile(): unexpected optimization option {next(iter(options))!r}; there are none")
    if callable(backend) or backend not in _BACKENDS:
        shown = getattr(backend, "__name__", backend)
        raise errors.RuntimeError(
            f"compile(): invalid backend {shown!r}; there are 'lucid' (or 'inductor') and 'eager'"
        )
    if recompile_limit is not None and (not isinstance(recompile_limit, int) or recompile_limit < 1):
        raise errors.RuntimeError(f"compile(): recompile_limit must be an int above 0, got {recompile_limit!r}")

    def wrap(given: Callable[..., Any]) -> Any:
        _function.check(given)
        if disable or backend == "eager" or getattr(given, "_lucid_disabled", False):
            return given
        return _wrapped(given, {"fullgraph": fullgraph, "limit": recompile_limit, "name": name, "dynamic": dynamic})

    return wrap if model is None else wrap(model)


def _wrapped(given: Any, options: dict[str, Any]) -> Any:
    from lucid.compiler import _function
    from lucid.nn import Module

    if isinstance(given, Module):
        from lucid.compiler._module import OptimizedModule

        return OptimizedModule(given, options)
    inner = getattr(given, "_compiled", None)
    # What is compiled already is compiled anew, of what it was made of.
    return _function.compiled_function(given if inner is None else inner.fn, **options)
