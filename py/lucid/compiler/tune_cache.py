"""The file in which the fastest of competing lowerings is remembered: where it is, what it holds, and how to clear it.

There is one file for all that is timed: `LUCID_TUNE_CACHE`, else `tuning.json` in Lucid's cache folder. It names its
format, its version and the machine; one that is broken, of another version or of another machine is not read, and
replaced by the next write. `python -m lucid.compiler` shows and clears it from the command line.
"""

from __future__ import annotations

from typing import Any

from lucid import _tuning

__all__ = ["clear", "entries", "forget", "path"]


def path() -> str:
    """Where the file is.

    Example:
        >>> lucid.compiler.tune_cache.path().endswith(".json")
        True
    """
    return str(_tuning.shared().path)


def entries(prefix: str = "") -> dict[str, dict[str, Any]]:
    """What is remembered: by key the choice, and each candidate's time in microseconds.

    Args:
        prefix: only keys that begin with it.
    """
    return {key: entry.to_json() for key, entry in _tuning.shared().entries().items() if key.startswith(prefix)}


def forget(prefix: str) -> int:
    """Removes the entries whose keys begin so, here and in the file. Returns how many.

    Args:
        prefix: such as `"matmul"`.
    """
    return _tuning.shared().forget(prefix)


def clear() -> None:
    """Removes all entries, and the file."""
    _tuning.shared().reset(file=True)
