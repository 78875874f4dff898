"""What a profiler records, and summaries of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lucid import errors
from lucid._warnings import warn_without_effect


@dataclass(frozen=True)
class OpEvent:
    """One run of an op, an evaluation, or a range that `record_function` named.

    Args:
        name (str): the op's name, or the range's.
        category (str): the op's family, `eval`, `read` or `user`.
        thread (int): a small number for each thread.
        start_ns (int): when it began, in nanoseconds from the profiler's start.
        duration_ns (int): the wall time that it took, in nanoseconds.
        mlx_ops (int, optional): how many operations it recorded with MLX. Default: 0.
        evaluations (int, optional): how many evaluations it caused. Default: 0.
        memory (int, optional): by how many bytes both devices' use grew, where memory is profiled. Default: 0.
        shapes (list of list of int, optional): the shapes of the op's tensors, where they are recorded. Default: empty.
        stack (list of str, optional): the calling frames, the innermost first, where they are recorded. Default: empty.
        flops (int, optional): the floating-point operations of products, convolutions, attention, `add` and `mul`,
            where they are counted. Default: 0.

    Example:
        >>> with lucid.profiler.profile() as profiler:
        ...     y = lucid.ones(2, 2) @ lucid.ones(2, 2)
        >>> event = next(e for e in profiler.events() if e.name == "matmul")
        >>> event.duration_ns > 0
        True
    """

    name: str
    category: str
    thread: int
    start_ns: int
    duration_ns: int
    mlx_ops: int = 0
    evaluations: int = 0
    memory: int = 0
    shapes: list[list[int]] = field(default_factory=list)
    stack: list[str] = field(default_factory=list)
    flops: int = 0

    @property
    def key(self) -> str:
        """The name, as PyTorch calls it."""
        return self.name

    @property
    def input_shapes(self) -> list[list[int]]:
        """`shapes`, as PyTorch calls them."""
        return self.shapes

    @property
    def cpu_time(self) -> float:
        """The duration in microseconds."""
        return self.duration_ns / 1000

    cpu_time_total = cpu_time
    time_us = cpu_time

    @property
    def shape(self) -> list[int]:
        """The first tensor's shape, where shapes are recorded; else empty."""
        return self.shapes[0] if self.shapes else []

    @property
    def memory_delta_bytes(self) -> int:
        """`memory`: by how many bytes both devices' use grew."""
        return self.memory

    @property
    def end_ns(self) -> int:
        """When it ended."""
        return self.start_ns + self.duration_ns


@dataclass(frozen=True)
class MemoryStats:
    """Bytes of one device: in use when the profiler stopped, the most in use meanwhile, kept for reuse; and allocations
    meanwhile.

    Args:
        device (str): the name of the device.
        current (int): bytes in use when the profiler stopped.
        peak (int): the most bytes in use meanwhile.
        cached (int): bytes kept for reuse.
        allocations (int): the number of allocations meanwhile.

    Example:
        >>> lucid.profiler.MemoryStats("cpu", 0, 8, 0, 1).peak
        8
    """

    device: str
    current: int
    peak: int
    cached: int
    allocations: int

    @property
    def current_bytes(self) -> int:
        """`current`: bytes in use when the profiler stopped."""
        return self.current

    @property
    def peak_bytes(self) -> int:
        """`peak`: the most bytes in use meanwhile."""
        return self.peak

    @property
    def alloc_count(self) -> int:
        """`allocations`: how many there were meanwhile."""
        return self.allocations


