"""PyTorch's names around TorchScript, as `torch.jit`. There is no second language here: programs stay Python.

`script` and `trace` return what they are given, so that code written for both runs and trains as before. Decorators
(`ignore`, `unused`, `export`, …) return their function, `is_scripting` and `is_tracing` are `False`, and annotations
(`Final`, `annotate`, `interface`) mean what they mean to a type checker. `save` and `load` write and read what was
traced, as `lucid.export` does. What would need a scripted program (`CompilationUnit`) raises an error that says what to
use instead; switches of PyTorch's compiler warn once that they change nothing.
"""

import builtins
import contextlib
import types
import typing
import weakref
from collections.abc import Callable
from typing import Any, Final, TypeVar, Union, get_args, get_origin

import lucid
from lucid import errors
from lucid._warnings import warn_once
from lucid.jit import annotations as annotations
from lucid.jit._future import Future as Future
from lucid.jit._future import fork as fork
from lucid.jit._future import wait as wait
from lucid.jit._markers import _overload as _overload
from lucid.jit._markers import _overload_method as _overload_method
from lucid.jit._markers import _script_if_tracing as _script_if_tracing
from lucid.jit._markers import export as export
from lucid.jit._markers import ignore as ignore
from lucid.jit._markers import interface as interface
from lucid.jit._markers import script_if_tracing as script_if_tracing
from lucid.jit._markers import script_method as script_method
from lucid.jit._markers import unused as unused
from lucid.jit._switches import enable_onednn_fusion as enable_onednn_fusion
from lucid.jit._switches import freeze as freeze
from lucid.jit._switches import fuser as fuser
from lucid.jit._switches import onednn_fusion_enabled as onednn_fusion_enabled
from lucid.jit._switches import optimize_for_inference as optimize_for_inference
from lucid.jit._switches import optimized_execution as optimized_execution
from lucid.jit._switches import run_frozen_optimizations as run_frozen_optimizations
from lucid.jit._switches import set_fusion_strategy as set_fusion_strategy
from lucid.jit._switches import strict_fusion as strict_fusion
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


class Attribute(typing.NamedTuple):
    """A value with its type, for attributes of modules that PyTorch's script compiler would see.

    Args:
        value (object): the attribute's value.
        type (type): its type, such as `List[int]`.

    Example:
        >>> lucid.jit.Attribute(3, int).value
        3
    """

    value: Any
    type: Any



class Error(RuntimeError):
    """An error of a scripted program. Nothing raises it: programs are Python and raise its errors."""


class TracingCheckError(Exception):
    """Two calls of a traced function gave different results."""


class TracerWarning(Warning):
    """A warning of PyTorch's tracer. Nothing gives it."""


class ScriptWarning(Warning):
    """A warning of PyTorch's script compiler. Nothing gives it."""


