"""The table of ratios, from what criterion left: `python table.py` after `cargo bench` in this folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

SIDES = ["lucid", "candle", "burn"]


def least_us(row: Path, side: str) -> float | None:
    """The fastest sample of a row's side in microseconds, None where it was not run. Other work only adds."""
    file = row / side / "new" / "sample.json"
    if not file.is_file():
        return None
    sample = json.loads(file.read_text())
    return float(min(time / count for time, count in zip(sample["times"], sample["iters"], strict=True))) / 1e3


def main() -> None:
    """Prints one row for each benchmark: times, and how many times as fast as each peer Lucid is."""
    target = os.environ.get("CARGO_TARGET_DIR", str(Path(__file__).parent / "target"))
    print("| row | lucid, µs | candle, µs | burn, µs | candle / lucid | burn / lucid |")
    print("|---|---|---|---|---|---|")
    for row in sorted(Path(target, "criterion").iterdir()):
        times = [least_us(row, side) for side in SIDES]
        ours = times[0]
        if ours is None:
            continue
        cells = ["" if t is None else f"{t:.4g}" for t in times]
        ratios = ["" if t is None else f"{t / ours:.2f}" for t in times[1:]]
        print(f"| {row.name} | {' | '.join(cells + ratios)} |")


if __name__ == "__main__":
    main()
