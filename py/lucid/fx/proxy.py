"""Proxies: stand-ins for values of a program that is traced. What is done with one becomes a node."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lucid import einsum, overrides
from lucid.fx.node import Node

if TYPE_CHECKING:
    from lucid.fx._trace import Tracer

__all__ = ["Attribute", "Proxy", "TraceError"]


class TraceError(ValueError):
    """A program whose flow depends on values, which are not known while it is traced."""


class Proxy:
    """A value of a program that is traced.

    Args:
        node (Node): the node that computes it.
        tracer (Tracer, optional): what traces.

    Example:
        >>> lucid.fx.Proxy(lucid.fx.Graph().placeholder("x")).node.name
        'x'
    """

    def __init__(self, node: Node, tracer: Tracer | None = None) -> None:
        appending: Any = tracer
        if tracer is None:
            from lucid.fx._trace import GraphAppendingTracer

            appending = GraphAppendingTracer(node.graph)
        self.tracer: Any = appending
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Any:
        # Not a node yet: most attributes are methods that are called next.
        return Attribute(self, k)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __deepcopy__(self, memo: dict[int, Any]) -> Proxy:
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        found: Iterator[Any] = self.tracer.iter(self)
        return found

    def __abs__(self) -> Any:
        return self.tracer.create_proxy("call_function", abs, (self,), {})

    def __bool__(self) -> bool:
        return bool(self.tracer.to_bool(self))

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call "
            "lucid.fx.wrap('len') at module scope"
        )

    def __contains__(self, item: Any) -> bool:
        raise TraceError("'in' is not supported in symbolic tracing: its result is a bool that is not known")

    def keys(self) -> Any:
        """What `**proxy` asks for; see `Tracer.keys`."""
        return self.tracer.keys(self)

    @classmethod
    def __torch_function__(cls, orig_method: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found: list[Proxy] = []

        def look(a: Any) -> None:
            if isinstance(a, Proxy):
                found.append(a)
            elif isinstance(a, (list, tuple)):
                for v in a:
                    look(v)
            elif isinstance(a, dict):
                look(list(a.values()))

        look(args)
        look(kwargs)
        tracer = found[0].tracer
        if getattr(orig_method, "__name__", "") == "__get__":
            return tracer.create_proxy("call_function", getattr, (args[0], orig_method.__self__.__name__), {})
        if overrides.is_tensor_method_or_property(orig_method):
            return tracer.create_proxy("call_method", orig_method.__name__, args, kwargs)
        if orig_method is einsum and len(args) == 2 and isinstance(args[1], (list, tuple)):
            # PyTorch shows operands in a list one by one, and passes over graphs read them so.
            args = (args[0], *args[1])
        return tracer.create_proxy("call_function", orig_method, args, kwargs)


class Attribute(Proxy):
    """An attribute of a proxy: a call of it records one `call_method` node, anything else takes it by `getattr`.

    Args:
        root (Proxy): the proxy that it is an attribute of.
        attr (str): its name.

    Example:
        >>> traced = lucid.fx.symbolic_trace(lambda x: x.relu())
        >>> [node.target for node in traced.graph.nodes if node.op == "call_method"]
        ['relu']
    """

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


_MAGIC = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift", "and_", "or_", "xor"),
    *("eq", "ne", "lt", "le", "gt", "ge", "neg", "pos", "invert", "getitem"),
)
_REFLECTED = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift", "and_", "or_")


def _method(function: Any, reflected: bool) -> Any:
    def call(self: Proxy, *args: Any) -> Any:
        given = (*reversed(args), self) if reflected else (self, *args)
        return self.tracer.create_proxy("call_function", function, given, {})

    return call


for _name in _MAGIC:
    setattr(Proxy, f"__{_name.strip('_')}__", _method(getattr(operator, _name), False))
for _name in (*_REFLECTED, "xor"):
    setattr(Proxy, f"__r{_name.strip('_')}__", _method(getattr(operator, _name), True))
# Defining __eq__ took the hash away.
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]


def __getattr__(name: str) -> Any:
    # PyTorch has the tracers here; the file that has them imports this one.
    if name in ("GraphAppendingTracer", "TracerBase"):
        from lucid.fx import _trace

        return getattr(_trace, name)
    raise AttributeError(f"module 'lucid.fx.proxy' has no attribute {name!r}")
