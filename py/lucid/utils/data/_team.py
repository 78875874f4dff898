"""The main process's side of the workers: starting, sending, receiving, noticing deaths, stopping.

On Linux workers are forked: their start takes milliseconds, and nothing is pickled. A forked worker never touches MLX,
whose threads it has not, and closes what it inherited of other workers' pipes. `ProcessTeam` and `ThreadTeam` look
alike to the iterator. Invariant: after `close()` no worker process and no segment of shared memory of the team is left.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import pickle
import queue
import secrets
import signal
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from multiprocessing import resource_tracker
from typing import Any, NoReturn

from lucid import _C
from lucid._warnings import warn_once
from lucid.utils.data import _transport, _worker

# How long a worker may take to end by itself after it was told to, in seconds.
_PATIENCE = 5.0

_SPAWNED = (
    "Worker processes are spawned, so the dataset, collate_fn and worker_init_fn must be picklable: define functions "
    "and classes at the top of a module, or use worker_type='thread'."
)
_UNGUARDED = (
    "The main script starts work when it is imported, which a spawned worker does first: put that work under "
    "`if __name__ == '__main__':`, or use worker_type='thread'."
)
_KILLED = {
    "SIGKILL": "Who kills so is often the system, short of memory: use fewer workers or smaller batches.",
    "SIGBUS": "Shared memory may be full: enlarge /dev/shm (`docker run --shm-size=…`), or use smaller batches.",
    "SIGSEGV": "Compiled code of the dataset's crashed: num_workers=0 shows where (`python -X faulthandler`).",
}


def forks() -> bool:
    """Are workers forked here? Apple's libraries do not work in a forked child, and Windows has none."""
    return sys.platform.startswith("linux")


def _guarded() -> bool:
    """Does the main script ask whether it is the main script?"""
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    if getattr(main, "__spec__", None) is not None or path is None or not os.path.exists(path):
        # `python -m`: a module like others; no script: there is nothing to run again.
        return True
    with open(path, "rb") as file:
        return b"__name__" in file.read()


def _why_threads(parcel: _worker.Parcel) -> str | None:
    """Why a spawned worker could not begin; None where it can."""
    try:
        data = parcel.__getstate__()
    except (AttributeError, TypeError, pickle.PicklingError) as e:
        return f"the dataset or a function cannot be pickled ({e})"
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    if b"__main__" in data and (path is None or not os.path.exists(path)):
        return "the dataset's class or a function was typed into a session, which no other process can import"
    if not _guarded():
        return "the script has no `if __name__ == '__main__':`, without which spawned workers would run it again"
    return None


def start(job: _worker.Job, context: Any, worker_type: str) -> ProcessTeam | ThreadTeam:
    """The workers of a job: processes by the context or as is best here, or threads."""
    if worker_type == "thread":
        return ThreadTeam(job)
    if context is not None:
        return ProcessTeam(context, job)
    if forks():
        return ProcessTeam(multiprocessing.get_context("fork"), job)
    why = _why_threads(_worker.Parcel(job))
    if why is not None:
        warn_once(
            "data_threads",
            f"DataLoader: {why}; its workers are threads here, which share Python's interpreter. worker_type='thread' "
            "asks for them, multiprocessing_context='spawn' for the error",
        )
        return ThreadTeam(job)
    return ProcessTeam(multiprocessing.get_context("spawn"), job)


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Blocks SIGINT in this thread, which a process started meanwhile inherits until it handles it itself."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _how(code: int | None) -> str:
    if code is None:
        return "is gone"
    if code < 0:
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"
    return f"exited with code {code}"


_open_teams: weakref.WeakSet[ProcessTeam] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for team in list(_open_teams):
        team.close()


def disown() -> None:
    """In a forked worker: closes the main process's ends of all pipes, which would keep them open when it is gone."""
    for team in list(_open_teams):
        team.closed = True
        for connection in team.connections:
            connection.close()


def _start(process: Any, method: str) -> None:
    if method != "fork":
        process.start()
        return
    # One tracker for all: a child's own would not learn that what it made is gone.
    resource_tracker.ensure_running()
    if _C._gpu_in_use():
        # No thread of MLX's is inside of one of its locks when it is idle.
        _C._synchronize("gpu")
    with warnings.catch_warnings():
        # Python warns of threads: Lucid's own are made anew in the child, and MLX's are not needed there.
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        process.start()


