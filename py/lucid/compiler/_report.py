"""What `explain` found, as text, JSON and a self-contained HTML page."""

from __future__ import annotations

import dataclasses
import html
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lucid.profiler._flops import COUNTED
from lucid.profiler._flops import flops as profiled_flops


@dataclasses.dataclass
class Explanation:
    """What `explain` found.

    Attributes:
        graph_count: graphs that were recorded.
        graph_break_count: reasons why calls run as they are written, or in parts.
        break_reasons: those.
        op_count: steps of all graphs.
        graphs: per graph its text, its steps, what each pass changed, the groups of element-wise steps, bytes, FLOPs.
        recompile_reasons: what differed between the recordings, with how often.
        static_reasons: why recordings hold for their sizes alone, though `dynamic` was asked for.
        parts: the parts that the function was taken into, by name.
        times_ms: of the call that was explained: its time as it is written and its time compiled, where it was made.
    """

    graph_count: int
    graph_break_count: int
    break_reasons: list[str]
    op_count: int
    graphs: list[dict[str, Any]]
    recompile_reasons: dict[str, int] = dataclasses.field(default_factory=dict)
    static_reasons: dict[str, int] = dataclasses.field(default_factory=dict)
    parts: list[str] = dataclasses.field(default_factory=list)
    times_ms: dict[str, float] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"Graph Count: {self.graph_count}", f"Graph Break Count: {self.graph_break_count}"]
        lines += [f"Op Count: {self.op_count}", "Break Reasons:"]
        lines += [f"  Break Reason {i + 1}: {reason}" for i, reason in enumerate(self.break_reasons)]
        lines += [f"Recompiled {n} times for: {reason}" for reason, n in self.recompile_reasons.items()]
        lines += [f"Sizes are fixed: {reason}" for reason in self.static_reasons]
        lines += [f"Part: {name}" for name in self.parts]
        for i, graph in enumerate(self.graphs):
            passes = ", ".join(f"{name} {count}" for name, count in graph["passes"])
            groups = f"{len(graph['groups'])} groups of element-wise steps"
            size = f"{graph['bytes']} bytes, {graph['flops']} FLOPs"
            lines += [f"Graph {i + 1}: {len(graph['steps'])} steps ({passes}; {groups}; {size})", graph["text"]]
        return "\n".join(lines)

    def to_json(self) -> str:
        """All of it as JSON."""
        return json.dumps(dataclasses.asdict(self), indent=1)

    def to_html(self) -> str:
        """A page with all of it that refers to nothing outside of itself."""
        return _page(self)

    def save(self, path: str) -> None:
        """Writes it as a file: a page where the name ends in `.html`, JSON where it ends in `.json`, else text."""
        target = Path(path)
        kinds: dict[str, Callable[[], str]] = {".html": self.to_html, ".json": self.to_json}
        target.write_text(kinds.get(target.suffix, self.__str__)(), encoding="utf-8")


_STYLE = """
body{font:14px/1.45 system-ui,sans-serif;margin:2em;max-width:90em;color:#1a1a1a}
table{border-collapse:collapse;margin:1em 0}td,th{border:1px solid #ccc;padding:.2em .6em;text-align:left}
td.n{text-align:right;font-variant-numeric:tabular-nums}pre{background:#f6f6f6;padding:1em;overflow:auto}
.graph{overflow:auto;max-height:40em;border:1px solid #ccc}summary{cursor:pointer;font-weight:600}
"""


def _row(cells: list[Any], tag: str = "td") -> str:
    def cell(value: Any) -> str:
        number = ' class="n"' if isinstance(value, (int, float)) and tag == "td" else ""
        return f"<{tag}{number}>{html.escape(str(value))}</{tag}>"

    return f"<tr>{''.join(map(cell, cells))}</tr>"


def _table(head: list[str], rows: list[list[Any]]) -> str:
    return f"<table>{_row(list(head), 'th')}{''.join(map(_row, rows))}</table>"


