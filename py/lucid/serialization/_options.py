"""What `save` and `load` do in a block: leave elements out, and how files are mapped."""

from __future__ import annotations

import mmap
import threading
from typing import Any

from lucid import errors

__all__ = ["get_default_mmap_options", "set_default_mmap_options", "skip_data"]


class _Options(threading.local):
    """What blocks of this thread have set."""

    def __init__(self) -> None:
        self.skip = self.materialize = False


options = _Options()


class skip_data:
    """A block in which `save` leaves room for elements and writes zeros there, and `load` does not read them.

    Args:
        materialize_fake_tensors (bool, default: False): whether `save` takes fake tensors, and leaves room for the
            elements that they would have, on the device that they say.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> with lucid.serialization.skip_data():
        ...     lucid.save(lucid.ones(2), file)
        >>> _ = file.seek(0)
        >>> lucid.load(file)
        tensor([0., 0.])
    """

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        self.materialize_fake_tensors = materialize_fake_tensors

    def __enter__(self) -> None:
        self._was = options.skip, options.materialize
        options.skip, options.materialize = True, self.materialize_fake_tensors

    def __exit__(self, *_exc: object) -> None:
        options.skip, options.materialize = self._was


# Windows maps files by other means, which have no flags.
MAP_PRIVATE: Any = getattr(mmap, "MAP_PRIVATE", None)
MAP_SHARED: Any = getattr(mmap, "MAP_SHARED", None)
_flags: Any = MAP_PRIVATE


class set_default_mmap_options:
    """How `load(mmap=True)` maps files from now on; as a block, in it.

    Args:
        flags (int): `mmap.MAP_PRIVATE`, as at first: what is written to a tensor stays the process's own; or
            `mmap.MAP_SHARED`: it is written to the file, which must be writable.

    Raises:
        ValueError: other flags.

    Example:
        >>> import mmap
        >>> with lucid.serialization.set_default_mmap_options(mmap.MAP_SHARED):
        ...     lucid.serialization.get_default_mmap_options() == mmap.MAP_SHARED
        True
    """

    def __init__(self, flags: int) -> None:
        global _flags
        if flags is None or flags not in (MAP_PRIVATE, MAP_SHARED):
            raise errors.ValueError(
                "Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or mmap.MAP_SHARED, "
                f"but got {flags}"
            )
        self._was, _flags = _flags, flags

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_exc: object) -> None:
        global _flags
        _flags = self._was


def get_default_mmap_options() -> int | None:
    """How `load(mmap=True)` maps files: `mmap.MAP_PRIVATE` or `mmap.MAP_SHARED`; `None` where there are no flags."""
    found: int | None = _flags
    return found
