"""What one call costs before there is any work: building the graph on the GPU device, small eager ops on the CPU.

    python bench/dispatch.py [--only PATTERN] [--seconds 60] [--json]

On the GPU device the peer is `mlx.core`, and nothing is evaluated: a call makes a node of the graph and drops it. On
the CPU the peer is PyTorch and the arrays are small. Each op once with nothing recorded and once with an input that
wants a gradient (`mlx.core` records nothing: its time is that of the plain call). What counts is the time that the
process had a core, which other programs on the machine change little. The rows "Rust" come from
`examples/dispatch.rs`, where it has been built: there the peer on the GPU device is mlx-c through `mlx-ffi`, and
there is none on the CPU, so that PyTorch's time from Python stands in. How to read the table: `bench/README.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lucid
import mlx.core as mx
import numpy as np
import torch
from timing import Case, Turn, Work, measure, table

CALLS = 100
Row = Callable[[Any, Any], Work]


def _like_torch(lib: Any) -> dict[str, Callable[..., Any]]:
    """The ops by the names that this project and PyTorch share. `x` is 16×16, `y` another, `image` 1×3×8×8."""
    functional = lib.nn.functional
    return {
        "add": lambda x, y: lambda: x + y,
        "mul": lambda x, y: lambda: x * y,
        "mul by number": lambda x, y: lambda: x * 2.0,
        "matmul": lambda x, y: lambda: x @ y,
        "relu": lambda x, y: lambda: lib.relu(x),
        "reshape": lambda x, y: lambda: x.reshape(4, 64),
        "transpose": lambda x, y: lambda: x.transpose(0, 1),
        "getitem": lambda x, y: lambda: x[3],
        "getitem slice": lambda x, y: lambda: x[2:8, ::2],
        "sum": lambda x, y: lambda: x.sum(),
        "sum dim": lambda x, y: lambda: x.sum(1),
        "linear": lambda x, y, bias: lambda: functional.linear(x, y, bias),
        "conv2d": lambda image, weight, bias: lambda: functional.conv2d(image, weight, bias, padding=1),
    }


def _like_mlx() -> dict[str, Callable[..., Any]]:
    """The same with `mlx.core`, NHWC where there are images."""
    zero = mx.array(0.0)
    return {
        "add": lambda x, y: lambda: x + y,
        "mul": lambda x, y: lambda: x * y,
        "mul by number": lambda x, y: lambda: x * 2.0,
        "matmul": lambda x, y: lambda: x @ y,
        "relu": lambda x, y: lambda: mx.maximum(x, zero),
        "reshape": lambda x, y: lambda: x.reshape(4, 64),
        "transpose": lambda x, y: lambda: x.swapaxes(0, 1),
        "getitem": lambda x, y: lambda: x[3],
        "getitem slice": lambda x, y: lambda: x[2:8, ::2],
        "sum": lambda x, y: lambda: x.sum(),
        "sum dim": lambda x, y: lambda: x.sum(1),
        "linear": lambda x, y, bias: lambda: mx.addmm(bias, x, y.T),
        "conv2d": lambda image, weight, bias: lambda: mx.conv2d(image, weight, padding=1) + bias,
    }


def _inputs(op: str) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    shapes: dict[str, list[tuple[int, ...]]] = {
        "linear": [(16, 16), (16, 16), (16,)],
        "conv2d": [(1, 3, 8, 8), (4, 3, 3, 3), (4,)],
    }
    return [draw.standard_normal(s).astype(np.float32) for s in shapes.get(op, [(16, 16), (16, 16)])]


def _mlx_inputs(op: str) -> list[mx.array]:
    given = _inputs(op)
    if op == "conv2d":
        given[:2] = [np.ascontiguousarray(x.transpose(0, 2, 3, 1)) for x in given[:2]]
    made = [mx.array(x) for x in given]
    mx.eval(*made)
    return made


def _cases(pattern: str) -> dict[str, tuple[Case, str]]:
    """Rows by name, with the op of each."""
    made: dict[str, tuple[Case, str]] = {}
    mlx_ops, torch_ops, ours = _like_mlx(), _like_torch(torch), _like_torch(lucid)
    for device in ("gpu", "cpu"):
        for grad in (False, True):
            for op in ours:
                name = f"{device} {op}" + (", grad" if grad else "")
                if not re.search(pattern, name):
                    continue
                x = [lucid.tensor(a, device=device) for a in _inputs(op)]
                if grad:
                    x = [t.requires_grad_() for t in x]
                if device == "gpu":
                    lucid.eval(*x)
                    peers = [mlx_ops[op](*_mlx_inputs(op)) for _ in range(2)]
                else:
                    peers = [
                        torch_ops[op](*(torch.from_numpy(a).requires_grad_(grad) for a in _inputs(op)))
                        for _ in range(2)
                    ]
                sides = dict(zip(("ours", "peer", "control"), [ours[op](*x), *peers], strict=True))
                _check(name, sides["ours"](), sides["peer"]())
                made[name] = (
                    Case(name, {side: Turn(work, CALLS, clock=time.process_time_ns) for side, work in sides.items()}),
                    op,
                )
    return made


def _check(name: str, ours: lucid.Tensor, peer: Any) -> None:
    """Both sides computed the same."""
    got = ours.detach().cpu().numpy()
    want = peer.detach().numpy() if isinstance(peer, torch.Tensor) else np.array(peer)
    if want.shape != got.shape:
        want = want.transpose(0, 3, 1, 2)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=name)


def _rust(pattern: str, seconds: float) -> list[dict[str, Any]]:
    """The rows of the Rust program, empty where it has not been built."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).resolve().parent.parent / "target"))
    program = target / "release" / "examples" / "dispatch"
    if not program.exists():
        print(f"no rows from Rust: {program} has not been built (cargo build --release --examples)", file=sys.stderr)
        return []
    said = subprocess.run([program, str(seconds)], check=True, capture_output=True, text=True).stdout
    return [row for row in json.loads(said) if re.search(pattern, row["name"])]


