"""The profiler: events, named ranges, summaries and traces."""

from __future__ import annotations

import gzip
import json
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

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
    with pytest.raises(ValueError, match="activities"):
        profiler.profile(activities=[])


def test_summary_adds_up() -> None:
    events = [OpEvent("a", "x", 1, 0, 10, memory=5), OpEvent("a", "x", 1, 20, 30), OpEvent("r", "user", 1, 0, 60)]
    s = ProfileSummary(events)
    a = next(r for r in s if r.name == "a")
    assert (a.calls, a.total_ns, a.mean_ns, a.longest_ns, a.memory) == (2, 40, 20.0, 30, 5)
    assert s.total_ns == 40
    assert len(s) == 2


def callee(x: lucid.Tensor) -> lucid.Tensor:
    return x @ x.t()


def conv(x: lucid.Tensor, groups: int = 1) -> lucid.Tensor:
    weight = lucid.ones(4, 4 // groups, 3, 3, device=x.device, requires_grad=True)
    return lucid.nn.functional.conv2d(x, weight, stride=2, padding=1, groups=groups)


# What runs, and how many operations it is: twice the products, and once the sums and factors of `add` and `mul`.
FLOPS: dict[str, tuple[Any, int]] = {
    "matmul": (lambda o: o(5, 3) @ o(3, 4), 2 * 5 * 3 * 4),
    "batched": (lambda o: o(2, 5, 3) @ o(3, 4), 2 * 2 * 5 * 3 * 4),
    "vector": (lambda o: o(5, 3) @ o(3), 2 * 5 * 3),
    "linear": (lambda o: lucid.nn.functional.linear(o(5, 3), o(4, 3), o(4)), 2 * 5 * 3 * 4),
    "conv2d": (lambda o: conv(o(2, 4, 8, 8)), 2 * (2 * 4 * 4 * 4) * (4 * 9)),
    "groups": (lambda o: conv(o(2, 4, 8, 8), 2), 2 * (2 * 4 * 4 * 4) * (2 * 9)),
    "backward": (lambda o: conv(o(2, 4, 8, 8)).sum().backward(), 2 * 2 * (2 * 4 * 4 * 4) * (4 * 9)),
    "transposed": (lambda o: lucid.nn.functional.conv_transpose2d(o(1, 4, 3, 3), o(4, 2, 2, 2)), 2 * 4 * 9 * 2 * 4),
    "attention": (lambda o: attend(o(2, 5, 4), o(2, 6, 4), o(2, 6, 3)), 2 * 2 * 5 * 6 * (4 + 3)),
    "add": (lambda o: o(3, 4) + o(4), 12),
    "mul": (lambda o: o(3, 1) * o(1, 4), 12),
    "neither": (lambda o: o(3, 4).exp(), 0),
}


def attend(*x: lucid.Tensor) -> lucid.Tensor:
    return lucid.nn.functional.scaled_dot_product_attention(*x)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("what", FLOPS)
def test_flops(what: str, device: str, tmp_path: Path) -> None:
    run, wanted = FLOPS[what]
    with profiler.profile(with_flops=True) as p:
        run(lambda *shape: lucid.ones(*shape, device=device))
    summary = p.key_averages()
    assert summary.total_average().flops == sum(e.flops for e in p.events()) == wanted
    assert all(e.shapes == [] for e in p.events())
    assert ("flops" in summary.table(sort_by="flops")) == (wanted > 0)
    p.export_chrome_trace(tmp_path / "trace.json")
    rows = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert sum(r["args"].get("flops", 0) for r in rows) == wanted


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_shapes_and_stacks(device: str, tmp_path: Path) -> None:
    x, y = lucid.ones(2, 3, device=device), lucid.ones(4, 3, device=device)
    with profiler.profile(record_shapes=True, with_stack=True) as p:
        callee(x)
        for _ in range(2):
            callee(y)
        lucid.cat([x, y])
        lucid.zeros(3, device=device)
    products = [e for e in p.events() if e.name == "matmul"]
    assert [e.input_shapes for e in products] == [[[2, 3], [3, 2]], [[4, 3], [3, 4]], [[4, 3], [3, 4]]]
    assert products[0].stack[0].startswith(__file__)
    assert products[0].stack[0].endswith(": callee")
    assert products[0].stack[1].endswith(": test_shapes_and_stacks")
    assert {e.name: e.shapes for e in p.events()}["cat"] == [[2, 3], [4, 3]]
    assert next(r for r in p.key_averages() if r.key == "matmul").count == 3
    apart = [r for r in p.key_averages(group_by_input_shape=True) if r.key == "matmul"]
    assert sorted((r.count, r.input_shapes[0]) for r in apart) == [(1, [2, 3]), (2, [4, 3])]
    by_frame = [r for r in p.key_averages(group_by_stack_n=2) if r.key == "matmul"]
    assert sorted(r.count for r in by_frame) == [1, 2]
    text = p.key_averages(group_by_input_shape=True, group_by_stack_n=1).table(row_limit=-1, header="Here")
    assert text.startswith("Here\n")
    assert "[[4, 3], [3, 4]]" in text
    assert ": callee" in text
    p.export_chrome_trace(tmp_path / "t.json.gz")
    with gzip.open(tmp_path / "t.json.gz", "rt") as file:
        rows = json.load(file)["traceEvents"]
    assert [r["args"]["Input Dims"] for r in rows if r["name"] == "cat"] == [[[2, 3], [4, 3]]]
    assert all("callee" in r["args"]["Call stack"] for r in rows if r["name"] == "matmul")
    p.export_stacks(tmp_path / "stacks.txt")
    for line in (tmp_path / "stacks.txt").read_text().splitlines():
        stack, time = line.rsplit(" ", 1)
        assert int(time) > 0
        assert stack.count(";") > 2
    with profiler.profile() as plain:
        callee(x)
    assert all(e.shapes == [] and e.stack == [] for e in plain.events())
    with pytest.raises(RuntimeError, match="with_stack=True"):
        plain.export_stacks(tmp_path / "none.txt")


def test_times_of_their_own() -> None:
    events = [
        OpEvent("outer", "user", 1, 0, 100),
        OpEvent("a", "x", 1, 10, 30),
        OpEvent("inner", "user", 1, 50, 40),
        OpEvent("a", "x", 1, 55, 20),
        OpEvent("a", "x", 2, 20, 60),
        OpEvent("e", "eval", 1, 100, 7),
    ]
    rows = {r.name: r for r in ProfileSummary(events)}
    assert rows["outer"].self_ns == 30
    assert rows["inner"].self_ns == 20
    assert rows["a"].self_ns == rows["a"].total_ns == 110
    assert rows["e"].device_time_total == 0.007
    total = ProfileSummary(events).total_average()
    assert (total.count, total.total_ns) == (4, 117)
    for key in ("self_cpu_time_total", "cuda_time_total", "count", "cpu_memory_usage", None):
        assert "outer" in ProfileSummary(events).table(sort_by=key)


CYCLES = [
    {"wait": 1, "warmup": 1, "active": 2},
    {"wait": 0, "warmup": 0, "active": 1},
    {"wait": 2, "warmup": 0, "active": 1, "repeat": 2},
    {"wait": 0, "warmup": 2, "active": 3, "repeat": 1, "skip_first": 2},
    {"wait": 3, "warmup": 1, "active": 1, "skip_first": 1, "skip_first_wait": 1},
]


@pytest.mark.parametrize("options", CYCLES, ids=str)
@pytest.mark.parametrize("steps", [0, 3, 9])
def test_schedules_are_pytorchs(options: dict[str, int], steps: int) -> None:
    import torch

    ours, theirs = profiler.schedule(**options), torch.profiler.schedule(**options)
    assert [ours(i).name for i in range(20)] == [theirs(i).name for i in range(20)]
    seen: list[list[tuple[int, list[str]]]] = []
    for framework in (lucid, torch):
        f: Any = framework
        handed: list[tuple[int, list[str]]] = []

        def ready(p: Any, handed: list[tuple[int, list[str]]] = handed) -> None:
            handed.append((p.step_num, sorted(e.name for e in p.events() if e.name.startswith("mark"))))

        with f.profiler.profile(
            activities=[f.profiler.ProfilerActivity.CPU], schedule=f.profiler.schedule(**options), on_trace_ready=ready
        ) as p:
            for i in range(steps):
                with f.profiler.record_function(f"mark {i}"):
                    f.ones(2) + 1
                p.step()
        seen.append(handed)
    assert seen[0] == seen[1]
    with profiler.profile(schedule=profiler.schedule(wait=1, warmup=0, active=2, repeat=1)) as p:
        for _ in range(5):
            p.step()
    assert [e.name for e in p.events()] == ["ProfilerStep#1", "ProfilerStep#2"]


def test_steps_without_a_schedule_and_what_stays() -> None:
    handed: list[int] = []
    with profiler.profile(on_trace_ready=lambda p: handed.append(len(p.events()))) as p:
        for _ in range(3):
            lucid.ones(2) + 1
            p.step()
    assert len(handed) == 1
    assert [e.name for e in p.events()].count("add") == 3
    assert not [e for e in p.events() if e.name.startswith("ProfilerStep")]
    p.step()
    cycle = profiler.schedule(wait=0, warmup=0, active=1)
    for keep, count in ((False, 1), (True, 3)):
        with profiler.profile(schedule=cycle, acc_events=keep) as p:
            for i in range(3):
                lucid.ones(2) + 1
                if i < 2:
                    p.step()
        assert [e.name for e in p.events()].count("add") == count
        steps = [e for e in p.events() if e.category == "user"]
        assert all(a.end_ns <= b.start_ns for a, b in pairwise(steps))


def test_schedules_and_handlers_refuse(tmp_path: Path) -> None:
    for options in (
        {"wait": -1, "warmup": 0, "active": 1},
        {"wait": 0, "warmup": 0, "active": 0},
        {"wait": 0, "warmup": 0, "active": 1, "repeat": -1},
    ):
        with pytest.raises(ValueError, match=r"schedule: .*active="):
            profiler.schedule(**options)
    with pytest.raises(TypeError, match="int"):
        profiler.profile(schedule=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="str"):
        profiler.profile(on_trace_ready="x")  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="RECORD followed by NONE"):  # noqa: SIM117
        with profiler.profile(
            schedule=lambda i: profiler.ProfilerAction.NONE if i else profiler.ProfilerAction.RECORD
        ) as p:
            p.step()
    assert profiler.ProfilerActivity.CPU in profiler.supported_activities()
    with profiler.profile(on_trace_ready=profiler.tensorboard_trace_handler(str(tmp_path / "new"), "me")) as p:
        p.add_metadata("who", "x")
        p.add_metadata_json("what", "[1]")
    (file,) = (tmp_path / "new").iterdir()
    assert file.name.startswith("me.") and file.name.endswith(".pt.trace.json")
    assert json.loads(file.read_text())["what"] == [1]
    (tmp_path / "taken").write_text("")
    with pytest.raises(RuntimeError, match="can't create directory"):
        profiler.tensorboard_trace_handler(str(tmp_path / "taken"))(p)
