"""Profiling: when each op ran, what it cost and what it allocated; ranges that a program names; tables and traces.

    with lucid.profiler.profile(profile_memory=True) as p:
        with lucid.profiler.record_function("forward"):
            loss = model(x)
        loss.eval()
    print(p.key_averages().table(sort_by="total_time"))
    p.export_chrome_trace("trace.json")

Events are the engine's primitives, of all threads, and evaluations. Work on the GPU device is recorded first and run
when a value is needed: an op's time there is that of recording it, and the work is seen in `eval` and `read`. Tracing
is process-wide, and one profiler runs at a time.
"""

from __future__ import annotations

import functools
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import lucid
from lucid import _C

__all__ = ["MemoryStats", "OpEvent", "ProfileSummary", "Profiler", "profile", "record_function"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class OpEvent:
    """One run of an op, an evaluation, or a range that `record_function` named.

    `start_ns` counts from the profiler's start and `duration_ns` is wall time; `thread` is a small number; `mlx_ops`
    are operations recorded with MLX and `evaluations` those it caused; `memory` is by how many bytes both devices' use
    grew, where memory is profiled. `category` is the op's family, `eval`, `read` or `user`.
    """

    name: str
    category: str
    thread: int
    start_ns: int
    duration_ns: int
    mlx_ops: int = 0
    evaluations: int = 0
    memory: int = 0

    @property
    def end_ns(self) -> int:
        """When it ended."""
        return self.start_ns + self.duration_ns


@dataclass(frozen=True)
class MemoryStats:
    """Bytes of one device: in use when the profiler stopped, the most in use meanwhile, kept for reuse; and allocations
    meanwhile."""

    device: str
    current: int
    peak: int
    cached: int
    allocations: int


@dataclass
class _Row:
    name: str
    category: str
    calls: int = 0
    total_ns: int = 0
    longest_ns: int = 0
    mlx_ops: int = 0
    evaluations: int = 0
    memory: int = 0

    @property
    def mean_ns(self) -> float:
        return self.total_ns / self.calls if self.calls else 0.0


_KEYS: dict[str, Callable[[_Row], Any]] = {
    "total_time": lambda r: -r.total_ns,
    "mean_time": lambda r: -r.mean_ns,
    "calls": lambda r: -r.calls,
    "mlx_ops": lambda r: -r.mlx_ops,
    "memory": lambda r: -r.memory,
    "name": lambda r: r.name,
}


class ProfileSummary:
    """Events added up by name. Iterates over rows with `name`, `category`, `calls`, `total_ns`, `mean_ns`,
    `longest_ns`, `mlx_ops`, `evaluations` and `memory`."""

    def __init__(self, events: Iterable[OpEvent], memory: Iterable[MemoryStats] = ()) -> None:
        rows: dict[tuple[str, str], _Row] = {}
        for e in events:
            row = rows.setdefault((e.category, e.name), _Row(e.name, e.category))
            row.calls += 1
            row.total_ns += e.duration_ns
            row.longest_ns = max(row.longest_ns, e.duration_ns)
            row.mlx_ops += e.mlx_ops
            row.evaluations += e.evaluations
            row.memory += e.memory
        self.rows = sorted(rows.values(), key=_KEYS["total_time"])
        self.memory = list(memory)

    def __iter__(self) -> Iterator[_Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def total_ns(self) -> int:
        """The time of all ops and evaluations; named ranges, which contain them, are not counted."""
        return sum(r.total_ns for r in self.rows if r.category != "user")

    def table(self, sort_by: str = "total_time", row_limit: int = 100) -> str:
        """A table, sorted by `total_time`, `mean_time`, `calls`, `mlx_ops`, `memory` or `name`; -1 shows all rows."""
        if sort_by not in _KEYS:
            raise ValueError(f"sort_by should be one of {', '.join(_KEYS)}, got {sort_by!r}")
        rows = sorted(self.rows, key=_KEYS[sort_by])
        shown = rows if row_limit < 0 else rows[:row_limit]
        total = self.total_ns or 1
        lines = [("name", "calls", "total µs", "%", "mean µs", "longest µs", "mlx ops", "evals", "bytes")]
        for r in shown:
            share = "" if r.category == "user" else f"{100 * r.total_ns / total:.1f}"
            lines.append(
                (
                    r.name,
                    str(r.calls),
                    f"{r.total_ns / 1000:.1f}",
                    share,
                    f"{r.mean_ns / 1000:.1f}",
                    f"{r.longest_ns / 1000:.1f}",
                    str(r.mlx_ops),
                    str(r.evaluations),
                    str(r.memory),
                )
            )
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        text = [
            line[0].ljust(widths[0]) + "".join("  " + c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))
            for line in lines
        ]
        text.insert(1, "-" * len(text[0]))
        if len(shown) < len(rows):
            text.append(f"… {len(rows) - len(shown)} more")
        text.append(f"total {self.total_ns / 1000:.1f} µs")
        text.extend(
            f"{m.device}: {m.current} bytes in use, {m.peak} at most, {m.cached} cached, {m.allocations} allocations"
            for m in self.memory
        )
        return "\n".join(text)

    def __str__(self) -> str:
        return self.table()


_lock = threading.Lock()
_running: Profiler | None = None


class Profiler:
    """Traces what runs between `start` and `stop`, or inside of its `with` block.

    Args:
        profile_memory: Whether events tell how much they allocated. The GPU's memory is looked at only once it is used.
    """

    def __init__(self, *, profile_memory: bool = False) -> None:
        self.profile_memory = profile_memory
        self._events: list[OpEvent] = []
        self._user: list[OpEvent] = []
        self._memory: list[MemoryStats] = []
        self._before: dict[str, int] = {}
        self.dropped = 0

    def start(self) -> None:
        """Begins anew. RuntimeError where another profiler runs."""
        global _running
        with _lock:
            if _running is not None:
                raise RuntimeError("a profiler is running already; stop it first")
            self._events, self._user, self._memory, self.dropped = [], [], [], 0
            if self.profile_memory:
                for device in self._devices():
                    lucid.reset_peak_memory_stats(device)
                    self._before[device.type] = lucid.memory_stats(device)["allocations"]
            _C._profile_start_trace(self.profile_memory)
            _running = self

    @staticmethod
    def _devices() -> list[Any]:
        return [lucid.device(d) for d in (("cpu", "gpu") if _C._gpu_in_use() else ("cpu",))]

    def stop(self) -> None:
        """Ends the trace; without effect where it does not run."""
        global _running
        with _lock:
            if _running is not self:
                return
            _C._profile_stop()
            _running = None
            events, self.dropped = _C._profile_take_trace()
            self._events = [OpEvent(*e) for e in events]
            if self.profile_memory:
                for device in self._devices():
                    stats = lucid.memory_stats(device)
                    stats["allocations"] -= self._before.get(device.type, 0)
                    self._memory.append(MemoryStats(device.type, **stats))

    def __enter__(self) -> Profiler:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def events(self) -> list[OpEvent]:
        """All events, by their start."""
        return sorted([*self._events, *self._user], key=lambda e: (e.start_ns, -e.duration_ns))

    def key_averages(self) -> ProfileSummary:
        """The events added up by name."""
        return ProfileSummary(self.events(), self._memory)

    summary = key_averages

    def memory_stats(self) -> list[MemoryStats]:
        """What the devices' memory did, where it was profiled."""
        return list(self._memory)

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the events as JSON for `chrome://tracing` or Perfetto."""
        process = os.getpid()
        rows = [
            {
                "name": e.name,
                "cat": e.category,
                "ph": "X",
                "ts": e.start_ns / 1000,
                "dur": e.duration_ns / 1000,
                "pid": process,
                "tid": e.thread,
                "args": {"mlx_ops": e.mlx_ops, "evaluations": e.evaluations, "bytes": e.memory},
            }
            for e in self.events()
        ]
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": rows, "displayTimeUnit": "ms"}, file)

    def __str__(self) -> str:
        return self.key_averages().table()


def profile(
    activities: Any = None,
    *,
    record_shapes: bool = False,
    profile_memory: bool = False,
    with_stack: bool = False,
) -> Profiler:
    """A `Profiler` by the name and the arguments that PyTorch has for it.

    `activities` is accepted: both devices are always traced. Shapes and stacks are not recorded: asking for them is a
    NotImplementedError.
    """
    if record_shapes or with_stack:
        raise NotImplementedError("profile: record_shapes and with_stack are not offered")
    return Profiler(profile_memory=profile_memory)


class record_function:
    """Names a range of a program, as a `with` block or a decorator; without a running profiler it costs next to
    nothing."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name if args is None else f"{name}({args})"
        self._started: list[tuple[Profiler, int]] = []

    def __enter__(self) -> record_function:
        running = _running
        if running is not None:
            self._started.append((running, _C._profile_now()[0]))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._started:
            return
        profiler, start = self._started.pop()
        if profiler is _running:
            now, thread = _C._profile_now()
            profiler._user.append(OpEvent(self.name, "user", thread, start, now - start))

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            # An instance of its own for each call: it may run in several threads, or call itself.
            with record_function(self.name):
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]
