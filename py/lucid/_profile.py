"""`lucid.profile`: counts of what engine calls cost."""

from __future__ import annotations

from types import TracebackType

from lucid import _C


class profile:
    """Counts ops, the operations they record with MLX, copies and evaluations, while its block runs.

        with lucid.profile() as p:
            model(x).eval()
        print(p)

    Counting is process-wide and covers all threads; two open blocks see the same counts.
    """

    def __init__(self) -> None:
        self.ops: dict[str, dict[str, int]] = {}
        self.total: dict[str, int] = {}

    def __enter__(self) -> profile:
        _C._profile_start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        _C._profile_stop()
        self.ops, self.total = _C._profile_report()

    def table(self) -> str:
        """The counts as a table, the most expensive op first."""
        columns = ("calls", "mlx_ops", "contiguous", "evaluations")
        rows = sorted(self.ops.items(), key=lambda item: (-item[1]["mlx_ops"], -item[1]["calls"], item[0]))
        lines = [("op", *columns), *((name, *(str(c[k]) for k in columns)) for name, c in rows)]
        if self.total:
            lines.append(("total", *(str(self.total[k]) for k in columns)))
        widths = [max(len(line[i]) for line in lines) for i in range(len(columns) + 1)]
        return "\n".join(
            line[0].ljust(widths[0]) + "".join("  " + c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))
            for line in lines
        )

    def __str__(self) -> str:
        return self.table()
