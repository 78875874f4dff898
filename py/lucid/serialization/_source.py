"""Where bytes come from: a file by its descriptor, a mapped file, or any object that reads and seeks."""

from __future__ import annotations

import io
import mmap
import os
from typing import Any

from lucid.serialization import _options
from lucid.serialization._errors import InvalidFileError


class FileSource:
    """A file or file-like object, read piece by piece."""

    def __init__(self, file: Any, base: int = 0) -> None:
        self.file = file
        self.base = base
        self.size: int = file.seek(0, io.SEEK_END) - base

    def read(self, offset: int, size: int) -> bytes:
        """Exactly these bytes; an InvalidFileError where the file ends before."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise InvalidFileError(f"not a readable checkpoint: {size} bytes at {offset} are outside of the file")
        self.file.seek(self.base + offset)
        data = self.file.read(size)
        if len(data) != size:
            raise InvalidFileError(f"not a readable checkpoint: it ends within {size} bytes at {offset}")
        return bytes(data)


class MappedSource:
    """A file in memory by mapping; writes to what is read from it stay private to the process, unless
    `set_default_mmap_options` says otherwise."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        shared = _options.MAP_SHARED is not None and _options.get_default_mmap_options() == _options.MAP_SHARED
        with open(path, "r+b" if shared else "rb") as file:
            self.size = os.fstat(file.fileno()).st_size
            if self.size == 0:
                raise InvalidFileError("not a readable checkpoint: the file is empty")
            self.view = memoryview(
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY)
            )

    def read(self, offset: int, size: int) -> memoryview:
        """Exactly these bytes, where they are."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise InvalidFileError(f"not a readable checkpoint: {size} bytes at {offset} are outside of the file")
        return self.view[offset : offset + size]
