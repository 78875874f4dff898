"""The older path of `lucid.distributed.tensor`."""

from lucid.distributed.tensor import DeviceMesh as DeviceMesh
from lucid.distributed.tensor import DTensor as DTensor
from lucid.distributed.tensor import Partial as Partial
from lucid.distributed.tensor import Placement as Placement
from lucid.distributed.tensor import Replicate as Replicate
from lucid.distributed.tensor import Shard as Shard
from lucid.distributed.tensor import distribute_module as distribute_module
from lucid.distributed.tensor import distribute_tensor as distribute_tensor
from lucid.distributed.tensor import init_device_mesh as init_device_mesh