def _steps(graph: dict[str, Any]) -> str:
    group_of = {at: i + 1 for i, group in enumerate(graph["groups"]) for at in group}
    rows = []
    for at, step in enumerate(graph["steps"]):
        shape = "×".join(map(str, step.get("shape", ()))) or ""
        row = [at, step["op"], shape, step.get("dtype", ""), step.get("device", ""), step.get("bytes", 0)]
        why = f"group {group_of[at]}" if at in group_of else alone(step["op"])
        rows.append([*row, step.get("flops", 0), why])
    return _table(["step", "op", "sizes", "dtype", "device", "bytes", "FLOPs", "fusion"], rows)


def alone(op: str) -> str:
    """Why a step is a kernel of its own."""
    if op in ("assign", "draw", "eval", "host"):
        return "alone: an effect, which keeps its place"
    if op in ("reshape", "permute", "expand", "slice", "as_strided", "transpose", "narrow"):
        return "no kernel: a view"
    return "alone: no element-wise neighbour of its shape, or a kernel of its own kind"


def _page(found: Explanation) -> str:
    parts = [f"<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'><title>lucid.compile</title><style>{_STYLE}"]
    parts.append("</style></head><body><h1>lucid.compile</h1>")
    facts: list[list[Any]] = [
        ["graphs", found.graph_count],
        ["graph breaks", found.graph_break_count],
        ["steps", found.op_count],
    ]
    facts += [[f"{name}, ms", round(ms, 3)] for name, ms in found.times_ms.items()]
    parts.append(_table(["what", "how many"], facts))
    for title, reasons in (
        ("Graph breaks", found.break_reasons),
        ("Recompiles", [f"{reason} ({n} times)" for reason, n in found.recompile_reasons.items()]),
        ("Fixed sizes", list(found.static_reasons)),
        ("Parts", found.parts),
    ):
        if reasons:
            items = "".join(f"<li>{html.escape(reason)}</li>" for reason in reasons)
            parts.append(f"<h2>{title}</h2><ul>{items}</ul>")
    for i, graph in enumerate(found.graphs):
        parts.append(f"<h2 id='graph{i + 1}'>Graph {i + 1}</h2>")
        parts.append(_table(["pass", "steps changed"], [list(row) for row in graph["passes"]]))
        parts.append(f"<p>{graph['bytes']} bytes of results, {graph['flops']} FLOPs.</p>")
        parts.append(f"<details open><summary>picture</summary><div class='graph'>{graph['svg']}</div></details>")
        parts.append(f"<details open><summary>steps</summary>{_steps(graph)}</details>")
        parts.append(f"<details><summary>text</summary><pre>{html.escape(graph['text'])}</pre></details>")
    parts.append("</body></html>\n")
    return "".join(parts)


_MOVES = frozenset(
    ("reshape", "permute", "expand", "slice", "as_strided", "narrow", "full", "arange", "copy", "cast", "to_device")
)


def flops(step: dict[str, Any], steps_by_value: dict[int, dict[str, Any]], layout: Callable[[int], Any]) -> int:
    """Multiplications and additions of a step, as is usual: two per element of a product's inner dimension."""
    out = step.get("shape")
    if out is None:
        return 0
    count = 1
    for n in out:
        count *= n
    op = step["op"]
    if step["inputs"] and op in COUNTED:
        return profiled_flops(op, [layout(value)[0] for value in step["inputs"]], out)
    if op in ("sum", "amax", "amin", "prod", "any", "all", "argmax", "argmin"):
        inner = 1
        for n in layout(step["inputs"][0])[0]:
            inner *= n
        return int(inner)
    if op in _MOVES:
        return 0
    return count


def row_of(graph: Any, passes: Any) -> dict[str, Any]:
    """What is said of a graph."""
    steps = graph.steps()
    by_value = {value: step for step in steps for value in step["outputs"]}
    for step in steps:
        step["flops"] = flops(step, by_value, graph.layout)
    return {
        "text": str(graph),
        "steps": steps,
        "passes": passes,
        "groups": graph.groups(),
        "dot": graph.to_dot(),
        "svg": graph.to_svg(),
        "bytes": sum(step.get("bytes", 0) for step in steps),
        "flops": sum(step["flops"] for step in steps),
    }


def timed(call: Callable[[], Any], rounds: int = 3) -> float:
    """The least time of a call in milliseconds."""
    best = float("inf")
    for _ in range(rounds):
        begun = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begun)
    return best * 1e3
