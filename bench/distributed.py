"""`all_reduce` over sizes, and a data-parallel step, against PyTorch's gloo in the same processes, taking turns.

    python bench/distributed.py [--processes N] [--json] [--least ROUNDS]

Each round does every size once on each side, after a barrier. Times are of rank 0, from the barrier to the result. The
control is gloo once more.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZES = (1, 1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22)


def quartiles(times: list[float]) -> list[float]:
    """Lower and upper quartile."""
    low, _, high = statistics.quantiles(times, n=4) if len(times) > 1 else times * 3
    return [low, high]


def row(name: str, ours: list[float], peer: list[float], control: list[float], nbytes: int) -> dict[str, Any]:
    """One line of the table."""
    a, b, c = (statistics.median(t) for t in (ours, peer, control))
    return {
        "name": name,
        "bytes": nbytes,
        "ours_us": a,
        "ours_iqr_us": quartiles(ours),
        "peer_us": b,
        "ratio": a / b,
        "control": c / b,
        "bandwidth_gb_s": nbytes / a / 1e3,
    }


def worker(least: int) -> None:
    """One of the processes."""
    import lucid
    import lucid.distributed as dist
    import torch
    import torch.distributed as tdist
    from lucid import nn
    from lucid.nn.parallel import DistributedDataParallel

    lucid.set_num_threads(1)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, n = dist.get_rank(), dist.get_world_size()
    port = os.environ["BENCH_GLOO_PORT"]
    tdist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=n)
    times: dict[tuple[int, str], list[float]] = {}
    for _ in range(least + 1):
        for size in SIZES:
            x, y = lucid.ones(size), torch.ones(size)
            sides: tuple[tuple[str, Callable[[], Any]], ...] = (
                ("ours", lambda x=x: dist.all_reduce(x)),  # type: ignore[misc]
                ("peer", lambda y=y: tdist.all_reduce(y)),  # type: ignore[misc]
                ("control", lambda y=y: tdist.all_reduce(y)),  # type: ignore[misc]
            )
            for side, call in sides:
                tdist.barrier()
                begun = time.perf_counter()
                call()
                times.setdefault((size, side), []).append((time.perf_counter() - begun) * 1e6)
            assert x[0].item() == n and y[0].item() == n * n
    rows = []
    for size in SIZES:
        # The first round opens connections.
        ours, peer, control = (times[size, side][1:] for side in ("ours", "peer", "control"))
        rows.append(row(f"all_reduce {4 * size} B", ours, peer, control, 4 * size))
    net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    shared = DistributedDataParallel(net, bucket_cap_mb=0.25)
    x = lucid.ones(32, 256)
    steps: dict[str, list[float]] = {"alone": [], "shared": []}
    for _ in range(least + 1):
        for name in ("alone", "shared"):
            tdist.barrier()
            begun = time.perf_counter()
            if name == "shared":
                shared(x).sum().backward()
            else:
                with shared.no_sync():
                    shared(x).sum().backward()
            steps[name].append((time.perf_counter() - begun) * 1e6)
    alone, together = steps["alone"][1:], steps["shared"][1:]
    nbytes = sum(4 * p.numel() for p in net.parameters())
    rows.append(row("backward with DDP, over without", together, alone, alone, nbytes))
    if rank == 0:
        print("RESULT " + json.dumps({"processes": n, "rows": rows}), flush=True)
    tdist.destroy_process_group()
    dist.destroy_process_group()


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--least", type=int, default=30, help="rounds")
    p.add_argument("--json", action="store_true")
    p.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.worker:
        worker(args.least)
        return
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    here = str(Path(__file__).resolve())
    command = [sys.executable, "-m", "lucid.distributed.run", "--nproc-per-node", str(args.processes), here, "--worker"]
    env = {**os.environ, "BENCH_GLOO_PORT": port, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, "--least", str(args.least)], env=env, capture_output=True, text=True, check=False)
    found = [line.split("RESULT ", 1)[1] for line in done.stdout.splitlines() if "RESULT " in line]
    if done.returncode or not found:
        sys.exit(done.stderr or done.stdout)
    result = json.loads(found[0])
    result["load"] = os.getloadavg()
    print(f"{args.processes} processes on {os.cpu_count()} cores, load {result['load'][0]:.1f}")
    print(f"{'':34} {'ours, us':>12} {'gloo, us':>12} {'ratio':>7} {'control':>8} {'GB/s':>7}")
    for r in result["rows"]:
        print(
            f"{r['name']:34} {r['ours_us']:12.0f} {r['peer_us']:12.0f} {r['ratio']:7.2f} {r['control']:8.2f} "
            f"{r['bandwidth_gb_s']:7.2f}"
        )
    if args.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
