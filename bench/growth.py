"""How cost grows with size, over three decades: GEMM, convolution, softmax, attention, sort, cat, a graph of n ops.

    python bench/growth.py [--device cpu] [--seconds 60] [--json] [--png FILE]

Each case is run at sizes that double. The slope is that of a line through the logarithms of size and time, over the
larger half of the sizes, where fixed costs no longer count: 1.0 is linear. `limit` is the exponent that theory gives
the case, with room for caches that become too small; a slope beyond it is an accidental power. On `cpu` PyTorch does
the same, with one thread each, and what counts is the time that the process had a core. See `bench/README.md`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import torch
from timing import Case, Turn, Work, calls_of, measure, table

# What a case is: given a library, a device and a size, the work.
Maker = Callable[[Any, str, int], Work]
# How far above its exponent a slope may be: caches become too small on the way.
ROOM = 0.35


def _random(lib: Any, device: str, *shape: int) -> Any:
    made = lib.tensor(np.random.default_rng(math.prod(shape)).standard_normal(shape).astype(np.float32))
    return made if lib is torch else made.to(device)


def _gemm(lib: Any, device: str, n: int) -> Work:
    a, b = (_random(lib, device, n, n) for _ in range(2))
    return lambda: a @ b


def _conv(lib: Any, device: str, n: int) -> Work:
    x, w = _random(lib, device, 1, 8, n, n), _random(lib, device, 8, 8, 3, 3)
    return lambda: lib.nn.functional.conv2d(x, w, padding=1)


def _softmax(lib: Any, device: str, n: int) -> Work:
    x = _random(lib, device, n, 64)
    return lambda: lib.softmax(x, 1)


def _attention(lib: Any, device: str, n: int) -> Work:
    q, k, v = (_random(lib, device, 1, 2, n, 32) for _ in range(3))
    return lambda: lib.nn.functional.scaled_dot_product_attention(q, k, v)


def _sort(lib: Any, device: str, n: int) -> Work:
    x = _random(lib, device, n)
    return lambda: lib.sort(x)[0]


def _cat(lib: Any, device: str, n: int) -> Work:
    pieces = [_random(lib, device, 16) for _ in range(n)]
    return lambda: lib.cat(pieces)


def _split(lib: Any, device: str, n: int) -> Work:
    x = _random(lib, device, n, 4).requires_grad_()

    def work() -> Any:
        parts = lib.split(x, 1)
        return lib.autograd.grad(lib.stack(parts).sum(), x)[0]

    return work


def _graph(lib: Any, device: str, n: int) -> Work:
    x = _random(lib, device, 16).requires_grad_()

    def work() -> Any:
        y = x
        for _ in range(n):
            y = y * 1.0001
        return lib.autograd.grad(y.sum(), x)[0]

    return work


def _indexing(lib: Any, device: str, n: int) -> Work:
    x = _random(lib, device, n, 4)

    def work() -> Any:
        y = x.clone()
        for i in range(n):
            y[i] += 1.0
        return y

    return work


#: name: how it is made, smallest size, largest size, exponent.
CASES: dict[str, tuple[Maker, int, int, float]] = {
    "GEMM n×n": (_gemm, 4, 2048, 3),
    "conv2d 8 channels, n×n": (_conv, 4, 512, 2),
    "softmax of n rows": (_softmax, 16, 16384, 1),
    "attention over n": (_attention, 4, 2048, 2),
    "sort of n": (_sort, 64, 1 << 17, 1.1),
    "cat of n": (_cat, 4, 4096, 1),
    "split in n and stacked, with gradient": (_split, 4, 2048, 1),
    "n ops with gradient": (_graph, 4, 4096, 1),
    "n writes to one tensor": (_indexing, 4, 2048, 1),
}


def slope(sizes: list[int], times: list[float]) -> float:
    """The slope of the line through the logarithms, over the larger half of the sizes."""
    half = len(sizes) // 2
    return float(np.polyfit(np.log(sizes[half:]), np.log(times[half:]), 1)[0])


def profile(device: str, seconds: float) -> dict[str, Any]:
    """Measures all cases at all sizes."""
    torch.set_num_threads(1)
    lucid.set_num_threads(1)
    # The time that the process had a core, which other programs change little. MLX computes on threads of its own.
    clock = time.process_time_ns if device == "cpu" else time.perf_counter_ns
    rows = []
    sizes = {name: [n for n in (low << k for k in range(20)) if n <= high] for name, (_, low, high, _) in CASES.items()}
    each = seconds / sum(map(len, sizes.values()))
    for name, (make, _, _, exponent) in CASES.items():
        times: dict[str, list[float]] = {"ours": [], "peer": []}
        for n in sizes[name]:
            ours = make(lucid, device, n)
            sides = {"ours": (lambda ours=ours: ours().eval())}
            if device == "cpu":
                sides["peer"] = make(torch, device, n)
            turns = {side: Turn(work, calls_of(work), clock=clock) for side, work in sides.items()}
            measure([Case(name, dict(turns))], each, least=3, most=50, warmup=1)
            for side, turn in turns.items():
                times[side].append(turn.median)
        found = slope(sizes[name], times["ours"])
        row = {"name": name, "sizes": sizes[name], "ours_us": times["ours"], "exponent": exponent, "slope": found}
        row["within"] = found <= exponent + ROOM
        if times["peer"]:
            row |= {"peer_us": times["peer"], "peer_slope": slope(sizes[name], times["peer"])}
        rows.append(row)
        print(f"{name}: {found:.2f}", file=sys.stderr, flush=True)
    return {"benchmark": "growth", "device": device, "rows": rows}


def show(result: dict[str, Any]) -> str:
    """The result as a table to read."""
    lines = [
        [
            r["name"],
            f"{r['sizes'][0]}-{r['sizes'][-1]}",
            f"{r['ours_us'][0]:.1f}",
            f"{r['ours_us'][-1]:.0f}",
            f"{r['slope']:.2f}",
            f"{r['peer_slope']:.2f}" if "peer_slope" in r else "-",
            f"{r['exponent'] + ROOM:.2f}",
            "yes" if r["within"] else "NO",
        ]
        for r in result["rows"]
    ]
    head = ["", "n", "first µs", "last µs", "slope", "PyTorch's", "limit", "within"]
    return "\n".join([f"How cost grows, {result['device']}, one thread", "", table(head, lines)])


def picture(result: dict[str, Any], path: str) -> None:
    """Draws time over size for every case."""
    from matplotlib.figure import Figure

    rows = result["rows"]
    columns = 3
    figure = Figure(figsize=(12, 3.2 * math.ceil(len(rows) / columns)), layout="constrained")
    for i, r in enumerate(rows):
        axes = figure.add_subplot(math.ceil(len(rows) / columns), columns, i + 1)
        if "peer_us" in r:
            axes.loglog(r["sizes"], r["peer_us"], "o-", color="#8a8a8a", markersize=3, label="PyTorch")
        axes.loglog(r["sizes"], r["ours_us"], "o-", color="#1b6ca8", markersize=3, label="Lucid")
        end, size = r["ours_us"][-1], r["sizes"][-1]
        axes.loglog(
            r["sizes"],
            [end * (n / size) ** r["exponent"] for n in r["sizes"]],
            "--",
            color="black",
            linewidth=0.8,
            label=f"n^{r['exponent']:g}",
        )
        axes.set_title(f"{r['name']}: slope {r['slope']:.2f}", fontsize=10)
        axes.set_xlabel("n")
        axes.set_ylabel("µs (median)")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=100)


def main() -> None:
    """Reads the command line, measures, prints."""
    parser = argparse.ArgumentParser(description="How cost grows with size.")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=60, help="how long to measure, about")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--png", metavar="FILE", help="draw the result")
    args = parser.parse_args()
    result = profile(args.device, args.seconds)
    print(show(result))
    if args.png:
        picture(result, args.png)
    if args.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
