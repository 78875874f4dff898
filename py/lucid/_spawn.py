"""Processes that run one function: `lucid.multiprocessing.spawn`, as `torch.multiprocessing.spawn`."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

__all__ = [
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "spawn",
    "start_processes",
]


class ProcessException(RuntimeError):
    """A process that failed.

    Attributes:
        error_index: which one; error_pid: its id in the system.
    """

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """A process whose function raised an error, which the message tells."""


class ProcessExitedException(ProcessException):
    """A process that ended by itself or by a signal.

    Attributes:
        exit_code: what it ended with; signal_name: the signal, or `None`.
    """

    def __init__(
        self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)


def _wrap(fn: Callable[..., Any], i: int, args: tuple[Any, ...], error_file: str) -> None:
    """Runs in the process: an interrupt ends it quietly, an error is left in a file."""
    try:
        fn(i, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        with open(error_file, "wb") as file:
            pickle.dump(traceback.format_exc(), file)
        raise SystemExit(1) from None


class ProcessContext:
    """Processes that `start_processes(…, join=False)` has started; `join()` waits for them.

    Args:
        processes (list of Process): the processes, started.
        error_files (list of str): for each process the path at which it writes the error that ended it.

    Example:
        >>> from lucid.multiprocessing import start_processes
        >>> context = start_processes(print, nprocs=0, join=False)
        >>> context.join()
        True
    """

    def __init__(self, processes: list[Any], error_files: list[str]) -> None:
        self.processes, self.error_files = processes, error_files
        self.sentinels = {p.sentinel: i for i, p in enumerate(processes)}

    def pids(self) -> list[int]:
        """The ids of the processes."""
        return [int(p.pid) for p in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits for the processes; where one fails, the others are ended.

        Args:
            timeout: seconds to wait; `None` for as long as it takes.
            grace_period: seconds that the others have to end after SIGTERM before they are killed.

        Returns:
            Whether all have ended.

        Raises:
            ProcessRaisedException: the function raised an error.
            ProcessExitedException: a process ended by itself or by a signal.
        """
        if not self.sentinels:
            return True
        ready = multiprocessing.connection.wait(list(self.sentinels), timeout=timeout)
        failed = None
        for sentinel in ready:
            i = self.sentinels.pop(sentinel)
            self.processes[i].join()
            if self.processes[i].exitcode != 0 and failed is None:
                failed = i
        if failed is None:
            self._remove()
            return not self.sentinels
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        end = time.monotonic() + (30 if grace_period is None else grace_period)
        for process in self.processes:
            process.join(max(end - time.monotonic(), 0))
            if process.is_alive():
                process.kill()
                process.join()
        self.sentinels.clear()
        process, path = self.processes[failed], self.error_files[failed]
        told = None
        if os.path.exists(path) and os.path.getsize(path):
            with open(path, "rb") as file:
                told = pickle.load(file)
        self._remove()
        code = process.exitcode
        if told is not None:
            message = f"\n\n-- Process {failed} terminated with the following error:\n{told}"
            raise ProcessRaisedException(message, failed, process.pid)
        if code < 0:
            name = signal.Signals(-code).name
            raise ProcessExitedException(
                f"process {failed} terminated with signal {name}", failed, process.pid, code, name
            )
        raise ProcessExitedException(f"process {failed} terminated with exit code {code}", failed, process.pid, code)

    def _remove(self) -> None:
        if not self.sentinels:
            for path in self.error_files:
                if os.path.exists(path):
                    os.remove(path)


SpawnContext = ProcessContext


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Starts processes that each run `fn(i, *args)`, as `spawn`, by a method of choice.

    Args:
        fn (callable): a function at the top level of a module, which the new processes import.
        args (tuple, optional): further arguments; tensors of the CPU device are shared, not copied. Default: none.
        nprocs (int, optional): the number of processes. Default: 1.
        join (bool, optional): whether to wait for them. Default: True.
        daemon (bool, optional): whether they are ended with this process. Default: False.
        start_method (str, optional): `"spawn"` or `"forkserver"`; MLX hangs after a fork. Default: `"spawn"`.

    Returns:
        ProcessContext or None: the processes with `join=False`, else None.

    Raises:
        ValueError: `"fork"` or another method, or a number of processes that is no int of at least 0.
        TypeError: `fn` cannot be called.
        ProcessRaisedException: with `join=True`, `fn` raised an error in a process.
        ProcessExitedException: with `join=True`, a process ended by itself or by a signal.

    Example:
        >>> from lucid.multiprocessing import start_processes
        >>> start_processes(print, args=("is the process's number",), nprocs=1, start_method="spawn")
    """
    if start_method not in ("spawn", "forkserver"):
        raise ValueError(
            f"start_processes: expected 'spawn' or 'forkserver', got {start_method!r}: MLX hangs after a fork"
        )
    if not callable(fn):
        raise TypeError(f"start_processes: expected a function, got {type(fn).__name__}")
    if isinstance(nprocs, bool) or not isinstance(nprocs, int) or nprocs < 0:
        raise ValueError(f"start_processes: expected a number of processes, got {nprocs!r}")
    context: Any = multiprocessing.get_context(start_method)
    processes, files = [], []
    for i in range(nprocs):
        handle, path = tempfile.mkstemp(prefix="lucid-spawn-", suffix=".pickle")
        os.close(handle)
        process = context.Process(target=_wrap, args=(fn, i, args, path), daemon=daemon)
        process.start()
        processes.append(process)
        files.append(path)
    made = ProcessContext(processes, files)
    if not join:
        return made
    while not made.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Starts processes that each run `fn(i, *args)`, with `i` from 0 to `nprocs - 1`.

    Args:
        fn (callable): a function at the top level of a module, which the new processes import.
        args (tuple, optional): further arguments; tensors of the CPU device are shared, not copied. Default: none.
        nprocs (int, optional): the number of processes. Default: 1.
        join (bool, optional): whether to wait for them. Default: True.
        daemon (bool, optional): whether they are ended with this process. Default: False.
        start_method (str, optional): `"spawn"`; another gives a warning, in PyTorch too.

    Returns:
        ProcessContext or None: the processes with `join=False`, else None.

    Raises:
        ProcessRaisedException: `fn` raised an error in a process; the message has its traceback.
        ProcessExitedException: a process ended by itself or by a signal.

    Example:
        >>> import operator
        >>> from lucid.multiprocessing import spawn
        >>> spawn(operator.add, args=(1,), nprocs=1)  # runs operator.add(0, 1) in another process
    """
    if start_method != "spawn":
        warnings.warn(
            f"This method only supports start_method=spawn (got: {start_method}).\n"
            "To use a different start_method use:\n\t\t torch.multiprocessing.start_processes(...)",
            FutureWarning,
            stacklevel=2,
        )
    return start_processes(fn, args, nprocs, join, daemon, "spawn")
