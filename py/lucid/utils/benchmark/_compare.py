"""`Compare`: measurements as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lucid import errors
from lucid.utils.benchmark._measure import Measurement, select_unit, trim_sigfig, unit_to_english


class Compare:
    """A table of measurements: a title for each label, rows by sub-label, columns by description.

    Args:
        results (Iterable[Measurement]): measurements; those of one task are joined.

    Example:
        >>> from lucid.utils.benchmark import Compare, Measurement, TaskSpec
        >>> task = [TaskSpec("f", "pass", "", "sizes", row, column) for row in "ab" for column in ("v1", "v2")]
        >>> print(Compare([Measurement(1, [0.001 * (i + 1)], t) for i, t in enumerate(task)]))
        [---- sizes ----]
             |  v1  |  v2
        1 thread: -----
          a  |   1  |   2
          b  |   3  |   4
        <BLANKLINE>
        Times are in milliseconds (ms).
    """

    def __init__(self, results: Iterable[Measurement]) -> None:
        self._results: list[Measurement] = []
        self._trim = self._highlight = self._rowwise = self._warnings = False
        self.extend_results(results)

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Adds measurements.

        Raises:
            ValueError: one is no measurement.
        """
        given = list(results)
        for r in given:
            if not isinstance(r, Measurement):
                raise errors.ValueError(f"Expected an instance of `Measurement`, got {type(r)} instead.")
        self._results += given

    def trim_significant_figures(self) -> None:
        """Shows the digits alone that mean something."""
        self._trim = True

    def colorize(self, rowwise: bool = False) -> None:
        """Marks the best of each row (or of each column) with a `*`."""
        self._highlight, self._rowwise = True, rowwise

    def highlight_warnings(self) -> None:
        """Shows the share of the interquartile range behind times that are spread widely."""
        self._warnings = True

    def print(self) -> None:
        """Prints the table."""
        print(str(self))

    def __str__(self) -> str:
        merged = Measurement.merge(self._results)
        tables: dict[str, list[Measurement]] = {}
        for m in merged:
            tables.setdefault(m.label or m.stmt, []).append(m)
        return "\n".join(self._table(title, group) for title, group in tables.items())

    def _table(self, title: str, group: list[Measurement]) -> str:
        unit, length = select_unit(min(m.median for m in group))
        columns = list(dict.fromkeys(m.description or "" for m in group))
        rows = list(dict.fromkeys((m.num_threads, m.env or "", m.as_row_name) for m in group))
        cells = {(m.num_threads, m.env or "", m.as_row_name, m.description or ""): m for m in group}
        best: dict[Any, float] = {}
        if self._highlight:
            for m in group:
                key = (m.num_threads, m.env, m.as_row_name) if self._rowwise else (m.num_threads, m.description)
                best[key] = min(best.get(key, m.median), m.median)

        def text(m: Measurement | None) -> str:
            if m is None:
                return ""
            number = trim_sigfig(m.median / length, m.significant_figures) if self._trim else m.median / length
            shown = f"{number:.4g}"
            key = (
                (m.num_threads, m.env, m.as_row_name)
                if self._highlight and self._rowwise
                else (m.num_threads, m.description)
            )
            if self._highlight and best[key] == m.median:
                shown = f"*{shown}"
            if self._warnings and len(m.raw_times) > 3 and m.has_warnings:
                shown += f" (! {100 * m.iqr / m.median:.0f}%)"
            return shown

        names = [(f"({env}) " if env else "") + name for _, env, name in rows]
        body = [[text(cells.get((*row, c))) for c in columns] for row in rows]
        first = max(map(len, names))
        widths = [max(len(c), *(len(line[i]) for line in body)) for i, c in enumerate(columns)]
        head = " " * (first + 2) + "".join(f"  |  {c.rjust(w)}" for c, w in zip(columns, widths, strict=True))
        rule = f" {title} ".center(max(len(head) - 2, len(title) + 4), "-")
        lines, threads = [f"[{rule}]", head.rstrip()], None
        for (count, _, _), name, line in zip(rows, names, body, strict=True):
            if count != threads:
                threads = count
                lines.append(f"{count} thread{'s' if count > 1 else ''}: ".ljust(max(len(rule), 12), "-"))
            lines.append(
                f"  {name.ljust(first)}" + "".join(f"  |  {c.rjust(w)}" for c, w in zip(line, widths, strict=True))
            )
        return "\n".join([*lines, "", f"Times are in {unit_to_english(unit)}s ({unit})."])