def profile(pattern: str, seconds: float) -> dict[str, Any]:
    """Measures all rows."""
    torch.set_num_threads(1)
    lucid.set_num_threads(1)
    cases = _cases(pattern)
    rounds = measure([case for case, _ in cases.values()], seconds, least=15, most=2000) if cases else 0
    rows = []
    torch_us: dict[str, float] = {}
    for name, (case, op) in cases.items():
        ours, peer, control = (case.variants[side] for side in ("ours", "peer", "control"))
        if name.startswith("cpu"):
            torch_us[op + (", grad" if name.endswith("grad") else "")] = peer.median
        rows.append(
            {
                "name": name,
                "ours_us": ours.median,
                "peer_us": peer.median,
                "ratio": ours.median / peer.median,
                "control": control.median / peer.median,
                "ours_iqr_us": ours.quartiles,
            }
        )
    for row in _rust(pattern, min(seconds, 10)):
        if row["peer_us"] is None:
            row["peer_us"] = row["control_us"] = torch_us.get(row["op"])
        if row["peer_us"] is not None:
            row["ratio"] = row["ours_us"] / row["peer_us"]
            row["control"] = row.pop("control_us") / row["peer_us"]
            rows.append(row)
    return {"benchmark": "dispatch", "rounds": rounds, "mlx_device": str(mx.default_device()), "rows": rows}


def show(result: dict[str, Any]) -> str:
    """The result as a table to read."""
    lines = [
        [
            r["name"],
            f"{r['ours_us'] * 1e3:.0f}",
            "({:.0f}-{:.0f})".format(*(us * 1e3 for us in r["ours_iqr_us"])),
            f"{r['peer_us'] * 1e3:.0f}",
            f"{r['ratio']:.2f}",
            f"{r['control']:.2f}",
        ]
        for r in result["rows"]
    ]
    head = ["", "ours ns", "(IQR)", "peer ns", "ours/peer", "control"]
    goals = [1.1 if "gpu" in r["name"] and r["name"].endswith("grad") else 1.0 for r in result["rows"]]
    held = sum(r["ratio"] <= goal for r, goal in zip(result["rows"], goals, strict=True))
    return "\n".join(
        [
            f"One call, medians of {result['rounds']} rounds; {result['mlx_device']}",
            "",
            table(head, lines),
            "",
            f"{held} of {len(lines)} rows at their goal (1.10 on gpu with grad, else 1.00)",
        ]
    )


def main() -> None:
    """Reads the command line, measures, prints."""
    parser = argparse.ArgumentParser(description="What one call costs before there is any work.")
    parser.add_argument("--only", default="", metavar="PATTERN", help="rows whose name this regular expression finds")
    parser.add_argument("--seconds", type=float, default=60, help="how long to measure, about")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()
    result = profile(args.only, args.seconds)
    print(show(result))
    if args.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
