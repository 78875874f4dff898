"""Backends, synchronisation, crossover, environment variables, tuning and the trace."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import lucid
import lucid.lightning as lc
import numpy as np
import pytest
from lucid import errors
from lucid._tuning import FORMAT, Tuner, time_candidates
from lucid.lightning import _matmul

from tests.python.tolerances import TABLE

SMALL = np.ones((4, 4), np.float32)
LARGE = np.random.default_rng(0).random((512, 512), np.float32)


# ---- backends --------------------------------------------------------------------------------------------------------


def test_backends() -> None:
    gpu = lucid.device("gpu").type
    assert lc.backend_name() == (gpu if gpu in ("metal", "cuda") else "cpu")
    assert (lc.metal_available(), lc.cuda_available()) == (gpu == "metal", gpu == "cuda")
    assert lc.memory_model_name("cuda") == "native-device" and lc.memory_model_name() == "host-managed-compat"
    for name in ("metal", "cpu", "cuda"):
        found = lc.runtime_backend_capabilities(name)
        assert found["backend"] == name and found["query"] == "ok"
        assert found["available"] == (name == "cpu" or gpu == name)
        assert set(lc.runtime_backend_interfaces(name)) == {
            "backend",
            "version",
            "compute",
            "memory",
            "sync",
            "profiler",
        }
    assert lc.runtime_active_backend_capabilities() == lc.runtime_backend_capabilities(lc.backend_name())
    assert lc.runtime_active_backend_interfaces() == lc.runtime_backend_interfaces(lc.backend_name())
    for call in (lc.runtime_backend_capabilities, lc.runtime_backend_interfaces, lc.memory_model_name):
        with pytest.raises(errors.ValueError, match="tpu"):
            call("tpu")


def test_synchronisation() -> None:
    assert lc.runtime_sync_policy_get() == "auto"
    assert lc.runtime_sync_apply("always", "cpu") is False, "nothing is ever pending there"
    assert lc.runtime_sync_apply("always", "gpu") is True
    assert lc.runtime_sync_apply("never", "gpu") is False
    lc.runtime_sync_policy_set("never")
    assert lc.runtime_sync_apply_default("gpu") is False
    lc.runtime_sync_policy_set("always")
    assert lc.runtime_sync_apply_default("gpu") is True
    lc.runtime_trace_enable()
    lc.matmul2d(lucid.ones(4, 4), lucid.ones(4, 4), "gpu")
    assert "sync" in {e["type"] for e in lc.runtime_trace_events()}
    for call in (lc.runtime_sync_policy_set, lc.runtime_sync_apply):
        with pytest.raises(errors.ValueError, match="sometimes"):
            call("sometimes")


# ---- crossover -------------------------------------------------------------------------------------------------------


def chosen(call: Any) -> tuple[str, bool]:
    """Where an op was computed, and whether elsewhere than where it was asked for."""
    lc.runtime_trace_enable()
    lc.runtime_trace_clear()
    call()
    (event,) = [e for e in lc.runtime_trace_events() if e["type"] == "op_dispatch"]
    return event["selected_device"], event["fallback"]


def convolve() -> Any:
    return lc.conv2d_nchw(np.ones((1, 3, 16, 16), np.float32), np.ones((16, 3, 3, 3), np.float32), device="gpu")


def test_crossover(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = lucid.device("gpu").type
    assert chosen(lambda: lc.matmul2d(SMALL, SMALL, "gpu")) == ("cpu", True)
    assert chosen(lambda: lc.matmul2d(LARGE, LARGE, "gpu")) == (gpu, False)
    assert chosen(lambda: lc.matmul2d(SMALL, SMALL, "cpu")) == ("cpu", False)
    tensor = lucid.from_numpy(SMALL)
    assert chosen(lambda: lc.matmul2d(tensor, tensor, "gpu")) == (gpu, False), "tensors stay where they were asked for"
    lc.crossover_policy_set(lc.CrossoverPolicy(mode="off"))
    assert chosen(lambda: lc.matmul2d(SMALL, SMALL, "gpu")) == (gpu, False)
    lc.crossover_policy_set(lc.CrossoverPolicy(matmul=1 << 40))
    assert chosen(lambda: lc.matmul2d(LARGE, LARGE, "gpu")) == ("cpu", True)

    # 84672 multiply-accumulates, below the default of 260000.
    assert chosen(convolve) == ("cpu", True)
    lc.crossover_policy_set(lc.CrossoverPolicy())
    monkeypatch.setenv("CJ_CONV2D_CPU_CROSSOVER_DYNAMIC", "yes")
    with pytest.raises(errors.ValueError, match="DYNAMIC"):
        convolve()
    monkeypatch.delenv("CJ_CONV2D_CPU_CROSSOVER_DYNAMIC")
    monkeypatch.setenv("CJ_CONV2D_CPU_CROSSOVER_MACS", "1000")
    assert chosen(convolve) == (gpu, False)
    monkeypatch.setenv("CJ_CONV2D_CPU_CROSSOVER_MACS", "100000")
    assert chosen(convolve) == (gpu, False), "read once"
    monkeypatch.setenv("CJ_CONV2D_CPU_CROSSOVER_DYNAMIC", "1")
    assert chosen(convolve) == ("cpu", True), "read again"
    monkeypatch.setenv("CJ_CONV2D_CPU_CROSSOVER_MACS", "many")
    with pytest.raises(errors.ValueError, match="CJ_CONV2D_CPU_CROSSOVER_MACS"):
        convolve()
    for bad in ({"mode": "maybe"}, {"conv2d": float("nan")}, {"sort": 1.0}):
        with pytest.raises(errors.ValueError):
            lc.CrossoverPolicy(**bad)
    with pytest.raises(errors.TypeError):
        lc.crossover_policy_set("off")


def test_measured_crossover_remembers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lucid.lightning import _policy

    monkeypatch.setattr(_policy._Crossover, "tuner", Tuner(tmp_path / "crossover.json"))
    lc.crossover_policy_set(lc.CrossoverPolicy(mode="measured"))
    first = lc.matmul2d(SMALL, SMALL, "gpu")
    entries = json.loads((tmp_path / "crossover.json").read_text())["entries"]
    (key,) = entries
    assert key.startswith("matmul2d() 4x4; 4x4 on ") and set(entries[key]["times_us"]) == {"cpu", "device"}
    np.testing.assert_array_equal(lc.matmul2d(SMALL, SMALL, "gpu"), first)


# ---- environment and tuning of products ------------------------------------------------------------------------------


def test_the_eight_variables() -> None:
    assert set(lc.environment()) == {
        "CJ_CONV2D_CPU_CROSSOVER_MACS",
        "CJ_CONV2D_CPU_CROSSOVER_DYNAMIC",
        "CJ_MATMUL_TUNE_CACHE_FILE",
        "CJ_MATMUL_DISABLE_PROMOTED_BUCKETS",
        "CJ_MATMUL_PREFER_MPS_ON_LARGE",
        "CJ_MATMUL_TRY_KERNEL_ON_LARGE",
        "CJ_MATMUL_MPS_HYST_PCT",
        "LC_BENCH_TIMING_RUNS",
    }


def test_tuned_products_are_remembered_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "tune.csv"
    monkeypatch.setenv("CJ_MATMUL_TUNE_CACHE_FILE", str(file))
    out = np.empty((512, 512), np.float32)
    want = LARGE @ LARGE
    lc.matmul2d_into(LARGE, LARGE, out, "cpu")
    np.testing.assert_allclose(out, want, rtol=TABLE["program"].rtol)
    (key,) = lc.matmul_tuning()
    assert "bucket 512x512x512 on cpu" in key
    data = json.loads(file.read_text())
    assert data["format"] == FORMAT and set(data["entries"][key]["times_us"]) == set(_matmul.MODES)

    # What is remembered is what is used, for all of the bucket.
    for mode in _matmul.MODES:
        data["entries"][key]["choice"] = mode
        file.write_text(json.dumps(data))
        lc.matmul_reset_tuning()
        used: list[str] = []
        monkeypatch.setattr(
            _matmul,
            "MODES",
            {m: (lambda *t, m=m, used=used: used.append(m) or _matmul._library(*t)) for m in _matmul.MODES},
        )
        got = lc.matmul2d(LARGE, np.ascontiguousarray(LARGE[:, :512]), "cpu")
        np.testing.assert_allclose(got, want, rtol=TABLE["program"].rtol)
        assert used == ([] if mode == "library" else [mode])

    monkeypatch.setenv("CJ_MATMUL_DISABLE_PROMOTED_BUCKETS", "1")
    lc.matmul2d(LARGE, LARGE, "cpu")
    assert any("shape 512x512x512" in key for key in lc.matmul_tuning())
    monkeypatch.setenv("CJ_MATMUL_PREFER_MPS_ON_LARGE", "1")
    monkeypatch.setenv("CJ_MATMUL_MPS_HYST_PCT", "100000")
    lc.matmul2d(LARGE, LARGE, "cpu")
    (preferred,) = [e for k, e in lc.matmul_tuning().items() if "preferred" in k]
    assert preferred["choice"] == "library"
    lc.matmul_reset_tuning(file=True)
    assert not file.exists()
    monkeypatch.setenv("CJ_MATMUL_TRY_KERNEL_ON_LARGE", "0")
    lc.matmul2d(LARGE, LARGE, "cpu")
    assert not file.exists(), "nothing was timed"
    for name, value in (
        ("CJ_MATMUL_TRY_KERNEL_ON_LARGE", "yes"),
        ("CJ_MATMUL_DISABLE_PROMOTED_BUCKETS", "2"),
        ("CJ_MATMUL_MPS_HYST_PCT", "nan"),
    ):
        monkeypatch.setenv("CJ_MATMUL_TRY_KERNEL_ON_LARGE", "1")
        monkeypatch.setenv(name, value)
        with pytest.raises(errors.ValueError, match=name):
            lc.matmul2d(LARGE, LARGE, "cpu")
        monkeypatch.delenv(name)


@pytest.mark.parametrize("mode", _matmul.MODES)
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_each_way_gives_the_product(mode: str, device: str) -> None:
    a, b = (lucid.randn(700, 33, device=device), lucid.randn(33, 21, device=device))
    want = (a @ b).cpu()
    got = _matmul.MODES[mode](a, b)
    lucid.testing.assert_close(got.cpu(), want)
    if device == "cpu":
        out = lucid.empty(700, 21)
        assert _matmul.MODES[mode](a, b, out) is out
        lucid.testing.assert_close(out, want)


# ---- the tuner -------------------------------------------------------------------------------------------------------


def test_a_tuner_chooses_prefers_and_remembers(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "cache.json"
    tuner = Tuner(file)
    import time

    works = {"slow": lambda: time.sleep(0.003), "fast": lambda: None}
    assert tuner.choose("k", works) == "fast"
    assert tuner.choose("k", {"slow": works["slow"], "fast": lambda: pytest.fail("timed again")}) == "fast"
    assert Tuner(file).lookup("k") == tuner.lookup("k")
    assert tuner.choose("k", {"other": lambda: None}) == "other", "what is remembered is no candidate"
    assert tuner.choose("p", works, prefer="slow", margin_pct=1e9) == "slow"

    def broken() -> None:
        raise errors.RuntimeError("no")

    assert tuner.choose("b", {"broken": broken, "slow": works["slow"]}) == "slow"
    assert time_candidates({"broken": broken}) == {}
    for call in (
        lambda: tuner.choose("x", {}),
        lambda: tuner.choose("x", works, prefer="none"),
        lambda: tuner.choose("x", works, margin_pct=float("nan")),
        lambda: tuner.choose("x", {"broken": broken}),
        lambda: tuner.remember("x", "a", {"b": 1.0}),
    ):
        with pytest.raises(errors.LucidError):
            call()
    tuner.reset(file=True)
    assert not file.exists() and tuner.entries() == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        "{}",
        '{"format": "lucid-tuning", "version": 99, "machine": {}, "entries": {}}',
        '{"format": "lucid-tuning", "version": 1, "machine": {"cpu": "another"}, "entries": {"k": 1}}',
        "\x00" * 100,
        "[" * 100000,
    ],
)
def test_a_cache_file_that_is_broken_or_of_elsewhere_is_replaced(
    text: str, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    file = tmp_path / "cache.json"
    file.write_text(text)
    tuner = Tuner(file)
    assert tuner.lookup("k") is None
    tuner.remember("k", "a", {"a": 1.0})
    assert Tuner(file).entries().keys() == {"k"}


@pytest.mark.parametrize(
    "entry",
    [1, None, {}, {"choice": "a"}, {"choice": "a", "times_us": {"b": 1}}, {"choice": "a", "times_us": {"a": "x"}}],
)
def test_entries_that_are_broken_are_left_out(entry: Any, tmp_path: Path) -> None:
    file = tmp_path / "cache.json"
    tuner = Tuner(file)
    tuner.remember("good", "a", {"a": 1.0})
    data = json.loads(file.read_text())
    data["entries"]["bad"] = entry
    file.write_text(json.dumps(data))
    assert set(Tuner(file).entries()) == {"good"}


def test_processes_share_a_cache_file(tmp_path: Path) -> None:
    file = tmp_path / "cache.json"
    code = f"""
