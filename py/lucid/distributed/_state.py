"""The process's job, its groups, and the questions about them.

The job is `lucid._C._Job`: a connection to the store and, for each group, a thread that runs its operations in order
over MLX's communication. What is here is PyTorch's way to name them.
"""

from __future__ import annotations

import atexit
import datetime
import itertools
import os
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from lucid import _C, errors
from lucid.distributed import _recorded
from lucid.distributed.store import FileStore, PrefixStore, Store, TCPStore, _JobStore, job_token, seconds

default_pg_timeout = datetime.timedelta(minutes=30)

DistBackendError = errors.DistBackendError


class Backend(str):
    """A backend's name, in lower case and checked.

    `gloo` and `ring` are MLX's ring over TCP; `mpi` and `jaccl` are MLX's backends of these names; `nccl` is NCCL.

    Args:
        name (str): in any case; or a device and a backend each, like `cpu:gloo,gpu:gloo`, which must name one backend,
            since each serves both devices: of `cpu:gloo,cuda:nccl` that is `nccl` where it is there, and else `gloo`.

    Raises:
        ValueError: there is no backend of this name, or several are named.

    Example:
        >>> lucid.distributed.Backend("GLOO")
        'gloo'
        >>> lucid.distributed.Backend("cpu:gloo,gpu:gloo")
        'gloo'
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
        if parts == {"gloo", "nccl"}:
            parts.remove("gloo" if is_nccl_available() else "nccl")
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
    """Processes that compute together. `init_process_group` and `new_group` make it; collectives take it as `group=`.

    Args:
        group (native group): the engine's group.
        ranks (list of int): the members' ranks in the job, by their rank in the group.
        backend (str): the backend's name.
        timeout (float): how many seconds one operation may take.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> world = dist.group.WORLD
        >>> world.rank(), world.size(), world.ranks
        (0, 1, [0])
        >>> dist.destroy_process_group()
    """

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
    """Tells whether the installed MLX has a backend, and the library that it needs.

    Args:
        backend (str): a name of `Backend.backend_list`, in any case.

    Returns:
        bool: whether `init_process_group(backend)` can work here; False for a name that is unknown.

    Example:
        >>> lucid.distributed.is_backend_available("gloo")
        True
        >>> lucid.distributed.is_backend_available("smoke signals")
        False
    """
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


#: What Open MPI's and MPICH's launchers call a process's rank and how many there are.
_OF_MPI = {"RANK": ("OMPI_COMM_WORLD_RANK", "PMI_RANK"), "WORLD_SIZE": ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")}


def _from_environment(name: str) -> str:
    value = next((os.environ[n] for n in (name, *_OF_MPI.get(name, ())) if n in os.environ), None)
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


def _of_launcher() -> str:
    """The backend that the launcher was given."""
    name = os.environ.get("LUCID_DISTRIBUTED_BACKEND", "gloo")
    if name == "any":
        return "nccl" if is_nccl_available() else "gloo"
    return "gloo" if name == "ring" else name


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
        backend (str, optional): `gloo` or `ring`: MLX's ring over TCP, for both devices; `nccl`: NCCL, which leaves
            what it moves in the GPUs' memory; `mpi`, `jaccl`: MLX's own. Default: what `--backend` of
            `lucid.distributed.run` says, or `gloo`.
        init_method (str, optional): `env://` (the default): MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE of the
            environment (the last two also as `mpirun` calls them); `tcp://host:port`; or `file:///path`, by which
            processes find one another.
        timeout (datetime.timedelta or float, optional): How long each operation may take.
        world_size (int, default: -1): How many processes there are; from the environment where it is -1.
        rank (int, default: -1): This process's number; likewise.
        store (Store, optional): A `TCPStore` to use instead of `init_method`; with it `rank` and `world_size` must
            be given.
        group_name (str, default: ""): without effect: names are made here.
        pg_options (object, optional): Must be None: MLX's backends have no options.
        device_id (object, optional): there is one GPU for each process in any case.

    Raises:
        ValueError: where the environment, or an argument, does not say what is needed.
        DistBackendError: where the others are not there in time, the port is taken, the host does not resolve, or world
            sizes and ranks do not fit together.
    """
    if is_initialized():
        raise errors.ValueError("trying to initialize the default process group twice!")
    if pg_options is not None:
        raise errors.ValueError("init_process_group: pg_options must be None, MLX's backends have no options")
    name = Backend(backend or _of_launcher())
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
    """Leaves the job, or one group of it. Operations that are under way fail on the other members.

    Args:
        group (ProcessGroup, optional): the group to leave; default: the job with all its groups.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> dist.destroy_process_group()
        >>> dist.is_initialized()
        False
    """
    if group is not None and group is not _state.world:
        if isinstance(group, ProcessGroup) and group in _state.groups:
            _state.groups.remove(group)
            group._group = None
        return
    _leave(_state.timeout)


def _leave(patience: float) -> None:
    for made in _state.groups:
        made._group = None
    _state.groups.clear()
    _state.messages.clear()
    job, _state.job, _state.world, _state.store = _state.job, None, None, None
    if job is not None:
        job.leave(patience)
    _state.server = None


# A program that ends by an error must not wait for others.
atexit.register(_leave, 2.0)


def messages_to(source: int, target: int) -> _C._Group:
    """The channel from one rank of the job to another: a ring of the two."""
    found = _state.messages.get((source, target))
    if found is None:
        assert _state.job is not None
        found = _state.job.group(f"{_state.prefix}/messages {source} to {target}", [source, target])
        _state.messages[source, target] = found
    return found


def sender_of(found: ProcessGroup, timeout: float) -> int:
    """The rank in the job of a member that has sent this process a message which it has not begun to receive; waits."""
    assert _state.job is not None
    own = found.ranks[found.rank()]
    channels = {messages_to(rank, own).name: rank for rank in found.ranks if rank != own}
    if not channels:
        raise errors.ValueError("recv: the group has no other member")
    try:
        named = _state.job.store().call("first", [name.encode() for name in channels], timeout)
    except errors.DistBackendError:
        raise errors.DistBackendError(
            f"recv: on rank {own}: none of the ranks {list(channels.values())} sent anything within {timeout:g} s"
        ) from None
    return channels[named.decode()]
