"""Nodes of a graph: one call each, with the nodes whose results it takes and those that take its result."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import lucid
from lucid import errors

if TYPE_CHECKING:
    from lucid.fx.graph import Graph

__all__ = ["Argument", "Node", "Target", "has_side_effect", "map_aggregate", "map_arg", "path_of"]

Target = Callable[..., Any] | str
Argument = Any
F = TypeVar("F", bound=Callable[..., Any])

OPS = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output")
_side_effects: set[Any] = {print}
_RANDOM = {
    *("bernoulli", "binomial", "multinomial", "normal", "poisson", "rand", "rand_like", "randint", "randint_like"),
    *("randn", "randn_like", "randperm"),
}


def has_side_effect(fn: F) -> F:
    """Marks a function whose calls are kept though nothing takes their results. Returns it.

    Args:
        fn (F): the function.

    Returns:
        callable: `fn` itself.

    Example:
        >>> lucid.fx.has_side_effect(print) is print
        True
    """
    _side_effects.add(fn)
    return fn


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """Applies a function to what is in tuples, lists, dicts and slices, which are built anew.

    Args:
        a (object): a nest of values.
        fn (Callable[[Any], Any]): takes a value, and returns another.

    Returns:
        object: the nest of results.

    Example:
        >>> lucid.fx.node.map_aggregate((1, [2]), lambda x: x + 1)
        (2, [3])
    """
    if isinstance(a, tuple):
        made = [map_aggregate(x, fn) for x in a]
        return type(a)(*made) if hasattr(a, "_fields") else tuple(made)
    if isinstance(a, list):
        return [map_aggregate(x, fn) for x in a]
    if isinstance(a, dict):
        return {k: map_aggregate(v, fn) for k, v in a.items()}
    if isinstance(a, slice):
        return slice(*(map_aggregate(x, fn) for x in (a.start, a.stop, a.step)))
    return fn(a)


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """Applies a function to the nodes in an argument.

    Args:
        a (object): a nest of values.
        fn (Callable[[Node], Any]): takes a node, and returns its value.

    Returns:
        object: the nest with the nodes replaced.

    Raises:
        AssertionError: `fn` cannot be called.

    Example:
        >>> lucid.fx.map_arg((1, [2]), lambda node: node.name)
        (1, [2])
    """
    if not callable(fn):
        raise AssertionError("torch.fx.map_arg(a, fn): fn must be a callable")
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


#: Modules under whose names functions are written.
PUBLIC = ("lucid", "lucid.nn.functional", "lucid.special", "lucid.linalg", "lucid.fft", "operator", "math")


def path_of(function: Any) -> str | None:
    """The public name of a function.

    Args:
        function (callable): a function of Lucid's, of `operator` or `math`, or an op.

    Returns:
        str: its name, where one of the modules of `PUBLIC` or `lucid.ops` has it; else None.

    Example:
        >>> lucid.fx.node.path_of(lucid.linalg.det)
        'lucid.linalg.det'
    """
    name = getattr(function, "__name__", None)
    if not isinstance(function, (types.FunctionType, types.BuiltinFunctionType, type)):
        # An op of `lucid.ops`, such as `aten.sin.default`.
        found: Any = lucid.ops
        for part in str(function).split("."):
            found = getattr(found, part, None) if part.isidentifier() else None
        return f"lucid.ops.{function}" if found == function else None
    if not isinstance(name, str) or not name.isidentifier():
        return None
    for module in PUBLIC:
        # `lucid.linalg.det` is called linalg_det.
        for given in (name, name.removeprefix(f"{module.rpartition('.')[2]}_")):
            if getattr(sys.modules.get(module), given, None) is function:
                return f"{module}.{given}"
    return None


def _shown(target: Any) -> str:
    if isinstance(target, str):
        return target
    path = path_of(target)
    if path is not None:
        return path
    name = getattr(target, "__name__", type(target).__name__)
    module = (getattr(target, "__module__", None) or "").replace("lucid._C", "lucid").replace("_operator", "operator")
    return f"{module}.{name}" if module else str(name)


class Node:
    """One step of a program.

    Args:
        graph (Graph): the graph that it belongs to.
        name (str): the name of its result.
        op (str): one of those below.
        target (callable or str): the function, or the name of the argument, attribute, method or module.
        args (tuple[Any, ...]): its arguments.
        kwargs (dict[str, Any]): its keyword arguments.
        return_type (type, optional): the type of its result.

    Raises:
        AssertionError: another `op`.

    Example:
        >>> lucid.fx.Graph().placeholder("x").op
        'placeholder'
    """

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        return_type: Any = None,
    ) -> None:
        if op not in OPS:
            raise AssertionError(f"expected an op of {OPS}, got {op!r}")
        if op == "call_function" and not callable(target):
            raise errors.ValueError(f"Node [graph = {graph}, name = '{name}'] target {target} is no function")
        if op != "call_function" and not isinstance(target, str):
            raise errors.ValueError(f"Node [graph = {graph}, name = '{name}'] target {target} is no str")
        self.graph, self.name, self.op, self.target, self.type = graph, name, op, target, return_type
        self._prev = self._next = self
        self._erased = False
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
        self._input_nodes: dict[Node, None] = {}
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self.stack_trace: str | None = None
        self._set(tuple(args), dict(kwargs))

    def _set(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for n in self._input_nodes:
            n.users.pop(self, None)
        self._args, self._kwargs, self._input_nodes = args, kwargs, {}
        map_arg((args, kwargs), self._input_nodes.setdefault)
        for n in self._input_nodes:
            n.users.setdefault(self)

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments."""
        return self._args

    @args.setter
    def args(self, value: tuple[Any, ...]) -> None:
        self._set(tuple(value), self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """The arguments by name."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, value: dict[str, Any]) -> None:
        self._set(self._args, dict(value))

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once."""
        return list(self._input_nodes)

    @property
    def next(self) -> Node:
        """The node after this one in the graph; after the last its root, whose op is `"root"` in PyTorch."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one in the graph."""
        return self._prev

    def update_arg(self, idx: int, arg: Any) -> None:
        """Replaces a positional argument."""
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Any) -> None:
        """Inserts a positional argument."""
        if not 0 <= idx <= len(self._args):
            raise AssertionError("insert_args index must be between 0 and len(self.args)")
        self.args = (*self._args[:idx], arg, *self._args[idx:])

    def update_kwarg(self, key: str, arg: Any) -> None:
        """Sets an argument by name."""
        self.kwargs = {**self._kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Takes the result of another node in the place of `old_input`'s."""
        args, kwargs = map_arg((self._args, self._kwargs), lambda n: new_input if n is old_input else n)
        self._set(args, kwargs)

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] = lambda user: True,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Makes the nodes that take this result take another's; gives those nodes.

        Args:
            replace_with: the other node.
            delete_user_cb: which of the nodes are changed.
            propagate_meta: whether `meta` goes over to a node that has none.
        """
        if propagate_meta:
            if replace_with.meta:
                raise AssertionError(
                    "Called node.replace_all_uses_with(replace_with, propagate_meta=True), but meta is set"
                )
            replace_with.meta.update(self.meta)
        changed = [user for user in list(self.users) if user is not replace_with and delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    def prepend(self, x: Node) -> None:
        """Moves a node of the graph before this one."""
        if x.graph is not self.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if x is self:
            return
        x._prev._next, x._next._prev = x._next, x._prev
        before = self._prev
        before._next, x._prev, x._next, self._prev = x, before, self, x

    def append(self, x: Node) -> None:
        """Moves a node of the graph behind this one."""
        self._next.prepend(x)

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether the node is kept though nothing takes its result.

        Args:
            impure_random (bool, optional): no effect: draws of random numbers are in any case, as PyTorch has its
                Python functions.
        """
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            name = getattr(self.target, "__name__", "")
            if name in _RANDOM and getattr(self.target, "__module__", "").startswith("lucid"):
                return True
            return self.target in _side_effects or (name.endswith("_") and not name.endswith("__")) or name == "setitem"
        if self.op == "call_method":
            target = str(self.target)
            return target == "__setitem__" or (target.endswith("_") and not target.endswith("__"))
        return False

    def format_node(self, *args: Any, **kwargs: Any) -> str | None:
        """The node as a line of text; `None` of a placeholder, in PyTorch of one without a list to add it to."""
        if self.op == "placeholder":
            default = f"(default={self.args[0]})" if self.args else ""
            return f"%{self.name} : [num_users={len(self.users)}] = placeholder[target={self.target}]{default}"
        if self.op == "get_attr":
            return f"%{self.name} : [num_users={len(self.users)}] = get_attr[target={self.target}]"
        if self.op == "output":
            return f"return {self.args[0]}"
        given = f"args = {_text(self.args)}, kwargs = {_text(self.kwargs)}"
        return f"%{self.name} : [num_users={len(self.users)}] = {self.op}[target={_shown(self.target)}]({given})"

    def __repr__(self) -> str:
        return self.name

    def __lt__(self, other: Node) -> bool:
        at: Node = self
        while at._next is not self.graph._root:
            at = at._next
            if at is other:
                return True
        return False


def _text(value: Any) -> str:
    """An argument as PyTorch shows it: nodes by their names, text without quotes."""
    if isinstance(value, Node):
        return f"%{value.name}"
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        inner = ", ".join(_text(v) for v in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_text(v)}" for k, v in value.items()) + "}"
    return str(value)
