"""The checks of a graph: the registry's schemas, and what the engine says when nodes are recorded into its graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lucid.lightning.graph.registry import OPS

if TYPE_CHECKING:
    from lucid.lightning.graph.ir import GraphIR

__all__ = ["PASSES", "graph_validation_passes"]

PASSES = {
    "schema": "Operators have as many inputs and outputs as their schemas say.",
    "single_assignment": "Each tensor is written by at most one node, and constants by none.",
    "acyclic": "No node reads what follows from its own result.",
    "shape": "Inputs fit the operators, and shapes are those that the engine infers.",
    "dtype": "A node's tensors have one dtype, which is the one that the engine gives.",
    "usage": "Each tensor is read or written by a node.",
    "engine": "The engine's graph verifies.",
}


def _schemas(g: GraphIR) -> list[str]:
    out = []
    for node in g._nodes:
        op = OPS[node.op]
        low, high = op.arity
        if not low <= len(node.inputs) <= high:
            out.append(f"node {node.id} ({node.op}) has {len(node.inputs)} inputs and takes from {low} to {high}")
        if len(node.outputs) != len(op.outputs):
            out.append(f"node {node.id} ({node.op}) has {len(node.outputs)} outputs and gives {len(op.outputs)}")
    return out


def _single_assignment(g: GraphIR) -> list[str]:
    writers: dict[int, int] = {}
    out = []
    for node in g._nodes:
        for t in node.outputs:
            if t in writers:
                out.append(f"tensor {t} is written by nodes {writers[t]} and {node.id}")
            if g._tensors[t].value is not None:
                out.append(f"tensor {t} is a constant and is written by node {node.id}")
            writers.setdefault(t, node.id)
    return out


def _used(g: GraphIR) -> list[str]:
    touched = {t for node in g._nodes for t in (*node.inputs, *node.outputs)}
    idle = [t.id for t in g._tensors if t.id not in touched and t.id not in g._removed]
    return [f"tensors {idle} belong to no node"] if idle and g._nodes else []


def graph_validation_passes() -> list[str]:
    """The names of the checks, in the order in which they are reported."""
    return list(PASSES)


def report(g: GraphIR) -> dict[str, Any]:
    """What each check finds."""
    recorded = g._recorded()
    found = {
        "schema": _schemas(g),
        "single_assignment": _single_assignment(g),
        "acyclic": [f"nodes {recorded.cyclic} are on or behind a cycle"] if recorded.cyclic else [],
        "usage": _used(g),
        **recorded.issues,
    }
    passes: list[dict[str, Any]] = [
        {"pass": name, "ok": not found[name], "issues": found[name], "about": about} for name, about in PASSES.items()
    ]
    return {"ok": all(p["ok"] for p in passes), "passes": passes, "issues": [i for p in passes for i in p["issues"]]}
