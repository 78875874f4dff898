"""Graphs: nodes in the order in which they run, and the Python code that is written from them."""

from __future__ import annotations

import builtins
import contextlib
import keyword
import operator
import re
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import lucid
from lucid import errors
from lucid.fx.node import PUBLIC, Node, Target, map_arg, path_of

__all__ = ["Graph", "PythonCode"]


class PythonCode(NamedTuple):
    """Code of a `forward`, and what its names mean.

    Args:
        src (str): the source.
        globals (dict): what its names mean.

    Example:
        >>> lucid.fx.graph.PythonCode("x = 1", {}).src
        'x = 1'
    """

    src: str
    globals: dict[str, Any]


class _Namespace:
    """Names that are given once."""

    def __init__(self) -> None:
        self.used: set[str] = set()

    def create(self, candidate: str) -> str:
        candidate = re.sub(r"[^0-9a-zA-Z_]+", "_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        found = re.fullmatch(r"(.*?)_(\d+)", candidate)
        base, n = (found.group(1), int(found.group(2))) if found and found.group(1) else (candidate, 0)
        name = candidate
        while name in self.used or keyword.iskeyword(name) or hasattr(builtins, name):
            n += 1
            name = f"{base}_{n}"
        self.used.add(name)
        return name


class _Nodes:
    """The nodes of a graph in their order, as something to loop over in both directions."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __iter__(self) -> Iterator[Node]:
        at = self.graph._root._next
        while at is not self.graph._root:
            # The loop may erase the node that it is at.
            if not at._erased:
                yield at
            at = at._next

    def __reversed__(self) -> Iterator[Node]:
        at = self.graph._root._prev
        while at is not self.graph._root:
            if not at._erased:
                yield at
            at = at._prev

    def __len__(self) -> int:
        return sum(1 for _ in self)


#: Functions of `operator` that are written as what they stand for.
_INFIX: dict[Any, str] = {
    **{
        getattr(operator, name): f"{{}} {sign} {{}}"
        for name, sign in (
            *(("add", "+"), ("sub", "-"), ("mul", "*"), ("truediv", "/"), ("floordiv", "//"), ("mod", "%")),
            *(("matmul", "@"), ("lshift", "<<"), ("rshift", ">>"), ("and_", "&"), ("or_", "|"), ("xor", "^")),
            *(("pow", "**"), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="), ("eq", "=="), ("ne", "!=")),
        )
    },
    operator.getitem: "{}[{}]",
    operator.neg: "-{}",
    operator.pos: "+{}",
    operator.invert: "~{}",
}
def _written(function: Any, texts: list[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """A call as an expression with a sign, or of an attribute; None where there is no such form."""
    if kwargs:
        return None
    if function is getattr and len(args) == 2 and isinstance(args[1], str) and args[1].isidentifier():
        return f"{texts[0]}.{args[1]}" if isinstance(args[0], Node) else None
    pattern = _INFIX.get(function) if isinstance(function, types.BuiltinFunctionType) else None
    if pattern is None or pattern.count("{}") != len(args) or not isinstance(args[0], (Node, int, float)):
        return None
    # A power binds closer than the sign before its base.
    first = f"({texts[0]})" if texts[0].startswith("-") else texts[0]
    return pattern.format(first, *texts[1:])


def _snake(text: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", text).lower()


class Graph:
    """A program as a list of nodes.

    Args:
        owning_module (Module, optional): the module that it belongs to.
        tracer_cls (type, optional): the class of the tracer that made it.
        tracer_extras (dict[str, Any], optional): kept, without effect.

    Example:
        >>> graph = lucid.fx.Graph()
        >>> x = graph.placeholder("x")
        >>> y = graph.call_function(lucid.add, (x, 1))
        >>> _ = graph.output(y)
        >>> lucid.fx.GraphModule(lucid.nn.Module(), graph)(lucid.ones(1))
        tensor([2.])
    """

    def __init__(
        self, owning_module: Any = None, tracer_cls: type | None = None, tracer_extras: dict[str, Any] | None = None
    ) -> None:
        self._root = Node(self, "", "placeholder", "", (), {})
        self._type_names = _Namespace()
        self._before: Node = self._root
        self.owning_module, self._tracer_cls, self._tracer_extras = owning_module, tracer_cls, tracer_extras

    @property
    def nodes(self) -> _Nodes:
        """The nodes in their order."""
        return _Nodes(self)

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """The nodes of an op, and of a target."""
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    def output_node(self) -> Node:
        """The node that returns."""
        return next(n for n in reversed(self.nodes) if n.op == "output")

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Adds a node where nodes are inserted: at the end, or where `inserting_before` says.

        Args:
            op, target, args, kwargs: see `Node`.
            name: a name to begin with; made unique.
            type_expr: the type of the result.
        """
        args, kwargs = args or (), kwargs or {}
        map_arg((args, kwargs), self._check)
        if name is None:
            name = target if isinstance(target, str) else getattr(target, "__name__", type(target).__name__)
            name = _snake(name.replace(".", "_")) or name
        node = Node(self, self._type_names.create(name), op, target, tuple(args), dict(kwargs), type_expr)
        self._before.prepend(node)
        return node

    def _check(self, n: Node) -> None:
        if n.graph is not self:
            raise errors.RuntimeError(f"Argument '{n}' of a node is of another graph")

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """Adds an argument of the program."""
        args = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """Adds a node that takes an attribute of the module, by its path."""
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Adds a call of a submodule, by its path."""
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self,
        method_name: str,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Adds a call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        type_expr: Any = None,
        name: str | None = None,
    ) -> Node:
        """Adds a call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def output(self, result: Any, type_expr: Any = None) -> Node:
        """Adds the node that returns."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    @contextlib.contextmanager
    def _inserting(self, before: Node) -> Iterator[None]:
        former, self._before = self._before, before
        try:
            yield
        finally:
            self._before = former

    def inserting_before(self, n: Node | None = None) -> Any:
        """Inserts nodes before one, or at the beginning: from now on, and in a block until its end."""
        return self._at(self._root._next if n is None else n)

    def inserting_after(self, n: Node | None = None) -> Any:
        """Inserts nodes behind one, or at the end: in a block until its end."""
        return self._at(self._root if n is None else n._next)

    def _at(self, before: Node) -> Any:
        if before.graph is not self:
            raise AssertionError("Node to insert before is not in graph.")
        return self._inserting(before)

    def erase_node(self, to_erase: Node) -> None:
        """Removes a node whose result nothing takes.

        Raises:
            RuntimeError: another node takes its result.
        """
        if to_erase.users:
            raise errors.RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: "
                f"{list(to_erase.users)}!"
            )
        if to_erase.graph is not self:
            raise errors.RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            return
        to_erase._prev._next, to_erase._next._prev = to_erase._next, to_erase._prev
        to_erase._erased = True
        to_erase._set((), {})
        if self._before is to_erase:
            self._before = to_erase._next

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Removes the nodes whose results nothing takes and that change nothing; gives whether there were any.

        Args:
            is_impure_node: which nodes are kept; by default those that write, and calls of modules with such.
        """
        self.lint()
        kept = is_impure_node or (lambda n: n.is_impure())
        changed = False
        for node in reversed(self.nodes):
            if not node.users and not kept(node):
                self.erase_node(node)
                changed = True
        return changed

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Any] = lambda x: x) -> Node:
        """Copies a node of another graph into this one; its arguments go through a function."""
        args, kwargs = map_arg((node.args, node.kwargs), arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = dict(node.meta)
        return made

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Any:
        """Copies all nodes of another graph but its output, whose argument is returned.

        Args:
            g: the other graph.
            val_map: filled with the copies of its nodes; those that are there already are not copied.
            return_output_node: whether to give the output's node too.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                value = map_arg(node.args[0], lambda n: val_map[n])
                return (value, node) if return_output_node else value
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        made = Graph(tracer_cls=self._tracer_cls)
        val_map: dict[Node, Node] = {}
        found = made.graph_copy(self, val_map, return_output_node=True)
        if found is not None:
            made.output(found[0], found[1].type).meta = dict(found[1].meta)
        return made

    def lint(self) -> None:
        """Checks that names are unique, that arguments come before their users, and that targets are there.

        Raises:
            RuntimeError: one of these does not hold.
        """
        seen: set[Node] = set()
        names: set[str] = set()
        for node in self.nodes:
            for n in node.all_input_nodes:
                if n not in seen:
                    raise errors.RuntimeError(f"Argument '{n}' of Node '{node}' was used before it has been defined!")
            if node.name in names:
                raise errors.RuntimeError(f"Node redefined name {node.name}!")
            seen.add(node)
            names.add(node.name)
            if self.owning_module is not None and node.op in ("get_attr", "call_module"):
                held = self.owning_module
                for atom in str(node.target).split("."):
                    if not hasattr(held, atom):
                        raise errors.RuntimeError(f"Node {node} target {node.target} references nonexistent {atom!r}")
                    held = getattr(held, atom)

    def print_tabular(self) -> None:
        """Prints the nodes as a table."""
        rows = [("opcode", "name", "target", "args", "kwargs")]
        rows += [(n.op, n.name, str(n.target), repr(n.args), repr(n.kwargs)) for n in self.nodes]
        widths = [max(len(r[i]) for r in rows) for i in range(5)]
        lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
        print("\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]]))

    def __str__(self) -> str:
        return "graph():\n" + "\n".join(f"    {n.format_node()}" for n in self.nodes)

    def python_code(self, root_module: str = "self", **options: Any) -> PythonCode:
        """Writes the graph as the code of a `forward`.

        Args:
            root_module: the name of the module in the code.
        """
        names = _Namespace()
        names.used |= {n.name for n in self.nodes} | {root_module, "forward"}
        taken = frozenset(names.used)
        names.used |= {path.partition(".")[0] for path in PUBLIC}
        meaning: dict[str, Any] = {}
        given: dict[int, str] = {}

        def name_of(value: Any, hint: str) -> str:
            if id(value) not in given:
                given[id(value)] = name = names.create(hint)
                meaning[name] = value
            return given[id(value)]

        def text(value: Any) -> str:
            if isinstance(value, Node):
                return value.name
            if isinstance(value, tuple) and hasattr(value, "_fields"):
                return f"{name_of(type(value), type(value).__name__)}({', '.join(text(v) for v in value)})"
            if isinstance(value, tuple):
                return f"({', '.join(text(v) for v in value)}{',' if len(value) == 1 else ''})"
            if isinstance(value, list):
                return f"[{', '.join(text(v) for v in value)}]"
            if isinstance(value, dict):
                return "{" + ", ".join(f"{text(k)}: {text(v)}" for k, v in value.items()) + "}"
            if isinstance(value, slice):
                return f"slice({text(value.start)}, {text(value.stop)}, {text(value.step)})"
            if value is None or value is Ellipsis or isinstance(value, (bool, int, str)):
                return repr(value)
            if isinstance(value, float) and value - value == 0:
                return repr(value)
            hint = getattr(value, "__name__", None) or type(value).__name__
            if isinstance(value, lucid.dtype):
                hint = str(value).replace("lucid.", "lucid_")
            return name_of(value, hint)

        def attribute(target: str) -> str:
            found = root_module
            for atom in target.split("."):
                found = f"{found}.{atom}" if atom.isidentifier() else f'getattr({found}, "{atom}")'
            return found

        def call(function: str, args: Any, kwargs: Any) -> str:
            return f"{function}({', '.join([*map(text, args), *(f'{k} = {text(v)}' for k, v in kwargs.items())])})"

        last: dict[Node, list[str]] = {}
        remaining = dict.fromkeys(self.nodes, 0)
        for node in reversed(self.nodes):
            for n in node.all_input_nodes:
                if not remaining[n]:
                    remaining[n] = 1
                    last.setdefault(node, []).append(n.name)
        arguments, lines = [], []
        for node in self.nodes:
            # Values are dropped as soon as nothing takes them.
            freed = "".join(f"{n} = " for n in last.get(node, []))
            if node.op == "placeholder":
                target = str(node.target)
                default = f" = {text(node.args[0])}" if node.args else ""
                arguments.append(f"{target}{default}")
                if target != node.name:
                    lines.append(f"{node.name} = {target.lstrip('*')}")
                continue
            if node.op == "output":
                lines.append(f"return {text(node.args[0])}")
                continue
            if node.op == "get_attr":
                value = attribute(str(node.target))
            elif node.op == "call_module":
                value = call(attribute(str(node.target)), node.args, node.kwargs)
            elif node.op == "call_method":
                value = call(f"{text(node.args[0])}.{node.target}", node.args[1:], node.kwargs)
            else:
                function: Any = node.target
                infix = _written(function, [text(a) for a in node.args], node.args, node.kwargs)
                path = path_of(function)
                if infix is not None:
                    value = infix
                elif path is not None and path.partition(".")[0] not in taken:
                    root = path.partition(".")[0]
                    meaning[root] = sys.modules[root]
                    value = call(path, node.args, node.kwargs)
                else:
                    module = (getattr(function, "__module__", None) or "").replace(".", "_")
                    name = getattr(function, "__name__", node.name)
                    value = call(name_of(function, f"{module}_{name}"), node.args, node.kwargs)
            lines.append(f"{node.name} = {value}" + (f";  {freed}None" if freed else ""))
        body = "\n".join(f"    {line}" for line in lines or ["pass"])
        return PythonCode(f"def forward({', '.join([root_module, *arguments])}):\n{body}\n", meaning)
