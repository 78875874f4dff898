"""The older path of `lucid.distributed.fsdp`."""

from lucid.distributed.fsdp import CPUOffloadPolicy as CPUOffloadPolicy
from lucid.distributed.fsdp import FSDPModule as FSDPModule
from lucid.distributed.fsdp import MixedPrecisionPolicy as MixedPrecisionPolicy
from lucid.distributed.fsdp import OffloadPolicy as OffloadPolicy
from lucid.distributed.fsdp import fully_shard as fully_shard
