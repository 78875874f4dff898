"""Timing competing ways to do one piece of work, and remembering which was fastest in a file.

A file holds one JSON object: the format's version, the machine and versions it was measured on, and by key the choice
and the times. Writers take a lock beside the file, read it again, merge and rename a fresh file into place, so that
readers never see half of one and no process loses another's entries. A file of another version, of another machine, or
broken is not read; the next write replaces it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from lucid import _C
from lucid import errors as errors
from lucid._warnings import warn_once

__all__ = [
    "FORMAT",
    "VERSION",
    "Entry",
    "Tuner",
    "cache_file",
    "cache_folder",
    "fingerprint",
    "shared",
    "time_candidates",
]

FORMAT = "lucid-tuning"
VERSION = 1
# Larger files are not tuning caches.
MOST_BYTES = 64 << 20


def cache_folder() -> Path:
    """The folder of Lucid's cache files: `LUCID_CACHE_DIR`, else `lucid` in the user's cache folder."""
    given = os.environ.get("LUCID_CACHE_DIR")
    if given:
        return Path(given)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "lucid"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lucid"


def cache_file() -> Path:
    """The file that all of Lucid's tuners share: `LUCID_TUNE_CACHE`, else `tuning.json` in the cache folder."""
    given = os.environ.get("LUCID_TUNE_CACHE")
    return Path(given) if given else cache_folder() / "tuning.json"


_SHARED: dict[str, Tuner] = {}
_SHARED_LOCK = threading.Lock()


def shared(path: str | os.PathLike[str] | None = None) -> Tuner:
    """The tuner of a file, `cache_file()` unless another is given: one per file and process."""
    key = os.fspath(cache_file() if path is None else path)
    with _SHARED_LOCK:
        if key not in _SHARED:
            _SHARED[key] = Tuner(key)
        return _SHARED[key]


def fingerprint() -> dict[str, str]:
    """What measured times depend on: versions, the machine, its processors and its GPU."""
    return {
        "lucid": _C.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "processors": str(os.cpu_count()),
        "threads": str(_C.get_num_threads()),
        "gpu": _C.device("gpu").type,
    }


class Entry:
    """What was remembered for a key: the fastest candidate and each candidate's best time in microseconds."""

    __slots__ = ("choice", "times_us")

    def __init__(self, choice: str, times_us: Mapping[str, float]) -> None:
        self.choice = choice
        self.times_us = dict(times_us)

    def __repr__(self) -> str:
        return f"Entry(choice={self.choice!r}, times_us={self.times_us!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entry) and (self.choice, self.times_us) == (other.choice, other.times_us)

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def parse(cls, data: Any) -> Entry | None:
        """An entry read from a file; `None` where it is not one."""
        if not isinstance(data, dict) or not isinstance(data.get("choice"), str):
            return None
        times = data.get("times_us")
        if not isinstance(times, dict):
            return None
        good = all(
            isinstance(k, str) and isinstance(v, (int, float)) and math.isfinite(v) and v >= 0 for k, v in times.items()
        )
        return cls(data["choice"], times) if good and data["choice"] in times else None

    def to_json(self) -> dict[str, Any]:
        """The entry as JSON's types."""
        return {"choice": self.choice, "times_us": {k: round(v, 3) for k, v in self.times_us.items()}}


