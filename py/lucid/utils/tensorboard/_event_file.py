"""Event files: records of length, masked CRC-32C, bytes, masked CRC-32C, written by a thread of their own."""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import socket
import struct
import threading
import time
import weakref
from typing import Any

from lucid import errors
from lucid.utils.tensorboard import _proto

__all__ = ["FileWriter", "RecordWriter"]


def _crc_table() -> tuple[int, ...]:
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return tuple(table)


_TABLE = _crc_table()
_count = 0
_lock = threading.Lock()


def masked_crc(content: bytes) -> bytes:
    """CRC-32C (Castagnoli) of some bytes, rotated and shifted as in TFRecord files."""
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in content:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(content: bytes) -> bytes:
    """A record of a TFRecord file."""
    size = struct.pack("<Q", len(content))
    return size + masked_crc(size) + content + masked_crc(content)


class RecordWriter:
    """Writes the records of a TFRecord file to an open binary file.

    Args:
        writer (object): a file, open for writing bytes.

    Example:
        >>> import io
        >>> from lucid.utils.tensorboard import RecordWriter
        >>> file = io.BytesIO()
        >>> RecordWriter(file).write(b"some bytes")
        >>> len(file.getvalue())
        26
    """

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, data: bytes) -> None:
        """Writes a record: length, checksum, bytes, checksum."""
        self._writer.write(record(data))

    def flush(self) -> None:
        """Flushes the file."""
        self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return bool(self._writer.closed)


class _Thread:
    """Writes records to a file from a queue. Holds no reference to its `FileWriter`, so that this can be freed."""

    def __init__(self, path: str, max_queue: int, flush_secs: float) -> None:
        self.file = open(path, "ab")  # noqa: SIM115
        self.queue: queue.Queue[bytes | threading.Event | None] = queue.Queue(max_queue)
        self.flush_secs = flush_secs
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self.run, name="lucid-event-file", daemon=True)
        self.thread.start()

    def run(self) -> None:
        due = time.monotonic() + self.flush_secs
        while True:
            try:
                item = self.queue.get(timeout=max(due - time.monotonic(), 0.0))
            except queue.Empty:
                item = b""
            try:
                if isinstance(item, bytes) and item and self.error is None:
                    self.file.write(record(item))
                if not isinstance(item, bytes) or time.monotonic() >= due:
                    self.file.flush()
                    due = time.monotonic() + self.flush_secs
            except Exception as e:
                # The thread goes on, so that nobody waits for it in vain.
                self.error = e
            if isinstance(item, threading.Event):
                item.set()
            if item is None:
                with contextlib.suppress(OSError):
                    self.file.close()
                return

    def put(self, content: bytes) -> None:
        self.check()
        self.queue.put(content)

    def check(self) -> None:
        if self.error is not None:
            raise errors.RuntimeError(f"the event file {self.file.name!r} cannot be written: {self.error}")

    def flush(self) -> None:
        if self.thread.is_alive():
            done = threading.Event()
            self.queue.put(done)
            done.wait()
        self.check()

    def stop(self) -> None:
        if self.thread.is_alive():
            self.queue.put(None)
            self.thread.join()


_open: weakref.WeakSet[_Thread] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    for thread in list(_open):
        thread.stop()


class FileWriter:
    """Writes events to a new file of a folder, as `torch.utils.tensorboard.FileWriter`.

    Args:
        log_dir (str | os.PathLike[str]): the folder, made if it is not there.
        max_queue (int, default: 10): how many events wait for the writing thread before a call waits for it.
        flush_secs (float, default: 120): how often, in seconds, what was written reaches the file.
        filename_suffix (str, default: ""): the end of the file's name.

    Raises:
        OSError: the folder or the file cannot be made.
        TypeError, ValueError: `max_queue` is no int, or `flush_secs` no number of seconds.

    Example:
        >>> import tempfile
        >>> from lucid.utils.tensorboard import FileWriter
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     writer = FileWriter(folder)
        ...     writer.close()
        ...     len(os.listdir(folder))
        1
    """

    def __init__(
        self, log_dir: str | os.PathLike[str], max_queue: int = 10, flush_secs: float = 120, filename_suffix: str = ""
    ) -> None:
        global _count
        if isinstance(max_queue, bool) or not isinstance(max_queue, int):
            raise errors.TypeError(f"FileWriter: expected max_queue to be an int, got {type(max_queue).__name__}")
        if isinstance(flush_secs, bool) or not isinstance(flush_secs, (int, float)) or not 0 <= flush_secs < 1e9:
            raise errors.ValueError(f"FileWriter: expected flush_secs to be seconds, not negative, got {flush_secs!r}")
        self._log_dir = os.fspath(log_dir)
        os.makedirs(self._log_dir, exist_ok=True)
        self._max_queue, self._flush_secs, self._suffix = max_queue, flush_secs, filename_suffix
        self._thread: _Thread | None = None
        self.reopen()

    def reopen(self) -> None:
        """Starts another file of the same folder after `close`; without effect while one is open."""
        global _count
        if self._thread is not None:
            return
        with _lock:
            number, _count = _count, _count + 1
        now = time.time()
        name = f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}.{os.getpid()}.{number}{self._suffix}"
        self._thread = _Thread(os.path.join(self._log_dir, name), self._max_queue, self._flush_secs)
        weakref.finalize(self, self._thread.stop)
        _open.add(self._thread)
        self._thread.put(_proto.event(now, field=3, content="brain.Event:2"))
        self.flush()

    def get_logdir(self) -> str:
        """Returns the folder."""
        return self._log_dir

    def _put(self, content: bytes) -> None:
        if self._thread is None:
            raise errors.RuntimeError("the event file is closed; call reopen() first")
        self._thread.put(content)

    def add_event(self, event: Any, step: int | None = None, walltime: float | None = None) -> None:
        """Writes an event.

        Args:
            event: a protocol buffer `Event`, whose time and step are set, or the bytes of one.
            step: the global step.
            walltime: seconds since the epoch; by default now.
        """
        if not isinstance(event, bytes):
            event.wall_time = time.time() if walltime is None else walltime
            if step is not None:
                event.step = int(step)
            event = event.SerializeToString()
        self._put(event)

    def add_summary(self, summary: Any, global_step: int | None = None, walltime: float | None = None) -> None:
        """Writes a summary.

        Args:
            summary: a protocol buffer `Summary`, or the bytes of one.
            global_step: the global step.
            walltime: seconds since the epoch; by default now.
        """
        content = summary if isinstance(summary, bytes) else summary.SerializeToString()
        now = time.time() if walltime is None else walltime
        self._put(_proto.event(now, None if global_step is None else int(global_step), field=5, content=content))

    def add_graph(self, graph: bytes, walltime: float | None = None) -> None:
        """Writes a graph.

        Args:
            graph: the bytes of a `GraphDef`.
            walltime: seconds since the epoch; by default now.
        """
        self._put(_proto.event(time.time() if walltime is None else walltime, field=4, content=graph))

    def add_onnx_graph(self, graph: Any, walltime: float | None = None) -> None:
        """Writes a graph, a protocol buffer `GraphDef` made from an ONNX file by another package."""
        self.add_graph(graph.SerializeToString(), walltime)

    def flush(self) -> None:
        """Waits until what was added is in the file.

        Raises:
            RuntimeError: the file cannot be written.
        """
        if self._thread is not None:
            self._thread.flush()

    def close(self) -> None:
        """Writes what was added and closes the file."""
        if self._thread is not None:
            thread, self._thread = self._thread, None
            thread.stop()
            thread.check()
