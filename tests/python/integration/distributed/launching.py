"""Starting several processes for a test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]


def launch(
    n: int, script: str | Path, *args: str, options: tuple[str, ...] = (), seconds: float = 300.0
) -> subprocess.CompletedProcess[str]:
    """Runs a script of this folder in `n` processes by the launcher."""
    command = [sys.executable, "-m", "lucid.distributed.run", "--nproc-per-node", str(n), *options]
    # The scripts name their tolerances by the package of the tests.
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LUCID_DISTRIBUTED_TOKEN"):
        env.pop(name, None)
    return subprocess.run(
        [*command, str(HERE / script), *args], capture_output=True, text=True, timeout=seconds, env=env, check=False
    )


def succeeded(n: int, script: str | Path, *args: str, **more: object) -> str:
    """The same where it must go well; what was printed."""
    done = launch(n, script, *args, **more)  # type: ignore[arg-type]
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    for rank in range(n):
        assert f"[rank{rank}]: done" in done.stdout, done.stdout[-3000:]
    return done.stdout


def add_ranks(more: int) -> int:
    """What each process gets: the sum of all ranks and `more`."""
    import lucid
    import lucid.distributed as dist

    dist.init_process_group("gloo")
    total = lucid.tensor([dist.get_rank() + more])
    dist.all_reduce(total)
    dist.destroy_process_group()
    return int(total.item())


def fail_at_first() -> str:
    """Fails until it is started again; the number of starts before."""
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise ValueError("not the first time")
    return os.environ["TORCHELASTIC_RESTART_COUNT"]
