"""GraphIR: tensors and nodes that are checked, planned, fused and executed.

It holds names, shapes and edges alone. What an op means is its schema (`registry`), and what computes is an executor
(`executor.Executor`), which runs the engine's ops; another executor, such as the engine's own graph, takes its place
without a change here.
"""

from __future__ import annotations

from lucid.lightning.graph.executor import EagerExecutor as EagerExecutor
from lucid.lightning.graph.executor import Executor as Executor
from lucid.lightning.graph.fusion import FusionReport as FusionReport
from lucid.lightning.graph.fusion import graph_fusion_rules as graph_fusion_rules
from lucid.lightning.graph.ir import GraphIR as GraphIR
from lucid.lightning.graph.registry import graph_registry_schema as graph_registry_schema
from lucid.lightning.graph.registry import graph_registry_schemas as graph_registry_schemas
from lucid.lightning.graph.registry import graph_registry_size as graph_registry_size
from lucid.lightning.graph.validate import graph_validation_passes as graph_validation_passes

__all__ = [
    "EagerExecutor",
    "Executor",
    "FusionReport",
    "GraphIR",
    "graph_fusion_rules",
    "graph_registry_schema",
    "graph_registry_schemas",
    "graph_registry_size",
    "graph_validation_passes",
]
