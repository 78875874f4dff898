"""Programs as graphs of calls, as `torch.fx`: traced by running them on proxies, transformed, and run as Python again.

`symbolic_trace(module)` gives a `GraphModule`: a module whose `graph` is a list of `Node`s, and whose `forward` is
Python code written from it. `Interpreter` runs a graph node by node, `Transformer` makes another graph of it.

Differences from PyTorch: there are no symbolic shapes and no schedules of passes; code is written without imports, and
a pickled `GraphModule` holds its nodes instead of its code.
"""

from __future__ import annotations

from lucid.fx._trace import PH as PH
from lucid.fx._trace import Tracer as Tracer
from lucid.fx._trace import symbolic_trace as symbolic_trace
from lucid.fx._trace import wrap as wrap
from lucid.fx.graph import Graph as Graph
from lucid.fx.graph_module import GraphModule as GraphModule
from lucid.fx.interpreter import Interpreter as Interpreter
from lucid.fx.interpreter import Transformer as Transformer
from lucid.fx.node import Node as Node
from lucid.fx.node import has_side_effect as has_side_effect
from lucid.fx.node import map_arg as map_arg
from lucid.fx.proxy import Proxy as Proxy
from lucid.fx.subgraph_rewriter import replace_pattern as replace_pattern

__all__ = [
    "PH",
    "Graph",
    "GraphModule",
    "Interpreter",
    "Node",
    "Proxy",
    "Tracer",
    "Transformer",
    "has_side_effect",
    "map_arg",
    "replace_pattern",
    "symbolic_trace",
    "wrap",
]
