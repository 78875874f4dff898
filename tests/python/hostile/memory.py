"""Tensors whose memory is as unusual as safe code can make it. Programs that the sweep reports use these by name."""

from __future__ import annotations

import itertools
import os
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import lucid
import numpy as np


def resized(x: Any, elements: int) -> Any:
    """`x` with its storage resized under it."""
    x.untyped_storage().resize_(elements * x.element_size())
    return x


def read_only(values: Any) -> Any:
    """A tensor of an array that must not be written."""
    array = np.array(values)
    array.flags.writeable = False
    return lucid.from_numpy(array)


def read_only_page(values: Any) -> Any:
    """A tensor of a mapped file that the system lets nobody write."""
    array = np.ascontiguousarray(values)
    file = tempfile.NamedTemporaryFile(delete=False)  # noqa: SIM115
    file.write(array.tobytes() or b"\0")
    file.close()
    mapped = np.memmap(file.name, array.dtype, "r", shape=array.shape) if array.size else array
    os.unlink(file.name)
    return lucid.from_numpy(mapped)


def misaligned(values: Any) -> Any:
    """A tensor whose elements begin at an odd address."""
    array = np.ascontiguousarray(values)
    memory = bytearray(array.nbytes + 1)
    memory[1:] = array.tobytes()
    return lucid.from_numpy(np.frombuffer(memory, array.dtype, array.size, 1).reshape(array.shape))


def raw_bool(values: Any) -> Any:
    """A tensor of Booleans whose memory has bytes other than 0 and 1 for what is true."""
    array = np.asarray(values, bool)
    odd = np.resize(np.array([2, 255, 128, 3], np.uint8), array.shape)
    return lucid.from_numpy((odd * array).view(bool))


#: Writers of memory that end when their event is set, and the tensors that they write.
WRITERS: list[tuple[threading.Event, threading.Thread, Any]] = []


def mutated(x: Any) -> Any:
    """`x`, which another thread overwrites with wild values until `release` is called."""
    over = threading.Event()
    work = _rewrite_host(x, over) if x.device.type == "cpu" else _rewrite_device(x, over)
    thread = threading.Thread(target=work, daemon=True)
    WRITERS.append((over, thread, x))
    thread.start()
    return x


def _rewrite_host(x: Any, over: threading.Event) -> Callable[[], None]:
    array = x.detach().numpy()
    size = array.nbytes
    good = array.tobytes()
    wild = (np.random.default_rng(0).integers(0, 256, max(size, 1), np.uint8).tobytes(), b"\xff" * size, b"\x7f" * size)
    # One call of the system writes the memory again and again, while no lock of Python's is held.
    file = tempfile.TemporaryFile()  # noqa: SIM115
    rounds = 256
    for i in range(rounds):
        file.write(good if i % 2 else wild[i // 2 % 3][:size])
    file.flush()
    view = memoryview(array.reshape(-1)).cast("B") if size and array.flags.c_contiguous else None

    def work() -> None:
        with file:
            while view is not None and not over.is_set():
                os.preadv(file.fileno(), [view] * rounds, 0)

    return work


def _rewrite_device(x: Any, over: threading.Event) -> Callable[[], None]:
    whole = x.detach()

    def work() -> None:
        for value in itertools.cycle((0, 1, 100)):
            if over.is_set():
                return
            whole.fill_(value)

    return work


def release() -> None:
    """Ends the threads that write."""
    for over, _, _ in WRITERS:
        over.set()
    while WRITERS:
        WRITERS.pop()[1].join(10)
