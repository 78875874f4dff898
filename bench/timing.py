"""What the Python benchmarks share: interleaved timing, robust statistics, a plain-text table.

A case is one piece of work in several variants. All variants of all cases take turns within a round, in an order that
changes from round to round, so that a slow moment of the machine hits each of them alike. A turn does its work once
untimed and then for some milliseconds, since what is measured is a loop: the first call after another side's finds that
side's code in the processor's caches. Each run is timed twice over: how long building the graph takes, and how long
until everything is evaluated.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

# How long a turn goes on.
TURN_NS = 10_000_000


@dataclass
class Variant:
    """One way to do a case's work: `build` starts it and gives what `finish` must wait for."""

    build: Callable[[], Any]
    finish: Callable[[Any], Any]
    building: list[float] = field(default_factory=list)
    total: list[float] = field(default_factory=list)

    def run(self) -> None:
        """A turn; notes of each timed run, in microseconds, when the graph was built and when all was evaluated."""
        begun = time.perf_counter_ns()
        self.finish(self.build())
        start = 0
        while start < begun + TURN_NS:
            start = time.perf_counter_ns()
            pending = self.build()
            built = time.perf_counter_ns()
            self.finish(pending)
            end = time.perf_counter_ns()
            self.building.append((built - start) / 1e3)
            self.total.append((end - start) / 1e3)

    def forget(self) -> None:
        """Drops the times so far."""
        self.building.clear()
        self.total.clear()

    @property
    def median(self) -> float:
        """Median of the total time in microseconds."""
        return statistics.median(self.total)

    @property
    def median_building(self) -> float:
        """Median of the time to build the graph in microseconds."""
        return statistics.median(self.building)

    @property
    def quartiles(self) -> tuple[float, float]:
        """First and third quartile of the total time in microseconds."""
        if len(self.total) < 2:
            return self.total[0], self.total[0]
        low, _, high = statistics.quantiles(self.total, n=4, method="inclusive")
        return low, high


Work = Callable[[], Any]
# A clock in nanoseconds: the wall's, or the process's own.
Clock = Callable[[], int]

BURST_US = 400


class Turn(Variant):
    """A variant that calls its work once untimed, then `calls` times, and notes one call's time in microseconds."""

    def __init__(self, work: Work, calls: int, pause: float = 0.0, clock: Clock = time.perf_counter_ns) -> None:
        super().__init__(work, lambda _: None)
        self.calls, self.pause, self.clock = calls, pause, clock

    def run(self) -> None:
        if self.pause:
            time.sleep(self.pause)
        work = self.build
        work()
        start = self.clock()
        for _ in range(self.calls):
            work()
        self.total.append((self.clock() - start) / 1e3 / self.calls)


def calls_of(work: Work, clock: Clock = time.perf_counter_ns) -> int:
    """How many calls fill a burst of some hundred microseconds."""
    work()
    start = clock()
    work()
    return max(1, min(200, int(BURST_US * 1e3 / max(clock() - start, 1e3))))


@dataclass
class Case:
    """A piece of work and its variants by name."""

    name: str
    variants: dict[str, Variant]


def measure(cases: Sequence[Case], seconds: float, least: int = 5, most: int = 1000, warmup: int = 2) -> int:
    """Runs rounds over all variants of all cases until the time is over. Returns how many rounds were timed."""
    work = [variant for case in cases for variant in case.variants.values()]
    for _ in range(warmup):
        for variant in work:
            variant.run()
    for variant in work:
        variant.forget()
    shuffled = random.Random(0)
    rounds = 0
    end = time.perf_counter() + seconds
    collecting = gc.isenabled()
    gc.disable()
    try:
        while rounds < least or (rounds < most and time.perf_counter() < end):
            order = list(cases)
            shuffled.shuffle(order)
            for case in order:
                turns = list(case.variants.values())
                shuffled.shuffle(turns)
                for variant in turns:
                    variant.run()
            rounds += 1
            gc.collect(0)
    finally:
        if collecting:
            gc.enable()
    return rounds


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of text, the first aligned to the left and the others to the right. An empty row is a line."""
    widths = [max(len(row[i]) for row in [head, *rows] if row) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        cells = [row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)]
        return "  ".join(cells).rstrip()

    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    return "\n".join([line(head), rule, *(line(row) if row else rule for row in rows)])
