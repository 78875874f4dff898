"""Fourier transforms on the CPU device against PyTorch, and with `--gpu` on the GPU device against raw `mlx.core`.

Both sides transform the same numbers, one thread each, in turns; the second run of the peer is the control. Lengths are
2^8 to 2^20, 1000 and 10007 (a prime), in batches that make up about 2^16 elements; planes 256² to 2048².

    python bench/fft.py [--only PATTERN] [--seconds 60] [--gpu] [--json]
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import timing
import torch

LENGTHS = (*(1 << k for k in range(8, 21, 2)), 1 << 11, 1 << 15, 1000, 10007)
PLANES = (256, 512, 1024, 2048)

Make = Callable[[Any, Any], Any]


def cases() -> dict[str, tuple[tuple[int, ...], str, Make]]:
    """Rows by name: the input's shape and dtype, and the work over a library and its tensor."""
    found: dict[str, tuple[tuple[int, ...], str, Make]] = {}
    for n in sorted(LENGTHS):
        batch = max(1, (1 << 16) // n)
        for name, dtype in (("fft", "complex64"), ("rfft", "float32"), ("irfft", "complex64")):
            size = n // 2 + 1 if name == "irfft" else n
            work: Make = lambda m, x, name=name, n=n: getattr(m.fft, name)(x, n)  # noqa: E731
            found[f"{name} {batch}x{n}"] = ((batch, size), dtype, work)
    for n in (256, 1000, 4096):
        work = lambda m, x: m.fft.fft(x)  # noqa: E731
        found[f"fft {n} alone"] = ((n,), "complex64", work)
    found["fft 64x1024 double"] = ((64, 1024), "complex128", lambda m, x: m.fft.fft(x))
    found["fft along the first of 1024x64"] = ((1024, 64), "complex64", lambda m, x: m.fft.fft(x, dim=0))
    found["fft of real numbers 64x1024"] = ((64, 1024), "float32", lambda m, x: m.fft.fft(x))
    for n in PLANES:
        found[f"fft2 {n}x{n}"] = ((n, n), "complex64", lambda m, x: m.fft.fft2(x))
        found[f"rfft2 {n}x{n}"] = ((n, n), "float32", lambda m, x: m.fft.rfft2(x))
        found[f"irfft2 {n}x{n}"] = ((n, n // 2 + 1), "complex64", lambda m, x: m.fft.irfft2(x))
    return found


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """The input."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype.startswith("complex") else x).astype(dtype)


def sides(name: str, gpu: bool) -> dict[str, timing.Variant]:
    """The two libraries and the control, checked to agree."""
    shape, dtype, work = cases()[name]
    x = numbers(shape, dtype)
    theirs = torch.from_numpy(x)
    ours = lucid.from_numpy(x).to("gpu" if gpu else "cpu")
    gap = np.abs(np.asarray(work(lucid, ours).cpu().numpy()) - work(torch, theirs).numpy()).max()
    assert gap < 1e-3 * max(1.0, np.abs(work(torch, theirs).numpy()).max()), name
    if not gpu:
        calls = timing.calls_of(lambda: work(torch, theirs))
        made = {"ours": lambda: work(lucid, ours), "peer": lambda: work(torch, theirs)}
        made["control"] = made["peer"]
        return {side: timing.Turn(f, calls) for side, f in made.items()}
    import mlx.core as mx

    raw = mx.array(x)

    class Raw:
        """The names that the work uses."""

        fft = mx.fft

    def evaluated(y: Any) -> Any:
        y.eval()
        return y

    made = {"ours": lambda: evaluated(work(lucid, ours)), "peer": lambda: mx.eval(work(Raw, raw))}
    if "along" in name:
        made["peer"] = lambda: mx.eval(mx.fft.fft(raw, axis=0))
    made["control"] = made["peer"]
    calls = timing.calls_of(made["peer"])
    return {side: timing.Turn(f, calls) for side, f in made.items()}


def main() -> None:
    """Reads the command line, measures, prints."""
    parser = argparse.ArgumentParser(description="Fourier transforms against PyTorch, or raw MLX.")
    parser.add_argument("--only", default="", metavar="PATTERN", help="rows whose name this regular expression finds")
    parser.add_argument("--seconds", type=float, default=60, help="how long to measure all of them, about")
    parser.add_argument("--gpu", action="store_true", help="the GPU device, against mlx.core")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()
    torch.set_num_threads(1)
    lucid.set_num_threads(1)
    # MLX has no doubles.
    chosen = [name for name in cases() if re.search(args.only, name) and not (args.gpu and "double" in name)]
    if not chosen:
        parser.error(f"no row matches {args.only!r}")
    rows: list[dict[str, Any]] = []
    for name in chosen:
        variants = sides(name, args.gpu)
        timing.measure([timing.Case(name, variants)], args.seconds / len(chosen), least=7)
        ours, peer, control = (variants[side] for side in ("ours", "peer", "control"))
        pairs = zip(ours.total, peer.total, strict=True)
        rows.append(
            {
                "name": name,
                "ours_us": ours.median,
                "peer_us": peer.median,
                "ratio": ours.median / peer.median,
                "ratio_of_rounds": statistics.median(a / b for a, b in pairs),
                "control": control.median / peer.median,
            }
        )
        print(f"{name}: {ours.median:.1f} / {peer.median:.1f}", file=sys.stderr, flush=True)
    peer_name = "raw MLX" if args.gpu else f"PyTorch {torch.__version__}"
    head = ["", "ours µs", f"{peer_name} µs", "ratio", "of rounds", "control"]
    lines = [
        [
            r["name"],
            f"{r['ours_us']:.1f}",
            f"{r['peer_us']:.1f}",
            *(f"{r[key]:.2f}" for key in ("ratio", "ratio_of_rounds", "control")),
        ]
        for r in rows
    ]
    print(timing.table(head, lines))
    ratios = [r["ratio_of_rounds"] for r in rows]
    middle = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"\n{sum(r <= 1 for r in ratios)} of {len(ratios)} rows at or below 1.00; geometric mean {middle:.2f}")
    if args.json:
        print(json.dumps({"benchmark": "fft", "gpu": args.gpu, "rows": rows}))


if __name__ == "__main__":
    main()