def time_candidates(
    candidates: Mapping[str, Callable[[], Any]], rounds: int = 3, budget_s: float = 0.5
) -> dict[str, float]:
    """Each candidate's best time in microseconds, of up to `rounds` interleaved rounds after one that warms up.

    A candidate that raises has no time. No round is begun after `budget_s` seconds.
    """
    times: dict[str, float] = {}
    works = dict(candidates)
    start = time.perf_counter()
    for round_ in range(rounds + 1):
        if round_ > 1 and time.perf_counter() - start > budget_s:
            break
        for name in list(works):
            begun = time.perf_counter_ns()
            try:
                works[name]()
            except errors.LucidError:
                del works[name]
                times.pop(name, None)
                continue
            taken = (time.perf_counter_ns() - begun) / 1e3
            if round_ > 0:
                times[name] = min(times.get(name, math.inf), taken)
    return times


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds the lock beside `path`, for which other processes wait. The kernel drops it when a process ends."""
    with open(f"{path}.lock", "a+b") as file:
        if sys.platform == "win32":
            yield
            return
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


class Tuner:
    """Remembers choices in memory and, with a `path`, in a file that processes share.

    Args:
        path: The cache file; its folder is made when it is written. `None` remembers in memory alone.

    Example::

        >>> from lucid._tuning import Tuner
        >>> tuner = Tuner(None)
        >>> tuner.choose("sum of 4", {"builtin": lambda: sum(range(4))})
        'builtin'
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = None if path is None else Path(path)
        self._entries: dict[str, Entry] = {}
        self._lock = threading.Lock()
        self._loaded = False

    def _read(self) -> dict[str, Entry]:
        """The file's entries; none where it is missing, broken, or was measured elsewhere."""
        if self.path is None:
            return {}
        try:
            if self.path.stat().st_size > MOST_BYTES:
                raise ValueError(f"it is larger than {MOST_BYTES} bytes")
            data = json.loads(self.path.read_text(encoding="utf-8"))
            if not isinstance(data, dict) or data.get("format") != FORMAT:
                raise ValueError("it is no tuning cache")
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as e:
            warn_once(f"tuning {self.path}", f"the tuning cache {self.path} is not read: {e}")
            return {}
        if data.get("version") != VERSION or data.get("machine") != fingerprint():
            return {}
        entries = data.get("entries")
        parsed = {k: Entry.parse(v) for k, v in entries.items()} if isinstance(entries, dict) else {}
        return {k: v for k, v in parsed.items() if v is not None}

    def _write(self, without: Collection[str] = ()) -> None:
        """Merges the file's entries with ours, ours first, and renames the whole into place."""
        if self.path is None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self.path):
                merged = {k: v for k, v in {**self._read(), **self._entries}.items() if k not in without}
                data = {
                    "format": FORMAT,
                    "version": VERSION,
                    "machine": fingerprint(),
                    "entries": {k: merged[k].to_json() for k in sorted(merged)},
                }
                handle, fresh = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
                try:
                    with os.fdopen(handle, "w", encoding="utf-8") as file:
                        json.dump(data, file, indent=1)
                        file.write("\n")
                    os.replace(fresh, self.path)
                except BaseException:
                    with contextlib.suppress(OSError):
                        os.unlink(fresh)
                    raise
                self._entries = merged
        except OSError as e:
            warn_once(f"tuning write {self.path}", f"the tuning cache {self.path} is not written: {e}")

    def lookup(self, key: str) -> Entry | None:
        """What is remembered for `key`, in memory or in the file."""
        with self._lock:
            if not self._loaded:
                self._entries = {**self._read(), **self._entries}
                self._loaded = True
            return self._entries.get(key)

    def remember(self, key: str, choice: str, times_us: Mapping[str, float]) -> None:
        """Notes a choice, here and in the file."""
        if choice not in times_us:
            raise errors.ValueError(f"Tuner.remember(): {choice!r} is none of {sorted(times_us)}")
        with self._lock:
            self._entries[key] = Entry(choice, times_us)
            self._write()

    def choose(
        self,
        key: str,
        candidates: Mapping[str, Callable[[], Any]],
        *,
        prefer: str | None = None,
        margin_pct: float = 0.0,
        rounds: int = 3,
        budget_s: float = 0.5,
    ) -> str:
        """The name of the fastest candidate: as remembered, else timed now and remembered.

        Args:
            key: What the choice depends on, such as the op, its shapes and the device.
            candidates: The ways to do the work by name; each computes and waits.
            prefer: A candidate that stays the choice unless another is more than `margin_pct` percent faster.

        Raises:
            ValueError: There is no candidate, `prefer` is none of them, or the margin is negative or NaN.
            RuntimeError: Each candidate raised an error.
        """
        if not candidates or (prefer is not None and prefer not in candidates):
            raise errors.ValueError(f"Tuner.choose(): {prefer!r} is none of the candidates {sorted(candidates)}")
        if not margin_pct >= 0 or math.isinf(margin_pct):
            raise errors.ValueError(f"Tuner.choose(): margin_pct must be a number from 0 on, got {margin_pct}")
        known = self.lookup(key)
        if known is not None and known.choice in candidates:
            return known.choice
        times = time_candidates(candidates, rounds, budget_s)
        if not times:
            raise errors.RuntimeError(f"Tuner.choose(): each of {sorted(candidates)} raised an error for {key!r}")
        best = min(times, key=lambda name: times[name])
        if prefer in times and times[prefer] <= times[best] * (1 + margin_pct / 100):
            best = prefer
        self.remember(key, best, times)
        return best

    def entries(self) -> dict[str, Entry]:
        """All that is remembered, by key."""
        self.lookup("")
        with self._lock:
            return dict(self._entries)

    def forget(self, prefix: str) -> int:
        """Removes the entries whose keys begin so, here and in the file; how many."""
        self.lookup("")
        with self._lock:
            gone = {key for key in {**self._read(), **self._entries} if key.startswith(prefix)}
            for key in gone:
                self._entries.pop(key, None)
            self._write(without=gone)
            if not self._entries and self.path is not None:
                with contextlib.suppress(OSError):
                    self.path.unlink()
            return len(gone)

    def reset(self, *, file: bool = False) -> None:
        """Forgets what is in memory; with `file`, removes the file too."""
        with self._lock:
            self._entries = {}
            self._loaded = False
            if file and self.path is not None:
                with contextlib.suppress(FileNotFoundError):
                    self.path.unlink()
