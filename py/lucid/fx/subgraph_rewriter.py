"""Replacing parts of a graph that match a pattern."""

from __future__ import annotations

from typing import Any, NamedTuple

from lucid.fx._trace import symbolic_trace
from lucid.fx.graph import Graph
from lucid.fx.graph_module import GraphModule
from lucid.fx.node import Node, map_aggregate

__all__ = ["Match", "replace_pattern"]


class Match(NamedTuple):
    """A place where a pattern matched in a graph.

    Args:
        anchor (Node): the node that gives the pattern's result.
        nodes_map (dict of Node to object): by the pattern's node the node, or value, of the graph.

    Example:
        >>> from lucid.fx.subgraph_rewriter import replace_pattern
        >>> traced = lucid.fx.symbolic_trace(lambda x: (x + 1).relu())
        >>> matches = replace_pattern(traced, lambda x: x.relu(), lambda x: x.sigmoid())
        >>> len(matches), traced(lucid.tensor([-1.0]))
        (1, tensor([0.5000]))
    """

    anchor: Node
    nodes_map: dict[Node, Any]


def _same(pattern: Any, found: Any, match: dict[Node, Any]) -> bool:
    """Whether a value of the graph fits one of the pattern; the nodes that it binds are put into `match`."""
    if isinstance(pattern, Node):
        if pattern in match:
            return bool(match[pattern] is found)
        if pattern.op == "placeholder":
            match[pattern] = found
            return True
        if not isinstance(found, Node) or (pattern.op, pattern.target) != (found.op, found.target):
            return False
        if len(pattern.args) != len(found.args) or pattern.kwargs.keys() != found.kwargs.keys():
            return False
        match[pattern] = found
        parts = zip((*pattern.args, *pattern.kwargs.values()), (*found.args, *found.kwargs.values()), strict=True)
        return all(_same(p, f, match) for p, f in parts)
    if isinstance(pattern, (list, tuple)):
        if type(pattern) is not type(found) or len(pattern) != len(found):
            return False
        return all(_same(p, f, match) for p, f in zip(pattern, found, strict=True))
    return not isinstance(found, Node) and type(pattern) is type(found) and bool(pattern == found)


def _graph(given: Any) -> Graph:
    if isinstance(given, Graph):
        return given
    return given.graph if isinstance(given, GraphModule) else symbolic_trace(given).graph


def replace_pattern(gm: GraphModule, pattern: Any, replacement: Any) -> list[Match]:
    """Replaces the parts of a graph that match a pattern.

    Args:
        gm (GraphModule): the module, changed and recompiled.
        pattern (object): a function, module or graph with one result. Its arguments match any value.
        replacement (object): likewise, with the same arguments.

    Returns:
        The matches. Matches do not overlap, and what is inside of one is used only there.

    Raises:
        RuntimeError: the pattern and the replacement have different numbers of arguments.

    Example:
        >>> gm = lucid.fx.symbolic_trace(lambda x: lucid.relu(x) + 1)
        >>> len(lucid.fx.replace_pattern(gm, lambda a: lucid.relu(a), lambda a: lucid.tanh(a)))
        1
        >>> gm(lucid.zeros(1))
        tensor([1.])
    """
    old, new = _graph(pattern), _graph(replacement)
    wanted = old.output_node().args[0]
    if not isinstance(wanted, Node) or wanted.op == "placeholder":
        raise ValueError("replace_pattern(): the pattern must have one result that it computes")
    arguments = [[n for n in g.nodes if n.op == "placeholder"] for g in (old, new)]
    if len(arguments[0]) != len(arguments[1]):
        raise ValueError("replace_pattern(): pattern and replacement must have the same number of arguments")
    matches: list[Match] = []
    taken: set[Node] = set()
    replaced: dict[Node, Any] = {}
    for anchor in list(gm.graph.nodes):
        match: dict[Node, Any] = {}
        if not _same(wanted, anchor, match):
            continue
        inner = {f for p, f in match.items() if p.op != "placeholder"}
        outside = any(u not in inner for f in inner - {anchor} for u in f.users)
        if outside or inner & taken:
            continue
        taken |= inner
        matches.append(Match(anchor, match))
    for found in matches:
        # An argument may be the result of an earlier match, which is another node by now.
        values = {
            n: map_aggregate(found.nodes_map.get(o), lambda v: replaced.get(v, v) if isinstance(v, Node) else v)
            for o, n in zip(*arguments, strict=True)
        }
        with gm.graph.inserting_before(found.anchor):
            result = gm.graph.graph_copy(new, values)
        found.anchor.replace_all_uses_with(result)
        replaced[found.anchor] = result
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return matches
