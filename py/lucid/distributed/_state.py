"""The process's job, its groups, and the questions about them.

The job is `lucid._C._Job`: a connection to the store and, for each group, a thread that runs its operations in order
over MLX's communication. What is here is PyTorch's way to name them.
"""

from __future__ import annotations

import atexit
import datetime
import itertools
import os
from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from lucid import _C, errors
from lucid.distributed import _recorded
from lucid.distributed.store import FileStore, PrefixStore, Store, TCPStore, _JobStore, job_token, seconds

default_pg_timeout = datetime.timedelta(minutes=30)

DistBackendError = errors.DistBackendError


class Backend(str):
    """A backend's name: `gloo` and `ring` are MLX's ring over TCP; `mpi`, `nccl` and `jaccl` are MLX's of these names.

    `Backend("GLOO")` is `"gloo"`. A string like `cpu:gloo,gpu:gloo` names one backend for each device; both have to be
    the same, since one ring serves both devices.
    """

    UNDEFINED = "undefined"
    GLOO = "gloo"
    RING = "ring"
    NCCL = "nccl"
    MPI = "mpi"
    JACCL = "jaccl"
    UCC = "ucc"
    backend_list: ClassVar[list[str]] = ["undefined", "gloo", "ring", "nccl", "mpi", "jaccl"]

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise errors.ValueError(f"Backend: expected a name, got {name!r}")
        value = name.lower()
        parts = {p.split(":")[-1] for p in value.split(",")}
        if len(parts) == 1:
            value = parts.pop()
        if value not in cls.backend_list:
            known = ", ".join(b for b in cls.backend_list if b != "undefined")
            raise errors.ValueError(f"Backend: there is no '{name}'; one of {known}")
        return str.__new__(cls, value)


_MLX_NAMES = {"gloo": "ring", "undefined": "ring"}


def _mlx_name(backend: str) -> str:
    return _MLX_NAMES.get(backend, backend)


class ProcessGroup:
    """Processes that compute together. Made by `init_process_group` and `new_group`."""

    def __init__(self, group: _C._Group, ranks: list[int], backend: str, timeout: float) -> None:
        self._group: _C._Group | None = group
        self.ranks, self.backend, self.timeout = ranks, backend, timeout
        self.group_name = group.name

    def _alive(self) -> _C._Group:
        if self._group is None:
            raise errors.ValueError("Invalid process group specified: it was destroyed")
        return self._group

    @property
    def native(self) -> Any:
        """The engine's group; while a profiler records, one that tells it of each operation.

        Raises:
            ValueError: after `destroy_process_group`.
        """
        group = self._alive()
        if _C._graph_recording():
            from lucid.compiler import _trace

            _trace.outside("a collective is called")
        recording = _recorded.profiler()
        return group if recording is None else _recorded.Recorded(group, recording)

    def rank(self) -> int:
        """This process's number in the group."""
        return self._alive().rank

    def size(self) -> int:
        """How many members there are."""
        return self._alive().size

    def name(self) -> str:
        """The backend's name."""
        return self.backend

    def local(self, rank: int, op: str) -> int:
        """The number in the group of a rank of the job."""
        if rank not in self.ranks:
            raise errors.ValueError(f"{op}: rank {rank} is not in the group of ranks {self.ranks}")
        return self.ranks.index(rank)

    def __repr__(self) -> str:
        return f"ProcessGroup({self.group_name}, ranks={self.ranks}, backend={self.backend})"


class _NonMember:
    """What `new_group` gives a process that is not in the group."""

    def size(self) -> int:
        return -1

    def rank(self) -> int:
        return -1

    def __repr__(self) -> str:
        return "GroupMember.NON_GROUP_MEMBER"


