"""Tracers: run a module or function on proxies and record the graph."""

from __future__ import annotations

import builtins
import contextlib
import functools
import inspect
import math
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from lucid import Tensor, errors
from lucid._C import device as Device
from lucid._C import dtype as DType
from lucid._warnings import warn_without_effect
from lucid.fx.graph import Graph
from lucid.fx.graph_module import GraphModule
from lucid.fx.node import Node, has_side_effect, map_aggregate
from lucid.fx.proxy import Proxy, TraceError
from lucid.nn.modules.module import Module
from lucid.nn.parameter import Parameter

__all__ = ["PH", "GraphAppendingTracer", "Tracer", "TracerBase", "symbolic_trace", "wrap"]

F = TypeVar("F")


class _PH:
    """Marks the parts of a concrete argument that stay arguments."""

    def __repr__(self) -> str:
        return "PH"


PH = _PH()

#: Functions that are recorded as they are: the globals that hold them, and their names.
_wrapped: dict[tuple[int, str], dict[str, Any]] = {}


def wrap(fn_or_name: F) -> F:
    """Makes a function one node of graphs: what it does is not traced. At the top of a module, or as a decorator.

    Args:
        fn_or_name (F): a function of the calling module, or its name (of a builtin, too).

    Returns:
        What it is given.

    Raises:
        RuntimeError: it is neither a function nor a name.
        NotImplementedError: it is called inside of a function.

    Example:
        >>> @lucid.fx.wrap
        ... def size(x):
        ...     return len(x)
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise errors.RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    name = fn_or_name if isinstance(fn_or_name, str) else getattr(fn_or_name, "__name__", "")
    frame = sys._getframe(1)
    if frame.f_code.co_name != "<module>" and not frame.f_code.co_name.startswith("<"):
        raise errors.NotImplementedError("wrap must be called at the top level of a module")
    _wrapped[id(frame.f_globals), name] = frame.f_globals
    return fn_or_name


class TracerBase:
    """What records nodes: the graph, and how values become arguments."""

    graph: Graph
    record_stack_traces = False
    check_mutable_operations = False
    trace_asserts = False
    proxy_buffer_attributes = False
    traced_func_name = "forward"

    def create_node(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Adds a node to the graph."""
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def proxy(self, node: Node) -> Proxy:
        """The proxy of a node."""
        return Proxy(node, self)  # type: ignore[arg-type]

    def create_proxy(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """Adds a node whose arguments may be proxies, and gives its proxy."""
        given, named = self.create_arg(args), self.create_arg(kwargs)
        node = self.create_node(kind, target, given, named, name, type_expr)
        return proxy_factory_fn(node) if proxy_factory_fn is not None else self.proxy(node)

    def create_arg(self, a: Any) -> Any:
        """A value as an argument of a node: nodes for proxies, in containers too.

        Raises:
            NotImplementedError: the value cannot stand in a graph.
        """
        if hasattr(a, "__fx_create_arg__") and not isinstance(a, (Proxy, type)):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple):
            made = [self.create_arg(v) for v in a]
            return type(a)(*made) if hasattr(a, "_fields") else tuple(made)
        if isinstance(a, list):
            return [self.create_arg(v) for v in a]
        if isinstance(a, dict):
            for k in a:
                if isinstance(k, Proxy):
                    raise errors.RuntimeError(f"Keys for dictionaries used as an argument cannot contain a Node: {a}")
            return {k: self.create_arg(v) for k, v in a.items()}
        if isinstance(a, slice):
            return slice(*(self.create_arg(v) for v in (a.start, a.stop, a.step)))
        if isinstance(a, range):
            return range(*(self.create_arg(v) for v in (a.start, a.stop, a.step)))
        if isinstance(a, Proxy):
            return a.node
        simple = (
            str,
            int,
            float,
            bool,
            complex,
            DType,
            Device,
            Tensor,
            type,
            type(None),
            type(...),
            types.FunctionType,
        )
        if isinstance(a, simple) or callable(a) or type(a).__module__.startswith(("lucid", "enum")):
            return a
        if type(a).__name__ in ("layout", "memory_format") or hasattr(a, "_value_"):
            return a
        raise errors.NotImplementedError(f"argument of type: {type(a)}")

    def to_bool(self, obj: Proxy) -> bool:
        """What `if proxy` does; the value is not known.

        Raises:
            TraceError: always. A subclass may know better.
        """
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """What a loop over a proxy does: unpacking to a known number of names works, another loop does not.

        Raises:
            TraceError: the number of elements is not known.
        """
        import dis

        frame = sys._getframe(2)
        code = frame.f_code
        for at, instruction in zip(
            (i.offset for i in dis.get_instructions(code)), dis.get_instructions(code), strict=True
        ):
            if at >= frame.f_lasti and instruction.opname == "UNPACK_SEQUENCE" and at - frame.f_lasti <= 4:
                return (obj[i] for i in range(instruction.arg or 0))  # type: ignore[index]
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or "
            "**kwargs function argument."
        )

    def keys(self, obj: Proxy) -> Any:
        """What `**proxy` asks for: a call of `keys`."""
        return self.create_proxy("call_method", "keys", (obj,), {})


