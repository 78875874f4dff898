#!/usr/bin/env python3
"""A summary over suites, from the JSON files that bench.py wrote.

python bench/lightning/summary.py results/*.json --out results/summary
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any


def stats(values: list[float]) -> dict[str, Any]:
    """Count, share of at least 1, median, mean and extremes."""
    if not values:
        return {"rows": 0}
    return {
        "rows": len(values),
        "wins_pct": 100 * sum(v >= 1 for v in values) / len(values),
        "median": statistics.median(values),
        "mean": statistics.mean(values),
        "min": min(values),
        "max": max(values),
    }


def summarize(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Ratios to PyTorch over all rows, by suite and by family."""
    rows = [r for result in results for r in result["rows"] if r["ratio"] is not None]
    groups: dict[str, dict[str, list[float]]] = {"suite": {}, "family": {}}
    for row in rows:
        for kind, group in groups.items():
            group.setdefault(row[kind], []).append(row["ratio"])
    return {
        "all": stats([r["ratio"] for r in rows]),
        "control": stats([r["control"] for r in rows]),
        **{f"by_{kind}": {k: stats(v) for k, v in group.items()} for kind, group in groups.items()},
        "losses": [{k: r[k] for k in ("suite", "family", "shape", "mode", "ratio")} for r in rows if r["ratio"] < 1],
    }


def markdown(summary: dict[str, Any]) -> str:
    """The summary as Markdown."""
    lines = ["| group | rows | at least 1 | median | mean | min | max |", "|---|---:|---:|---:|---:|---:|---:|"]
    named = [("all", summary["all"]), ("control", summary["control"])]
    named += [(f"{kind[3:]} {k}", v) for kind in ("by_suite", "by_family") for k, v in summary[kind].items()]
    for name, s in named:
        if s["rows"]:
            numbers = " | ".join(f"{s[k]:.2f}" for k in ("median", "mean", "min", "max"))
            lines.append(f"| {name} | {s['rows']} | {s['wins_pct']:.0f} % | {numbers} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, help="where to write, without the ending: .json and .md")
    given = parser.parse_args()
    summary = summarize([json.loads(path.read_text()) for path in given.files])
    print(markdown(summary), end="")
    if given.out:
        given.out.with_suffix(".json").write_text(json.dumps(summary, indent=1) + "\n")
        given.out.with_suffix(".md").write_text(markdown(summary))
    return 0


if __name__ == "__main__":
    sys.exit(main())
