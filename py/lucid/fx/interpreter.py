"""Running a graph node by node: `Interpreter`, and `Transformer`, which makes another graph of it."""

from __future__ import annotations

from typing import Any

from lucid import errors
from lucid.fx._trace import Tracer
from lucid.fx.graph import Graph
from lucid.fx.graph_module import GraphModule
from lucid.fx.node import Node, map_aggregate, map_arg
from lucid.fx.proxy import Proxy
from lucid.nn.modules.module import Module

__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Runs a graph; a subclass changes what a kind of node does.

    Args:
        module (Module): a `GraphModule`, or a module that `graph` refers to.
        garbage_collect_values (bool, default: True): whether values are dropped as soon as nothing takes them.
        graph (Graph, optional): a graph instead of the module's own.

    Example:
        >>> class Negative(lucid.fx.Interpreter):
        ...     def call_function(self, target, args, kwargs):
        ...         return -super().call_function(target, args, kwargs)
        >>> Negative(lucid.fx.symbolic_trace(lambda x: lucid.relu(x))).run(lucid.ones(1))
        tensor([-1.])
    """

    def __init__(self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module, self.submodules = module, dict(module.named_modules())
        self.graph: Graph = graph if graph is not None else module.graph
        self.env: dict[Node, Any] = {}
        self.garbage_collect_values = garbage_collect_values
        self.name = "Interpreter"
        self.extra_traceback = True
        self._last: dict[Node, list[Node]] = {}
        seen: set[Node] = set()
        for node in reversed(self.graph.nodes):
            for n in node.all_input_nodes:
                if n not in seen:
                    seen.add(n)
                    self._last.setdefault(node, []).append(n)

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True) -> Any:
        """Runs the graph.

        Args:
            *args: the arguments of the program.
            initial_env: results of nodes that are known and not computed.

        Returns:
            What the output node gives.
        """
        self.env = dict(initial_env or {})
        self.args_iter = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            self.env[node] = self.run_node(node)
            if node.op == "output":
                return self.env[node]
            if self.garbage_collect_values:
                for n in self._last.get(node, []):
                    del self.env[n]
        return None

    def run_node(self, n: Node) -> Any:
        """Runs one node by the method of its op."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Gives the next argument of the program, or its default.

        Raises:
            RuntimeError: there is none.
        """
        if target.startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise errors.RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Gives an attribute of the module."""
        return self.fetch_attr(target)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a function."""
        return target(*args, **kwargs)

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a method of the first argument."""
        return getattr(args[0], target)(*args[1:], **kwargs)

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a submodule."""
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Gives the result of the program."""
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """An attribute of the module by its path.

        Raises:
            RuntimeError: it is not there.
        """
        held: Any = self.module
        for atom in target.split("."):
            if not hasattr(held, atom):
                raise errors.RuntimeError(f"Node referenced nonexistent target {target}")
            held = getattr(held, atom)
        return held

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a node as values."""
        args, kwargs = self.map_nodes_to_values((n.args, n.kwargs), n)
        return args, kwargs

    def map_nodes_to_values(self, args: Any, n: Node) -> Any:
        """Nodes replaced by their values."""
        return map_arg(args, lambda m: self.env[m])


class _TransformerTracer(Tracer):
    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        return True


class Transformer(Interpreter):
    """Makes another `GraphModule`: methods get proxies, and what they do becomes the new graph.

    Args:
        module (GraphModule): the traced module to go through.

    Example:
        >>> class Square(lucid.fx.Transformer):
        ...     def call_function(self, target, args, kwargs):
        ...         return super().call_function(target, args, kwargs) ** 2
        >>> Square(lucid.fx.symbolic_trace(lambda x: x + 1)).transform()(lucid.ones(1))
        tensor([4.])
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.tracer = _TransformerTracer(self.new_graph)
        self.tracer.root = module

    def placeholder(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        default = args[0] if args else ...
        return Proxy(self.new_graph.placeholder(target, default_value=default), self.tracer)

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """Runs the graph on proxies and gives the module of what they recorded."""
        result = self.run()
        self.new_graph.output(map_aggregate(result, lambda a: a.node if isinstance(a, Proxy) else a))
        return GraphModule(self.module, self.new_graph, type(self.module).__name__)