class ScriptFunction:
    """A scripted function of PyTorch, for `isinstance`: `script` gives none, so that making one is an error.

    Args:
        args (object): PyTorch's; never used.
        kwargs (object): PyTorch's; never used.

    Raises:
        NotImplementedError: always.

    Example:
        >>> isinstance(lucid.jit.script(abs), lucid.jit.ScriptFunction)
        False
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


def _deprecated(name: str) -> None:
    """Warns, once for each function, of `optimize`, as PyTorch does."""
    warn_once(f"jit.{name}(optimize)", f"{name}(): `optimize` has no effect; leave it out", FutureWarning)


def script(
    obj: T,
    optimize: Any = None,
    _frames_up: int = 0,
    _rcb: Any = None,
    example_inputs: Any = None,
) -> T:
    """Returns what it is given: a module, a function or a class, which stays Python.

    Differences from PyTorch: there the result is compiled and is a `ScriptModule`, a `ScriptFunction` or a class; it
    has `code`, `graph` and `save`. Code that asks `isinstance(obj, ScriptModule)` is answered `False` here.

    Args:
        obj (T): a module, a function, a class, or another object.
        optimize (object, optional): deprecated in PyTorch; must be `None`.
        example_inputs (object, optional): arguments that PyTorch infers types from; not called here.

    Returns:
        `obj` itself.

    Example:
        >>> @lucid.jit.script
        ... def double(x):
        ...     return x + x
        >>> double(lucid.ones(2))
        tensor([2., 2.])
    """
    if optimize is not None:
        _deprecated("script")
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

    Differences from PyTorch: there the ops of the call are recorded and later calls replay them, without Python.

    Args:
        func (T): a function or a module.
        example_inputs (object, optional): a tuple of arguments, or one tensor.
        optimize (object, optional): of PyTorch's tracer; without meaning where the function stays Python.
        check_trace (bool, default: True): whether to call it twice and warn if the results differ by more than
            `check_tolerance`.
        check_inputs (object, optional): further tuples of arguments, which are called too.
        check_tolerance (float, default: 1e-05): relative.
        strict (bool, default: True): of PyTorch's tracer; without meaning where the function stays Python.
        example_kwarg_inputs (dict[str, typing.Any], optional): arguments by name, instead of `example_inputs`.

    Returns:
        `func` itself, which heeds its Python control flow in later calls.

    Raises:
        RuntimeError: both or neither of `example_inputs` and `example_kwarg_inputs` are given.

    Example:
        >>> f = lucid.jit.trace(lambda x: x * 2, lucid.ones(2))
        >>> f(lucid.ones(3))
        tensor([2., 2., 2.])
    """
    if optimize is not None:
        _deprecated("trace")
    if (example_inputs is None) == (example_kwarg_inputs is None):
        raise errors.RuntimeError("trace(): expected either example_inputs or example_kwarg_inputs")
    call: Any = func
    _traced(func, call, example_inputs, example_kwarg_inputs, check_trace, check_tolerance)
    for inputs in check_inputs or ():
        _traced(func, call, tuple(inputs), None, check_trace, check_tolerance)
    given = example_inputs if builtins.isinstance(example_inputs, tuple) else (example_inputs,)
    # What cannot be referred to weakly cannot be saved.
    with contextlib.suppress(TypeError):
        _EXAMPLES[func] = (() if example_inputs is None else given, dict(example_kwarg_inputs or {}))
    return func


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
        mod (T): a module.
        inputs (dict): by the name of a method its arguments: a tuple, or one tensor.
        optimize (object, optional): see `trace`.
        check_trace (bool, default: True): see `trace`.
        check_inputs (object, optional): see `trace`.
        check_tolerance (float, default: 1e-05): see `trace`.
        strict (bool, default: True): see `trace`.
        example_inputs_is_kwarg (bool, default: False): whether the arguments are dicts of names.

    Returns:
        `mod` itself.

    Raises:
        AttributeError: `inputs` is no dict, or `mod` no module.

    Example:
        >>> model = lucid.nn.Linear(2, 2)
        >>> lucid.jit.trace_module(model, {"forward": lucid.ones(1, 2)}) is model
        True
    """
    if optimize is not None:
        _deprecated("trace_module")
    if not builtins.isinstance(mod, Module):
        raise AttributeError("expected torch.nn.Module as the first argument")
    if not builtins.isinstance(inputs, dict):
        raise AttributeError("expected a dictionary of (method_name, input) pairs")
    for each in (inputs, *(check_inputs or ())):
        for name, args in each.items():
            method = mod if name == "forward" else getattr(mod, name)
            given: tuple[Any, Any] = ((), args) if example_inputs_is_kwarg else (args, None)
            _traced(mod, method, *given, check_trace, check_tolerance)
    return mod


def is_scripting() -> bool:
    """Whether a script is being compiled or run: `False`."""
    return False


def is_tracing() -> bool:
    """Whether PyTorch's tracer records the call: `False`."""
    return False


def annotate(the_type: Any, the_value: T) -> T:
    """Gives back a value, whose type PyTorch's script compiler would be told.

    Args:
        the_type (type): such as `List[int]`; not checked.
        the_value (object): any value.

    Returns:
        object: `the_value` itself.

    Example:
        >>> from typing import List
        >>> lucid.jit.annotate(List[int], [])
        []
    """
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether an object is of a type, whose parameters count: `List[int]`, `Dict[str, Tensor]`, `Optional[…]`.

    Args:
        obj (object): any object. The elements of lists, tuples and dicts are looked at; an empty one fits any
            parameter.
        target_type (object): a type, or a tuple of types.

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

#: The example inputs of what was traced, for `save`.
_EXAMPLES: weakref.WeakKeyDictionary[Any, tuple[tuple[Any, ...], dict[str, Any]]] = weakref.WeakKeyDictionary()


