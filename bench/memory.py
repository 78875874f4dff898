"""Memory of training steps on the CPU, against PyTorch: what the process holds at most, and what the tensors hold.

    python bench/memory.py [--steps 30] [--json]

Each side runs in a process of its own, with one thread, and trains the networks of `bench/cpu_vs_torch.py` on the same
shapes. `resident` is how far the process's peak (VmHWM) rose above what it was with everything imported and the model,
its input and its optimizer made; `tensors` is the most that tensors held at once, over what they held then (ours from
`memory_stats`, PyTorch's from its profiler). `flat` repeats the steps with batches of changing sizes and tells how far
the peak of the second half is above that of the first. Linux only: it reads /proc. See `bench/README.md`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nets import block, lenet, mlp
from timing import table

SIDES = ("ours", "peer", "control")
#: name: the network, the shape of one sample, and how many there are.
NETS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...], int]] = {
    "LeNet": (lenet, (1, 28, 28), 64),
    "MLP": (mlp, (784,), 64),
    "transformer": (block, (64, 128), 16),
}


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def _forget_peak() -> None:
    """Makes VmHWM what the process holds now."""
    Path("/proc/self/clear_refs").write_text("5")


def _ours_held(lib: Any, work: Callable[[], None]) -> int:
    before = lib.memory_stats("cpu")["current"]
    lib.reset_peak_memory_stats("cpu")
    work()
    return int(lib.memory_stats("cpu")["peak"]) - before


def _torch_held(lib: Any, work: Callable[[], None]) -> int:
    """The highest sum of the allocations and releases that the profiler saw."""
    with lib.profiler.profile(activities=[lib.profiler.ProfilerActivity.CPU], profile_memory=True) as seen:
        work()
    held = most = 0
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


def _run(module: str, net: str, steps: int) -> dict[str, int]:
    """One side's figures, in this process."""
    lib = importlib.import_module(module)
    lib.set_num_threads(1)
    make, shape, batch = NETS[net]
    model = make(lib)
    optimizer = lib.optim.Adam(model.parameters())

    def step(n: int) -> None:
        x = lib.ones(n, *shape)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    def some(sizes: list[int]) -> None:
        for n in sizes:
            step(n)

    def peak_of(sizes: list[int]) -> int:
        _forget_peak()
        some(sizes)
        return _status("VmHWM")

    # The first step makes the optimizer's state, and all that is made once.
    step(1)
    start = _status("VmRSS")
    resident = peak_of([batch] * steps) - start
    tensors = (_ours_held if module == "lucid" else _torch_held)(lib, lambda: some([batch] * 3))
    varying = [batch // 2 + (7 * i) % batch for i in range(steps)]
    first = peak_of(varying)
    flat = peak_of(varying[::-1]) - first
    return {"resident": resident, "tensors": tensors, "flat": flat}


def _side(module: str, net: str, steps: int) -> dict[str, int]:
    command = [sys.executable, __file__, "--side", module, "--net", net, "--steps", str(steps)]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]))


def profile(steps: int) -> dict[str, Any]:
    """Measures all networks on both sides."""
    rows = []
    for net in NETS:
        sides = {side: _side("lucid" if side == "ours" else "torch", net, steps) for side in SIDES}
        for what in ("resident", "tensors", "flat"):
            ours, peer, control = (sides[side][what] for side in SIDES)
            row: dict[str, Any] = {"name": f"{net}, {what}", "ours_bytes": ours, "peer_bytes": peer}
            if what != "flat":
                row |= {"ratio": ours / peer, "control": control / peer}
            rows.append(row)
    return {"benchmark": "memory", "steps": steps, "rows": rows}


def show(result: dict[str, Any]) -> str:
    """The result as a table to read."""
    lines = [
        [
            r["name"],
            f"{r['ours_bytes'] / 1e6:.2f}",
            f"{r['peer_bytes'] / 1e6:.2f}",
            f"{r['ratio']:.2f}" if "ratio" in r else "",
            f"{r['control']:.2f}" if "control" in r else "",
        ]
        for r in result["rows"]
    ]
    return "\n".join(
        ["Memory of training steps, CPU, MB", "", table(["", "ours", "PyTorch", "ours/PyTorch", "control"], lines)]
    )


def main() -> None:
    """Reads the command line, measures, prints."""
    parser = argparse.ArgumentParser(description="Memory of training steps against PyTorch.")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--side", choices=("lucid", "torch"), help=argparse.SUPPRESS)
    parser.add_argument("--net", choices=list(NETS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        print(json.dumps(_run(args.side, args.net, args.steps)))
        return
    result = profile(args.steps)
    print(show(result))
    if args.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
