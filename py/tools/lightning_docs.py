#!/usr/bin/env python3
"""The contracts of lucid.lightning as documents: docs/lightning/contracts.{json,md}, made from the package.

    python py/tools/lightning_docs.py [--check]

What depends on the machine is left out, so that the files are the same wherever they are made; the environments
that were tested are data, in docs/lightning/environments.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import lucid.lightning as lc
from lucid.lightning import coreml, interop
from lucid.lightning._env import VARIABLES

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "lightning"
TRACE = {
    "runtime_trace_enable": "start or stop noting events",
    "runtime_trace_enabled": "are events noted",
    "runtime_trace_events": "the newest events",
    "runtime_trace_timeline": "events sorted and grouped, with the longest",
    "runtime_trace_clear": "forget the events",
    "runtime_trace_capacity": "how many events are kept",
    "runtime_trace_set_capacity": "keep another number of events",
    "runtime_trace_export_chrome": "a file for chrome://tracing and Perfetto",
    "runtime_trace_export_html": "a page that holds its data",
    "runtime_backend_capabilities": "what a backend can do",
    "runtime_active_backend_capabilities": "what the active backend can do",
    "runtime_backend_interfaces": "which methods a backend's interfaces have",
    "runtime_active_backend_interfaces": "which methods the active backend's interfaces have",
}


def contracts() -> dict[str, Any]:
    """The contracts; without what this machine has."""
    backends = {}
    for name in ("metal", "cpu", "cuda"):
        capabilities = lc.runtime_backend_capabilities(name)
        here = ("built", "available")
        backends[name] = {
            "capabilities": {k: v for k, v in capabilities.items() if k not in here},
            "interfaces": lc.runtime_backend_interfaces(name),
        }
    return {
        "names_of": f"lightning_core {lc.__version__}",
        "backends": backends,
        "functions": {name: about for name, about in TRACE.items() if callable(getattr(lc, name))},
        "environment": [{"name": v.name, "kind": v.kind, "default": v.default, "about": v.about} for v in VARIABLES],
        "operators": lc.graph_registry_schemas(),
        "validation_passes": lc.graph_validation_passes(),
        "fusion_rules": lc.graph_fusion_rules(),
        "core_ml_operators": coreml.supported_operators(),
        "interop": interop.capability_table(installed=False),
        "tested_environments": json.loads((FOLDER / "environments.json").read_text()),
    }


def table(head: list[str], rows: list[list[Any]]) -> str:
    """A table in Markdown."""
    said = {True: "yes", False: "no"}
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join(
        lines + [f"| {' | '.join(str(said.get(c, c)) if isinstance(c, bool) else str(c) for c in r)} |" for r in rows]
    )


def markdown(data: dict[str, Any]) -> str:
    """The contracts as Markdown."""
    fields = [k for k in data["backends"]["cpu"]["capabilities"] if k not in ("backend", "query")]
    capabilities = [[n, *(b["capabilities"][f] for f in fields)] for n, b in data["backends"].items()]
    interfaces = []
    for interface in ("compute", "memory", "sync", "profiler"):
        for method in data["backends"]["cpu"]["interfaces"][interface]:
            has = [b["interfaces"][interface][method] for b in data["backends"].values()]
            interfaces.append([interface, method, *has])
    operators = [
        [f"`{o['name']}`", ", ".join(o["inputs"]), ", ".join(o["outputs"]), ", ".join(o["attributes"]) or "–",
         "yes" if o["name"] in data["core_ml_operators"] else "no", o["about"]]
        for o in data["operators"]
    ]  # fmt: skip
    environments = [
        [e["date"], e["scope"], e["machine"], e["python"], e["torch"], e["notes"]] for e in data["tested_environments"]
    ]
    parts = [
        "# Contracts of lucid.lightning",
        "Made by `python py/tools/lightning_docs.py`; a test compares. Which backends a machine has, "
        "`runtime_backend_capabilities` says there.",
        "## Backends",
        table(["backend", *fields], capabilities),
        "## Interfaces",
        table(["interface", "method", *data["backends"]], interfaces),
        "## Trace and queries",
        table(["function", "what"], [[f"`{n}`", a] for n, a in data["functions"].items()]),
        "## Environment variables",
        table(["variable", "kind", "default", "what"],
              [[f"`{v['name']}`", v["kind"], v["default"] or "–", v["about"]] for v in data["environment"]]),
        "## Operators of GraphIR",
        table(["operator", "inputs", "outputs", "attributes", "Core ML", "what"], operators),
        f"Checks, in order: {', '.join(data['validation_passes'])}. Fusion rules: {', '.join(data['fusion_rules'])}.",
        "## Interop",
        table(["package", "to", "from", "by", "dtypes"], [list(r.values()) for r in data["interop"]]),
        "## Tested environments",
        table(["date", "scope", "machine", "Python", "PyTorch", "notes"], environments),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; an error where a file is not as it would be made"
    )
    given = parser.parse_args()
    data = contracts()
    made = {"contracts.json": json.dumps(data, indent=1, ensure_ascii=False) + "\n", "contracts.md": markdown(data)}
    stale = [name for name, text in made.items() if not (FOLDER / name).exists() or (FOLDER / name).read_text() != text]
    if given.check:
        for name in stale:
            print(f"docs/lightning/{name} is stale: run python py/tools/lightning_docs.py", file=sys.stderr)
        return int(bool(stale))
    for name, text in made.items():
        (FOLDER / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
