"""PyTorch's names around TorchScript, as `torch.jit`. There is no second language here: programs stay Python.

`script` and `trace` return what they are given, so that code written for both runs and trains as before. Decorators
(`ignore`, `unused`, `export`, …) return their function, `is_scripting` and `is_tracing` are `False`, and annotations
(`Final`, `annotate`, `interface`) mean what they mean to a type checker. `save` writes the ops of what was traced, and
`load` gives a module that runs them. What would need a scripted program (`CompilationUnit`) raises an error that says
what to use instead; switches of PyTorch's compiler warn once that they change nothing.
"""

import builtins
import contextlib
import types
import typing
import weakref
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar, Union, get_args, get_origin

import lucid
from lucid import errors
from lucid._warnings import warn_once
from lucid.jit import annotations as annotations
from lucid.jit._future import Future as Future
from lucid.jit._future import fork as fork
from lucid.jit._future import wait as wait
from lucid.nn.modules.module import Module
from lucid.utils import _pytree

__all__ = [
    "Attribute",
    "CompilationUnit",
    "Error",
    "Final",
    "Future",
    "ONNXTracedModule",
    "RecursiveScriptClass",
    "RecursiveScriptModule",
    "ScriptFunction",
    "ScriptModule",
    "ScriptWarning",
    "TopLevelTracedModule",
    "TracedModule",
    "TracerWarning",
    "TracingCheckError",
    "annotate",
    "enable_onednn_fusion",
    "export",
    "export_opnames",
    "fork",
    "freeze",
    "fuser",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "isinstance",
    "jit_module_from_flatbuffer",
    "load",
    "onednn_fusion_enabled",
    "optimize_for_inference",
    "optimized_execution",
    "run_frozen_optimizations",
    "save",
    "save_jit_module_to_flatbuffer",
    "script",
    "script_if_tracing",
    "script_method",
    "set_fusion_strategy",
    "strict_fusion",
    "trace",
    "trace_module",
    "unused",
    "wait",
]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

Attribute = namedtuple("Attribute", ["value", "type"])
"""A value and its type, for attributes of modules."""


class Error(RuntimeError):
    """An error of a scripted program. Nothing raises it: programs are Python and raise its errors."""


class TracingCheckError(Exception):
    """Two calls of a traced function gave different results."""


class TracerWarning(Warning):
    """A warning of PyTorch's tracer. Nothing gives it."""


class ScriptWarning(Warning):
    """A warning of PyTorch's script compiler. Nothing gives it."""


class ScriptFunction:
    """A scripted function of PyTorch, for `isinstance`: `script` gives none.

    Raises:
        NotImplementedError: on construction.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise errors.NotImplementedError(f"{type(self).__name__}: there are no scripts; use the Python function itself")


class CompilationUnit(ScriptFunction):
    """A unit of scripted source of PyTorch, for `isinstance`: there is none."""


class RecursiveScriptClass(ScriptFunction):
    """A scripted class of PyTorch, for `isinstance`: there is none."""


class ScriptModule(Module):
    """A module, for programs that derive from PyTorch's class of this name; it is a `Module` and nothing else.

    `script` and `trace` return what they are given, which is no `ScriptModule` unless its class derives from it.
    """


class RecursiveScriptModule(ScriptModule):
    """The class of PyTorch's scripted modules, for `isinstance`."""


class TracedModule(ScriptModule):
    """The class of PyTorch's traced modules, for `isinstance`."""


class TopLevelTracedModule(TracedModule):
    """The class of PyTorch's traced modules, for `isinstance`."""


class ONNXTracedModule(Module):
    """The class of modules that PyTorch traces for ONNX, for `isinstance`."""


def script(
    obj: T,
    optimize: Any = None,
    _frames_up: int = 0,
    _rcb: Any = None,
    example_inputs: Any = None,
) -> T:
    """Returns what it is given: a module, a function or a class, which stays Python.

    Args:
        obj: a module, a function, a class, or another object.
        optimize: deprecated in PyTorch; must be `None`.
        example_inputs: arguments that PyTorch infers types from; not called here.

    Returns:
        `obj` itself.

    Differences from PyTorch: there the result is compiled and is a `ScriptModule`, a `ScriptFunction` or a class; it
    has `code`, `graph` and `save`. Code that asks `isinstance(obj, ScriptModule)` is answered `False` here.

    Example:
        >>> @lucid.jit.script
        ... def double(x):
        ...     return x + x
        >>> double(lucid.ones(2))
        tensor([2., 2.])
    """
    if optimize is not None:
        warn_once("jit.script(optimize)", "script(): `optimize` changes nothing; leave it out", FutureWarning)
    return obj


