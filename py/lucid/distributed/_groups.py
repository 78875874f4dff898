"""Ranks in groups, and groups of some of the job's processes."""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from typing import Any

from lucid import errors
from lucid.distributed._state import Backend, GroupMember, _make, _mlx_name, _state, default_group, resolve
from lucid.distributed.store import seconds


def get_rank(group: Any = None) -> int:
    """Gives this process's rank in a group.

    Args:
        group (ProcessGroup, optional): default: all processes of the job.

    Returns:
        int: from 0 to `get_world_size(group) - 1`; -1 where this process is not in the group.

    Raises:
        ValueError: `init_process_group` was not called.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> dist.get_rank()
        0
        >>> dist.destroy_process_group()
    """
    found = resolve(group, "get_rank")
    return -1 if found is None else found.rank()


def get_world_size(group: Any = None) -> int:
    """Gives the number of processes in a group.

    Args:
        group (ProcessGroup, optional): default: all processes of the job.

    Returns:
        int: the number of members; -1 where this process is not one.

    Raises:
        ValueError: `init_process_group` was not called.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> dist.get_world_size()
        1
        >>> dist.destroy_process_group()
    """
    found = resolve(group, "get_world_size")
    return -1 if found is None else found.size()


def get_backend(group: Any = None) -> str:
    """Gives the name of a group's backend.

    Args:
        group (ProcessGroup, optional): default: all processes of the job.

    Returns:
        str: the name that was given to `init_process_group`.

    Raises:
        ValueError: this process is not in the group, or `init_process_group` was not called.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> dist.get_backend()
        'gloo'
        >>> dist.destroy_process_group()
    """
    found = resolve(group, "get_backend")
    if found is None:
        raise errors.ValueError("get_backend: this process is not in the group")
    return found.backend


def get_process_group_ranks(group: Any = None) -> list[int]:
    """Gives the ranks in the job of a group's members.

    Args:
        group (ProcessGroup, optional): default: all processes of the job.

    Returns:
        list of int: element `i` is the rank in the job of the group's member `i`; empty where this process is not in
        it.

    Raises:
        ValueError: `init_process_group` was not called.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> dist.get_process_group_ranks()
        [0]
        >>> dist.destroy_process_group()
    """
    found = resolve(group, "get_process_group_ranks")
    return [] if found is None else list(found.ranks)


def get_global_rank(group: Any, group_rank: int) -> int:
    """Converts a rank in a group to the rank in the job.

    Args:
        group (ProcessGroup): a group that this process is in.
        group_rank (int): from 0 to the group's size - 1.

    Returns:
        int: that member's rank in the job.

    Raises:
        ValueError: the group has no such rank, or this process is not in the group.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> dist.get_global_rank(dist.group.WORLD, 0)
        0
        >>> dist.destroy_process_group()
    """
    ranks = get_process_group_ranks(group)
    if not 0 <= group_rank < len(ranks):
        raise errors.ValueError(f"get_global_rank: group rank {group_rank} is not in the group of {len(ranks)}")
    return ranks[group_rank]


