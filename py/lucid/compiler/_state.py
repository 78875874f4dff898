"""What a function reads beside its arguments: the Python values that it reaches, as facts that two calls are compared
by.

A walk starts at a function and follows its closure, the globals that its code names, methods, modules, containers and
attributes. Tensors are no facts: what a graph depends on of them is asked of each call's own. What cannot be
followed, such as an iterator or an array of another library, makes the function one that is not compiled.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import gc
import operator
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lucid import _C
from lucid._C import Tensor

#: Values that a walk looks at before it gives up.
_LARGEST = 200_000

_PLAIN = (bool, int, str, bytes, type(None), type(Ellipsis), type(NotImplemented))
_NUMBERS = (float, complex)
_IDENTITIES = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.GenericAlias,
    _C.dtype,
    _C.device,
    _C.memory_format,
    _C.Generator,
    enum.Enum,
)


#: Names of what is not Lucid's to see change: settings of the process, random numbers of other libraries.
_AMBIENT = frozenset(("environ", "getenv", "default_rng", "RandomState"))


class Facts:
    """Facts to look up by, hashed once."""

    __slots__ = ("facts", "hashed", "paths")

    def __init__(self, facts: tuple[Any, ...], paths: list[str]) -> None:
        self.facts = facts
        self.paths = paths
        self.hashed = hash(facts)

    def differing(self, other: Facts) -> str | None:
        """What is another here than there."""
        for a, b, path in zip(self.facts, other.facts, other.paths, strict=False):
            if a != b:
                return path
        return None

    def __hash__(self) -> int:
        return self.hashed

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Facts) and self.facts == other.facts)


class Unguarded(Exception):
    """A value whose changes cannot be seen."""


def trusted(module: str | None) -> bool:
    """Is the code of this module Lucid's or the standard library's, so that its own globals are not followed?"""
    root = (module or "builtins").partition(".")[0]
    return root in ("lucid", "builtins", "numpy") or (root in sys.stdlib_module_names and root != "__main__")


class Walk:
    """The facts and tensors that are reached from some roots.

    Attributes:
        facts: hashable, in the order of the walk; equal for two walks where the function would do the same.
        tensors: each one that was met, once.
        modules: the `nn.Module`s.
        optimizers: the `Optimizer`s.
        kept: what the facts name by identity, to be held as long as they are.
    """

    def __init__(self, roots: Iterable[tuple[str, Any]] = ()) -> None:
        self.facts: list[Any] = []
        self.tensors: list[Tensor] = []
        self.modules: list[Any] = []
        self.optimizers: list[Any] = []
        self.kept: list[Any] = []
        self.paths: list[str] = []
        self._key: Facts | None = None
        self._seen: dict[int, int] = {}
        self._alive: list[Any] = []
        self._names: set[str] = set()
        self._numpy = False
        #: What `_C._unchanged` looks at, and what has to be read here.
        self._quick: list[tuple[Any, ...]] = []
        self._watched: list[tuple[Callable[[], Iterable[Any]], list[Any]]] = []
        for path, root in roots:
            self.visit(root, path)
        for name in sorted(self._names & _AMBIENT):
            raise Unguarded(f"{name} is read, which may be of the process's surroundings")
        if self._numpy and "random" in self._names:
            raise Unguarded("numpy.random is reached")
        if self._names & {"param_groups", "state", "defaults"}:
            for optimizer in list(self.optimizers):
                for i, group in enumerate(optimizer.param_groups):
                    self.visit({k: v for k, v in group.items() if k != "params"}, f"param_groups[{i}]")

    def key(self) -> Facts:
        """The facts, to look up by."""
        if self._key is None:
            self._key = Facts(tuple(self.facts), self.paths)
        return self._key

    def unchanged(self) -> bool:
        """Is all that was met still there, the very same objects? Then another walk would find the same facts."""
        try:
            return _C._unchanged(self._quick) and all(
                len(now := list(read())) == len(then) and all(map(operator.is_, now, then))
                for read, then in self._watched
            )
        except (AttributeError, KeyError, ValueError, RuntimeError):
            return False

    def _watch(self, read: Callable[[], Iterable[Any]]) -> None:
        self._watched.append((read, list(read())))

    def _watch_values(self, mapping: Any) -> None:
        if type(mapping) in (dict, collections.OrderedDict):
            self._quick.append(("values", mapping, tuple(dict.values(mapping))))
        else:
            self._watch(mapping.values)

    def _watch_names(self, space: dict[str, Any], names: tuple[str, ...]) -> None:
        self._quick.append(("names", space, tuple(map(space.get, names)), names))

    def _fact(self, path: str, *fact: Any) -> None:
        self.facts.append(fact)
        self.paths.append(path)

    def _identity(self, kind: str, value: Any, path: str) -> None:
        self.kept.append(value)
        self._fact(path, kind, id(value))

    def visit(self, value: Any, path: str) -> None:
        """Adds what a value and all that it leads to say."""
        kind = type(value)
        if kind in _PLAIN:
            self._fact(path, kind, value)
            return
        if kind in _NUMBERS:
            self._fact(path, kind, repr(value))
            return
        if isinstance(value, Tensor):
            self._tensor(value, path)
            return
        known = self._seen.get(id(value))
        if known is not None:
            self._fact(path, "seen", known)
            return
        self._seen[id(value)] = len(self._seen)
        self._alive.append(value)
        if len(self.facts) > _LARGEST:
            raise Unguarded("it reaches too many values")
        self._visit_new(value, kind, path)

    def _tensor(self, value: Tensor, path: str) -> None:
        known = self._seen.get(id(value))
        if known is None:
            known = self._seen[id(value)] = len(self._seen)
            self.tensors.append(value)
        self._fact(path, "tensor", type(value), known)

    def _visit_new(self, value: Any, kind: type, path: str) -> None:
        from lucid.compiler._function import Function
        from lucid.compiler._module import ModuleCall
        from lucid.optim import Optimizer

        if isinstance(value, types.FunctionType):
            self._function(value, path)
        elif isinstance(value, types.MethodType):
            self.visit(value.__self__, f"{path}.__self__")
            self.visit(value.__func__, path)
        elif isinstance(value, _IDENTITIES):
            self._identity("object", value, path)
        elif isinstance(value, type):
            self._class(value, path)
        elif isinstance(value, types.ModuleType):
            self._identity("module", value, path)
            if value.__name__ == "numpy.random":
                raise Unguarded("numpy.random is reached")
            self._numpy = self._numpy or value.__name__ == "numpy"
        elif isinstance(value, (dict, types.MappingProxyType)):
            self._fact(path, kind, len(value))
            self._watch_values(value)
            for key, item in value.items():
                self.visit(key, path)
                self.visit(item, f"{path}[{key!r}]")
        elif isinstance(value, (list, tuple, set, frozenset, collections.deque)):
            self._fact(path, kind, len(value))
            if kind is list:
                self._quick.append(("items", value, tuple(value)))
            elif not isinstance(value, (tuple, frozenset)):
                self._watch(value.__iter__)
            for i, item in enumerate(value):
                self.visit(item, f"{path}[{i}]")
        elif isinstance(value, functools.partial):
            self._fact(path, "partial")
            for part in (value.func, value.args, value.keywords):
                self.visit(part, path)
        elif isinstance(value, (staticmethod, classmethod)):
            self.visit(value.__func__, path)
        elif isinstance(value, property):
            self.visit(value.fget, path)
            self.visit(value.fset, path)
        elif isinstance(value, (slice, range)):
            self._fact(path, kind, repr(value))
        elif isinstance(value, weakref.ref):
            self._fact(path, "weakref")
            self._watch(lambda: (value(),))
            self.visit(value(), path)
        elif isinstance(value, Optimizer):
            self._optimizer(value, path)
        elif isinstance(value, Function):
            self._fact(path, "compiled")
            self.visit(value.fn, path)
        elif isinstance(value, ModuleCall):
            self._fact(path, "compiled")
        elif hasattr(kind, "__next__"):
            raise Unguarded(f"{path} is an iterator")
        else:
            self._instance(value, kind, path)

    def _optimizer(self, value: Any, path: str) -> None:
        self._identity("optimizer", value, path)
        self.optimizers.append(value)
        self._watch(lambda: [p for group in value.param_groups for p in group["params"]])
        for group in value.param_groups:
            for param in group["params"]:
                self._tensor(param, path)

    def _function(self, value: types.FunctionType, path: str) -> None:
        self._identity("function", value, path)
        self._fact(path, "code", id(value.__code__))
        self.kept.append(value.__code__)
        self._quick.append(("function", value, (value.__code__, value.__defaults__, value.__kwdefaults__)))
        if not trusted(value.__module__):
            self._globals(value, value.__code__, path)
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
            try:
                inside = cell.cell_contents
            except ValueError:
                # What fills it is found by the next walk: an empty one cannot be watched.
                self._fact(f"{path}.{name}", "empty")
                self._watched.append((lambda: (), [None]))
                continue
            self._quick.append(("cell", cell, (inside,)))
            self.visit(inside, name)
        for part in (value.__defaults__, value.__kwdefaults__):
            if part:
                self.visit(part, f"{path}'s defaults")
        if value.__dict__ and not trusted(value.__module__):
            self.visit(value.__dict__, f"{path}.__dict__")

    def _globals(self, owner: types.FunctionType, code: types.CodeType, path: str) -> None:
        names: list[str] = []
        codes = [code]
        while codes:
            each = codes.pop()
            names += each.co_names
            codes += [c for c in each.co_consts if isinstance(c, types.CodeType)]
        self._names.update(names)
        space = owner.__globals__
        every = tuple(dict.fromkeys(names))
        self._watch_names(space, every)
        for name in every:
            if name not in space:
                continue
            value = space[name]
            self.visit(value, name)
            if isinstance(value, types.ModuleType) and not trusted(value.__name__):
                inside = vars(value)
                self._watch_names(inside, every)
                for other in every:
                    if other in inside:
                        self.visit(inside[other], f"{name}.{other}")

    def _class(self, value: type, path: str) -> None:
        self._identity("class", value, path)
        if trusted(value.__module__):
            return
        for base in value.__mro__:
            if trusted(base.__module__):
                continue
            self._watch(vars(base).values)
            for name, item in list(vars(base).items()):
                if name in (
                    "__dict__",
                    "__weakref__",
                    "__doc__",
                    "__annotations__",
                    "__abstractmethods__",
                    "_abc_impl",
                ):
                    continue
                self.visit(item, f"{base.__name__}.{name}")

    def _instance(self, value: Any, kind: type, path: str) -> None:
        from lucid.nn import Module

        self.visit(kind, kind.__name__)
        self._fact(path, "instance")
        own = getattr(value, "__dict__", None)
        slots = [name for base in kind.__mro__ for name in _slots(base)]
        if own is None and not slots:
            hashed: Any = kind.__hash__
            if hashed is not None and hashed is not object.__hash__:
                # A value: a date, a decimal number, a scalar of NumPy's.
                self._fact(path, kind, value)
            elif hashed is None or not trusted(kind.__module__) or kind.__module__.startswith("numpy"):
                raise Unguarded(
                    f"{path} is of type {kind.__module__}.{kind.__qualname__}, whose changes cannot be seen"
                )
            else:
                self._identity("object", value, path)
            return
        if isinstance(value, Module):
            self.modules.append(value)
        if own is not None:
            self._watch_values(own)
        self._quick.append(("type", value, (kind,)))
        for name, item in list((own or {}).items()):
            self._fact(path, "name", name)
            self.visit(item, f"{path}.{name}")
        if slots:
            self._watch(lambda: [getattr(value, name, None) for name in slots])
        for name in slots:
            if hasattr(value, name):
                self.visit(getattr(value, name), f"{path}.{name}")


def _slots(base: type) -> list[str]:
    slots = base.__dict__.get("__slots__", ())
    names = [slots] if isinstance(slots, str) else list(slots)
    return [name for name in names if name not in ("__dict__", "__weakref__") and not name.startswith("__")]


def changed(before: Walk, after: Walk) -> str | None:
    """What is another after a call than before it."""
    for a, b, path in zip(before.facts, after.facts, after.paths, strict=False):
        if a != b:
            return path
    if len(before.facts) != len(after.facts) or len(before.tensors) != len(after.tensors):
        return "what it reaches"
    same = all(map(operator.is_, before.tensors, after.tensors))
    return None if same else "which tensors it reaches"


#: What C functions of user code may be without ending the graph: those that depend on nothing but their arguments.
_PURE = frozenset(
    [
        "builtins",
        "math",
        "cmath",
        "operator",
        "_operator",
        "itertools",
        "functools",
        "_functools",
        "collections",
        "_collections",
        "_collections_abc",
        "abc",
        "_abc",
        "_weakref",
        "weakref",
        "_warnings",
        "_bisect",
        "_heapq",
        "copy",
        "typing",
        "_typing",
        "_thread",
        "sys",
        "_contextvars",
        "re",
        "_sre",
        "_struct",
        "enum",
        "types",
        "string",
        "_string",
        "dataclasses",
        "inspect",
        "numbers",
        "fractions",
        "decimal",
        "_decimal",
        "_statistics",
        "statistics",
    ]
)
_IMPURE = frozenset("print input open breakpoint exec eval compile __import__".split())  # noqa: SIM905


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Lets the garbage collector wait: what the finalizers of others' objects call is not the function's doing."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def watcher(fail: Callable[[str], None]) -> Callable[[Any, str, Any], None]:
    """A profile function that reports calls whose results or effects a graph does not have: of time, files, random
    numbers."""
    root = "lucid"

    def watch(frame: Any, event: str, arg: Any) -> None:
        if event != "c_call":
            return
        caller = frame.f_globals.get("__name__", "") or ""
        if caller.partition(".")[0] in (root, "importlib"):
            return
        name = getattr(arg, "__name__", "")
        module = getattr(arg, "__module__", None)
        if module is None:
            owner = getattr(arg, "__self__", None)
            kind = owner if isinstance(owner, type) else type(owner)
            module = kind.__module__
        first = module.partition(".")[0]
        if first == root:
            return
        if (first not in _PURE or (first == "builtins" and name in _IMPURE)) and not _imports(frame):
            fail(f"{module}.{name}() is called")

    return watch


def _imports(frame: Any) -> bool:
    """Is a module imported for the first time? Finders that others add to `sys.meta_path` look at files."""
    while frame is not None:
        if frame.f_globals.get("__name__") in ("importlib._bootstrap", "_frozen_importlib"):
            return True
        frame = frame.f_back
    return False