def _same(a: Any, b: Any, rtol: float) -> bool:
    flat, spec = _pytree.tree_flatten(a)
    other, same = _pytree.tree_flatten(b)
    if spec != same:
        return False
    for x, y in zip(flat, other, strict=True):
        if builtins.isinstance(x, lucid.Tensor):
            if not builtins.isinstance(y, lucid.Tensor) or x.shape != y.shape or x.dtype != y.dtype:
                return False
            if not lucid.allclose(x.detach(), y.detach(), rtol=rtol, equal_nan=True):
                return False
        elif x != y:
            return False
    return True


def _traced(obj: Any, call: Callable[..., Any], args: Any, kwargs: Any, check: bool, tolerance: float) -> None:
    """Calls once, and again if asked to compare."""
    given = args if builtins.isinstance(args, tuple) else () if args is None else (args,)
    with lucid.no_grad(), lucid.random.fork_rng():
        first = call(*given, **(kwargs or {}))
    if check:
        with lucid.no_grad(), lucid.random.fork_rng():
            again = call(*given, **(kwargs or {}))
        if not _same(first, again, tolerance):
            name = getattr(obj, "__name__", type(obj).__name__)
            warn_once(f"jit.trace {name}", f"trace(): two calls of {name} with the same inputs gave different results")


def trace(
    func: T,
    example_inputs: Any = None,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_kwarg_inputs: dict[str, Any] | None = None,
    _store_inputs: bool = True,
) -> T:
    """Calls a function or module with example inputs, and returns it as it is.

    Args:
        func: a function or a module.
        example_inputs: a tuple of arguments, or one tensor.
        check_trace: whether to call it twice and warn if the results differ by more than `check_tolerance`.
        check_inputs: further tuples of arguments, which are called too.
        check_tolerance: relative.
        strict, optimize: of PyTorch's tracer; without meaning where the function stays Python.
        example_kwarg_inputs: arguments by name, instead of `example_inputs`.

    Returns:
        `func` itself, which heeds its Python control flow in later calls.

    Raises:
        RuntimeError: both or neither of `example_inputs` and `example_kwarg_inputs` are given.

    Differences from PyTorch: there the ops of the call are recorded and later calls replay them, without Python.

    Example:
        >>> f = lucid.jit.trace(lambda x: x * 2, lucid.ones(2))
        >>> f(lucid.ones(3))
        tensor([2., 2., 2.])
    """
    if (example_inputs is None) == (example_kwarg_inputs is None):
        raise errors.RuntimeError("trace(): expected either example_inputs or example_kwarg_inputs")
    call: Any = func
    _traced(func, call, example_inputs, example_kwarg_inputs, check_trace, check_tolerance)
    for inputs in check_inputs or ():
        _traced(func, call, tuple(inputs), None, check_trace, check_tolerance)
    given = example_inputs if builtins.isinstance(example_inputs, tuple) else (example_inputs,)
    _remember(func, () if example_inputs is None else given, dict(example_kwarg_inputs or {}))
    return func


