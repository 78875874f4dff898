"""PyTorch's file of `FullyShardedDataParallel`."""

from lucid.distributed.fsdp._wrapper import FullyShardedDataParallel as FullyShardedDataParallel
from lucid.distributed.fsdp.api import BackwardPrefetch as BackwardPrefetch
from lucid.distributed.fsdp.api import CPUOffload as CPUOffload
from lucid.distributed.fsdp.api import FullOptimStateDictConfig as FullOptimStateDictConfig
from lucid.distributed.fsdp.api import FullStateDictConfig as FullStateDictConfig
from lucid.distributed.fsdp.api import LocalOptimStateDictConfig as LocalOptimStateDictConfig
from lucid.distributed.fsdp.api import LocalStateDictConfig as LocalStateDictConfig
from lucid.distributed.fsdp.api import MixedPrecision as MixedPrecision
from lucid.distributed.fsdp.api import OptimStateDictConfig as OptimStateDictConfig
from lucid.distributed.fsdp.api import OptimStateKeyType as OptimStateKeyType
from lucid.distributed.fsdp.api import ShardedOptimStateDictConfig as ShardedOptimStateDictConfig
from lucid.distributed.fsdp.api import ShardedStateDictConfig as ShardedStateDictConfig
from lucid.distributed.fsdp.api import ShardingStrategy as ShardingStrategy
from lucid.distributed.fsdp.api import StateDictConfig as StateDictConfig
from lucid.distributed.fsdp.api import StateDictSettings as StateDictSettings
from lucid.distributed.fsdp.api import StateDictType as StateDictType
