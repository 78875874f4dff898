"""The older path of `lucid.distributed.tensor.experimental`."""

from lucid.distributed.tensor.experimental import context_parallel as context_parallel
from lucid.distributed.tensor.experimental import implicit_replication as implicit_replication
from lucid.distributed.tensor.experimental import local_map as local_map
from lucid.distributed.tensor.experimental import register_sharding as register_sharding
