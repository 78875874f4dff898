"""Child processes that run cases with limits on time and memory, and what their ends mean.

A case is anything that JSON can hold. A child answers a case with lines of JSON: first the text of what it runs, then
the kind of end. Where the second does not come, the child crashed or hangs.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
#: How much slower this runs than usual, as under a sanitizer.
SLOWER = float(os.environ.get("LUCID_HOSTILE_SLOWER", "1"))
#: Seconds that one case may take, and bytes of memory of its own that a child may add (CUDA reserves far
#: more addresses than it uses, so these are not what counts).
LIMIT = 20.0
MEMORY = 6 << 30
#: What PyTorch raises for wrong arguments; subclasses count.
KINDS = (
    TypeError,
    ValueError,
    RuntimeError,
    IndexError,
    OverflowError,
    MemoryError,
    AttributeError,
    AssertionError,
    BufferError,
    OSError,
    ImportError,
)
#: Subclasses of the above that PyTorch does not raise: bugs of the caller's are no bugs of ours.
NOT_KINDS = (RecursionError, UnboundLocalError)

Answers = dict[str, Any]


def is_finding(e: BaseException) -> bool:
    """Is an exception of a kind that no arguments should cause?"""
    kind = type(e).__name__
    return not isinstance(e, KINDS) or isinstance(e, NOT_KINDS) or kind in ("InternalError", "PanicException")


# ---- the child -------------------------------------------------------------------------------------------------------


def limit_memory(memory: int) -> None:
    """Lets this process add so many bytes of private memory to what it has."""
    import resource

    if Path("/proc/self/statm").exists():
        used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (used + memory, used + memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def serve(prepare: Callable[[], Callable[[Any], Iterable[Answers]]]) -> None:
    """Runs cases that come line by line; says before and after each what it does."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    warnings.simplefilter("ignore")
    faulthandler.enable()
    answer = prepare()
    print("ready", file=out)
    for line in sys.stdin:
        for said in answer(json.loads(line)):
            print(json.dumps(said), file=out)
        gc.collect(0)


# ---- the parent ------------------------------------------------------------------------------------------------------


class Child:
    """A child process, and a reader of its lines that gives up in time."""

    def __init__(self, module: str = "tests.python.fuzz", start: float = 120.0) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="lucid-fuzz-")
        # A backtrace takes memory, of which a child may have none left, and hides what it is of.
        # Children begin in a folder of their own, from which relative paths lead nowhere.
        given = [os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
        path = os.pathsep.join([str(ROOT), *given])
        env = {**os.environ, "RUST_BACKTRACE": "0", "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [*os.environ.get("LUCID_HOSTILE_RUNNER", "").split(), sys.executable, "-m", module, "--child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            cwd=self.folder.name,
            env=env,
        )
        self.rest = b""
        #: The texts of its last cases: damage to memory shows later than it is done.
        self.recent: deque[str] = deque(maxlen=8)
        if self.line(start * SLOWER) != "ready":
            words = self.last_words()
            self.close()
            raise RuntimeError(f"the child did not start: {words}")

    def line(self, seconds: float) -> str | None:
        """The next line; None where it ended or the time is up."""
        assert self.process.stdout is not None
        until = time.monotonic() + seconds
        while b"\n" not in self.rest:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return None
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                return None
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode(errors="replace")

    def computes(self, seconds: float = 0.5) -> bool:
        """Does it use a processor, rather than wait for what does not come? True where nothing tells."""

        def used() -> int | None:
            try:
                stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                return None
            return int(stat[11]) + int(stat[12])

        before = used()
        time.sleep(seconds)
        after = used()
        return before is None or after is None or after > before

    def last_words(self) -> str:
        self.errors.seek(0)
        said = self.errors.read().decode(errors="replace")[-1200:].strip()
        return f"{said} (exit code {self.process.poll()})"

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.errors.close()
        self.folder.cleanup()


def one(worker: Child, case: Any, limit: float = LIMIT) -> tuple[Answers, bool]:
    """Runs a case; also says whether the child can go on."""
    assert worker.process.stdin is not None
    try:
        worker.process.stdin.write((json.dumps(case) + "\n").encode())
        worker.process.stdin.flush()
    except BrokenPipeError:
        return {"kind": "ok", "finding": False, "text": "", "case": case}, False
    text = ""
    for _ in range(2):
        line = worker.line(limit * SLOWER)
        if line is None:
            break
        said = json.loads(line)
        text = said.get("text", text)
        if "kind" in said:
            worker.recent.append(text)
            return {"finding": "finding" not in said, **said, "text": text, "case": case}, True
    found = {"finding": True, "text": text or f"writing {case}", "case": case, "recent": list(worker.recent)}
    try:
        code = worker.process.wait(0.5)
    except subprocess.TimeoutExpired:
        computes = worker.computes()
        why = f"more than {limit} s, and it {'computes' if computes else 'waits'}"
        return {**found, "kind": "hang", "why": why, "computes": computes}, False
    name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return {**found, "kind": f"crash ({name})", "why": worker.last_words()}, False


def run_all(
    cases: Iterator[Any],
    jobs: int,
    seconds: float,
    done: Callable[[Answers], None],
    *,
    module: str = "tests.python.fuzz",
    limit: Callable[[Any], float] = lambda case: LIMIT,
    fresh: Callable[[Any], bool] = lambda case: False,
) -> None:
    """Runs cases in so many children at once, until they end or the time is up.

    `done` is called with each end, by one thread at a time. After a case that is `fresh` a new child begins.
    """
    lock, until = threading.Lock(), time.monotonic() + seconds

    def work() -> None:
        worker: Child | None = None
        while time.monotonic() < until:
            with lock:
                case = next(cases, None)
            if case is None:
                break
            try:
                worker = worker or Child(module)
            except RuntimeError as e:
                # Without a child nothing is tried: that must not look like a clean run.
                with lock:
                    done({"kind": "no child", "finding": True, "text": str(e), "why": "", "case": case})
                break
            said, alive = one(worker, case, limit(case))
            if not alive or fresh(case):
                worker.close()
                worker = None
            with lock:
                done(said)
        if worker:
            worker.close()

    threads = [threading.Thread(target=work) for _ in range(jobs)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
