"""The profiler: events, named ranges, summaries and traces."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import lucid
import pytest
from lucid import profiler
from lucid.profiler import OpEvent, Profiler, ProfileSummary, record_function


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_events_and_ranges(device: str) -> None:
    x = lucid.ones(64, 64, device=device)
    with profiler.profile(profile_memory=True) as p:
        with record_function("outer"):
            for _ in range(3):
                with record_function("inner", "x"):
                    y = (x @ x).relu()
        y.sum().item()
    names = [e.name for e in p.events()]
    assert names[0] == "outer"
    assert names.count("inner(x)") == 3
    assert names.count("relu") == 3
    by = {e.name: e for e in p.events()}
    outer, inner = by["outer"], by["inner(x)"]
    relus = [e for e in p.events() if e.name == "relu"]
    assert outer.start_ns <= inner.start_ns <= relus[-1].start_ns
    assert relus[-1].end_ns <= inner.end_ns <= outer.end_ns
    assert all(e.duration_ns >= 0 for e in p.events())
    rows = {r.name: r for r in p.key_averages()}
    assert rows["relu"].calls == 3
    assert rows["relu"].total_ns == sum(e.duration_ns for e in relus)
    assert rows["relu"].category == relus[0].category != "user"
    if device == "gpu":
        assert rows["read"].evaluations >= 1
        assert rows["relu"].mlx_ops >= 3
    else:
        assert rows["relu"].memory >= 3 * 64 * 64 * 4 - 64 * 64 * 4
    stats = {m.device: m for m in p.memory_stats()}
    assert stats["cpu"].peak >= stats["cpu"].current >= 0
    assert "relu" in str(p)
    assert "more" in p.key_averages().table(sort_by="name", row_limit=1)
    with pytest.raises(ValueError, match="sort_by"):
        p.key_averages().table(sort_by="color")


def test_only_one_runs_and_it_starts_anew() -> None:
    p, q = Profiler(), Profiler()
    p.start()
    with pytest.raises(RuntimeError, match="running already"):
        q.start()
    q.stop()
    lucid.ones(2) + 1
    p.stop()
    p.stop()
    assert any(e.name == "add" for e in p.events())
    with p:
        pass
    assert p.events() == []
    with q:
        lucid.ones(2) * 2
    assert any(e.name == "mul" for e in q.events())
    lucid.ones(2) - 1
    assert not any(e.name == "sub" for e in q.events())


def test_counts_beside_and_after_a_trace() -> None:
    with Profiler():
        lucid.ones(2) + 1
    with lucid.profile() as counts:
        lucid.ones(2) + 1
    assert counts.ops["add"]["calls"] == 1
    assert lucid._C._profile_take_trace() == ([], 0)


def test_decorator_threads_and_trace(tmp_path: Path) -> None:
    @record_function("work")
    def work(n: int) -> int:
        return n if n == 0 else work(n - 1)

    assert work(2) == 0
    with Profiler() as p:
        work(2)
        thread = threading.Thread(target=lambda: work(0))
        thread.start()
        thread.join()
    assert [e.name for e in p.events()] == ["work"] * 4
    assert len({e.thread for e in p.events()}) == 2
    path = tmp_path / "trace.json"
    p.export_chrome_trace(path)
    rows = json.loads(path.read_text())["traceEvents"]
    assert len(rows) == 4
    assert all(r["ph"] == "X" and r["dur"] >= 0 for r in rows)
    with pytest.raises(NotImplementedError):
        profiler.profile(record_shapes=True)


def test_summary_adds_up() -> None:
    events = [OpEvent("a", "x", 1, 0, 10, memory=5), OpEvent("a", "x", 1, 20, 30), OpEvent("r", "user", 1, 0, 60)]
    s = ProfileSummary(events)
    a = next(r for r in s if r.name == "a")
    assert (a.calls, a.total_ns, a.mean_ns, a.longest_ns, a.memory) == (2, 40, 20.0, 30, 5)
    assert s.total_ns == 40
    assert len(s) == 2
