"""Versions of ops in checkpoints, and what is done to those that older versions wrote.

A row of the op table has a version, which is raised when what the op computes from the same parameters changes. `save`
writes the versions; `load` compares them with its own and runs what was registered for the steps between. Invariant: a
checkpoint whose ops are newer than these is never taken silently.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import lucid
from lucid import errors
from lucid._warnings import warn

Migration = Callable[[Any], Any]

_migrations: dict[tuple[str, int], Migration] = {}


def versions() -> dict[str, int]:
    """The version of each op whose version is not 1, as `save` writes them."""
    return {name: version for name, version in _all().items() if version != 1}


@functools.cache
def _all() -> dict[str, int]:
    return {row["name"]: int(row["version"]) for row in lucid._C._op_schemas()}


def register_op_migration(op: str, from_version: int) -> Callable[[Migration], Migration]:
    """A decorator for what `load` does to checkpoints in which an op has an older version.

    Args:
        op (str): the op's name in `lucid.op_schemas()`.
        from_version (int): the version that the checkpoint has; the function takes its object to the next one.

    Returns:
        A decorator of a function of the loaded object, which returns it, changed or not.

    Raises:
        ValueError: there is no such op, or it has a migration from this version.

    Example:
        >>> @lucid.serialization.register_op_migration("gelu", from_version=1)
        ... def scale(state):
        ...     return state
        >>> lucid.serialization.unregister_op_migration("gelu", from_version=1)
    """
    if op not in _all():
        raise errors.ValueError(f"register_op_migration: there is no op {op!r}; lucid.op_schemas() lists them")
    if isinstance(from_version, bool) or not isinstance(from_version, int) or from_version < 1:
        raise errors.ValueError(f"register_op_migration: from_version must be at least 1, got {from_version!r}")
    if (op, from_version) in _migrations:
        raise errors.ValueError(f"register_op_migration: {op} has a migration from version {from_version}")

    def register(function: Migration) -> Migration:
        _migrations[op, from_version] = function
        return function

    return register


def unregister_op_migration(op: str, from_version: int) -> None:
    """Takes a migration back; nothing where there is none.

    Args:
        op (str): the op's name in `lucid.op_schemas()`.
        from_version (int): the version that the migration starts from.

    Example:
        >>> lucid.serialization.unregister_op_migration("add", 1)
    """
    _migrations.pop((op, from_version), None)


def migrate(obj: Any, written: dict[str, int]) -> Any:
    """The object, with the migrations from the versions in its file to these applied, op by op and in order.

    Ops that the file does not name have version 1 there. An op that is newer in the file than here gives a warning.
    """
    own = _all()
    newer = [
        f"{op} {version} (here {own.get(op, 'none')})" for op, version in written.items() if version > own.get(op, 0)
    ]
    if newer:
        warn(
            f"load: the checkpoint was written with newer versions of ops than these: {', '.join(newer[:5])}. What "
            "they compute from its parameters may differ; install the version of lucid that wrote it"
        )
    for op, version in own.items():
        for step in range(written.get(op, 1), version):
            found = _migrations.get((op, step))
            if found is not None:
                obj = found(obj)
    return obj
