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
    """Gives what is remembered of competing lowerings: the choice, and each candidate's time in microseconds.

    Args:
        prefix (str, optional): only keys that begin with it, such as `"matmul"`. Default: all.

    Returns:
        dict of str to dict: by key `choice` and `times`.

    Example:
        >>> isinstance(lucid.compiler.tune_cache.entries("matmul"), dict)
        True
    """
    return {key: entry.to_json() for key, entry in _tuning.shared().entries().items() if key.startswith(prefix)}


def forget(prefix: str) -> int:
    """Removes entries, in this process and in the file, so that the lowerings are timed again.

    Args:
        prefix (str): the beginning of the keys to remove, such as `"matmul"`.

    Returns:
        int: how many were removed.

    Example:
        >>> lucid.compiler.tune_cache.forget("no such kernel")
        0
    """
    return _tuning.shared().forget(prefix)


def clear() -> None:
    """Removes all entries, and the file."""
    _tuning.shared().reset(file=True)
