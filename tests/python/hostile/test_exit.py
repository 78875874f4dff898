"""Programs that end with work pending have the exit status that they would have without Lucid: no signal, no hang.

Each runs in a process of its own. Its work is products of matrices, which OpenBLAS computes on MLX's stream for the GPU
device and on the calling thread for the CPU, and which a loop of SGD leaves pending on the former.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

PRELUDE = """
import atexit, ctypes, os, signal, sys, threading, time
import lucid, lucid.nn as nn

net = nn.Sequential(*[nn.Linear(600, 600) for _ in range(6)]).to(DEVICE)
optimizer = lucid.optim.SGD(net.parameters(), lr=1e-3)
x = lucid.randn(600, 600, device=DEVICE)


def steps(n=3):
    for _ in range(n):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()


def multiply():
    a = lucid.randn(700, 700, device=DEVICE)
    while True:
        (a @ a).eval()


def daemons(target=multiply, n=3):
    for _ in range(n):
        threading.Thread(target=target, daemon=True).start()
    time.sleep(0.1)
"""

# The program, and its status: what Python gives without any work pending.
PROGRAMS = {
    "the last line": ("steps()", 0),
    "an exception": ("steps(); raise ValueError('meant')", 1),
    "sys.exit": ("steps(); sys.exit(3)", 3),
    "os._exit": ("steps(); os._exit(4)", 4),
    "exit of the C library": ("steps(); ctypes.CDLL(None).exit(6)", 6),
    "SIGTERM": ("steps(); os.kill(os.getpid(), signal.SIGTERM); time.sleep(5)", -signal.SIGTERM),
    "SIGINT": ("steps(); os.kill(os.getpid(), signal.SIGINT); time.sleep(5)", -signal.SIGINT),
    "a handler that exits": (
        """
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
        steps(); os.kill(os.getpid(), signal.SIGTERM); time.sleep(5)
        """,
        7,
    ),
    "daemon threads in a product": ("daemons(); steps()", 0),
    "daemon threads and the C library's exit": ("daemons(); ctypes.CDLL(None).exit(8)", 8),
    "a thread that is joined": ("threading.Thread(target=steps).start()", 0),
    "a child that is forked and exits": (
        """
        steps()
        pid = os.fork()
        if pid == 0:
            sys.exit(5)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) + 4)
        """,
        9,
    ),
    "a child that is forked while threads multiply": (
        """
        daemons()
        pid = os.fork()
        if pid == 0:
            ctypes.CDLL(None).exit(5)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) + 4)
        """,
        9,
    ),
    "handlers of the exit that compute": (
        """
        def last():
            steps(1)
            if x.square().sum().item() > 0:
                os.write(1, b'computed')
        atexit.register(last)
        steps()
        """,
        0,
    ),
    "drops while modules are torn down": (
        """
        class Late:
            def __del__(self):
                y = self.x @ self.x
                y.sum()
        late = Late(); late.x = x; sys.modules['kept'] = late
        steps()
        """,
        0,
    ),
}

SPAWN = """
import multiprocessing, sys

def work(device):
    import lucid
    a = lucid.randn(600, 600, device=device)
    for _ in range(20):
        a = a @ a * 1e-2
    lucid._C._eval([a], False)

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    children = [context.Process(target=work, args=(DEVICE,)) for _ in range(2)]
    [c.start() for c in children]
    [c.join() for c in children]
    work(DEVICE)
    sys.exit(max(abs(c.exitcode) for c in children))
"""


def run(program: str, device: str, seconds: float = 60) -> subprocess.CompletedProcess[bytes]:
    """What became of the program; one that hangs fails."""
    # A job in a shell's background ignores SIGINT, and so would what it starts.
    return subprocess.run(
        [sys.executable, "-c", f"DEVICE = {device!r}\n" + program],
        capture_output=True,
        timeout=seconds,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_status_is_what_it_is_without_work(name: str, device: str) -> None:
    program, status = PROGRAMS[name]
    done = run(PRELUDE + textwrap.dedent(program), device)
    assert done.returncode == status, done.stderr.decode()[-2000:]
    if name == "handlers of the exit that compute":
        assert done.stdout == b"computed"
    quiet = status <= 0 and status != -signal.SIGINT
    assert not (quiet and done.stderr), done.stderr.decode()[-2000:]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_spawned_children_end_as_well(device: str, tmp_path: object) -> None:
    path = os.path.join(str(tmp_path), "spawn.py")
    with open(path, "w") as f:
        f.write(f"DEVICE = {device!r}\n" + SPAWN)
    done = subprocess.run([sys.executable, path], capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]


@pytest.mark.parametrize("times", [5])
def test_the_program_of_the_report(times: int) -> None:
    """Six layers of 1000, four steps, nothing after the last one: each of 20 runs was ended by SIGSEGV."""
    program = PRELUDE.replace("600", "1000") + "steps(4)"
    assert [run(program, "gpu").returncode for _ in range(times)] == [0] * times
