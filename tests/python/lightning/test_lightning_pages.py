"""The scripts and snippets of Lightning Core's two pages run as they are.

`pages/` has their text with indentation, which the pages lost. `sha256.json` has the hash of each one's lines without
it, so that a change of a word shows. The sweeps run with their sizes divided, and one timing of each piece of work: the
constants of the compiled functions are replaced, not their text. `ai_model_all_bench.py`, the sixth script, is not
here.
"""

from __future__ import annotations

import hashlib
import json
import sys
import types
from pathlib import Path
from typing import Any

import lucid.lightning as lc
import pytest

from tests.python.tolerances import TABLE, within

PAGES = Path(__file__).resolve().parent / "pages"
HASHES: dict[str, str] = json.loads((PAGES / "sha256.json").read_text())
SNIPPETS = [name for name in HASHES if name.startswith(("early_", "late_"))]


@pytest.mark.parametrize("name", HASHES)
def test_the_text_is_the_pages(name: str) -> None:
    lines = [line.strip() for line in (PAGES / name).read_text().split("\n") if line.strip()]
    assert hashlib.sha256("\n".join(lines).encode()).hexdigest() == HASHES[name]


@pytest.mark.parametrize("name", SNIPPETS)
def test_snippets(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    lc.install()
    scope: dict[str, Any] = {"__name__": "__main__"}
    code = compile((PAGES / name).read_text(), name, "exec")
    exec(smaller(code) if "micro" in name or "resident" in name else code, scope)
    said = capsys.readouterr().out
    np = __import__("numpy")
    if "quickstart" in name:
        assert f"backend: {lc.backend_name()}" in said and "(128, 64)" in said
        np.testing.assert_allclose(scope["y"], scope["a"] @ scope["b"], rtol=TABLE["program"].rtol)
    elif "matmul" in name:
        np.testing.assert_allclose(scope["out2"], scope["a"] @ scope["b"], rtol=TABLE["program"].rtol)
        np.testing.assert_array_equal(scope["out"], scope["out2"])
    elif "attention" in name:
        np.testing.assert_array_equal(scope["out"], scope["out_into"])
    elif "conv" in name:
        assert scope["y"].shape == (1, 16, 16, 16)
    elif "resident" in name:
        np.testing.assert_allclose(scope["out"], scope["a"] @ scope["b"], rtol=TABLE["program"].rtol)
    elif "pipeline" in name:
        assert "(1, 16, 8, 8) (96, 48)" in said and (scope["y"] >= 0).all()
        if name.startswith("late"):
            assert "integrated engine: auto" in said and scope["report"]["allclose"]
            np.testing.assert_allclose(scope["z"], scope["z_graph"], **within("near zero"))
    elif "timeline" in name:
        (products,) = [g for g in scope["report"]["groups"] if g["key"].startswith("matmul2d|")]
        assert products["count"] == 40 and len(scope["report"]["hotspots"]) == 8
    else:
        assert "median-like avg ms:" in said


def smaller(constant: Any) -> Any:
    """A compiled constant with sizes divided."""
    if isinstance(constant, tuple):
        return tuple(map(smaller, constant))
    if isinstance(constant, types.CodeType):
        return constant.replace(co_consts=smaller(constant.co_consts))
    return constant // 16 if type(constant) is int and constant >= 256 else constant


def module(name: str, folder: Path) -> dict[str, Any]:
    """A script's names, its functions with smaller sizes."""
    lc.install()
    code = compile((PAGES / f"{name}.txt").read_text(), name, "exec")
    path = folder / "a" / "b" / name
    path.parent.mkdir(parents=True)
    scope: dict[str, Any] = {"__name__": "page", "__file__": str(path)}
    exec(smaller(code), scope)
    scope["_time_ms"] = lambda fn, warmup=0, iters=1: (fn(), 1.0)[1]
    scope["_TIMING_RUNS"] = 1
    return scope


@pytest.mark.parametrize(
    ("name", "rows"), [("large_gemm_auto_sweep.py", 15), ("dl_all_bench.py", 15), ("ml_all_bench.py", 10)]
)
def test_benchmarks(name: str, rows: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scope = module(name, tmp_path)
    scope["main"]()
    said = capsys.readouterr().out
    (written,) = [p for p in tmp_path.rglob("*.json") if "tune" not in str(p)]
    data = json.loads(written.read_text())
    found = data.get("all_rows", data.get("rows"))
    assert len(found) == rows and data["backend"] == lc.backend_name() and "saved:" in said
    for row in found:
        times = [v for k, v in row.items() if k.endswith("_ms") and "mps" not in k]
        assert all(t == t and t > 0 for t in times), row


def test_quick_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results" / "quick.csv"
    monkeypatch.setattr(sys, "argv", ["quick_bench.py", "--warmup", "0", "--iters", "1", "--out", str(out)])
    module("quick_bench.py", tmp_path)["main"]()
    assert f"backend={lc.backend_name()}" in capsys.readouterr().out
    rows = out.read_text().splitlines()
    assert len(rows) == 10 and rows[0].startswith("suite,bench,shape,lightning_core_ms")


def test_cross_suite_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scope = module("generate_cross_suite_summary.py", tmp_path)
    row = {"bench": "b", "shape": "s", "lightning_core_ms": 1.0, "torch_mps_ms": 3.0, "exia_standalone_ms": 2.0}
    best = {"shape": "s", "lc_best_ms": 1.0, "torch_mps_ms": 5.0, "exia_standalone_ms": 2.0}
    folder = scope["BENCH_DIR"]
    folder.mkdir(parents=True)
    (folder / "ml_all_bench.json").write_text(json.dumps({"rows": [row]}))
    (folder / "ai_model_all_bench.json").write_text(json.dumps({"rows": [row]}))
    (folder / "large_gemm_auto_sweep.json").write_text(json.dumps({"best_rows_per_shape": [best]}))
    scope["main"]()
    (written,) = tmp_path.rglob("cross_suite_summary.json")
    overall = json.loads(written.read_text())["overall"]
    assert overall["count"] == 3 and overall["torch_mps_vs_lc"]["speedup_ratio"]["max"] == 5.0
    assert "saved:" in capsys.readouterr().out
