"""`GraphModule`: a module whose `forward` is Python code, written from a graph."""

from __future__ import annotations

import copy
import linecache
from typing import Any

from lucid import Tensor, errors
from lucid.fx.graph import Graph, PythonCode
from lucid.fx.node import Node, map_aggregate
from lucid.nn.modules.module import Module

__all__ = ["GraphModule"]

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
_count = 0


class _CodeOnlyModule(Module):
    """A module of given attributes, without the class that had them."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__.update(body)


def _copy_attr(from_module: Module, to_module: Module, target: str) -> None:
    """Copies an attribute by its path; the modules on the way are made."""
    *prefix, field = target.split(".")
    for item in prefix:
        f, t = getattr(from_module, item), getattr(to_module, item, None)
        if f is t:
            return
        if t is None:
            t = Module()
            setattr(to_module, item, t)
        from_module, to_module = f, t
    value = getattr(from_module, field)
    if isinstance(value, Tensor) and field not in from_module._parameters:
        to_module.register_buffer(field, value)
    else:
        setattr(to_module, field, value)


def _assign_attr(value: Any, to_module: Module, target: str) -> None:
    """Sets an attribute by its path; the modules on the way are made."""
    *prefix, field = target.split(".")
    for item in prefix:
        t = getattr(to_module, item, None)
        if t is None:
            t = Module()
            setattr(to_module, item, t)
        to_module = t
    if isinstance(value, Tensor) and type(value).__name__ != "Parameter":
        to_module.register_buffer(field, value)
    else:
        setattr(to_module, field, value)


class _Ref(tuple[str]):
    """A node by its name, in a pickled graph."""

    __slots__ = ()


def _rebuild(cls_name: str, body: dict[str, Any], steps: list[tuple[Any, ...]]) -> GraphModule:
    graph = Graph()
    made: dict[str, Node] = {}
    for name, op, target, args, kwargs in steps:
        args, kwargs = _resolved((args, kwargs), made)
        made[name] = graph.create_node(op, target, args, kwargs, name)
    return GraphModule(_CodeOnlyModule(body), graph, cls_name)


def _resolved(value: Any, made: dict[str, Node]) -> Any:
    if isinstance(value, _Ref):
        return made[value[0]]
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        return type(value)(_resolved(v, made) for v in value)
    if isinstance(value, dict):
        return {k: _resolved(v, made) for k, v in value.items()}
    if isinstance(value, slice):
        return slice(*(_resolved(v, made) for v in (value.start, value.stop, value.step)))
    return value


class GraphModule(Module):
    """A module that runs a graph. After the graph was changed, call `recompile`.

    Args:
        root (Module or dict of str to object): what the graph's `get_attr` and `call_module` nodes refer to, or a dict
            of such by their paths. What the graph refers to is copied by reference.
        graph (Graph): the graph, which becomes this module's own.
        class_name (str, optional): the name of the class that is made. Default: "GraphModule".

    Raises:
        RuntimeError: the graph refers to what is not there.

    After the graph was changed, call `recompile`.

    Example:
        >>> gm = lucid.fx.symbolic_trace(lucid.nn.ReLU())
        >>> gm.code.splitlines()[0]
        'def forward(self, input):'
        >>> gm(lucid.tensor([-1.0, 1.0]))
        tensor([0., 1.])
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        # Each has a class of its own, for `forward` is one of the class.
        for base in cls.__mro__:
            if "_lucid_graph_class" not in vars(base):
                cls = base
                break
        made = type(cls.__name__, (cls,), {"_lucid_graph_class": True, "__module__": cls.__module__})
        return super().__new__(made)

    def __init__(self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        wanted = [str(n.target) for n in graph.nodes if n.op in ("get_attr", "call_module")]
        if isinstance(root, Module):
            self.training = getattr(root, "training", True)
            for target in wanted:
                try:
                    _copy_attr(root, self, target)
                except AttributeError as e:
                    raise errors.RuntimeError(f"GraphModule: the graph refers to {target!r}, which is not there") from e
        elif isinstance(root, dict):
            for target in sorted(set(wanted), key=lambda t: t.count(".")):
                if target not in root:
                    raise errors.RuntimeError(
                        f"Node referenced target {target} but that target was not provided in ``root``!"
                    )
                _assign_attr(root[target], self, target)
        else:
            raise errors.RuntimeError(f"Unsupported type {type(root)} passed for root!")
        self._tracer_cls = graph._tracer_cls
        self._graph: Graph
        self.meta: dict[str, Any] = {}
        self.graph = graph

    __jit_unused_properties__ = ("graph",)

    @property
    def graph(self) -> Graph:
        """The graph. Setting it recompiles."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        self._graph = g
        self._graph.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The code of `forward`."""
        return self._code

    def recompile(self) -> PythonCode:
        """Writes `forward` anew from the graph."""
        global _count
        made = self._graph.python_code("self")
        self._code = made.src
        _count += 1
        name, space = f"<lucid.fx {_count}>", dict(made.globals)
        exec(compile(made.src, name, "exec"), space)
        # For tracebacks that show the line.
        linecache.cache[name] = (len(made.src), None, made.src.splitlines(keepends=True), name)
        type(self).forward = space["forward"]
        return made

    def add_submodule(self, target: str, m: Module) -> bool:
        """Adds a submodule by its path, and the modules on the way; gives whether it could be added."""
        *prefix, field = target.split(".")
        held: Any = self
        for item in prefix:
            if not hasattr(held, item):
                setattr(held, item, Module())
            held = getattr(held, item)
            if not isinstance(held, Module):
                return False
        held.add_module(field, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Removes a submodule by its path; gives whether it was there."""
        *prefix, field = target.split(".")
        held: Any = self
        for item in prefix:
            held = getattr(held, item, None)
        if not isinstance(held, Module) or not isinstance(getattr(held, field, None), Module):
            return False
        delattr(held, field)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Removes the submodules that the graph does not refer to."""
        used: set[str] = set()
        for n in self._graph.nodes:
            if n.op in ("get_attr", "call_module"):
                parts = str(n.target).split(".")
                used |= {".".join(parts[:i]) for i in range(1, len(parts) + 1)}
                used |= {name for name, _ in self.named_modules() if name.startswith(f"{n.target}.")}
        for name in [name for name, _ in self.named_modules() if name and name not in used]:
            self.delete_submodule(name)

    def print_readable(self, print_output: bool = True, **options: Any) -> str:
        """The code as text, printed too."""
        text = f"class {type(self).__name__}(lucid.nn.Module):\n" + "".join(
            f"    {line}\n" for line in self._code.splitlines()
        )
        if print_output:
            print(text)
        return text

    def _body(self) -> dict[str, Any]:
        skipped = ("_graph", "_code", "_tracer_cls")
        return {k: v for k, v in self.__dict__.items() if k not in skipped}

    def __reduce__(self) -> Any:
        def by_name(v: Any) -> Any:
            return _Ref((v.name,)) if isinstance(v, Node) else v

        steps = [
            (n.name, n.op, n.target, map_aggregate(n.args, by_name), map_aggregate(n.kwargs, by_name))
            for n in self._graph.nodes
        ]
        return _rebuild, (type(self).__name__, self._body(), steps)

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        body = copy.deepcopy(self._body(), memo)
        made = GraphModule(_CodeOnlyModule(body), copy.deepcopy(self._graph), type(self).__name__)
        made.__dict__.update({k: v for k, v in body.items() if k not in made.__dict__})
        for kind in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_state_dict_hooks"):
            if kind in body:
                made.__dict__[kind] = body[kind]
        made.meta = body.get("meta", {})
        return made

    def __copy__(self) -> GraphModule:
        made = GraphModule(self, self._graph, type(self).__name__)
        made.meta = dict(self.meta)
        return made

    def __str__(self) -> str:
        return (
            f"{super().__str__()}\n\n{self._code}\n# To see more debug info, please use `graph_module.print_readable()`"
        )
