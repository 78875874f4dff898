"""GraphIR: a face of the engine's graph, which checks, plans, fuses and executes.

It holds what is declared: names, shapes and edges. The nodes are recorded into the engine's graph over meta tensors
(`_recording`), which infers and verifies shapes and says what steps cost. What an op means is its schema (`registry`).
What computes is an executor (`executor.Executor`): the engine's program of the graph.
"""

from __future__ import annotations

from lucid.lightning.graph.executor import EagerExecutor as EagerExecutor
from lucid.lightning.graph.executor import Executor as Executor
from lucid.lightning.graph.executor import ProgramExecutor as ProgramExecutor
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
    "ProgramExecutor",
    "graph_fusion_rules",
    "graph_registry_schema",
    "graph_registry_schemas",
    "graph_registry_size",
    "graph_validation_passes",
]
