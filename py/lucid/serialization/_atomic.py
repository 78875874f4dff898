"""Files that are always the old one or the new one, whole: written beside the target, synced, and renamed over it."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from typing import Any


def sync_folder(folder: str) -> None:
    """Makes renames and removals in a folder outlast a crash of the machine."""
    try:
        fd = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        # Some file systems do not let folders be synced; the rename is as durable as they make it.
        with contextlib.suppress(OSError):
            os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Any]:
    """A binary file to write; when the block ends well it takes the place of `path`, else nothing changes.

    A symbolic link stays one, and an existing file's permissions are kept. What is no regular file is written to as it
    is.
    """
    target = os.path.realpath(os.fspath(path))
    mode = None
    with contextlib.suppress(FileNotFoundError):
        mode = os.stat(target).st_mode
    if mode is not None and not stat.S_ISREG(mode):
        with open(target, "wb") as file:
            yield file
        return
    if os.path.islink(target):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), target)
    # The target's name may have as many bytes as names can have.
    part = os.path.join(os.path.dirname(target), f".lucid{secrets.token_hex(6)}.part")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with open(fd, "wb") as file:
            yield file
            file.flush()
            if mode is not None:
                os.chmod(part, stat.S_IMODE(mode))
            os.fsync(file.fileno())
        os.replace(part, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
        raise
    sync_folder(os.path.dirname(target))
