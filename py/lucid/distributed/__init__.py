"""Several processes, on one machine or many, that compute together: `torch.distributed`'s names over MLX's
communication.

The backend `gloo` is MLX's ring over TCP, for tensors of both devices. Beside the data runs a control channel, a small
store that finds the processes, checks that all call the same, and notices who is gone or late: what waits for others
ends with a `DistBackendError` that names rank and operation. `python -m lucid.distributed.run` starts the processes.

Every collective computes when it is called (`async_op=True`: in the background, in order), on the GPU device too.
"""

from __future__ import annotations

from lucid import errors as _errors
from lucid.distributed._all_to_all import all_to_all, all_to_all_single
from lucid.distributed._coalesced import _broadcast_coalesced as _broadcast_coalesced
from lucid.distributed._collectives import (
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_reduce_coalesced,
    barrier,
    broadcast,
    gather,
    monitored_barrier,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
)
from lucid.distributed._groups import (
    get_backend,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
)
from lucid.distributed._messages import (
    P2POp,
    batch_isend_irecv,
    irecv,
    isend,
    recv,
    send,
)
from lucid.distributed._objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from lucid.distributed._rendezvous import rendezvous
from lucid.distributed._state import (
    Backend,
    GroupMember,
    ProcessGroup,
    default_pg_timeout,
    destroy_process_group,
    group,
    init_process_group,
    is_available,
    is_backend_available,
    is_gloo_available,
    is_initialized,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    is_ucc_available,
    is_xccl_available,
)
from lucid.distributed._work import ReduceOp, Work, reduce_op
from lucid.distributed.device_mesh import DeviceMesh, init_device_mesh
from lucid.distributed.store import FileStore, HashStore, PrefixStore, Store, TCPStore

DistBackendError = _errors.DistBackendError
# PyTorch tells these apart by where an error came from; here its text does.
DistError = DistBackendError
DistNetworkError = DistBackendError
DistStoreError = DistBackendError

__all__ = [
    "Backend",
    "DeviceMesh",
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "FileStore",
    "GroupMember",
    "HashStore",
    "P2POp",
    "PrefixStore",
    "ProcessGroup",
    "ReduceOp",
    "Store",
    "TCPStore",
    "Work",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "default_pg_timeout",
    "destroy_process_group",
    "gather",
    "gather_object",
    "get_backend",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_device_mesh",
    "init_process_group",
    "irecv",
    "is_available",
    "is_backend_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "is_ucc_available",
    "is_xccl_available",
    "isend",
    "monitored_barrier",
    "new_group",
    "new_subgroups",
    "new_subgroups_by_enumeration",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_op",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "rendezvous",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
]

# Last, since it has the names above.
from lucid.distributed import distributed_c10d as distributed_c10d  # noqa: E402
from lucid.distributed import rpc as rpc  # noqa: E402
