"""The table of ratios, from what criterion left: `python bench/rust/table.py` after `cargo bench` in this folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

SIDES = ["lucid", "candle", "burn"]


def median_us(row: Path, side: str) -> float | None:
    """The median in microseconds of a row's side, or None where it was not run."""
    file = row / side / "new" / "estimates.json"
    if not file.is_file():
        return None
    return float(json.loads(file.read_text())["median"]["point_estimate"]) / 1e3


def main() -> None:
    """Prints one row for each benchmark: times, and how many times as fast as each peer Lucid is."""
    target = os.environ.get("CARGO_TARGET_DIR", str(Path(__file__).parent / "target"))
    print("| row | lucid, µs | candle, µs | burn, µs | candle / lucid | burn / lucid |")
    print("|---|---|---|---|---|---|")
    for row in sorted(Path(target, "criterion").iterdir()):
        times = [median_us(row, side) for side in SIDES]
        ours = times[0]
        if ours is None:
            continue
        cells = ["" if t is None else f"{t:.4g}" for t in times]
        ratios = ["" if t is None else f"{t / ours:.2f}" for t in times[1:]]
        print(f"| {row.name} | {' | '.join(cells + ratios)} |")


if __name__ == "__main__":
    main()