@dataclass
class _Row:
    """Events of one name: what they took together. `self_ns` leaves out what ran inside of them."""

    name: str
    category: str
    shapes: list[list[int]] = field(default_factory=list)
    stack: list[str] = field(default_factory=list)
    calls: int = 0
    total_ns: int = 0
    self_ns: int = 0
    longest_ns: int = 0
    mlx_ops: int = 0
    evaluations: int = 0
    memory: int = 0
    flops: int = 0

    @property
    def mean_ns(self) -> float:
        """Nanoseconds per event."""
        return self.total_ns / self.calls if self.calls else 0.0

    # PyTorch's names; its times are in microseconds.

    @property
    def key(self) -> str:
        """The name."""
        return self.name

    @property
    def count(self) -> int:
        """How many events."""
        return self.calls

    @property
    def input_shapes(self) -> list[list[int]]:
        """Shapes of the tensors, where they tell rows apart."""
        return self.shapes

    @property
    def cpu_time(self) -> float:
        """Microseconds per event."""
        return self.mean_ns / 1000

    @property
    def cpu_time_total(self) -> float:
        """Microseconds of all events."""
        return self.total_ns / 1000

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all events without what ran inside of them."""
        return self.self_ns / 1000

    @property
    def cpu_memory_usage(self) -> int:
        """By how many bytes both devices' use grew."""
        return self.memory

    @property
    def device_time_total(self) -> float:
        """Microseconds of evaluations and readings, in which the GPU device's work is done; 0 for others."""
        return self.cpu_time_total if self.category in ("eval", "read") else 0.0


_KEYS: dict[str, Callable[[_Row], Any]] = {
    "total_time": lambda r: -r.total_ns,
    "self_time": lambda r: -r.self_ns,
    "mean_time": lambda r: -r.mean_ns,
    "calls": lambda r: -r.calls,
    "mlx_ops": lambda r: -r.mlx_ops,
    "memory": lambda r: -r.memory,
    "flops": lambda r: -r.flops,
    "name": lambda r: r.name,
}
_KEYS |= {
    "cpu_time_total": _KEYS["total_time"],
    "self_cpu_time_total": _KEYS["self_time"],
    "cpu_time": _KEYS["mean_time"],
    "count": _KEYS["calls"],
    "cpu_memory_usage": _KEYS["memory"],
    "self_cpu_memory_usage": _KEYS["memory"],
    "device_time_total": lambda r: -r.device_time_total,
    "self_device_time_total": lambda r: -r.device_time_total,
    "cuda_time_total": lambda r: -r.device_time_total,
    "self_cuda_time_total": lambda r: -r.device_time_total,
}


def _own_times(events: list[OpEvent]) -> list[int]:
    """Each event's time without that of the events inside of it; they are sorted by their start."""
    own = [e.duration_ns for e in events]
    open_: dict[int, list[int]] = {}
    for i, e in enumerate(events):
        around = open_.setdefault(e.thread, [])
        while around and events[around[-1]].end_ns <= e.start_ns:
            around.pop()
        if around:
            own[around[-1]] -= min(e.duration_ns, events[around[-1]].end_ns - e.start_ns)
        around.append(i)
    return own


