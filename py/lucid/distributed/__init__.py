"""Names of `torch.distributed` for programs that ask first: `is_available()` is `False`, and one process computes.

Questions about the group are answered as for one process that has none; what would talk to others raises an error.
"""

from __future__ import annotations

import datetime
import enum
import os
from typing import Any

from lucid import errors

__all__ = ["ReduceOp", "Work", "is_available", "is_initialized"]

default_pg_timeout = datetime.timedelta(minutes=30)


class ReduceOp(enum.Enum):
    """How values of several processes are put together."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7


class _Absent:
    """A class of what is not there, for `isinstance` and annotations."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise _error(type(self).__name__)


class ProcessGroup(_Absent):
    """Processes that compute together: none."""


class Work(_Absent):
    """Communication that goes on: none."""


class Store(_Absent):
    """Values that processes share: none."""


class TCPStore(Store):
    """Values that processes share: none."""


class FileStore(Store):
    """Values that processes share: none."""


class DeviceMesh(_Absent):
    """Devices of several processes: none."""


class group:
    """The group of all processes: `WORLD` is `None`."""

    WORLD: ProcessGroup | None = None


GroupMember = group


def _error(name: str) -> errors.RuntimeError:
    return errors.RuntimeError(
        f"distributed.{name}: is_available() is False, one process computes; ask it, or is_initialized(), first"
    )


def is_available() -> bool:
    """Whether several processes can compute together: `False`."""
    return False


def is_initialized() -> bool:
    """Whether `init_process_group` was called: `False`."""
    return False


def is_backend_available(backend: str) -> bool:
    """Whether there is a way to communicate of this name: `False`."""
    return False


def is_nccl_available() -> bool:
    """Whether NCCL is there: `False`."""
    return False


def is_gloo_available() -> bool:
    """Whether Gloo is there: `False`."""
    return False


def is_mpi_available() -> bool:
    """Whether MPI is there: `False`."""
    return False


def is_ucc_available() -> bool:
    """Whether UCC is there: `False`."""
    return False


def is_torchelastic_launched() -> bool:
    """Whether PyTorch's launcher started this process."""
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


_CALLS = (
    *("init_process_group", "destroy_process_group", "new_group", "get_rank", "get_world_size", "get_backend"),
    *("barrier", "monitored_barrier", "all_reduce", "reduce", "broadcast", "scatter", "gather", "all_gather"),
    *("all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single"),
    *("send", "recv", "isend", "irecv", "batch_isend_irecv", "broadcast_object_list", "all_gather_object"),
    *("gather_object", "scatter_object_list", "init_device_mesh", "get_process_group_ranks", "get_global_rank"),
    *("get_group_rank", "new_subgroups", "rendezvous", "get_node_local_rank"),
)


def _absent(name: str) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise _error(f"{name}()")

    call.__name__ = call.__qualname__ = name
    call.__doc__ = "Needs several processes.\n\n    Raises:\n        RuntimeError: always; one process computes."
    return call


for _name in _CALLS:
    globals()[_name] = _absent(_name)
__all__ += [*_CALLS, "DeviceMesh", "FileStore", "ProcessGroup", "Store", "TCPStore", "group"]
