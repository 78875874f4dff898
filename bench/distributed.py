"""`all_reduce` over sizes, and a data-parallel step, against PyTorch's gloo in the same processes, taking turns.

    python bench/distributed.py [--processes N] [--json] [--least ROUNDS] [--model]

Each round does every size once on each side, after a barrier. Times are of rank 0, from the barrier to the result. The
control is gloo once more; "ring" is MLX's ring by MLX's own Python package, where that is installed, without Lucid.
`--model` measures with 2 and with 4 processes, takes from the 2 the constants of docs/distributed.md's model, and says
what that predicts for the 4 beside what they took.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
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


def ring_of_mlx(rank: int, n: int) -> Callable[[int], Callable[[], Any]] | None:
    """What makes a sum of so many elements over a ring of MLX's package; nothing where it is not installed."""
    try:
        import mlx.core as mx
    except ImportError:
        return None
    os.environ.update(MLX_RANK=str(rank), MLX_HOSTFILE=os.environ["BENCH_RING_HOSTS"])
    ring = mx.distributed.init(backend="ring", strict=True)
    for name in ("MLX_RANK", "MLX_HOSTFILE"):
        os.environ.pop(name)

    def prepare(size: int) -> Callable[[], Any]:
        x = mx.ones((size,))
        mx.eval(x)

        def call() -> None:
            with mx.stream(mx.cpu):
                mx.eval(mx.distributed.all_sum(x, group=ring))

        return call

    return prepare


def fit(points: list[tuple[int, float]]) -> tuple[float, float]:
    """`a` and `b` of `t = a + b * bytes`, by least squares of relative errors, both at least 0."""
    rows = [(1 / t, nbytes / t) for nbytes, t in points]
    # Normal equations of a/t + b*bytes/t = 1.
    aa, ab, bb = sum(u * u for u, _ in rows), sum(u * v for u, v in rows), sum(v * v for _, v in rows)
    a1, b1 = sum(u for u, _ in rows), sum(v for _, v in rows)
    determinant = aa * bb - ab * ab
    a, b = (a1 * bb - b1 * ab) / determinant, (b1 * aa - a1 * ab) / determinant
    if a < 0:
        return 0.0, b1 / bb
    return (a1 / aa, 0.0) if b < 0 else (a, b)


def predicted(c: dict[str, float], n: int, nbytes: int, cores: int, messages: int = 1) -> float:
    """The model's time of `messages` sums of `nbytes` in all, in microseconds. More processes than cores take turns."""
    turns = max(1.0, n / cores)
    check = c["check_us"] * n / 2
    moved = 2 * (n - 1) / n * nbytes * c["us_per_byte"]
    return messages * (check + 2 * (n - 1) * c["alpha_us"] * turns) + moved * turns


def efficiency(c: dict[str, float], n: int) -> float:
    """Time of a step alone over that of a step on `n` devices: 100 MB of gradients in 4 buckets, the last of 1 MB,
    100 ms forward, 200 ms backward, which hides all but the last bucket."""
    hidden, last = predicted(c, n, 99_000_000, n, 3), predicted(c, n, 1_000_000, n)
    return 300e3 / (100e3 + max(200e3, hidden) + last)


# What is not measured here: microseconds of a message, and of a byte.
LINKS = {"10 GbE": (50.0, 1 / 1.2e3), "Thunderbolt 5": (20.0, 1 / 5e3)}