class GraphAppendingTracer(TracerBase):
    """Records into a graph that is there already."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph


_Patch = tuple[Any, str, Any, bool]


class Tracer(TracerBase):
    """Records the graph of a module or function.

    A subclass may say otherwise which modules are leaves (`is_leaf_module`), and what calls become.

    Args:
        autowrap_modules (tuple[types.ModuleType, ...], optional): modules of Python whose functions are recorded
            as they are where a proxy is among their arguments: `math` by default.
        autowrap_functions (tuple[Callable[..., Any], ...], optional): further such functions.
        param_shapes_constant (bool, default: False): for PyTorch's sake; shapes of parameters are read as they
            are.

    Example:
        >>> from lucid import nn
        >>> class Leafless(lucid.fx.Tracer):
        ...     def is_leaf_module(self, module, name):
        ...         return False
        >>> graph = Leafless().trace(nn.ReLU())
        >>> [node.op for node in graph.nodes]
        ['placeholder', 'call_function', 'output']
    """

    def __init__(
        self,
        autowrap_modules: tuple[types.ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        warn_without_effect(
            "Tracer", "shapes of parameters stay in the graph", param_shapes_constant=param_shapes_constant
        )
        self._functions = {
            id(v): v for m in autowrap_modules for k, v in vars(m).items() if not k.startswith("_") and callable(v)
        }
        self._functions.update((id(f), f) for f in autowrap_functions)
        self._autowrap_search = list(autowrap_modules)
        self.root: Module = Module()
        self.submodule_paths: dict[Module, str] | None = None
        self.tensor_attrs: dict[int, tuple[Any, str]] = {}
        self.module_stack: dict[str, Any] = {}

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a module's call is one node: layers of `lucid.nn` are, but `Sequential`."""
        from lucid.nn import Sequential

        return type(m).__module__.startswith(("lucid.nn", "torch.nn")) and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """The path of a submodule.

        Raises:
            NameError: it is no submodule of the root.
        """
        if self.submodule_paths:
            path = self.submodule_paths.get(mod)
            if path is not None:
                return path
        for name, module in self.root.named_modules():
            if module is mod:
                return name
        raise NameError("module is not installed as a submodule")

    def call_module(self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Records the call of a leaf, or runs the `forward` of another module."""
        path = self.path_of_module(m)
        if not self.is_leaf_module(m, path):
            return forward(*args, **kwargs)
        return self.create_proxy("call_module", path, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """What reading a parameter gives: the proxy of a `get_attr` node."""
        if isinstance(attr_val, Parameter) or (self.proxy_buffer_attributes and isinstance(attr_val, Tensor)):
            found = self.tensor_attrs.get(id(attr_val))
            if found is not None:
                if found[1] not in parameter_proxy_cache:
                    parameter_proxy_cache[found[1]] = self.create_proxy("get_attr", found[1], (), {})
                return parameter_proxy_cache[found[1]]
        return attr_val

    def create_arg(self, a: Any) -> Any:
        if isinstance(a, Tensor):
            found = self.tensor_attrs.get(id(a))
            if found is None:
                # A constant of the program becomes an attribute of the root.
                i = 0
                while hasattr(self.root, f"_tensor_constant{i}"):
                    i += 1
                name = f"_tensor_constant{i}"
                self.tensor_attrs[id(a)] = found = (a, name)
                setattr(self.root, name, a)
            return self.create_node("get_attr", found[1], (), {})
        if isinstance(a, Module):
            return self.create_node("get_attr", self.path_of_module(a), (), {})
        return super().create_arg(a)

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: dict[str, Any] | None = None
    ) -> tuple[Callable[..., Any], list[Any], dict[str, Any]]:
        """The arguments that the program is traced with: a placeholder for each but the concrete ones."""
        concrete = concrete_args or {}
        args: list[Any] = [self.root] if is_module else []
        named: dict[str, Any] = {}
        parameters = list(inspect.signature(root_fn).parameters.values())
        for p in parameters[1:] if is_module else parameters:
            if p.kind == p.VAR_POSITIONAL:
                args.append(("*", self.create_proxy("placeholder", f"*{p.name}", (), {}, p.name)))
                continue
            if p.kind == p.VAR_KEYWORD:
                named["**"] = self.create_proxy("placeholder", f"**{p.name}", (), {}, p.name)
                continue
            value: Any
            if p.name in concrete and concrete[p.name] is not PH:
                value = self._concrete(concrete[p.name], p.name)
            else:
                default = () if p.default is p.empty else (p.default,)
                value = self.create_proxy("placeholder", p.name, default, {}, type_expr=None)
            if p.kind == p.KEYWORD_ONLY:
                named[p.name] = value
            else:
                args.append(value)
        return root_fn, args, named

    def _concrete(self, given: Any, name: str) -> Any:
        """A concrete argument, with placeholders for `PH`; a simple one stays an argument that is checked."""
        if given is None or isinstance(given, (bool, int, float, str)):
            argument = self.create_proxy("placeholder", name, (given,), {})
            message = f"{name} has been specialized to have value {given} but got another value"
            self.create_proxy("call_function", _assert_same, (argument, given, message), {})
            return given
        return map_aggregate(given, lambda v: self._part(name) if v is PH else v)

    def _part(self, name: str) -> Proxy:
        self._parts = getattr(self, "_parts", 0) + 1
        return self.create_proxy("placeholder", f"{name}_{self._parts}", (), {})

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> Graph:
        """Records the graph of a module's `forward`, or of a function.

        Args:
            root: a module or a function.
            concrete_args: values of arguments, which become constants; the rest are placeholders.

        Returns:
            The graph.

        Raises:
            TraceError: the flow of the program depends on a value.
        """
        is_module = isinstance(root, Module)
        self.root = root if is_module else Module()
        function = getattr(type(root), self.traced_func_name) if is_module else root
        if is_module and "forward" in vars(root):
            own = vars(root)["forward"]
            function = getattr(own, "__func__", None) or (lambda _self, *a, **k: own(*a, **k))
        self.submodule_paths = {m: name for name, m in self.root.named_modules()}
        self.graph = Graph(tracer_cls=getattr(self, "__class__", None))
        self.tensor_attrs = {}
        for path, module in self.root.named_modules():
            prefix = f"{path}." if path else ""
            held = (*module._parameters.items(), *module._buffers.items(), *vars(module).items())
            for name, value in held:
                if isinstance(value, Tensor):
                    self.tensor_attrs.setdefault(id(value), (value, prefix + name))
        function, args, named = self.create_args_for_root(function, is_module, concrete_args)
        star = [a[1] for a in args if isinstance(a, tuple) and len(a) == 2 and a[0] == "*"]
        plain = [a for a in args if not (isinstance(a, tuple) and len(a) == 2 and a[0] == "*")]
        mapping = named.pop("**", None)
        inner = inspect.unwrap(function)
        if star or mapping is not None:
            inner = getattr(inner, "__func__", inner)
            function = _with_packed(inner, star, mapping)
        with self._patched(inner):
            result = function(*plain, **named)
            self.create_node("output", "output", (self.create_arg(result),), {})
        self.submodule_paths = None
        return self.graph

    def _reader(self, read: Callable[[Any, str], Any], cache: dict[str, Any]) -> Callable[[Any, str], Any]:
        def get(m: Any, name: str) -> Any:
            value = read(m, name)
            return self.getattr(name, value, cache) if isinstance(value, Tensor) else value

        return get

    @contextlib.contextmanager
    def _patched(self, function: Any) -> Iterator[None]:
        """Records calls of modules, reads of parameters, and the wrapped functions, until the end of the block."""
        undo: list[_Patch] = []
        cache: dict[str, Any] = {}

        def patch(holder: Any, name: str, value: Any) -> None:
            table = holder if isinstance(holder, dict) else vars(holder)
            undo.append((holder, name, table.get(name), name in table))
            if isinstance(holder, dict):
                holder[name] = value
            else:
                setattr(holder, name, value)

        classes = {c for m in self.root.modules() for c in type(m).__mro__ if "__call__" in vars(c)}
        for cls in (*classes, *(c for c in Module.__mro__ if "__call__" in vars(c))):
            original = vars(cls)["__call__"]
            if getattr(original, "_of_tracer", False) or cls is object:
                continue

            def call(m: Any, *args: Any, _original: Any = original, **kwargs: Any) -> Any:
                def forward(*args: Any, **kwargs: Any) -> Any:
                    return _original(m, *args, **kwargs)

                return self.call_module(m, forward, args, kwargs)

            call._of_tracer = True  # type: ignore[attr-defined]
            patch(cls, "__call__", call)
        # Parameters are found by either, and are computed with only by way of the graph.
        for reader in ("__getattr__", "__getattribute__"):
            patch(Module, reader, self._reader(getattr(Module, reader), cache))
        spaces = {id(g): g for g in (getattr(function, "__globals__", None),) if g is not None}
        for module in self.root.modules():
            space = getattr(type(module).forward, "__globals__", None)
            if space is not None:
                spaces[id(space)] = space
        for (_, name), space in list(_wrapped.items()):
            original = space.get(name, getattr(builtins, name, None))
            if original is not None and not hasattr(original, "_of_tracer"):
                patch(space, name, _recorded(original))
        for space in (*spaces.values(), *map(vars, self._autowrap_search)):
            for name, value in list(space.items()):
                if not name.startswith("_") and callable(value) and id(value) in self._functions:
                    patch(space, name, _recorded(value))
        try:
            yield
        finally:
            for holder, name, value, there in reversed(undo):
                if isinstance(holder, dict):
                    if there:
                        holder[name] = value
                    else:
                        del holder[name]
                elif there:
                    setattr(holder, name, value)
                else:
                    delattr(holder, name)


@has_side_effect
def _assert_same(value: Any, wanted: Any, message: str) -> None:
    """Checks an argument that was a constant in the trace."""
    if value is not wanted and value != wanted:
        raise AssertionError(message)


def _with_packed(function: Any, star: list[Any], mapping: Any) -> Callable[..., Any]:
    """A function whose `*args` and `**kwargs` are one proxy each, as its code sees them."""
    code: types.CodeType = function.__code__
    flags = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    count = code.co_argcount + len(star)
    names = list(code.co_varnames)
    # In the code's order: positional, by name, *args, **kwargs; all of them positional now.
    given = code.co_argcount
    only = names[given : given + code.co_kwonlyargcount]
    if only:
        raise TraceError("functions with *args and arguments by name cannot be traced")
    made = code.replace(co_flags=flags, co_argcount=count + (mapping is not None))
    plain = types.FunctionType(made, function.__globals__, function.__name__, None, function.__closure__)

    def call(*args: Any) -> Any:
        return plain(*args, *star, *([mapping] if mapping is not None else []))

    return call


def _recorded(original: Any) -> Any:
    """A function that becomes a node where a proxy is among its arguments."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        found: list[Proxy] = []
        map_aggregate((args, kwargs), lambda a: found.append(a) if isinstance(a, Proxy) else None)
        if not found:
            return original(*args, **kwargs)
        return found[0].tracer.create_proxy("call_function", original, args, kwargs)

    call._of_tracer = True  # type: ignore[attr-defined]
    return call


def symbolic_trace(root: Any, concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """Records a module or function as a `GraphModule`.

    Args:
        root (object): a module or a function. Its flow must not depend on values; layers of `lucid.nn` become one
            node each.
        concrete_args (dict[str, Any], optional): values of arguments, which become constants.

    Returns:
        A `GraphModule` that shares the parameters and buffers of `root`.

    Raises:
        TraceError: the flow depends on a value.

    Example:
        >>> gm = lucid.fx.symbolic_trace(lambda x: lucid.relu(x) + 1)
        >>> [n.op for n in gm.graph.nodes]
        ['placeholder', 'call_function', 'call_function', 'output']
        >>> gm(lucid.tensor([-1.0, 2.0]))
        tensor([1., 3.])
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else getattr(root, "__name__", "GraphModule")
    return GraphModule(tracer.root, graph, name if name.isidentifier() else "GraphModule")
