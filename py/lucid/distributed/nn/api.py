"""`RemoteModule` for annotations and `isinstance`: modules are not called in other processes."""

from __future__ import annotations

from typing import Any

from lucid import errors
from lucid.nn.modules.module import Module

__all__ = ["RemoteModule"]


class RemoteModule(Module):
    """A module of another process: making one raises an error.

    Args:
        *args (Any): anything.
        **kwargs (Any): anything.

    Raises:
        NotImplementedError: always.

    Example:
        >>> lucid.distributed.nn.RemoteModule("worker/cpu", lucid.nn.Linear)
        Traceback (most recent call last):
        ...
        lucid.errors.NotImplementedError: distributed.nn.RemoteModule: modules are not called in other processes ...
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise errors.NotImplementedError(
            "distributed.nn.RemoteModule: modules are not called in other processes (rpc.is_available() is False); "
            "lucid.distributed.pipelining and tensor.parallel split a module over the processes of a job"
        )