class _GroupMeta(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        """The group of all processes; None before `init_process_group`."""
        return _state.world

    @property
    def default(cls) -> ProcessGroup | None:
        return _state.world


class group(metaclass=_GroupMeta):
    """Where the group of all processes is: `group.WORLD`."""


class GroupMember(metaclass=_GroupMeta):
    """As `group`; `NON_GROUP_MEMBER` is what `new_group` gives those that are not in it."""

    NON_GROUP_MEMBER = _NonMember()


class _State:
    def __init__(self) -> None:
        self.job: _C._Job | None = None
        self.world: ProcessGroup | None = None
        self.server: _C._StoreServer | None = None
        self.store: Store | None = None
        self.groups: list[ProcessGroup] = []
        # Names must be the same on every process, and never be used twice.
        self.names = itertools.count()
        self.jobs = itertools.count()
        self.prefix = ""
        self.messages: dict[tuple[int, int], _C._Group] = {}
        self.timeout = default_pg_timeout.total_seconds()


_state = _State()


def is_available() -> bool:
    """Whether several processes can compute together: whether the installed MLX has its ring."""
    return _C._distributed_available("ring")


def is_initialized() -> bool:
    """Whether this process is in a job."""
    return _state.world is not None


def is_backend_available(backend: str) -> bool:
    """Whether the installed MLX has this backend, and what it needs."""
    return backend.lower() in Backend.backend_list and _C._distributed_available(_mlx_name(backend.lower()))


def is_gloo_available() -> bool:
    """Whether the ring over TCP, which `gloo` names here, is there."""
    return is_backend_available("gloo")


def is_nccl_available() -> bool:
    """Whether NCCL is there."""
    return is_backend_available("nccl")


def is_mpi_available() -> bool:
    """Whether MPI is there."""
    return is_backend_available("mpi")


def is_ucc_available() -> bool:
    """Whether UCC is there: MLX has none."""
    return False


def is_xccl_available() -> bool:
    """Whether XCCL is there: MLX has none."""
    return False


def is_torchelastic_launched() -> bool:
    """Whether a launcher, such as `python -m lucid.distributed.run`, started this process."""
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def _from_environment(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise errors.ValueError(
            f"init_process_group: the environment variable {name} is not set; start the program with "
            "python -m lucid.distributed.run, or set MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE"
        )
    return value


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise errors.ValueError(f"init_process_group: {name} must be a number, not '{text}'") from None


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: datetime.timedelta | float | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Makes this process a member of its job, and waits for the others.

    Example::

        >>> import lucid.distributed as dist
        >>> dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> dist.get_world_size()
        1
        >>> dist.destroy_process_group()

    Args:
        backend (str, optional): `gloo` or `ring` (the default): MLX's ring over TCP, for both devices; `nccl`,
            `mpi`, `jaccl`: MLX's own.
        init_method (str, optional): `env://` (the default): MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE of the
            environment; `tcp://host:port`; or `file:///path`, which processes find one another by.
        timeout (datetime.timedelta or float, optional): How long each operation may take.
        world_size (int, default: -1): How many processes there are; from the environment where it is -1.
        rank (int, default: -1): This process's number; likewise.
        store (Store, optional): A `TCPStore` to use instead of `init_method`; with it `rank` and `world_size` must
            be given.
        group_name (str, default: ""): Accepted; names are made here.
        pg_options (object, optional): Must be None: MLX's backends have no options.
        device_id (object, optional): Accepted; there is one GPU for each process.

    Raises:
        ValueError: where the environment, or an argument, does not say what is needed.
        DistBackendError: where the others are not there in time, the port is taken, the host does not resolve, or world
            sizes and ranks do not fit together.
    """
    if is_initialized():
        raise errors.ValueError("trying to initialize the default process group twice!")
    if pg_options is not None:
        raise errors.ValueError("init_process_group: pg_options must be None, MLX's backends have no options")
    name = Backend(backend or "gloo")
    limit = seconds(timeout, default_pg_timeout.total_seconds())
    host, port = "", 0
    if store is not None:
        if init_method is not None:
            raise errors.ValueError("init_process_group: Cannot specify both init_method and store.")
        tcp = store
        while isinstance(tcp, PrefixStore):
            tcp = tcp.underlying_store
        if not isinstance(tcp, TCPStore):
            raise errors.ValueError("init_process_group: store must be a TCPStore; the job's control channel uses it")
        host, port = tcp.host, tcp.port
        _state.server = tcp._server
        serve = False
    else:
        serve = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        method = init_method or "env://"
        parts = urlsplit(method)
        query = parse_qs(parts.query)
        rank = _number("rank", query["rank"][0]) if "rank" in query else rank
        world_size = _number("world_size", query["world_size"][0]) if "world_size" in query else world_size
        if parts.scheme == "env":
            rank = _number("RANK", _from_environment("RANK")) if rank < 0 else rank
            world_size = _number("WORLD_SIZE", _from_environment("WORLD_SIZE")) if world_size < 0 else world_size
            host = _from_environment("MASTER_ADDR")
            port = _number("MASTER_PORT", _from_environment("MASTER_PORT"))
        elif parts.scheme == "tcp":
            host, port, serve = parts.hostname or "", parts.port or 0, True
            if not host or (port == 0 and world_size != 1):
                raise errors.ValueError(f"init_process_group: '{method}' names no host and port")
        elif parts.scheme == "file":
            serve = True
        else:
            raise errors.ValueError(f"init_process_group: init_method '{method}' is not env://, tcp:// or file://")
    if rank < 0 or world_size < 1 or rank >= world_size:
        raise errors.ValueError(f"init_process_group: rank {rank} of a world of {world_size} processes")
    if store is None and init_method is not None and init_method.startswith("file:"):
        files = FileStore(urlsplit(init_method).path, world_size)
        files.set_timeout(limit)
        host = "127.0.0.1"
        if rank == 0:
            _state.server = _C._StoreServer(host, 0, job_token(host))
            files.set("lucid/port", str(_state.server.port))
        port, serve = int(files.get("lucid/port")), False
    token = job_token(host)
    if serve and rank == 0:
        _state.server = _C._StoreServer(host, port, token)
        port = _state.server.port
    listen = os.environ.get("LUCID_DISTRIBUTED_HOST")
    try:
        generation = next(_state.jobs)
        job = _C._Job(host, port, token, rank, world_size, generation, limit, listen, _mlx_name(name))
        _state.job = job
        _state.timeout = limit
        _state.names = itertools.count()
        _state.prefix = f"job{generation}"
        _state.store = PrefixStore("user", _JobStore(job.store(), limit))
        _state.world = _make(list(range(world_size)), "world", str(name), limit)
        # Nobody goes on before all are there.
        _state.world.native.barrier(limit).wait()
    except BaseException:
        destroy_process_group()
        raise


def _make(ranks: list[int], name: str, backend: str, timeout: float) -> ProcessGroup:
    assert _state.job is not None
    made = ProcessGroup(_state.job.group(f"{_state.prefix}/{name}", ranks), ranks, backend, timeout)
    _state.groups.append(made)
    return made


def default_group(op: str = "Default process group") -> ProcessGroup:
    """The group of all processes.

    Raises:
        ValueError: before `init_process_group`.
    """
    if _state.world is None:
        raise errors.ValueError(
            f"{op}: Default process group has not been initialized, please make sure to call init_process_group."
        )
    return _state.world


def resolve(group: Any, op: str) -> ProcessGroup | None:
    """The group that an argument means; None for one that this process is not in."""
    if group is None:
        return default_group(op)
    if isinstance(group, ProcessGroup):
        return group
    if isinstance(group, _NonMember):
        return None
    inner = getattr(group, "get_group", None)
    if inner is not None:
        return resolve(inner(), op)
    raise errors.TypeError(f"{op}: group must be a ProcessGroup, got {type(group).__name__}")


def destroy_process_group(group: Any = None) -> None:
    """Leaves the job, or one group. What goes on is ended with an error."""
    if group is not None and group is not _state.world:
        if isinstance(group, ProcessGroup) and group in _state.groups:
            _state.groups.remove(group)
            group._group = None
        return
    for made in _state.groups:
        made._group = None
    _state.groups.clear()
    _state.messages.clear()
    job, _state.job, _state.world, _state.store = _state.job, None, None, None
    if job is not None:
        job.leave()
    _state.server = None


atexit.register(destroy_process_group)


def get_rank(group: Any = None) -> int:
    """This process's number in the group; -1 where it is not in it."""
    found = resolve(group, "get_rank")
    return -1 if found is None else found.rank()


def get_world_size(group: Any = None) -> int:
    """How many processes the group has; -1 where this one is not in it."""
    found = resolve(group, "get_world_size")
    return -1 if found is None else found.size()


def get_backend(group: Any = None) -> str:
    """The name of the group's backend."""
    found = resolve(group, "get_backend")
    if found is None:
        raise errors.ValueError("get_backend: this process is not in the group")
    return found.backend


def get_process_group_ranks(group: Any = None) -> list[int]:
    """The ranks in the job of the group's members."""
    found = resolve(group, "get_process_group_ranks")
    return [] if found is None else list(found.ranks)


def get_global_rank(group: Any, group_rank: int) -> int:
    """The rank in the job of a group's member."""
    ranks = get_process_group_ranks(group)
    if not 0 <= group_rank < len(ranks):
        raise errors.ValueError(f"get_global_rank: group rank {group_rank} is not in the group of {len(ranks)}")
    return ranks[group_rank]


def get_group_rank(group: Any, global_rank: int) -> int:
    """The number in a group of a rank of the job."""
    found = resolve(group, "get_group_rank")
    if found is None:
        raise errors.ValueError("get_group_rank: this process is not in the group")
    return found.local(global_rank, "get_group_rank")


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """This process's number on its machine, from LOCAL_RANK."""
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
    """A group of some of the job's processes. Every process of the job calls it, in the same order.

    Args:
        ranks (Sequence[int], optional): Its members; all where it is None. They are numbered in ascending order,
            as in PyTorch.
        timeout (datetime.timedelta or float, optional): How long its operations may take; the job's where it is
            None.
        backend (str, optional): None, or the job's.
        pg_options (object, optional): Must be None.
        use_local_synchronization (bool, default: False): Accepted; nobody waits here, a ring is opened by its
            first operation.
        group_desc (str, optional): Accepted.
        device_id (object, optional): Accepted.

    Returns:
        The group, or `GroupMember.NON_GROUP_MEMBER` where this process is not in it.

    Raises:
        ValueError: for ranks that do not exist, or are there twice, or another backend.
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
    """Groups of `group_size` neighbouring ranks. Returns this process's own, and all."""
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
    """Groups of the ranks that are listed. Returns this process's own, or None, and all."""
    own, made = None, []
    for ranks in ranks_per_subgroup_list:
        one = new_group(ranks, timeout=timeout, backend=backend)
        made.append(one)
        if get_rank() in ranks:
            own = one
    return own, made


def messages_to(source: int, target: int) -> _C._Group:
    """The channel from one rank of the job to another: a ring of the two."""
    found = _state.messages.get((source, target))
    if found is None:
        assert _state.job is not None
        found = _state.job.group(f"{_state.prefix}/messages {source} to {target}", [source, target])
        _state.messages[source, target] = found
    return found