def save(m: Any, f: Any, _extra_files: Any = None) -> None:
    """Writes what was given to `trace` as a file: its graph for the example inputs, and its weights.

    Args:
        m (callable): a function or module that was traced, or what `load` gave.
        f (str, os.PathLike or binary file): where it is written.

    Raises:
        NotImplementedError: `m` was not traced; there are no scripts. `lucid.save` writes state dicts and modules.
        RuntimeError: the call is no graph.

    Differences from PyTorch: the file is one of `lucid.export`, not TorchScript's.

    Example:
        >>> import io
        >>> file, net = io.BytesIO(), lucid.nn.Linear(2, 1)
        >>> lucid.jit.save(lucid.jit.trace(net, lucid.ones(1, 2)), file)
        >>> _ = file.seek(0)
        >>> bool((lucid.jit.load(file)(lucid.ones(1, 2)) == net(lucid.ones(1, 2))).all())
        True
    """
    from lucid import export as exporting

    program = getattr(m, "__dict__", {}).get("_program")
    if program is None:
        try:
            args, kwargs = _EXAMPLES[m]
        except (KeyError, TypeError):
            raise errors.NotImplementedError(
                f"jit.save(): give a function or module to trace() first; {_SAVED}"
            ) from None
        program = exporting.export(m, args, kwargs)
    exporting.save(program, f, extra_files=_extra_files)


def load(f: Any, map_location: Any = None, _extra_files: Any = None, _restore_shapes: bool = False) -> Any:
    """Reads what `save` wrote, as a module.

    Args:
        f (str, os.PathLike or binary file): the file to read.
        map_location (device or str, optional): the device that it runs on. Default: the one that it was traced on.

    Returns:
        Module: called like what was traced, with tensors of the traced shapes.

    Raises:
        LucidError: the file cannot be read, or is none of `lucid.export`'s: TorchScript is not run.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> lucid.jit.save(lucid.jit.trace(lambda x: x * 2, lucid.ones(2)), file)
        >>> _ = file.seek(0)
        >>> lucid.jit.load(file)(lucid.tensor([1.0, 3.0]))
        tensor([2., 6.])
    """
    from lucid import export as exporting

    return exporting.load(f, extra_files=_extra_files, device=map_location).module()


def save_jit_module_to_flatbuffer(m: Any, f: Any, _extra_files: Any = None) -> None:
    """Refuses to write a scripted module: there are none. `save` writes traced ones.

    Args:
        m (Module): what PyTorch's `script` gives.
        f (str or binary file): where PyTorch writes it.

    Raises:
        NotImplementedError: always.

    Example:
        >>> lucid.jit.save_jit_module_to_flatbuffer(lucid.nn.Linear(2, 2), "net.ff")
        Traceback (most recent call last):
        ...
        lucid.errors.NotImplementedError: save_jit_module_to_flatbuffer(): there are no scripts; ...
    """
    raise errors.NotImplementedError(f"save_jit_module_to_flatbuffer(): {_SAVED}")


def jit_module_from_flatbuffer(f: Any) -> Any:
    """Refuses to read a scripted module: there are none. `load` reads traced ones.

    Args:
        f (str or binary file): what PyTorch wrote.

    Returns:
        Module: nothing here; the scripted module in PyTorch.

    Raises:
        NotImplementedError: always.

    Example:
        >>> lucid.jit.jit_module_from_flatbuffer("net.ff")
        Traceback (most recent call last):
        ...
        lucid.errors.NotImplementedError: jit_module_from_flatbuffer(): there are no scripts; ...
    """
    raise errors.NotImplementedError(f"jit_module_from_flatbuffer(): {_SAVED}")


def export_opnames(m: Any) -> list[str]:
    """Refuses to list the ops of a scripted module: there are none. `lucid.profile()` counts the ops of a call.

    Args:
        m (Module): what PyTorch's `script` gives.

    Returns:
        list of str: nothing here; the ops' names in PyTorch.

    Raises:
        NotImplementedError: always.

    Example:
        >>> lucid.jit.export_opnames(lucid.nn.Linear(2, 2))
        Traceback (most recent call last):
        ...
        lucid.errors.NotImplementedError: export_opnames(): there are no scripts; ...
    """
    raise errors.NotImplementedError("export_opnames(): there are no scripts; lucid.profile() counts the ops of a call")


