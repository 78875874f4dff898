"""What is generated is what the package says; examples in docstrings run; benchmarks run and say what they promise."""

from __future__ import annotations

import doctest
import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import lucid
import lucid._tuning
import lucid.lightning as lc
import pytest

ROOT = Path(lucid.__file__).resolve().parents[2]
MODULES = sorted(
    m.name for m in pkgutil.walk_packages(lc.__path__, "lucid.lightning.") if not m.name.endswith("__main__")
)


def test_contracts_are_as_generated(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "py/tools/lightning_docs.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["lucid.lightning", "lucid._tuning", *MODULES])
def test_examples_run(name: str) -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    found = doctest.testmod(importlib.import_module(name), extraglobs={"lucid": lucid}, optionflags=flags)
    assert found.failed == 0


def test_the_benchmark(tmp_path: Path) -> None:
    bench = ROOT / "bench/lightning"
    listed = subprocess.run(
        [sys.executable, str(bench / "bench.py"), "--suite", "all", "--list"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert len(listed) == 10 + 8 + 10 + 15 + 6 and len(set(listed)) == len(listed)
    command = [sys.executable, str(bench / "bench.py"), "--suite", "kernel", "--only", "attention", "--seconds", "0.1"]
    done = subprocess.run(
        [*command, "--repeats", "2", "--out", str(tmp_path), "--json"], capture_output=True, text=True, check=True
    )
    result = json.loads(done.stdout.splitlines()[-1])
    assert [r["shape"] for r in result["rows"]] == ["seq=8,dim=16", "seq=8,dim=32", "seq=12,dim=12"]
    for row in result["rows"]:
        ours = min(row["direct_ms"], row["integrated_ms"])
        assert row["ratio"] == pytest.approx(row["torch_ms"] / ours) and row["control"] > 0 and row["cv_pct"] >= 0
    assert result["stability"]["stable"] == (result["stability"]["cv_pct"] <= 2)
    assert {p.suffix for p in tmp_path.iterdir()} == {".csv", ".json", ".md"}
    strict = subprocess.run([*command, "--repeats", "2", "--gate", "0", "--strict"], capture_output=True, check=False)
    assert strict.returncode == 1
    summary = [sys.executable, str(bench / "summary.py"), str(tmp_path / "kernel.json"), "--out", str(tmp_path / "s")]
    assert "family attention | 3" in subprocess.run(summary, capture_output=True, text=True, check=True).stdout
    assert json.loads((tmp_path / "s.json").read_text())["all"]["rows"] == 3