class ProcessTeam:
    """Worker processes, each with a pipe of its own."""

    def __init__(self, context: Any, job: _worker.Job) -> None:
        _open_teams.add(self)
        self.method = context.get_start_method()
        self.owner = os.getpid()
        self.token = f"lucid{secrets.token_hex(4)}"
        self.processes: list[Any] = []
        self.connections: list[Any] = []
        self.answered: list[bool] = [False] * job.num_workers
        # How many segments each worker has named so far.
        self.named: list[int] = [0] * job.num_workers
        self.in_flight: list[int] = [0] * job.num_workers
        self.closed = False
        parcel = _worker.Parcel(job)
        try:
            for i in range(job.num_workers):
                ours, theirs = context.Pipe(duplex=True)
                self.connections.append(ours)
                forked = self.method == "fork"
                process = context.Process(
                    target=_worker.process_main, args=(i, parcel, theirs, self.token, forked), daemon=True
                )
                with _without_interrupts():
                    _start(process, self.method)
                theirs.close()
                self.processes.append(process)
        except BaseException as e:
            self.close()
            if isinstance(e, AttributeError | TypeError | pickle.PicklingError):
                e.add_note(_SPAWNED)
            raise

    def send(self, worker: int, task: Any) -> None:
        try:
            self.connections[worker].send(task)
        except (BrokenPipeError, ConnectionResetError):
            self._died(worker)
        if isinstance(task, tuple):
            self.in_flight[worker] += 1

    def receive(self, timeout: float | None) -> tuple[int, Any, Any]:
        """The next `(worker, number, result)`; queue.Empty after the timeout, RuntimeError where a worker died."""
        ready: list[Any] = multiprocessing.connection.wait(self.connections, timeout)
        if not ready:
            raise queue.Empty
        worker = self.connections.index(ready[0])
        try:
            number, packed, result = ready[0].recv()
        except (EOFError, OSError):
            self._died(worker)
        self.answered[worker] = True
        if number is not None:
            self.in_flight[worker] -= 1
        if packed is not None and isinstance(packed[3], str):
            self.named[worker] += 1
        return worker, number, result if packed is None else _Packed(packed)

    def _died(self, worker: int) -> NoReturn:
        process = self.processes[worker]
        process.join(_PATIENCE)
        how = _how(process.exitcode)
        advice = next((text for name, text in _KILLED.items() if how.endswith(name)), None)
        if self.method != "fork" and not self.answered[worker] and not how.startswith("was killed") and not _guarded():
            advice = _UNGUARDED
        hint = "" if advice is None else f" {advice}"
        raise RuntimeError(
            f"DataLoader worker (pid(s) {process.pid}) exited unexpectedly: worker {worker} {how}.{hint}"
        ) from None

    def close(self) -> None:
        """Ends the workers and removes what they left."""
        if self.closed or self.owner != os.getpid():
            return
        self.closed = True
        for connection in self.connections:
            with contextlib.suppress(OSError, ValueError):
                connection.send(None)
        self._drain_until(time.monotonic() + _PATIENCE)
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        for process in self.processes:
            process.join(1.0)
            if process.is_alive():
                process.kill()
                process.join()
        for worker, connection in enumerate(self.connections):
            self._drain(worker)
            connection.close()
            # What was made but never named: at most one for each task that the worker had.
            for n in range(self.in_flight[worker] + 1):
                _transport.remove(f"{self.token}_{worker}_{self.named[worker] + n}")
        for process in self.processes:
            process.close()

    def _drain_until(self, end: float) -> None:
        """Waits for the workers to end, reading what they still send: one may be waiting for room in its pipe."""
        alive = dict(enumerate(self.processes))
        while alive and time.monotonic() < end:
            watched = [p.sentinel for p in alive.values()] + [self.connections[i] for i in alive]
            multiprocessing.connection.wait(watched, max(0.0, end - time.monotonic()))
            for worker in list(alive):
                self._drain(worker)
                if not alive[worker].is_alive():
                    del alive[worker]

    def _drain(self, worker: int) -> None:
        connection = self.connections[worker]
        # An interrupted read leaves half a message, of which the rest means nothing.
        with contextlib.suppress(Exception):
            while connection.poll():
                number, packed, _ = connection.recv()
                if number is not None:
                    self.in_flight[worker] -= 1
                if packed is not None:
                    self.named[worker] += isinstance(packed[3], str)
                    _transport.discard(packed)

    def pids(self) -> list[int]:
        """The processes' ids."""
        return [p.pid for p in self.processes]


class _Packed:
    """A batch that has arrived and was not looked at yet."""

    def __init__(self, packed: _transport.Packed) -> None:
        self.packed = packed

    def open(self) -> Any:
        return _transport.unpack(self.packed)

    def discard(self) -> None:
        _transport.discard(self.packed)


class _Whole:
    """The same from a thread: the object itself."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def open(self) -> Any:
        return self.value

    def discard(self) -> None:
        self.value = None


class ThreadTeam:
    """Worker threads of this process, which share the dataset and the random generators."""

    def __init__(self, job: _worker.Job) -> None:
        self.results: queue.SimpleQueue[tuple[int, Any, Any]] = queue.SimpleQueue()
        self.tasks: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in range(job.num_workers)]
        self.closed = False
        self.threads = [
            threading.Thread(target=self._main, args=(i, job), daemon=True, name=f"lucid data worker {i}")
            for i in range(job.num_workers)
        ]
        for thread in self.threads:
            thread.start()

    def _main(self, worker: int, job: _worker.Job) -> None:
        results, tasks = self.results, self.tasks[worker]

        def answer(number: Any, result: Any) -> None:
            control = isinstance(result, _worker.Resume | _worker.Ended | _worker.Raised)
            results.put((worker, number, result if control else _Whole(result)))

        where = f"in DataLoader worker thread {worker}"
        try:
            _worker.work(worker, job, where, tasks.get, answer)
        except BaseException as e:
            # Such as SystemExit, which ends a worker and must not leave the main thread waiting for it.
            results.put((worker, None, _worker.Raised(e, where)))

    def send(self, worker: int, task: Any) -> None:
        self.tasks[worker].put(task)

    def receive(self, timeout: float | None) -> tuple[int, Any, Any]:
        return self.results.get(timeout=timeout)

    def close(self) -> None:
        """Ends the threads; one that is busy ends after its batch, which is dropped."""
        if self.closed:
            return
        self.closed = True
        for tasks in self.tasks:
            while not tasks.empty():
                with contextlib.suppress(queue.Empty):
                    tasks.get_nowait()
            tasks.put(None)
        if not sys.is_finalizing():
            for thread in self.threads:
                if thread is not threading.current_thread():
                    thread.join(_PATIENCE)

    def pids(self) -> list[int]:
        """Threads have none of their own."""
        return []
