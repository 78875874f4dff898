"""`make_fx`: a function's ops on given tensors as a graph, as `torch.fx.experimental.proxy_tensor`.

Where `symbolic_trace` runs a program on proxies, `make_fx` runs it on tensors and keeps the ops that come up: no
module, no Python and no branch is left in the graph, whose nodes are calls of `lucid.ops.aten`'s ops.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping
from typing import Any

from lucid import _C, Tensor, errors, ops
from lucid._recorder import Recorder
from lucid.fx.experimental._sizes import SizeRecorder, SymSize
from lucid.fx.graph import Graph
from lucid.fx.graph_module import GraphModule
from lucid.fx.node import Node
from lucid.nn.parameter import Parameter
from lucid.utils import _pytree
from lucid.utils._python_dispatch import Op

__all__ = ["make_fx"]

_MODES = ("real", "fake", "symbolic")


def make_fx(
    f: Callable[..., Any],
    decomposition_table: Mapping[Any, Callable[..., Any]] | None = None,
    tracing_mode: str = "real",
) -> Callable[..., GraphModule]:
    """Gives a function that runs `f` on its arguments and returns the ops that ran as a `GraphModule`.

    Arguments that are tensors, also within lists and dicts, are the graph's inputs; other values are constants of it.
    Tensors that `f` takes from elsewhere become attributes: `_param_constant0`, `_tensor_constant0`.

    With "symbolic" the sizes that `f` reads of its tensors are calls of the graph, `aten.sym_size.int`, and so is what
    it computes from them by `+`, `-`, `*`, `//` and `%`: the graph holds for other sizes. Sizes of 0 and 1, those that
    `f` compares, and quotients by `/` are those of the example.

    Differences from PyTorch: "fake" and "symbolic" run on the tensors themselves, too; there are no guards on sizes;
    what backward passes compute is not recorded, which is an error and not a constant of the graph.

    Args:
        f (Callable): a function of tensors, or of lists, tuples and dicts of them.
        decomposition_table (Mapping, optional): by op (`lucid.ops.aten.silu`) the function whose ops are kept instead.
        tracing_mode (str, default: "real"): "real", "fake" or "symbolic".

    Returns:
        A function with the arguments of `f` that returns a `GraphModule`, which takes the same arguments.

    Raises:
        ValueError: another mode.
        RuntimeError: a result was computed by other means than recorded ops, such as `lucid.autograd.grad`.

    Example:
        >>> from lucid.fx.experimental.proxy_tensor import make_fx
        >>> traced = make_fx(lambda x: x.sin() + 1)(lucid.zeros(2))
        >>> [str(n.target) for n in traced.graph.nodes if n.op == "call_function"]
        ['aten.sin.default', 'aten.add.Tensor']
        >>> traced(lucid.zeros(3))
        tensor([1., 1., 1.])
    """
    if tracing_mode not in _MODES:
        raise errors.ValueError(f"make_fx: Unexpected tracing type: {tracing_mode}; there are {', '.join(_MODES)}")
    table = {_name(op): function for op, function in (decomposition_table or {}).items()}

    def trace(*args: Any) -> GraphModule:
        _modes.append(tracing_mode)
        try:
            return _Trace(f, args, table, SizeRecorder if tracing_mode == "symbolic" else Recorder).module
        finally:
            _modes.pop()

    return trace


# The tracing modes of the calls of `make_fx` that run.
_modes: list[str] = []


def get_proxy_mode() -> str | None:
    """The tracing mode inside of a function that `make_fx` runs, else `None`; PyTorch gives an object."""
    return _modes[-1] if _modes else None


def _name(op: Any) -> str:
    """An op's name, whichever of its objects is given."""
    return str(op.__name__).split(".")[0]


