"""What runs in a worker, process or thread: read tasks, fetch, answer; and what both sides say to each other.

A worker process forbids itself the GPU: spawned ones would each hold a context, and forked ones have none of MLX's
threads. It ends when told to, and when the main process is gone.
"""

from __future__ import annotations

import gc
import os
import pickle
import queue
import random
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lucid
from lucid.utils.data import _fetch, _transport


@dataclass(frozen=True)
class WorkerInfo:
    """What `get_worker_info()` gives in a worker: `id` from 0, `num_workers`, `seed`, its own `dataset` copy.

    Args:
        id (int): the number of the worker, from 0.
        num_workers (int): the number of workers.
        seed (int): the seed of the worker.
        dataset (Dataset): the worker's copy of the dataset.

    Example:
        >>> lucid.utils.data.WorkerInfo(0, 2, 7, [1]).num_workers
        2
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


_local = threading.local()


def get_worker_info() -> WorkerInfo | None:
    """The worker that this code runs in, or None in the main process. An iterable dataset shards itself by it."""
    info: WorkerInfo | None = getattr(_local, "info", None)
    return info


@dataclass(frozen=True)
class Ended:
    """A worker's iterable dataset has no more."""


@dataclass(frozen=True)
class Resume:
    """A persistent worker starts the next epoch; it answers with the same."""

    seed: int


class _KeyErrorMessage(str):
    """A KeyError shows its argument's repr; this one's keeps the lines of a traceback."""

    def __repr__(self) -> str:
        return str(self)


class Raised:
    """An exception on its way to the main process, with the text of its traceback."""

    def __init__(self, error: BaseException, where: str) -> None:
        self.kind: Any = type(error)
        self.text = "".join(traceback.format_exception(error))
        self.where = where

    def __reduce__(self) -> Any:
        # A class that only the worker knows still tells its name.
        try:
            pickle.dumps(self.kind)
        except Exception:
            return _restored, (None, self.kind.__name__, self.text, self.where)
        return _restored, (self.kind, self.kind.__name__, self.text, self.where)

    def reraise(self) -> None:
        """Raises an exception of the same class, or a RuntimeError where its constructor wants other arguments."""
        kind = self.kind
        name = kind if isinstance(kind, str) else kind.__name__
        message = f"Caught {name} {self.where}.\nOriginal {self.text}"
        if isinstance(kind, str):
            raise RuntimeError(message)
        if kind is KeyError:
            raise KeyError(_KeyErrorMessage(message))
        if getattr(kind, "message", None):
            raise kind(message=message)
        try:
            error = kind(message)
        except Exception:
            raise RuntimeError(message) from None
        try:
            raise error
        finally:
            # A frame in the traceback that held the exception would be a cycle, which keeps the workers alive.
            del error


def _restored(kind: Any, name: str, text: str, where: str) -> Raised:
    made = Raised.__new__(Raised)
    made.kind, made.text, made.where = kind or name, text, where
    return made


@dataclass
class Job:
    """What a worker is started with."""

    dataset: Any
    iterable: bool
    auto_collation: bool
    collate_fn: Callable[[Any], Any]
    drop_last: bool
    base_seed: int
    init_fn: Callable[[int], None] | None
    num_workers: int


class Parcel:
    """A job pickled on its own, so that what fails when it is unpickled is caught in the worker and told."""

    def __init__(self, job: Job) -> None:
        self.job: Any = job

    def __getstate__(self) -> bytes:
        from multiprocessing.reduction import ForkingPickler

        return bytes(ForkingPickler.dumps(self.job))

    def __setstate__(self, state: bytes) -> None:
        self.job = state

    def open(self) -> Job:
        job: Job = pickle.loads(self.job) if isinstance(self.job, bytes) else self.job
        return job


def work(
    worker_id: int,
    job: Job,
    where: str,
    take: Callable[[], Any],
    answer: Callable[[Any, Any], None],
) -> None:
    """The loop of a worker. Tasks are `(number, index)`, `Resume` or None; `answer(number, result)`."""
    _local.info = WorkerInfo(worker_id, job.num_workers, job.base_seed + worker_id, job.dataset)
    fetcher: Any = None
    failed: Raised | None = None

    def begin() -> None:
        nonlocal fetcher
        fetcher = _fetch.fetcher_of(job.iterable, job.dataset, job.auto_collation, job.collate_fn, job.drop_last)

    try:
        if job.init_fn is not None:
            job.init_fn(worker_id)
        begin()
    except Exception as e:
        failed = Raised(e, where)
    ended = False
    while (task := take()) is not None:
        if isinstance(task, Resume):
            ended = False
            failed = None
            try:
                begin()
            except Exception as e:
                failed = Raised(e, where)
            answer(None, task)
            continue
        number, index = task
        if ended:
            answer(number, Ended())
            continue
        result: Any
        if failed is not None:
            result, failed = failed, None
        else:
            try:
                if fetcher is None:
                    begin()
                result = fetcher.fetch(index)
            except Exception as e:
                if isinstance(e, StopIteration) and job.iterable:
                    result, ended = Ended(), True
                else:
                    result = Raised(e, where)
        answer(number, result)
        # The batch belongs to the other side now; keeping it until the next one would double the memory.
        del result


#: How long a segment that is being made may take when the main process is gone, in seconds.
_PATIENCE = 5.0


def _listen(connection: Any, tasks: queue.SimpleQueue[Any], making: threading.Lock) -> None:
    """Reads tasks as they come, so that the main process never waits for a busy worker."""
    while True:
        try:
            task = connection.recv()
        except (EOFError, OSError):
            # The main process is gone, without a farewell: nobody wants what is being computed. But a segment that is
            # being made, and that the resource tracker does not know yet, would stay.
            making.acquire(timeout=_PATIENCE)
            os._exit(1)
        tasks.put(task)
        if task is None:
            return


def process_main(worker_id: int, parcel: Parcel, connection: Any, token: str, forked: bool) -> None:
    """The main function of a worker process."""
    if forked:
        from lucid.utils.data import _team

        _team.disown()
        # What the main process left to the collector is none of this one's business: pipes, and arrays of the GPU.
        gc.freeze()
    # Ctrl-C reaches the whole group; the main process handles it and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    lucid._C._forbid_gpu()
    lucid.set_num_threads(1)
    where = f"in DataLoader worker process {worker_id}"
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    making = threading.Lock()
    sent = 0

    def answer(number: Any, result: Any) -> None:
        nonlocal sent
        message: tuple[Any, Any, Any]
        if isinstance(result, Resume | Ended | Raised):
            message = (number, None, result)
        else:
            try:
                with making:
                    message = (number, _transport.pack(result, f"{token}_{worker_id}_{sent}"), None)
                sent += isinstance(message[1][3], str)
            except Exception as e:
                message = (number, None, Raised(e, where))
        try:
            connection.send(message)
        except (BrokenPipeError, ConnectionResetError):
            if message[1] is not None:
                _transport.discard(message[1])
            os._exit(1)

    threading.Thread(target=_listen, args=(connection, tasks, making), daemon=True).start()
    try:
        job = parcel.open()
    except Exception as e:
        answer(None, Raised(e, where))
        return
    random.seed(job.base_seed + worker_id)
    lucid.manual_seed(job.base_seed + worker_id)
    _seed_numpy(job.base_seed + worker_id)
    work(worker_id, job, where, tasks.get, answer)
    connection.close()


def _seed_numpy(seed: int) -> None:
    """NumPy's global generator too, where the dataset's module has brought NumPy in."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
