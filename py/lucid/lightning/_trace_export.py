"""The trace in files: Chrome's trace events, and a page that holds all it shows."""

from __future__ import annotations

import html
import json
import os
from pathlib import Path
from typing import Any

from lucid.lightning._trace import Event, runtime_trace_events, runtime_trace_timeline

__all__ = ["runtime_trace_export_chrome", "runtime_trace_export_html"]

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>@TITLE@</title>
<style>
body{font:14px system-ui,sans-serif;margin:1.5em;color:#222;background:#fff}
h1{font-size:1.3em} h2{font-size:1.1em;margin-top:1.6em}
table{border-collapse:collapse} th,td{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}
th:first-child,td:first-child{text-align:left} .bar{cursor:default} .bar:hover{opacity:.7}
#tip{min-height:1.4em;font-family:ui-monospace,monospace} svg{width:100%;background:#f7f7f7;border:1px solid #ddd}
text{font:11px system-ui,sans-serif}
</style></head><body>
<h1>@TITLE@</h1>
<p>@SUMMARY@</p>
<div id="tip">Point at a bar to see its event.</div>
<svg id="lanes" role="img" aria-label="timeline"></svg>
<h2>Groups</h2><table id="groups"></table>
<h2>Longest events</h2><table id="hotspots"></table>
<script id="data" type="application/json">@DATA@</script>
<script>
"use strict";
const report = JSON.parse(document.getElementById("data").textContent);
const us = ns => (ns / 1000).toFixed(1);
const events = report.events, svg = document.getElementById("lanes"), space = "http://www.w3.org/2000/svg";
const lanes = [...new Set(events.map(e => e.type + " on " + e.selected_device))];
const start = events.length ? Math.min(...events.map(e => e.timestamp_ns)) : 0;
const span = Math.max(report.span_ns, 1), height = 26, left = 150, width = 1000;
svg.setAttribute("viewBox", `0 0 ${left + width + 40} ${lanes.length * height + 24}`);
const colors = ["#4477aa", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#66ccee", "#777777"];
const ops = [...new Set(events.map(e => e.op))];
function add(kind, attributes, content) {
  const node = document.createElementNS(space, kind);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (content !== undefined) node.textContent = content;
  svg.appendChild(node);
  return node;
}
lanes.forEach((lane, i) => add("text", {x: 4, y: i * height + 18}, lane));
for (const e of events) {
  const lane = lanes.indexOf(e.type + " on " + e.selected_device);
  const bar = add("rect", {
    class: "bar", x: left + (e.timestamp_ns - start) / span * width, y: lane * height + 4,
    width: Math.max(e.duration_ns / span * width, 0.7), height: height - 8,
    fill: colors[ops.indexOf(e.op) % colors.length], stroke: e.fallback ? "#cc0000" : "none",
  });
  bar.addEventListener("mouseover", () => {
    document.getElementById("tip").textContent =
      `#${e.seq} ${e.op_path} [${e.shape.join("x")}] ${us(e.duration_ns)} us, ${e.bytes} bytes`;
  });
}
for (let i = 0; i <= 5; i++)
  add("text", {x: left + i * width / 5, y: lanes.length * height + 18, "text-anchor": "middle"},
    us(span * i / 5) + " us");
function fill(id, head, rows) {
  const table = document.getElementById(id);
  for (const [kind, row] of [["th", head], ...rows.map(r => ["td", r])]) {
    const tr = table.insertRow();
    for (const cell of row) tr.appendChild(document.createElement(kind)).textContent = cell;
  }
}
fill("groups", [report.group_by, "events", "total us", "mean us", "longest us", "until next us", "fallbacks", "bytes"],
  report.groups.map(g => [g.key, g.count, us(g.total_duration_ns), us(g.mean_duration_ns), us(g.max_duration_ns),
    us(g.total_delta_next_ns), g.fallbacks, g.bytes]));
fill("hotspots", ["event", "op", "us", "shape"],
  report.hotspots.map(e => ["#" + e.seq, e.op_path, us(e.duration_ns), e.shape.join("x")]));
</script></body></html>
"""


def _chrome_event(event: Event, pid: int) -> dict[str, Any]:
    return {
        "name": event["op"],
        "cat": event["type"],
        "ph": "X",
        "ts": event["timestamp_ns"] / 1e3,
        "dur": event["duration_ns"] / 1e3,
        "pid": pid,
        "tid": event["thread"],
        "args": {
            "requested_device": event["requested_device"],
            "selected_device": event["selected_device"],
            "fallback": event["fallback"],
            "shape": list(event["shape"]),
            "bytes": event["bytes"],
        },
    }


def runtime_trace_export_chrome(path: str | os.PathLike[str]) -> int:
    """Writes the events that are kept as Chrome's trace, which `chrome://tracing` and Perfetto read.

    Args:
        path (str or os.PathLike): the file to write.

    Returns:
        int: how many events were written.

    Raises:
        OSError: the file cannot be written.

    Example:
        >>> import tempfile
        >>> import lucid.lightning as lc
        >>> lc.runtime_trace_clear()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     lc.runtime_trace_export_chrome(f"{folder}/trace.json")
        0
    """
    events = runtime_trace_events()
    pid = os.getpid()
    data = {"traceEvents": [_chrome_event(e, pid) for e in events], "displayTimeUnit": "ns"}
    Path(path).write_text(json.dumps(data), encoding="utf-8")
    return len(events)


def runtime_trace_export_html(path: str | os.PathLike[str], title: str = "Runtime trace", **options: Any) -> int:
    """Writes the timeline as one page that needs no other file: lanes of events, groups, longest events.

    Args:
        path (str | os.PathLike[str]): The file.
        title (str, default: "Runtime trace"): The page's title.
        **options (object): As for `runtime_trace_timeline`.

    Returns:
        How many events were written.

    Raises:
        OSError: the file cannot be written.

    Example:
        >>> import tempfile
        >>> import lucid.lightning as lc
        >>> lc.runtime_trace_clear()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     lc.runtime_trace_export_html(f"{folder}/trace.html", title="One run")
        0
    """
    report = runtime_trace_timeline(**options)
    summary = f"{report['event_count']} events over {report['span_ns'] / 1e6:.3f} ms; {report['dropped']} older dropped"
    # Text inside a script element ends at "</"; JSON allows "<" to be written as an escape.
    data = json.dumps(report).replace("<", "\\u003c")
    page = _PAGE.replace("@TITLE@", html.escape(title)).replace("@SUMMARY@", html.escape(summary))
    Path(path).write_text(page.replace("@DATA@", data), encoding="utf-8")
    return int(report["event_count"])