class _Trace:
    """One run of a function, and the graph of it."""

    def __init__(
        self,
        f: Callable[..., Any],
        args: tuple[Any, ...],
        table: Mapping[str, Callable[..., Any]],
        recorder: type[Recorder],
    ) -> None:
        self.graph = Graph()
        self.sizes: dict[Any, Node] = {}
        self.nodes: dict[int, Node] = {}
        self.attributes: dict[str, Tensor] = {}
        self.kept: list[Tensor] = []
        for name, arg in zip(_names(f, len(args)), args, strict=True):
            self.enter(self.graph.placeholder(name), arg)
        tensors = [t for t in _pytree.tree_leaves(args) if isinstance(t, Tensor)]
        distinct = [t for i, t in enumerate(tensors) if all(t is not u for u in tensors[:i])]
        self.recorder = recorder(distinct, errors.RuntimeError, "make_fx", table, lowers=True)
        steps = _C._GraphRecorder(distinct, False)
        try:
            with self.recorder:
                result = f(*args)
            outs = [t for t in _pytree.tree_leaves(result) if isinstance(t, Tensor)]
            self.check(steps, distinct, [t for t in outs if not self.recorder._depends(t)])
        finally:
            steps.abort()
        for call in self.recorder.calls:
            self.add(call)
        self.graph.output(self.argument(result))
        self.module = GraphModule(self.attributes, self.graph)

    def enter(self, node: Node, value: Any) -> None:
        """Says what the tensors of an argument are."""
        if isinstance(value, Tensor):
            node.meta["val"] = value.detach().to("meta")
            self.nodes[id(value)] = node
        elif isinstance(value, Mapping):
            for key, item in value.items():
                self.enter_item(node, key, item)
        elif isinstance(value, (list, tuple)):
            for i, item in enumerate(value):
                self.enter_item(node, i, item)

    def enter_item(self, node: Node, key: Any, item: Any) -> None:
        if any(isinstance(leaf, Tensor) for leaf in _pytree.tree_leaves(item)):
            self.enter(self.graph.call_function(operator.getitem, (node, key)), item)

    def check(self, steps: Any, inputs: list[Tensor], constants: list[Tensor]) -> None:
        """Raises where a result that no recorded op has made depends on the inputs."""
        values = [steps.value_of(t) for t in constants]
        if all(v is None for v in values) or steps.broken():
            return
        graph = steps.finish()[0]
        reached = set(range(len(inputs)))
        for step in graph.steps():
            if reached & set(step["inputs"]):
                reached.update(step["outputs"])
        if reached & set(values):
            raise errors.RuntimeError(
                "make_fx: a result depends on the inputs by what is not recorded, such as a backward pass; "
                "lucid.compile records these"
            )

    def argument(self, value: Any) -> Any:
        """An argument of a node: nodes in the place of tensors."""

        def entry(leaf: Any) -> Any:
            if isinstance(leaf, SymSize):
                return self.size_of(leaf)
            return self.node_of(leaf) if isinstance(leaf, Tensor) else leaf

        return _pytree.tree_map(entry, value)

    def size_of(self, n: Any) -> Any:
        """The node of a size; each is asked for and computed once."""
        if not isinstance(n, SymSize):
            return n
        function, *rest = n.made
        if function == "size":
            t, dim = rest
            given: tuple[Any, ...] = (self.node_of(t), dim)
            function, name = Op("sym_size", ops.aten.sym_size, "int"), "sym_size_int"
        elif function == "numel":
            given = (self.node_of(rest[0]),)
            function, name = Op("sym_numel", ops.aten.sym_numel), "sym_numel"
        else:
            given, name = tuple(self.size_of(v) for v in rest), function.__name__
        key = (name, *given)
        if key not in self.sizes:
            self.sizes[key] = node = self.graph.call_function(function, given)
            node.name = self.graph._type_names.create(name)
            node.meta["val"] = int(n)
        return self.sizes[key]

    def node_of(self, t: Tensor) -> Node:
        t = self.recorder._of(t)
        if id(t) not in self.nodes:
            kind = "_param_constant" if isinstance(t, Parameter) else "_tensor_constant"
            name = f"{kind}{sum(n.startswith(kind) for n in self.attributes)}"
            self.attributes[name] = t
            self.kept.append(t)
            self.nodes[id(t)] = self.graph.get_attr(name)
        return self.nodes[id(t)]

    def add(self, call: Any) -> None:
        node = self.graph.call_function(call.function, self.argument(call.args), self.argument(call.kwargs))
        node.name = self.graph._type_names.create(call.name)
        self.results(node, call.result)

    def results(self, node: Node, result: Any) -> None:
        if isinstance(result, Tensor):
            node.meta["val"] = result.detach().to("meta") if not result.is_sparse else None
            self.nodes[id(result)] = node
        elif isinstance(result, (list, tuple)):
            for i, item in enumerate(result):
                if isinstance(item, Tensor):
                    self.results(self.graph.call_function(operator.getitem, (node, i)), item)


def _names(f: Callable[..., Any], count: int) -> list[str]:
    """Names of the placeholders, as PyTorch gives them: `x_1` for the argument `x`."""
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    plain = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [f"{name}_1" for name in [*plain, *(f"arg{i}" for i in range(len(plain), count))][:count]]
