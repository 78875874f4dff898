"""`Timer`: runs a statement often enough to time it."""

from __future__ import annotations

import enum
import textwrap
import time
import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import lucid
from lucid import errors
from lucid.utils.benchmark._measure import Measurement, TaskSpec


class Language(enum.Enum):
    """The language of a statement."""

    PYTHON = 0
    CPP = 1


def timer() -> float:
    """Waits for the GPU device and reads the clock, in seconds."""
    lucid.synchronize()
    return time.perf_counter()


@contextmanager
def _threads(number: int) -> Iterator[None]:
    former = lucid.get_num_threads()
    lucid.set_num_threads(number)
    try:
        yield
    finally:
        lucid.set_num_threads(former)


class Timer:
    """Times a statement, on a number of threads, with the GPU device waited for.

    A result that is not evaluated is no work on the GPU device: let the statement end in `.eval()`.

    Args:
        stmt (str, default: "pass"): a statement, which may have several lines.
        setup (str, default: "pass"): runs once before each measurement.
        global_setup (str, default: ""): of C++ in PyTorch; must be empty.
        timer (Callable[[], float], optional): reads a clock in seconds.
        globals (dict[str, Any], optional): the names that the statement sees; `lucid` is among them.
        label (str, optional): where the measurement is put in a table of `Compare`: its title, row, column, and a
            note of how it was run.
        sub_label (str, optional): where the measurement is put in a table of `Compare`: its title, row, column,
            and a note of how it was run.
        description (str, optional): where the measurement is put in a table of `Compare`: its title, row, column,
            and a note of how it was run.
        env (str, optional): where the measurement is put in a table of `Compare`: its title, row, column, and a
            note of how it was run.
        num_threads (int, default: 1): the number of threads of the CPU device.
        language (Language or str, optional): `"py"`.

    Raises:
        ValueError: `stmt` is no string, or there is a `global_setup`.
        NotImplementedError: C++.

    Example:
        >>> from lucid.utils.benchmark import Timer
        >>> m = Timer("x + 1", globals={"x": lucid.ones(8)}).timeit(10)
        >>> m.number_per_run, m.median > 0
        (10, True)
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: Language | str = Language.PYTHON,
    ) -> None:
        if not isinstance(stmt, str):
            raise errors.ValueError("Currently only a `str` stmt is supported.")
        if language in (Language.CPP, "cpp", "c++"):
            raise errors.NotImplementedError("Timer: statements are Python; C++ is not compiled")
        if language not in (Language.PYTHON, "py", "python"):
            raise errors.ValueError(f"Invalid language `{language}`.")
        if global_setup:
            raise errors.ValueError(f"global_setup is C++ only, got `{global_setup}`; move it to `setup`")
        stmt, setup = (textwrap.dedent(s).lstrip("\n").rstrip() for s in (stmt, setup))
        space = {"lucid": lucid, **(globals or {})}
        self._timer = timeit.Timer(stmt, setup, timer, space)
        self._task_spec = TaskSpec(stmt, setup, global_setup, label, sub_label, description, env, num_threads)

    def _timeit(self, number: int) -> float:
        return max(self._timer.timeit(number), 1e-9)

    def timeit(self, number: int = 1000000) -> Measurement:
        """Times `number` runs once, after some that are not timed."""
        with _threads(self._task_spec.num_threads):
            self._timeit(max(number // 100, 2))
            return Measurement(number, [self._timeit(number)], self._task_spec)

    def _block(self, min_run_time: float) -> int:
        """How many runs make the clock's own time small."""
        overhead = sorted(self._timeit(0) for _ in range(5))[2]
        number = 1
        while True:
            taken = self._timeit(number)
            if (overhead / taken <= 1e-4 and taken >= min_run_time / 1000) or taken > min_run_time:
                return number
            number *= 10

    def _measure(
        self,
        number: int,
        enough: Callable[[list[float]], bool],
        min_run_time: float,
        max_run_time: float | None,
        callback: Callable[[int, float], Any] | None,
    ) -> Measurement:
        times: list[float] = []
        stop = False
        while sum(times) < min_run_time or not stop:
            times.append(self._timeit(number))
            if callback is not None:
                callback(number, times[-1])
            stop = enough(times)
            if max_run_time is not None and sum(times) > max_run_time:
                break
        return Measurement(number, times, self._task_spec)

    def blocked_autorange(
        self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Times blocks of runs until they took `min_run_time` seconds together.

        Args:
            callback: called with the number of runs and the time of each block.
            min_run_time: seconds.
        """
        with _threads(self._task_spec.num_threads):
            number = self._block(min_run_time)
            return self._measure(number, lambda times: True, min_run_time, None, callback)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:
        """Times blocks of runs until the middle half of them is within `threshold` of their median.

        Args:
            threshold: a share of the median.
            min_run_time, max_run_time: seconds; after the latter it ends in any case.
            callback: called with the number of runs and the time of each block.
        """
        with _threads(self._task_spec.num_threads):
            number = self._block(0.05)

            def enough(times: list[float]) -> bool:
                return len(times) > 3 and Measurement(number, times, self._task_spec).meets_confidence(threshold)

            return self._measure(number, enough, min_run_time, max_run_time, callback)

    def repeat(self, repeat: int = -1, number: int = -1) -> None:
        """Of `timeit`.

        Raises:
            NotImplementedError: always; see `blocked_autorange`.
        """
        raise errors.NotImplementedError("See `Timer.blocked_autorange.`")

    def autorange(self, callback: Any = None) -> None:
        """Of `timeit`.

        Raises:
            NotImplementedError: always; see `blocked_autorange`.
        """
        raise errors.NotImplementedError("See `Timer.blocked_autorange.`")

    def collect_callgrind(self, *args: Any, **kwargs: Any) -> None:
        """Counts instructions in PyTorch.

        Raises:
            NotImplementedError: always; run the program under `valgrind --tool=callgrind`.
        """
        raise errors.NotImplementedError("collect_callgrind(): run the program under `valgrind --tool=callgrind`")