def model(two: dict[str, Any], four: dict[str, Any], cores: int) -> dict[str, Any]:
    """The constants from two processes, and what they predict for both beside what was measured."""
    sums = [r for r in two["rows"] if r["name"].startswith("all_reduce")]
    check = next(r["ours_us"] for r in two["rows"] if r["name"].startswith("barrier"))
    a, per_byte = fit([(r["bytes"], r["ours_us"]) for r in sums])
    constants = {"check_us": check, "alpha_us": max(a - check, 0.0) / 2, "us_per_byte": per_byte}
    checked = []
    for result in (two, four):
        n = result["processes"]
        for r in result["rows"]:
            if r["name"].startswith("all_reduce"):
                expected = predicted(constants, n, r["bytes"], cores)
            elif r["name"].startswith("backward"):
                # Cores that all compute hide nothing of the sums.
                expected = r["peer_us"] + predicted(constants, n, r["bytes"], cores, result["buckets"])
            else:
                continue
            checked.append({"processes": n, "name": r["name"], "predicted_us": expected, "measured_us": r["ours_us"]})
    return {"constants": constants, "checked": checked}


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
    ring = ring_of_mlx(rank, n)
    times: dict[tuple[int, str], list[float]] = {}
    for _ in range(least + 1):
        for size in SIZES:
            x, y = lucid.ones(size), torch.ones(size)
            sides: tuple[tuple[str, Callable[[], Any]], ...] = (
                ("ours", lambda x=x: dist.all_reduce(x)),  # type: ignore[misc]
                ("peer", lambda y=y: tdist.all_reduce(y)),  # type: ignore[misc]
                ("control", lambda y=y: tdist.all_reduce(y)),  # type: ignore[misc]
                *((("ring", ring(size)),) if ring is not None else ()),
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
        if ring is not None:
            rows[-1]["ring_us"] = statistics.median(times[size, "ring"][1:])
    for _ in range(least + 1):
        for side, call in (("ours", dist.barrier), ("peer", tdist.barrier), ("control", tdist.barrier)):
            tdist.barrier()
            begun = time.perf_counter()
            call()
            times.setdefault((0, side), []).append((time.perf_counter() - begun) * 1e6)
    ours, peer, control = (times[0, side][1:] for side in ("ours", "peer", "control"))
    rows.append(row("barrier: announcement alone", ours, peer, control, 0))
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
        buckets = len(shared._buckets)
        print("RESULT " + json.dumps({"processes": n, "rows": rows, "buckets": buckets}), flush=True)
    tdist.destroy_process_group()
    dist.destroy_process_group()


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens at now."""
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for s in found:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in found]


def measured(n: int, least: int) -> dict[str, Any]:
    """One run with so many processes, and the table of it."""
    gloo, *ring = free_ports(n + 1)
    here = str(Path(__file__).resolve())
    command = [sys.executable, "-m", "lucid.distributed.run", "--nproc-per-node", str(n), here, "--worker"]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as hosts:
        json.dump([[f"127.0.0.1:{port}"] for port in ring], hosts)
        hosts.flush()
        env = {**os.environ, "BENCH_GLOO_PORT": str(gloo), "BENCH_RING_HOSTS": hosts.name, "OMP_NUM_THREADS": "1"}
        done = subprocess.run([*command, "--least", str(least)], env=env, capture_output=True, text=True, check=False)
    found = [line.split("RESULT ", 1)[1] for line in done.stdout.splitlines() if "RESULT " in line]
    if done.returncode or not found:
        sys.exit(done.stderr or done.stdout)
    result: dict[str, Any] = json.loads(found[0])
    result["load"] = os.getloadavg()
    print(f"{n} processes on {os.cpu_count()} cores, load {result['load'][0]:.1f}")
    print(f"{'':34} {'ours, us':>12} {'ring, us':>12} {'gloo, us':>12} {'ratio':>7} {'control':>8} {'GB/s':>7}")
    for r in result["rows"]:
        alone = f"{r['ring_us']:12.0f}" if "ring_us" in r else " " * 12
        print(
            f"{r['name']:34} {r['ours_us']:12.0f} {alone} {r['peer_us']:12.0f} {r['ratio']:7.2f} {r['control']:8.2f} "
            f"{r['bandwidth_gb_s']:7.2f}"
        )
    return result


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--least", type=int, default=30, help="rounds")
    p.add_argument("--json", action="store_true")
    p.add_argument("--model", action="store_true", help="2 and 4 processes, and the model of docs/distributed.md")
    p.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.worker:
        worker(args.least)
        return
    if not args.model:
        result = measured(args.processes, args.least)
    else:
        two, four = measured(2, args.least), measured(4, args.least)
        result = {"two": two, "four": four, **model(two, four, os.cpu_count() or 1)}
        c = result["constants"]
        print(
            f"check {c['check_us']:.0f} us, alpha {c['alpha_us']:.0f} us, "
            f"beta {1e-3 / max(c['us_per_byte'], 1e-9):.2f} GB/s, from 2 processes"
        )
        print(f"{'':36} {'model, us':>12} {'took, us':>12} {'took/model':>11}")
        for r in result["checked"]:
            name = f"{r['processes']} {r['name']}"
            ratio = r["measured_us"] / r["predicted_us"]
            print(f"{name:36} {r['predicted_us']:12.0f} {r['measured_us']:12.0f} {ratio:11.2f}")
        print(f"{'expected efficiency on':36} " + " ".join(f"{n:>9}" for n in (2, 8, 64, 512)))
        for link, (alpha, per_byte) in LINKS.items():
            on = {"check_us": c["check_us"], "alpha_us": alpha, "us_per_byte": per_byte}
            print(f"{link:36} " + " ".join(f"{efficiency(on, n):9.2f}" for n in (2, 8, 64, 512)))
    if args.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
