"""No way of using Lucid in a loop makes memory grow.

The quick form counts what is alive: bytes of tensors on both devices, objects of Python, bytes that were asked of the
system's allocator. What leaks grows in each of several rounds, so the least growth of a round counts; caches that fill
grow in some. `LUCID_LEAK_STEPS=5000` makes that many steps a round and looks at the memory of the process, too.
"""

from __future__ import annotations

import array
import ctypes
import gc
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import lucid
import pytest
from lucid import _C

from tests.python.hostile import leak_patterns_of_objects
from tests.python.hostile.leak_patterns import CPU_ONLY, PATTERNS, drop_gradients

# Its patterns are in the table once it is imported.
assert leak_patterns_of_objects
LONG = int(os.environ.get("LUCID_LEAK_STEPS", "0"))
ROUNDS = 3
# They wait for the disk.
SLOW = {"safetensors", "saving_and_loading"}
STEPS = LONG or 6
# Per step. Whatever leaks of ours comes with a tensor, a node or a closure, which the collector knows: that count is
# exact. The others are, where there are many steps; of few, the tables of allocators and of Python take a part.
MOST = {
    "bytes of tensors": 40.0,
    "bytes of the heap": 40.0 if LONG else 600.0,
    "objects": 0.4,
    "blocks": 0.4 if LONG else 16.0,
}
# Of the process, in all, which the allocator's own tables and fragments change.
MOST_RESIDENT = 4 << 20


class _Mallinfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keep",
        )
    ]


try:
    _mallinfo = ctypes.CDLL(None).mallinfo2
    _mallinfo.restype = _Mallinfo
except (OSError, AttributeError):
    _mallinfo = None


def _heap() -> int:
    """Bytes that are asked of glibc's allocator by the main thread and in large blocks; 0 where there is none."""
    if _mallinfo is None:
        return 0
    now = _mallinfo()
    return int(now.uordblks + now.hblkhd)


def _resident() -> int:
    """Bytes of the process's memory; 0 where the system does not tell."""
    if not os.path.exists("/proc/self/statm"):
        return 0
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


COUNTERS: dict[str, Callable[[], int]] = {
    "bytes of tensors on the cpu": lambda: _C.memory_stats("cpu")["current"],
    "bytes of tensors on the gpu": lambda: _C.memory_stats("gpu")["current"],
    "bytes of the heap": _heap,
    "objects of the collector": lambda: len(gc.get_objects()),
    "blocks of Python": sys.getallocatedblocks,
    "bytes of the process": _resident,
}


def count(into: array.array[int], at: int) -> None:
    """Writes what there is now, after a garbage collection. Makes nothing that stays."""
    drop_gradients()
    _C._synchronize("gpu")
    for device in ("cpu", "gpu"):
        _C.empty_cache(device)
    # Twice: what the first one drops may have been all that kept a thread's objects.
    gc.collect()
    gc.collect()
    for i, counter in enumerate(COUNTERS.values()):
        into[at + i] = counter()


@pytest.fixture(scope="module", autouse=True)
def only_ours() -> Iterator[None]:
    """What other tests have made is not looked at, which makes a collection quick."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


CASES = [(name, device) for name in PATTERNS for device in ("cpu", "gpu") if device == "cpu" or name not in CPU_ONLY]


def test_there_are_sixty_patterns() -> None:
    assert len(PATTERNS) >= 60


@pytest.mark.parametrize(("name", "device"), CASES)
def test_memory_does_not_grow(name: str, device: str, tmp_path: Path) -> None:
    steps = max(6, STEPS // 20) if name in SLOW else STEPS
    n = len(COUNTERS)
    counts = array.array("q", bytes(8 * n * (ROUNDS + 1)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        step = PATTERNS[name](device, tmp_path)
        for i in range(ROUNDS + 1):
            # The first round fills caches.
            for _ in range(steps if i else 8):
                step()
            count(counts, i * n)
    growth = {
        what: [(counts[(r + 1) * n + i] - counts[r * n + i]) / steps for r in range(ROUNDS)]
        for i, what in enumerate(COUNTERS)
    }
    if device == "gpu":
        # What waits to be computed is kept for some thousand ops, then all of it goes: the process's memory tells.
        del growth["bytes of the heap"]
    resident = sum(growth.pop("bytes of the process")[1:]) * steps
    limit = {what: next(most for kind, most in MOST.items() if what.startswith(kind)) for what in growth}
    leaks = {what: rounds for what, rounds in growth.items() if min(rounds) > limit[what]}
    assert not leaks, f"grows by step, in each round: {leaks}"
    assert not LONG or resident <= MOST_RESIDENT, f"the process grew by {resident} bytes"


def test_a_leak_would_be_found(tmp_path: Path) -> None:
    kept: list[object] = []
    try:
        PATTERNS["leaking"] = lambda device, folder: lambda: kept.append(lucid.ones(10))
        with pytest.raises(AssertionError, match="grows by step"):
            test_memory_does_not_grow("leaking", "cpu", tmp_path)
    finally:
        del PATTERNS["leaking"]
