"""PyTorch's file of the placements."""

from lucid.distributed.tensor import Partial as Partial
from lucid.distributed.tensor import Placement as Placement
from lucid.distributed.tensor import Replicate as Replicate
from lucid.distributed.tensor import Shard as Shard
