"""Changes of a model's graph for evaluation, as `torch.fx.experimental.optimization`."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from lucid import errors, nn
from lucid._warnings import warn_without_effect
from lucid.fx._trace import Tracer, symbolic_trace
from lucid.fx.graph import Graph
from lucid.fx.graph_module import GraphModule
from lucid.fx.node import Argument, Node
from lucid.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

__all__ = [
    "extract_subgraph",
    "fuse",
    "matches_module_pattern",
    "optimize_for_inference",
    "remove_dropout",
    "replace_node_module",
]

_FUSED: tuple[tuple[type, type, Any], ...] = (
    (nn.Conv1d, nn.BatchNorm1d, fuse_conv_bn_eval),
    (nn.Conv2d, nn.BatchNorm2d, fuse_conv_bn_eval),
    (nn.Conv3d, nn.BatchNorm3d, fuse_conv_bn_eval),
    (nn.Linear, nn.BatchNorm1d, fuse_linear_bn_eval),
)


def _parent_name(target: str) -> tuple[str, str]:
    """The path of the module above, and the name in it."""
    parent, _, name = target.rpartition(".")
    return parent, name


def matches_module_pattern(pattern: Iterable[type], node: Node, modules: dict[str, nn.Module]) -> bool:
    """Is a node the call of a module of the last class, on the result of one of the first?

    Args:
        pattern (Iterable[type]): two classes of modules, in the order in which they are called.
        node (Node): a node of a graph.
        modules (dict of str to Module): the graph's modules by path.

    Returns:
        bool: whether it is.

    Example:
        >>> from lucid.fx.experimental.optimization import matches_module_pattern
        >>> model = lucid.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
        >>> node = list(model.graph.nodes)[2]
        >>> matches_module_pattern((nn.Linear, nn.ReLU), node, dict(model.named_modules()))
        True
    """
    if not node.args:
        return False
    for expected, current in zip(pattern, (node.args[0], node), strict=False):
        if not isinstance(current, Node) or current.op != "call_module":
            return False
        if type(modules.get(str(current.target))) is not expected:
            return False
    return True


def replace_node_module(node: Node, modules: dict[str, nn.Module], new_module: nn.Module) -> None:
    """Puts another module in the place of the one that a node calls.

    Args:
        node (Node): the call.
        modules (dict of str to Module): the graph's modules by path, which is changed as well.
        new_module (Module): the module in its place.

    Raises:
        AssertionError: the node calls no module by its path.

    Example:
        >>> from lucid.fx.experimental.optimization import replace_node_module
        >>> model = lucid.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
        >>> replace_node_module(list(model.graph.nodes)[2], dict(model.named_modules()), nn.Tanh())
        >>> model.get_submodule("1")
        Tanh()
    """
    assert isinstance(node.target, str), f"replace_node_module: {node} calls no module"
    parent, name = _parent_name(node.target)
    modules[node.target] = new_module
    setattr(modules[parent], name, new_module)


def fuse(model: nn.Module, inplace: bool = False, no_trace: bool = False) -> nn.Module:
    """Folds batch norms into the convolution or linear layer before them, for evaluation.

    A layer whose result is used elsewhere, too, and a norm without running statistics stay as they are.

    Args:
        model (Module): a model in evaluation that `symbolic_trace` can trace.
        inplace (bool, default: False): whether the model's own layers are changed, rather than a copy's.
        no_trace (bool, default: False): whether `model` is a `GraphModule` already.

    Returns:
        GraphModule: the model without those norms.

    Raises:
        ValueError: `no_trace` with a model that is no `GraphModule`.
        AssertionError: the model is in training.

    Example:
        >>> from lucid.fx.experimental.optimization import fuse
        >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU()).eval()
        >>> [str(node.target) for node in fuse(model).graph.nodes if node.op == "call_module"]
        ['0', '2']
    """
    if not inplace:
        model = copy.deepcopy(model)
    if no_trace and not isinstance(model, GraphModule):
        raise errors.ValueError("fuse: with no_trace the model must be a GraphModule")
    traced: Any = model if no_trace else symbolic_trace(model)
    modules = dict(traced.named_modules())
    graph = copy.deepcopy(traced.graph)
    for first, second, fold in _FUSED:
        for node in list(graph.nodes):
            if not matches_module_pattern((first, second), node, modules) or len(node.args[0].users) > 1:
                continue
            norm = modules[node.target]
            if not norm.track_running_stats:
                continue
            replace_node_module(node.args[0], modules, fold(modules[node.args[0].target], norm))
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    return GraphModule(traced, graph)


def remove_dropout(model: nn.Module) -> nn.Module:
    """Takes the dropout layers out of a model.

    Args:
        model (Module): a model that `symbolic_trace` can trace.

    Returns:
        GraphModule: the model without them.

    Example:
        >>> from lucid.fx.experimental.optimization import remove_dropout
        >>> model = remove_dropout(nn.Sequential(nn.Linear(2, 2), nn.Dropout()))
        >>> [str(node.target) for node in model.graph.nodes if node.op == "call_module"]
        ['0']
    """
    traced: Any = symbolic_trace(model)
    modules = dict(traced.named_modules())
    graph = copy.deepcopy(traced.graph)
    for node in list(graph.nodes):
        if node.op == "call_module" and isinstance(modules[node.target], nn.Dropout):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    return GraphModule(traced, graph)


def extract_subgraph(orig_module: nn.Module, nodes: list[Node], inputs: list[Node], outputs: list[Node]) -> GraphModule:
    """A part of a graph as a module.

    Args:
        orig_module (Module): the module that the nodes' modules and attributes are of.
        nodes (list of Node): the part, in order.
        inputs (list of Node): nodes whose results the part is given.
        outputs (list of Node): nodes whose results it gives; one alone is given as it is.

    Returns:
        GraphModule: the part.

    Raises:
        RuntimeError: a node needs a result that is neither an input nor made in the part.

    Example:
        >>> from lucid.fx.experimental.optimization import extract_subgraph
        >>> model = lucid.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
        >>> _, linear, relu, _ = model.graph.nodes
        >>> extract_subgraph(model, [relu], [linear], [relu])(lucid.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """
    graph = Graph()
    made: dict[Node, Node] = {node: graph.placeholder(node.name) for node in inputs}

    def of(node: Node) -> Argument:
        if node not in made:
            raise errors.RuntimeError(f"extract_subgraph: {node.name} is neither an input nor made in the part")
        return made[node]

    for node in nodes:
        made[node] = graph.node_copy(node, of)
    results = [made[node] for node in outputs]
    graph.output(results[0] if len(results) == 1 else tuple(results))
    graph.lint()
    return GraphModule(orig_module, graph)


def optimize_for_inference(
    model: nn.Module, pass_config: dict[str, Any] | None = None, tracer: type[Tracer] = Tracer
) -> nn.Module:
    """A model for evaluation with its batch norms folded and its dropout layers gone.

    Difference from PyTorch: layers are not moved to oneDNN, which is not there; `lucid.compile` fuses what is left.

    Args:
        model (Module): a model in evaluation that can be traced.
        pass_config (dict of str to object, optional): `"conv_bn_fuse"` and `"remove_dropout"` with False leave these
            out. `"mkldnn_layout_optimize"` is without effect, with one warning where it is asked for.
        tracer (type, optional): the class that traces what is left.

    Returns:
        GraphModule: the model for evaluation.

    Raises:
        RuntimeError: another entry of `pass_config`.

    Example:
        >>> from lucid.fx.experimental.optimization import optimize_for_inference
        >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout()).eval()
        >>> len([node for node in optimize_for_inference(model).graph.nodes if node.op == "call_module"])
        1
    """
    passes = {"conv_bn_fuse": True, "remove_dropout": True, "mkldnn_layout_optimize": False, **(pass_config or {})}
    if unknown := set(passes) - {"conv_bn_fuse", "remove_dropout", "mkldnn_layout_optimize"}:
        raise errors.RuntimeError(f"optimize_for_inference: there is no pass {sorted(unknown)[0]!r}")
    warn_without_effect(
        "optimize_for_inference", "there is no oneDNN", mkldnn_layout_optimize=bool(passes["mkldnn_layout_optimize"])
    )
    if passes["conv_bn_fuse"]:
        model = fuse(model)
    if passes["remove_dropout"]:
        model = remove_dropout(model)
    found = tracer()
    return GraphModule(model, found.trace(model))