def get_group_rank(group: Any, global_rank: int) -> int:
    """Converts a rank in the job to the rank in a group.

    Args:
        group (ProcessGroup): a group that this process is in.
        global_rank (int): the rank in the job of one of its members.

    Returns:
        int: that member's rank in the group.

    Raises:
        ValueError: the rank is not in the group, or this process is not.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> dist.get_group_rank(dist.group.WORLD, 0)
        0
        >>> dist.destroy_process_group()
    """
    found = resolve(group, "get_group_rank")
    if found is None:
        raise errors.ValueError("get_group_rank: this process is not in the group")
    return found.local(global_rank, "get_group_rank")


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """Gives this process's rank on its machine, from the launcher's variable LOCAL_RANK.

    Args:
        fallback_rank (int, optional): the result where LOCAL_RANK is not set.

    Returns:
        int: from 0 to the number of processes on this machine - 1.

    Raises:
        RuntimeError: LOCAL_RANK is not set, and there is no `fallback_rank`.

    Example:
        >>> lucid.distributed.get_node_local_rank(fallback_rank=0)
        0
    """
    text = os.environ.get("LOCAL_RANK")
    if text is not None:
        return int(text)
    if fallback_rank is not None:
        return int(fallback_rank)
    raise errors.RuntimeError("LOCAL_RANK is not in the environment; pass fallback_rank")


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: datetime.timedelta | float | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
) -> Any:
    """Makes a group of some of the job's processes. Every process of the job makes this call, in the same order.

    Args:
        ranks (sequence of int, optional): the members' ranks in the job; they get their ranks in the group in ascending
            order. Default: all.
        timeout (datetime.timedelta or float, optional): how long one operation may take, in seconds where it is a
            number. Default: the job's timeout.
        backend (str, optional): must be the job's backend. Default: that.
        pg_options (object, optional): must be None: MLX's backends have no options.
        use_local_synchronization (bool, optional): nobody waits here in any case: a ring is opened by its first
            operation.
        group_desc (str, optional): a note for readers, without effect.
        device_id (device, optional): a process has one GPU in any case.

    Returns:
        ProcessGroup: the group, or `GroupMember.NON_GROUP_MEMBER` on a process that is not in it.

    Raises:
        ValueError: a rank does not exist or is there twice, `pg_options` is given, or the backend is not the job's.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> first = dist.new_group([0], timeout=60)
        >>> dist.get_world_size(first)
        1
        >>> dist.destroy_process_group()
    """
    world = default_group("new_group")
    if pg_options is not None:
        raise errors.ValueError("new_group: pg_options must be None, MLX's backends have no options")
    if backend is not None and _mlx_name(Backend(backend)) != _mlx_name(world.backend):
        raise errors.ValueError(f"new_group: the job's backend is '{world.backend}', '{backend}' was asked for")
    members = sorted(world.ranks if ranks is None else (int(r) for r in ranks))
    if len(set(members)) != len(members):
        raise errors.ValueError(f"new_group: ranks are there twice: {members}")
    if not members or members[0] < 0 or members[-1] >= world.size():
        raise errors.ValueError(f"new_group: the ranks {members} are not all of 0 to {world.size() - 1}")
    number = next(_state.names)
    if world.rank() not in members:
        return GroupMember.NON_GROUP_MEMBER
    return _make(members, f"group{number}", world.backend, seconds(timeout, _state.timeout))


def new_subgroups(
    group_size: int | None = None, group: Any = None, timeout: Any = None, backend: str | None = None, **_: Any
) -> tuple[Any, list[Any]]:
    """Divides the job's processes into groups of neighbouring ranks. Every process of the job makes this call.

    Args:
        group_size (int, optional): how many ranks each group has; it must divide the world size. Default:
            LOCAL_WORLD_SIZE, the processes on one machine.
        group (ProcessGroup, optional): the group to divide; default: all processes of the job.
        timeout (datetime.timedelta or float, optional): as of `new_group`.
        backend (str, optional): as of `new_group`.

    Returns:
        tuple of (ProcessGroup, list of ProcessGroup): the group that this process is in, and all groups.

    Raises:
        ValueError: the world size is not divisible by `group_size`.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> own, every = dist.new_subgroups(group_size=1)
        >>> dist.get_world_size(own), len(every)
        (1, 1)
        >>> dist.destroy_process_group()
    """
    world = get_world_size(group)
    size = group_size or int(os.environ.get("LOCAL_WORLD_SIZE", str(world)))
    if world % size:
        raise errors.ValueError(f"new_subgroups: the world size {world} must be divisible by group_size={size}")
    return new_subgroups_by_enumeration(
        [list(range(i, i + size)) for i in range(0, world, size)], timeout=timeout, backend=backend
    )


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]], timeout: Any = None, backend: str | None = None, **_: Any
) -> tuple[Any, list[Any]]:
    """Makes a group of each list of ranks. Every process of the job makes this call.

    Args:
        ranks_per_subgroup_list (sequence of sequence of int): the members' ranks in the job, for each group.
        timeout (datetime.timedelta or float, optional): as of `new_group`.
        backend (str, optional): as of `new_group`.

    Returns:
        tuple of (ProcessGroup or None, list of ProcessGroup): the group that this process is in, and all groups. For
        the others' groups the list holds `GroupMember.NON_GROUP_MEMBER`.

    Raises:
        ValueError: a rank does not exist, or is twice in one list.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> own, every = dist.new_subgroups_by_enumeration([[0]])
        >>> own.ranks
        [0]
        >>> dist.destroy_process_group()
    """
    own, made = None, []
    for ranks in ranks_per_subgroup_list:
        one = new_group(ranks, timeout=timeout, backend=backend)
        made.append(one)
        if get_rank() in ranks:
            own = one
    return own, made
