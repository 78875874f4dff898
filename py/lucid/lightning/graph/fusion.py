"""Fusion by rules: chains of nodes that one fused operator replaces where a cost model says that it pays."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lucid.lightning.graph._recording import Work, work_of
from lucid.lightning.graph.registry import OPS

if TYPE_CHECKING:
    from lucid.lightning.graph.ir import GraphIR, Node

__all__ = ["FusionReport", "graph_fusion_rules"]

# The cost model's units: what launching a kernel costs, and the bytes moved and operations done in a microsecond.
LAUNCH_US = {"cpu": 2.0, "gpu": 8.0}
BYTES_PER_US = {"cpu": 8_000.0, "gpu": 400_000.0}
FLOPS_PER_US = {"cpu": 50_000.0, "gpu": 10_000_000.0}


@dataclass(frozen=True)
class Candidate:
    """Nodes that a rule would replace, and by what."""

    rule: str
    nodes: tuple[int, ...]
    op: str
    inputs: tuple[int, ...]
    output: int
    attrs: dict[str, Any]
    inner: tuple[int, ...]


@dataclass(frozen=True)
class FusionReport:
    """What the fusion of a graph did, and why.

    Args:
        device (str): `"cpu"` or `"gpu"`, for whose costs it decided.
        decisions (list of dict): for each candidate `rule`, `nodes`, `op`, `fused`, `saved_us`, `saved_bytes`,
            `saved_flops`, `saved_launches` and `reason`.

    Example:
        >>> import lucid.lightning as lc
        >>> graph = lc.GraphIR()
        >>> a, b, c, d = (graph.add_tensor((2, 2)) for _ in range(4))
        >>> _ = graph.add_node("matmul", [a, b], [c]), graph.add_node("relu", [c], [d])
        >>> fused, report = graph.fuse("cpu")
        >>> report.device, len(report.decisions)
        ('cpu', 1)
    """

    device: str
    decisions: list[dict[str, Any]]

    @property
    def fused(self) -> int:
        """How many candidates were replaced."""
        return sum(d["fused"] for d in self.decisions)

    def explain(self) -> str:
        """The decisions as text, one a line."""
        lines = [f"fusion for {self.device}: {self.fused} of {len(self.decisions)} candidates"]
        for d in self.decisions:
            mark = "fused" if d["fused"] else "kept"
            lines.append(f"  {mark} {d['rule']} nodes {d['nodes']} -> {d['op']}: {d['reason']}")
        return "\n".join(lines)


class _Graph:
    """Who writes and reads each tensor."""

    def __init__(self, g: GraphIR) -> None:
        self.g = g
        self.writer = {t: node for node in g._nodes for t in node.outputs}
        self.readers: dict[int, list[Node]] = {}
        for node in g._nodes:
            for t in node.inputs:
                self.readers.setdefault(t, []).append(node)

    def only_reader(self, t: int) -> Node | None:
        """The one node that reads a tensor, where the tensor is no result of the graph."""
        readers = self.readers.get(t, [])
        return readers[0] if len(readers) == 1 and t not in self.g._marked else None


def _following(graph: _Graph, node: Node, *ops: str) -> Node | None:
    reader = graph.only_reader(node.outputs[0])
    return reader if reader is not None and reader.op in ops and reader.inputs[0] == node.outputs[0] else None


def _matmul_bias_act(graph: _Graph, node: Node) -> Candidate | None:
    if node.op != "matmul":
        return None
    chain, inputs, act = [node], list(node.inputs), "none"
    bias = _following(graph, node, "bias_add")
    if bias is not None:
        chain.append(bias)
        inputs.append(bias.inputs[1])
    activation = _following(graph, chain[-1], "relu", "gelu")
    if activation is not None:
        chain.append(activation)
        act = activation.op
    return _candidate("matmul+bias+act", chain, "matmul_bias_act", inputs, {"act": act})


def _conv_act(graph: _Graph, node: Node) -> Candidate | None:
    if node.op != "conv2d_nchw":
        return None
    activation = _following(graph, node, "relu", "gelu")
    chain = [node] if activation is None else [node, activation]
    attrs = {**node.attrs, "act": "none" if activation is None else activation.op}
    return _candidate("conv+act", chain, "conv2d_act", list(node.inputs), attrs)


def _attention(graph: _Graph, node: Node) -> Candidate | None:
    """transpose(k) → matmul(q, ·) → scale by 1/sqrt(d) → softmax → matmul(·, v)."""
    if node.op != "transpose":
        return None
    scores = graph.only_reader(node.outputs[0])
    if scores is None or scores.op != "matmul" or scores.inputs[1] != node.outputs[0]:
        return None
    scale = _following(graph, scores, "scale")
    softmax = _following(graph, scale, "softmax") if scale is not None else None
    product = _following(graph, softmax, "matmul") if softmax is not None else None
    if scale is None or softmax is None or product is None:
        return None
    width = graph.g._tensors[scores.inputs[0]].shape[1]
    if not math.isclose(scale.attrs["factor"], 1 / math.sqrt(width), rel_tol=1e-6):
        return None
    inputs = [scores.inputs[0], node.inputs[0], product.inputs[1]]
    return _candidate("attention", [node, scores, scale, softmax, product], "attention", inputs, {"causal": False})


def _candidate(rule: str, chain: list[Node], op: str, inputs: list[int], attrs: dict[str, Any]) -> Candidate | None:
    if len(chain) < 2:
        return None
    inner = tuple(t for node in chain[:-1] for t in node.outputs)
    nodes = tuple(node.id for node in chain)
    return Candidate(rule, nodes, op, tuple(inputs), chain[-1].outputs[0], OPS[op].attrs(attrs), inner)


_RULES: dict[str, Callable[[_Graph, Node], Candidate | None]] = {
    "attention": _attention,
    "matmul+bias+act": _matmul_bias_act,
    "conv+act": _conv_act,
}


def graph_fusion_rules() -> list[str]:
    """The names of the rules, in the order in which they are tried."""
    return list(_RULES)


def candidates(g: GraphIR) -> list[Candidate]:
    """What the rules would replace; no node is in two of them."""
    graph, taken, out = _Graph(g), set[int](), []
    for rule in _RULES.values():
        for node in g._nodes:
            found = rule(graph, node)
            if found is not None and not taken & set(found.nodes):
                taken |= set(found.nodes)
                out.append(found)
    return out


def microseconds(work: Work, device: str) -> float:
    """The cost model: launches, and the longer of moving the bytes and doing the operations."""
    return work.launches * LAUNCH_US[device] + max(work.bytes / BYTES_PER_US[device], work.flops / FLOPS_PER_US[device])


def decide(g: GraphIR, candidate: Candidate, device: str, least_us: float) -> dict[str, Any]:
    """Compares the steps that the engine's graph has for the nodes and for the fused operator; fusing pays where it
    saves time, and `least_us` of it."""
    recorded = g._recorded()
    dtype = g._tensors[candidate.output].dtype
    steps = recorded.steps
    before = Work()
    if steps is not None:
        for node in candidate.nodes:
            before += steps.work(recorded.places[node], g._tensors[candidate.output].itemsize)
    after = work_of(candidate.op, [g._tensors[t].shape for t in candidate.inputs], dtype, candidate.attrs)
    saved = microseconds(before, device) - microseconds(after, device)
    launches, moved = before.launches - after.launches, before.bytes - after.bytes
    fused = saved > 0 and saved >= least_us
    reason = f"saves {launches} launch{'es' * (launches != 1)} and {moved} bytes, {saved:.2f} us"
    if not fused:
        reason += f", less than the {least_us:g} us asked for" if saved > 0 else ": does not pay"
    return {
        "rule": candidate.rule,
        "nodes": list(candidate.nodes),
        "op": candidate.op,
        "fused": fused,
        "saved_us": saved,
        "saved_bytes": moved,
        "saved_flops": before.flops - after.flops,
        "saved_launches": launches,
        "reason": reason,
    }
