"""Calls of functions in other processes, as `torch.distributed.rpc`: there are none, which `is_available` says.

The names are there for annotations and `isinstance`; what would call or connect says why it does not. Processes of a
job exchange objects by `lucid.distributed.send_object_list` and its collectives.
"""

from __future__ import annotations

import enum
from typing import Any, NoReturn

from lucid import errors
from lucid.distributed.rpc import constants as constants
from lucid.distributed.rpc import functions as functions

__all__ = [
    "BackendType",
    "PyRRef",
    "RRef",
    "RpcAgent",
    "RpcBackendOptions",
    "TensorPipeAgent",
    "TensorPipeRpcBackendOptions",
    "WorkerInfo",
    "get_rpc_timeout",
    "get_worker_info",
    "init_rpc",
    "is_available",
    "remote",
    "rpc_async",
    "rpc_sync",
    "shutdown",
]


def _refuse(name: str) -> NoReturn:
    raise errors.NotImplementedError(
        f"distributed.rpc.{name}: functions are not called in other processes (rpc.is_available() is False); "
        "lucid.distributed has collectives, and send_object_list and recv_object_list for objects"
    )


def is_available() -> bool:
    """Whether functions can be called in other processes: `False`."""
    return False


class BackendType(enum.Enum):
    """PyTorch's ways of calling: none is used."""

    TENSORPIPE = "TENSORPIPE"


class _Refused:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse(type(self).__name__)


def _documented(cls: type) -> type:
    cls.__doc__ = f"""{cls.__doc__}: making one raises an error.

    Args:
        *args (Any): anything.
        **kwargs (Any): anything.

    Raises:
        NotImplementedError: always.

    Example:
        >>> lucid.distributed.rpc.{cls.__name__}()
        Traceback (most recent call last):
        ...
        lucid.errors.NotImplementedError: distributed.rpc.{cls.__name__}: functions are not called in other ...
    """
    return cls


@_documented
class RRef(_Refused):
    """A reference to an object of another process"""

    def __class_getitem__(cls, item: Any) -> Any:
        # `RRef[Tensor]` is an annotation.
        return cls


@_documented
class RpcAgent(_Refused):
    """What sends and receives calls"""


@_documented
class TensorPipeAgent(RpcAgent):
    """What sends and receives calls by TensorPipe"""


@_documented
class RpcBackendOptions(_Refused):
    """Settings of a way of calling"""


@_documented
class TensorPipeRpcBackendOptions(RpcBackendOptions):
    """Settings of TensorPipe"""


@_documented
class WorkerInfo(_Refused):
    """The name and the number of a process that takes calls"""


PyRRef = RRef


def _function(name: str, what: str) -> Any:
    def call(*args: Any, **kwargs: Any) -> NoReturn:
        _refuse(name)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"""{what}: raises an error.

    Args:
        *args (Any): anything.
        **kwargs (Any): anything.

    Raises:
        NotImplementedError: always.

    Example:
        >>> lucid.distributed.rpc.{name}()
        Traceback (most recent call last):
        ...
        lucid.errors.NotImplementedError: distributed.rpc.{name}: functions are not called in other processes ...
    """
    return call


init_rpc = _function("init_rpc", "Connects the processes of a job")
shutdown = _function("shutdown", "Waits for all calls and disconnects")
rpc_sync = _function("rpc_sync", "Calls a function in another process and waits for its result")
rpc_async = _function("rpc_async", "Calls a function in another process")
remote = _function("remote", "Calls a function in another process, which keeps the result")
get_worker_info = _function("get_worker_info", "The name and the number of a process")
get_rpc_timeout = _function("get_rpc_timeout", "Seconds after which a call fails")
