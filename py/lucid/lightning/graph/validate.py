"""The checks of a graph, one after the other, each of which finds what it can rather than stop at the first."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lucid import errors
from lucid.lightning.graph.registry import OPS

if TYPE_CHECKING:
    from lucid.lightning.graph.ir import GraphIR

__all__ = ["PASSES", "graph_validation_passes", "order"]


def _schemas(g: GraphIR) -> list[str]:
    """Operators are known, with as many inputs and outputs as they take, and attributes they have."""
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
    """Each tensor is written by at most one node, and constants by none."""
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


def order(g: GraphIR) -> tuple[list[int], list[int]]:
    """The nodes in an order in which each follows those it reads from, and those that are on a cycle."""
    writer = {t: node.id for node in g._nodes for t in node.outputs}
    waits = {node.id: {writer[t] for t in node.inputs if t in writer} for node in g._nodes}
    readers: dict[int, list[int]] = {}
    for node, before in waits.items():
        for b in before:
            readers.setdefault(b, []).append(node)
    ready = [n for n, before in waits.items() if not before]
    done: list[int] = []
    position = 0
    while position < len(ready):
        node = ready[position]
        position += 1
        done.append(node)
        for reader in readers.get(node, []):
            waits[reader].discard(node)
            if not waits[reader]:
                ready.append(reader)
    placed = set(done)
    return done, [n for n in waits if n not in placed]


def _acyclic(g: GraphIR) -> list[str]:
    """No node reads what follows from its own result."""
    cyclic = order(g)[1]
    return [f"nodes {cyclic} are on or behind a cycle"] if cyclic else []


def _shapes(g: GraphIR) -> list[str]:
    """Shapes are those that the operators infer."""
    out = []
    for node in g._nodes:
        try:
            inferred = OPS[node.op].infer([g._tensors[t].shape for t in node.inputs], node.attrs)
        except (errors.LucidError, IndexError) as e:
            out.append(f"node {node.id} ({node.op}): {e}")
            continue
        for t, shape in zip(node.outputs, inferred, strict=False):
            if g._tensors[t].shape != tuple(shape):
                out.append(f"node {node.id} ({node.op}): tensor {t} has shape {g._tensors[t].shape}, inferred {shape}")
    return out


def _dtypes(g: GraphIR) -> list[str]:
    """A node's tensors have one dtype."""
    out = []
    for node in g._nodes:
        kinds = {g._tensors[t].dtype for t in (*node.inputs, *node.outputs)}
        if len(kinds) > 1:
            out.append(f"node {node.id} ({node.op}): dtypes {', '.join(sorted(kinds))} are mixed")
    return out


def _used(g: GraphIR) -> list[str]:
    """Each tensor is read or written by a node."""
    touched = {t for node in g._nodes for t in (*node.inputs, *node.outputs)}
    idle = [t.id for t in g._tensors if t.id not in touched and t.id not in g._removed]
    return [f"tensors {idle} belong to no node"] if idle and g._nodes else []


PASSES: dict[str, Callable[[GraphIR], list[str]]] = {
    "schema": _schemas,
    "single_assignment": _single_assignment,
    "acyclic": _acyclic,
    "shape": _shapes,
    "dtype": _dtypes,
    "usage": _used,
}


def graph_validation_passes() -> list[str]:
    """The names of the checks, in the order in which they are made."""
    return list(PASSES)


def report(g: GraphIR) -> dict[str, Any]:
    """What each check finds."""
    passes: list[dict[str, Any]] = []
    for name, check in PASSES.items():
        issues = check(g)
        passes.append({"pass": name, "ok": not issues, "issues": issues, "about": check.__doc__})
    return {"ok": all(p["ok"] for p in passes), "passes": passes, "issues": [i for p in passes for i in p["issues"]]}
