"""PyTorch's file of the process groups and collectives: the names of `lucid.distributed`."""

from typing import Any, NewType

from lucid import errors
from lucid._absent import missing
from lucid.distributed import *  # noqa: F403
from lucid.distributed import _state
from lucid.distributed import get_global_rank as _get_global_rank  # noqa: F401
from lucid.distributed import store as dist_store
from lucid.distributed._state import ProcessGroup

#: The name of a group: its attribute `group_name`.
GroupName = NewType("GroupName", str)


def _resolve_process_group(group_name: GroupName) -> ProcessGroup:
    """The group of a name.

    Raises:
        RuntimeError: there is none that this process is a member of.
    """
    for found in (*([_get_default_group()] if _state.is_initialized() else []), *_state._state.groups):
        if found.group_name == group_name:
            return found
    raise errors.RuntimeError(f"Could not resolve the process group registered under the name {group_name!r}")


def _get_default_group() -> ProcessGroup:
    """The group of all processes.

    Raises:
        ValueError: before `init_process_group`.
    """
    return _state.default_group("_get_default_group")


def _get_default_store() -> dist_store.Store:
    """The store of the job, which all of its processes see.

    Raises:
        ValueError: before `init_process_group`.
    """
    _get_default_group()
    assert _state._state.store is not None
    return _state._state.store


def __getattr__(name: str) -> Any:
    if name == "_pg_map":
        # PyTorch's table of the groups that there are.
        from lucid.distributed import is_initialized

        return {_get_default_group(): (None, None)} if is_initialized() else {}
    raise missing(__name__, name)
