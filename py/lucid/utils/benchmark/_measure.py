"""What was measured: times of one task, and their statistics."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable
from typing import Any

_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def select_unit(t: float) -> tuple[str, float]:
    """The unit in which a time in seconds is easy to read, and its length in seconds.

    Args:
        t (float): the time, in seconds.

    Returns:
        tuple: the unit and its length in seconds.

    Example:
        >>> from lucid.utils.benchmark import select_unit
        >>> select_unit(0.002)
        ('ms', 0.001)
    """
    unit = next((u for u, length in reversed(_UNITS.items()) if t >= length), "ns")
    return unit, _UNITS[unit]


def unit_to_english(u: str) -> str:
    """The name of a unit.

    Args:
        u (str): the unit: "ns", "us", "ms" or "s".

    Returns:
        str: the name.

    Raises:
        ValueError: there is none of this name.

    Example:
        >>> lucid.utils.benchmark.unit_to_english("us")
        'microsecond'
    """
    if not isinstance(u, str) or u not in _UNITS:
        raise ValueError(f"unit_to_english(): expected one of {list(_UNITS)}, got {u!r}")
    return {"ns": "nanosecond", "us": "microsecond", "ms": "millisecond", "s": "second"}[u]


def trim_sigfig(x: float, n: int) -> float:
    """Rounds to `n` significant digits.

    Args:
        x (float): the number.
        n (int): the number of digits.

    Returns:
        float: the rounded number.

    Example:
        >>> lucid.utils.benchmark.trim_sigfig(1234.0, 2)
        1200.0
    """
    if x == 0:
        return 0.0
    scale = 10 ** (math.floor(math.log10(abs(x))) + 1 - n)
    return float(round(x / scale) * scale)


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """What was timed, and where it is put in a table.

    Args:
        stmt (str): the statement.
        setup (str): what runs before it.
        global_setup (str, default: ""): what runs once, before all.
        label (str, optional): the title of the table.
        sub_label (str, optional): the row.
        description (str, optional): the column.
        env (str, optional): where it ran.
        num_threads (int, default: 1): the number of threads.

    Example:
        >>> lucid.utils.benchmark.TaskSpec("x + 1", "x = 1").stmt
        'x + 1'
    """

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, or the statement, and the label below it."""
        head = self.label if self.label is not None else self.stmt
        return head + (f": {self.sub_label}" if self.sub_label else "")


@dataclasses.dataclass
class Measurement:
    """Times of one task.

    Args:
        number_per_run (int): how often the statement ran in each time.
        raw_times (list[float]): seconds.
        task_spec (TaskSpec): the task, whose fields are attributes here, too.
        metadata (dict[Any, Any], optional): notes of the caller.

    Example:
        >>> from lucid.utils.benchmark import Measurement, TaskSpec
        >>> m = Measurement(4, [1.0, 2.0, 3.0], TaskSpec("pass", "pass"))
        >>> m.median, m.mean, m.iqr
        (0.5, 0.5, 0.25)
    """

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        if name in TaskSpec.__dataclass_fields__:
            return getattr(self.task_spec, name)
        raise AttributeError(f"'Measurement' object has no attribute {name!r}")

    @property
    def times(self) -> list[float]:
        """Seconds of one run of the statement, each."""
        return [t / self.number_per_run for t in self.raw_times]

    def _quantile(self, q: float) -> float:
        times = sorted(self.times)
        at = q * (len(times) - 1)
        low = math.floor(at)
        high = min(low + 1, len(times) - 1)
        return times[low] + (times[high] - times[low]) * (at - low)

    @property
    def median(self) -> float:
        """The median of the times."""
        return self._quantile(0.5)

    @property
    def mean(self) -> float:
        """The mean of the times."""
        return statistics.fmean(self.times)

    @property
    def iqr(self) -> float:
        """The range in which the middle half of the times is."""
        return self._quantile(0.75) - self._quantile(0.25)

    @property
    def significant_figures(self) -> int:
        """How many digits of the median mean something: between 1 and 4, by the spread of the middle half."""
        times = sorted(self.times)
        middle = times[len(times) // 4 : math.ceil(3 * len(times) / 4)] or times
        spread = max(1.645 * statistics.pstdev(middle) / math.sqrt(len(middle)), 25e-9)
        return min(max(math.floor(math.log10(max(self.median, 1e-12) / spread)), 1), 4)

    @property
    def has_warnings(self) -> bool:
        """Whether the times are spread widely."""
        return not self.meets_confidence()

    def meets_confidence(self, threshold: float = 0.1) -> bool:
        """Whether the middle half of the times is within this share of the median."""
        return self.iqr / self.median < threshold

    @property
    def title(self) -> str:
        """See `TaskSpec.title`."""
        return self.task_spec.title

    @property
    def as_row_name(self) -> str:
        """The row of a table that this is in."""
        return str(self.sub_label or self.stmt or "[Unknown]")

    def __repr__(self) -> str:
        unit, length = select_unit(self.median)
        digits = self.significant_figures
        lines = [f"<{__name__.rsplit('.', 1)[0]}.Measurement>", self.title]
        if self.description:
            lines.append(self.description)
        if self.setup not in ("", "pass"):
            lines.append(f"setup: {self.setup}")
        n = len(self.raw_times)
        lines.append(f"  {'Median: ' if n > 1 else ''}{trim_sigfig(self.median / length, digits):g} {unit}")
        if n > 3:
            lines.append(f"  IQR:    {trim_sigfig(self.iqr / length, digits):g} {unit}")
        threads = f", {self.num_threads} thread{'s' if self.num_threads > 1 else ''}"
        lines.append(f"  {n} measurement{'s' if n > 1 else ''}, {self.number_per_run} runs per measurement{threads}")
        if n > 3 and self.has_warnings:
            lines.append(f"  WARNING: the interquartile range is {100 * self.iqr / self.median:.1f}% of the median.")
        return "\n".join(lines)

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """Joins the measurements of each task: their times, for one run of the statement."""
        grouped: dict[TaskSpec, list[Measurement]] = {}
        for m in measurements:
            grouped.setdefault(m.task_spec, []).append(m)
        return [Measurement(1, [t for m in group for t in m.times], task) for task, group in grouped.items()]