def _remember(obj: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Keeps an example for `save`, and gives a module the method."""
    try:
        _EXAMPLES[obj] = (args, kwargs)
    except TypeError:
        return  # Of what has no weak references nothing is kept.
    if builtins.isinstance(obj, Module) and not hasattr(obj, "save"):
        kept = weakref.ref(obj)
        obj.__dict__["save"] = lambda f, _extra_files=None: save(kept(), f, _extra_files)


def trace_module(
    mod: T,
    inputs: dict[str, Any],
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_inputs_is_kwarg: bool = False,
    _store_inputs: bool = True,
) -> T:
    """Calls methods of a module with example inputs, and returns the module as it is.

    Args:
        mod: a module.
        inputs: by the name of a method its arguments: a tuple, or one tensor.
        check_trace, check_inputs, check_tolerance, strict, optimize: see `trace`.
        example_inputs_is_kwarg: whether the arguments are dicts of names.

    Returns:
        `mod` itself.

    Raises:
        AttributeError: `inputs` is no dict, or `mod` no module.

    Example:
        >>> model = lucid.nn.Linear(2, 2)
        >>> lucid.jit.trace_module(model, {"forward": lucid.ones(1, 2)}) is model
        True
    """
    if not builtins.isinstance(mod, Module):
        raise AttributeError("expected torch.nn.Module as the first argument")
    if not builtins.isinstance(inputs, dict):
        raise AttributeError("expected a dictionary of (method_name, input) pairs")
    for each in (inputs, *(check_inputs or ())):
        for name, args in each.items():
            method = mod if name == "forward" else getattr(mod, name)
            given: tuple[Any, Any] = ((), args) if example_inputs_is_kwarg else (args, None)
            _traced(mod, method, *given, check_trace, check_tolerance)
    if "forward" in inputs and not example_inputs_is_kwarg:
        example = inputs["forward"]
        _remember(mod, example if builtins.isinstance(example, tuple) else (example,), {})
    return mod


def _marker(fn: Any, name: str) -> Any:
    """A decorator that may be used with and without parentheses, and that returns its function."""
    if callable(fn):
        return fn
    if not builtins.isinstance(fn, bool):
        raise errors.RuntimeError(f"Argument to @lucid.jit.{name} must be a bool or a function but got {fn}")
    return lambda given: given


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Marks a function that PyTorch's script compiler calls as Python. Returns the function; also used as `@ignore()`.

    Args:
        drop: the function, or a bool as PyTorch takes it.

    Raises:
        RuntimeError: `drop` is neither.
    """
    return _marker(drop, "ignore")


def unused(fn: F) -> F:
    """Marks a method that PyTorch's script compiler leaves out. Returns the method, which can be called here."""
    return fn


def export(fn: F) -> F:
    """Marks a method that PyTorch's script compiler compiles too. Returns the method."""
    return fn


def interface(obj: T) -> T:
    """Marks a class as an interface of modules. Returns the class.

    Raises:
        RuntimeError: `obj` is no class.
    """
    if not builtins.isinstance(obj, type):
        raise errors.RuntimeError("interface must be applied to a class")
    return obj


def script_method(fn: F) -> F:
    """Marks a method of a `ScriptModule` that PyTorch compiles. Returns the method."""
    return fn


def script_if_tracing(fn: F) -> F:
    """Marks a function that PyTorch compiles while it traces. Returns the function."""
    return fn


_script_if_tracing = script_if_tracing


def _overload(func: F) -> F:
    """Marks a signature of an overloaded function, as `typing.overload`. Returns the function."""
    return func


def _overload_method(func: F) -> F:
    """Marks a signature of an overloaded method, as `typing.overload`. Returns the method."""
    return func


def is_scripting() -> bool:
    """Whether a script is being compiled or run: `False`."""
    return False


def is_tracing() -> bool:
    """Whether PyTorch's tracer records the call: `False`."""
    return False


def annotate(the_type: Any, the_value: T) -> T:
    """Returns the value, whose type a script would be told."""
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether an object is of a type, whose parameters count: `List[int]`, `Dict[str, Tensor]`, `Optional[…]`.

    Args:
        obj: any object. The elements of lists, tuples and dicts are looked at; an empty one fits any parameter.
        target_type: a type, or a tuple of types.

    Returns:
        A bool.

    Example:
        >>> from typing import List
        >>> lucid.jit.isinstance([1, 2], List[int]), lucid.jit.isinstance([1, "a"], List[int])
        (True, False)
    """
    if builtins.isinstance(target_type, tuple):
        return any(isinstance(obj, t) for t in target_type)
    origin, parameters = get_origin(target_type), get_args(target_type)
    if target_type is Any:
        return True
    if target_type is None:
        return obj is None
    if origin in (Union, types.UnionType):
        return any(isinstance(obj, t) for t in parameters)
    if origin is Final or origin is typing.Annotated:
        return isinstance(obj, parameters[0])
    if origin in (list, set, frozenset):
        return builtins.isinstance(obj, origin) and all(isinstance(v, parameters[0]) for v in obj)
    if origin is dict:
        pairs = obj.items() if builtins.isinstance(obj, dict) else ()
        return builtins.isinstance(obj, dict) and all(
            isinstance(k, parameters[0]) and isinstance(v, parameters[1]) for k, v in pairs
        )
    if origin is tuple:
        if not builtins.isinstance(obj, tuple):
            return False
        if len(parameters) == 2 and parameters[1] is Ellipsis:
            return all(isinstance(v, parameters[0]) for v in obj)
        wanted = () if parameters == ((),) else parameters
        return len(obj) == len(wanted) and all(isinstance(v, t) for v, t in zip(obj, wanted, strict=True))
    return builtins.isinstance(obj, origin or target_type)


_SAVED = "there are no scripts; save the state dict with lucid.save, and build the module by its class"

#: The examples that functions and modules were traced with.
_EXAMPLES: weakref.WeakKeyDictionary[Any, tuple[tuple[Any, ...], dict[str, Any]]] = weakref.WeakKeyDictionary()


def save(m: Any, f: Any, _extra_files: Any = None) -> None:
    """Writes the ops of a module or function that was traced, and its tensors, to a file.

    It is called once more with the example that `trace` was given, and what it does is written: sizes, numbers and
    control flow are the example's.

    Args:
        m: What `trace` was called with, or what `load` has given.
        f: A file, or its path.

    Raises:
        NotImplementedError: for what was not traced. `lucid.save` writes state dicts and whole modules.
        RuntimeError: for ops that cannot be written: it names them.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> lucid.jit.save(lucid.jit.trace(lucid.nn.Linear(2, 1), lucid.ones(1, 2)), file)
        >>> _ = file.seek(0)
        >>> lucid.jit.load(file)(lucid.ones(1, 2)).shape
        lucid.Size([1, 1])
    """
    from lucid.jit import _program

    if _extra_files:
        raise errors.NotImplementedError("jit.save(): _extra_files is not there; write them beside the file")
    if builtins.isinstance(m, _program.TracedProgram):
        m.save(f)
        return
    try:
        example = _EXAMPLES.get(m)
    except TypeError:
        example = None
    if example is None:
        raise errors.NotImplementedError(f"jit.save(): call jit.trace(m, example) first, or: {_SAVED}")
    _program.write(*_program.record(m, *example), f)


def load(f: Any, map_location: Any = None, _extra_files: Any = None, _restore_shapes: bool = False) -> Any:
    """Reads what `save` has written; no code of the file runs.

    Args:
        f: A file, or its path.
        map_location: The device of its tensors.

    Returns:
        A module, `TracedProgram`: its call runs the ops, with gradients; parameters have the names that they had.

    Raises:
        RuntimeError: for other files, such as PyTorch's scripts: load a state dict with `lucid.load` instead.
    """
    from lucid.jit import _program

    return _program.read(f, map_location)


def save_jit_module_to_flatbuffer(m: Any, f: Any, _extra_files: Any = None) -> None:
    """Writes a scripted module in PyTorch.

    Raises:
        NotImplementedError: always; see `save`.
    """
    raise errors.NotImplementedError(f"save_jit_module_to_flatbuffer(): {_SAVED}")


def jit_module_from_flatbuffer(f: Any) -> Any:
    """Reads a scripted module in PyTorch.

    Raises:
        NotImplementedError: always; see `load`.
    """
    raise errors.NotImplementedError(f"jit_module_from_flatbuffer(): {_SAVED}")


def export_opnames(m: Any) -> list[str]:
    """Lists the ops of a scripted module in PyTorch.

    Raises:
        NotImplementedError: always; `lucid.profile()` counts the ops of a call.
    """
    raise errors.NotImplementedError("export_opnames(): there are no scripts; lucid.profile() counts the ops of a call")


def freeze(mod: T, preserved_attrs: Any = None, optimize_numerics: bool = True) -> T:
    """Returns a module as it is.

    Raises:
        RuntimeError: it is in training mode, which PyTorch refuses too.
    """
    if getattr(mod, "training", False):
        raise errors.RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. "
            "Please call .eval() on your module before freezing."
        )
    return mod


def optimize_for_inference(mod: T, other_methods: Any = None) -> T:
    """Returns a module as it is, in eval mode if it is a `Module`."""
    return mod.eval() if builtins.isinstance(mod, Module) else mod


def _without_effect(name: str) -> None:
    warn_once(f"jit.{name}", f"jit.{name}: changes nothing; there is no compiler of scripts")


def run_frozen_optimizations(mod: Any, optimize_numerics: bool = True, preserved_methods: Any = None) -> None:
    """A pass of PyTorch's compiler of scripts; warns once that it changes nothing."""
    _without_effect("run_frozen_optimizations")


def set_fusion_strategy(strategy: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """A switch of PyTorch's compiler of scripts; warns once that it changes nothing, and returns what it is given."""
    _without_effect("set_fusion_strategy")
    return strategy


def enable_onednn_fusion(enabled: bool) -> None:
    """A switch of PyTorch's compiler of scripts; warns once that it changes nothing."""
    _without_effect("enable_onednn_fusion")


def onednn_fusion_enabled() -> bool:
    """Whether oneDNN fuses scripts: `False`."""
    return False


@contextlib.contextmanager
def fuser(name: str) -> Iterator[None]:
    """A block with another fuser of scripts in PyTorch; warns once that it changes nothing."""
    _without_effect("fuser")
    yield


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """A block with or without optimisation of scripts in PyTorch; warns once that it changes nothing."""
    _without_effect("optimized_execution")
    yield


class strict_fusion:
    """A block in which PyTorch's compiler of scripts must fuse all ops; warns once that it changes nothing."""

    def __enter__(self) -> None:
        _without_effect("strict_fusion")

    def __exit__(self, *exc: object) -> None:
        pass