class ProfileSummary:
    """Events added up by name.

    Iterates over rows with `name`, `category`, `calls`, `total_ns`, `self_ns`, `mean_ns`, `longest_ns`, `mlx_ops`,
    `evaluations`, `memory`, `flops`, `shapes` and `stack`, and PyTorch's names (`key`, `count`, `cpu_time_total`, …).

    Args:
        events (iterable of OpEvent): what a profiler has recorded.
        memory (iterable of MemoryStats, optional): both devices' memory at its end. Default: none.
        by_shape (bool, optional): whether calls with different shapes are in different rows. Default: False.
        frames (int, optional): calls from other frames, of so many of the innermost ones, are in different rows.
            Default: 0, they are added up.

    Example:
        >>> from lucid.profiler import OpEvent, ProfileSummary
        >>> summary = ProfileSummary([OpEvent("add", "binary", 0, 0, 10), OpEvent("add", "binary", 0, 20, 30)])
        >>> [(row.name, row.calls, row.total_ns) for row in summary]
        [('add', 2, 40)]
    """

    def __init__(
        self,
        events: Iterable[OpEvent],
        memory: Iterable[MemoryStats] = (),
        by_shape: bool = False,
        frames: int = 0,
    ) -> None:
        listed = sorted(events, key=lambda e: (e.start_ns, -e.duration_ns))
        rows: dict[Any, _Row] = {}
        for e, own in zip(listed, _own_times(listed), strict=True):
            shapes, stack = e.shapes if by_shape else [], e.stack[:frames]
            key = (e.category, e.name, tuple(map(tuple, shapes)), tuple(stack))
            row = rows.setdefault(key, _Row(e.name, e.category, shapes, stack))
            row.calls += 1
            row.total_ns += e.duration_ns
            row.self_ns += own
            row.longest_ns = max(row.longest_ns, e.duration_ns)
            row.mlx_ops += e.mlx_ops
            row.evaluations += e.evaluations
            row.memory += e.memory
            row.flops += e.flops
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

    @property
    def total_time_us(self) -> float:
        """`total_ns` in microseconds."""
        return self.total_ns / 1000

    @property
    def total_flops(self) -> int:
        """The floating-point operations of all ops, where they are counted."""
        return sum(r.flops for r in self.rows if r.category != "user")

    @property
    def op_count(self) -> int:
        """How many events; named ranges are not counted."""
        return sum(r.calls for r in self.rows if r.category != "user")

    @property
    def memory_stats(self) -> list[MemoryStats]:
        """`memory`: what each device had in use."""
        return self.memory

    def total_average(self) -> _Row:
        """Everything in one row; named ranges, which contain ops, are not counted."""
        total = _Row("Total", "total")
        for r in self.rows:
            if r.category != "user":
                total.calls += r.calls
                total.total_ns += r.total_ns
                total.self_ns += r.self_ns
                total.longest_ns = max(total.longest_ns, r.longest_ns)
                total.mlx_ops += r.mlx_ops
                total.evaluations += r.evaluations
                total.memory += r.memory
                total.flops += r.flops
        return total

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
    ) -> str:
        """A table of the first `row_limit` rows; -1 shows all.

        `sort_by` is `total_time` (the default), `self_time`, `mean_time`, `calls`, `mlx_ops`, `memory`, `flops` or
        `name`, or one of PyTorch's `cpu_time_total`, `self_cpu_time_total`, `cpu_time`, `count`, `cpu_memory_usage` and
        `device_time_total`. `top_level_events_only` gives one warning that it has no effect: ops do not call
        each other here.
        """
        warn_without_effect("table", "ops do not call one another", top_level_events_only=top_level_events_only)
        if sort_by is not None and sort_by not in _KEYS:
            raise errors.ValueError(f"sort_by should be one of {', '.join(_KEYS)}, got {sort_by!r}")
        rows = sorted(self.rows, key=_KEYS[sort_by or "total_time"])
        shown = rows if row_limit < 0 else rows[:row_limit]
        total = self.total_ns or 1
        shaped, stacked, counted = (any(getattr(r, name) for r in rows) for name in ("shapes", "stack", "flops"))
        names = ("name", "calls", "total µs", "%", "self µs", "mean µs", "longest µs", "mlx ops", "evals", "bytes")
        more = (("flops",) if counted else ()) + (("shapes",) if shaped else ()) + (("called from",) if stacked else ())
        lines = [names + more]
        for r in shown:
            share = "" if r.category == "user" else f"{100 * r.total_ns / total:.1f}"
            cells: tuple[str, ...] = (
                _short(r.name, max_name_column_width),
                str(r.calls),
                f"{r.total_ns / 1000:.1f}",
                share,
                f"{r.self_ns / 1000:.1f}",
                f"{r.mean_ns / 1000:.1f}",
                f"{r.longest_ns / 1000:.1f}",
                str(r.mlx_ops),
                str(r.evaluations),
                str(r.memory),
            )
            if counted:
                cells += (str(r.flops) if r.flops else "",)
            if shaped:
                cells += (_short(str(r.shapes), max_shapes_column_width),)
            if stacked:
                cells += (_short(r.stack[0] if r.stack else "", max_src_column_width, end=True),)
            lines.append(cells)
            if stacked:
                blank = ("",) * (len(cells) - 1)
                lines += [(*blank, _short(frame, max_src_column_width, end=True)) for frame in r.stack[1:]]
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        text = [
            line[0].ljust(widths[0]) + "".join("  " + c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))
            for line in lines
        ]
        text.insert(1, "-" * len(text[0]))
        if header is not None:
            text.insert(0, header)
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


def _short(text: str, width: int, end: bool = False) -> str:
    """The text, or as much of its beginning or end as fits."""
    if width < 4 or len(text) <= width:
        return text
    return "..." + text[3 - width :] if end else text[: width - 3] + "..."