import sys
from lucid._tuning import Tuner
tuner = Tuner({str(file)!r})
for i in range(15):
    tuner.remember(f"{{sys.argv[1]}} {{i}}", "a", {{"a": float(i)}})
    assert Tuner({str(file)!r}).lookup(f"{{sys.argv[1]}} {{i}}"), "never half a file"
"""
    running = [subprocess.Popen([sys.executable, "-c", code, name]) for name in "xyz"]
    assert [p.wait(timeout=120) for p in running] == [0, 0, 0]
    assert len(Tuner(file).entries()) == 45
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_a_folder_that_cannot_be_written_costs_the_file_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    tuner = Tuner(tmp_path / "file" / "cache.json")
    with pytest.warns(UserWarning, match="not written"):
        assert tuner.choose("k", {"a": lambda: None}) == "a"
    assert tuner.lookup("k") is not None


# ---- the trace -------------------------------------------------------------------------------------------------------


def test_the_ring_keeps_the_newest() -> None:
    lc.runtime_trace_enable(True, capacity=5)
    for _ in range(8):
        lc.vector_add([1.0], [2.0], "cpu")
    events = lc.runtime_trace_events()
    assert [e["seq"] for e in events] == [3, 4, 5, 6, 7] and lc.runtime_trace_capacity() == 5
    assert lc.runtime_trace_events(2) == events[-2:] and lc.runtime_trace_events(0) == []
    assert lc.runtime_trace_timeline()["dropped"] == 3
    lc.runtime_trace_enable(False)
    lc.vector_add([1.0], [2.0], "cpu")
    assert len(lc.runtime_trace_events()) == 5 and not lc.runtime_trace_enabled()
    lc.runtime_trace_clear()
    assert lc.runtime_trace_events() == [] and lc.runtime_trace_timeline()["groups"] == []
    for call in (
        lambda: lc.runtime_trace_enable(True, capacity=0),
        lambda: lc.runtime_trace_enable(True, capacity=1 << 40),
        lambda: lc.runtime_trace_enable("yes"),
        lambda: lc.runtime_trace_events(-1),
        lambda: lc.runtime_trace_timeline(group_by="color"),
        lambda: lc.runtime_trace_timeline(group_sort_by="color"),
        lambda: lc.runtime_trace_timeline(sort_by="color"),
        lambda: lc.runtime_trace_timeline(hotspot_top_k=-1),
    ):
        with pytest.raises(errors.LucidError):
            call()


def fill() -> None:
    lc.runtime_trace_enable()
    for _ in range(3):
        lc.matmul2d(SMALL, SMALL, "gpu")
    lc.matmul2d(LARGE, LARGE, "gpu")
    lc.vector_add([1.0], [2.0], "cpu")
    session = lc.MatMulMetalResidentSession(512, 512, 512, "gpu")
    session.run_batch_sync(LARGE, LARGE, 2)
    lc.runtime_trace_enable(False)


def test_the_timeline_groups_and_sorts() -> None:
    gpu = lucid.device("gpu").type
    fill()
    report = lc.runtime_trace_timeline(group_by="op_path", group_sort_by="total_delta_next_ns", hotspot_top_k=2)
    groups = {g["key"]: g for g in report["groups"]}
    assert groups["matmul2d|cpu|fallback"]["count"] == 3 == groups["matmul2d|cpu|fallback"]["fallbacks"]
    assert groups[f"matmul2d|{gpu}|direct"]["count"] == 1
    assert "vector_add|cpu|direct" in groups and f"to|{gpu}|direct" in groups
    totals = [g["total_delta_next_ns"] for g in report["groups"]]
    assert totals == sorted(totals, reverse=True)
    assert sum(g["count"] for g in report["groups"]) == report["event_count"] == len(report["events"])
    assert len(report["hotspots"]) == 2
    longest = max(e["duration_ns"] for e in report["events"])
    assert report["hotspots"][0]["duration_ns"] == longest
    starts = [e["timestamp_ns"] for e in report["events"]]
    assert starts == sorted(starts)
    for first, second in zip(report["events"], report["events"][1:], strict=False):
        assert first["delta_next_ns"] == second["timestamp_ns"] - first["timestamp_ns"]
    for by in ("op", "type", "device", "thread"):
        again = lc.runtime_trace_timeline(group_by=by, group_sort_by="key", group_descending=False)
        keys = [g["key"] for g in again["groups"]]
        assert keys == sorted(keys) and sum(g["count"] for g in again["groups"]) == report["event_count"]
    assert {"op_dispatch", "session", "upload", "sync"} <= {e["type"] for e in report["events"]}


def test_exports(tmp_path: Path) -> None:
    fill()
    count = len(lc.runtime_trace_events())
    assert lc.runtime_trace_export_chrome(tmp_path / "trace.json") == count
    trace = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert len(trace) == count and all(e["ph"] == "X" and e["dur"] >= 0 for e in trace)
    assert lc.runtime_trace_export_html(tmp_path / "trace.html", "A </script><b> title", group_by="op") == count
    page = (tmp_path / "trace.html").read_text()
    assert "<b> title" not in page and "http" not in page.replace("http://www.w3.org/2000/svg", ""), (
        "nothing is fetched"
    )
    data = page.split('type="application/json">')[1].split("</script>")[0]
    assert json.loads(data)["event_count"] == count


def test_a_trace_that_is_off_notes_and_times_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from lucid.lightning import _dispatch, _session

    def clock() -> int:
        raise AssertionError("read while the trace is off")

    for module in (_dispatch, _session):
        monkeypatch.setattr(module.time, "perf_counter_ns", clock)
    lc.vector_add([1.0], [2.0], "cpu")
    lc.matmul2d(SMALL, SMALL, "gpu")
    lc.MatMulMetalResidentSession(4, 4, 4, "cpu").run_batch_sync(SMALL, SMALL, 2)
