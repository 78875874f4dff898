"""Settings of `FullyShardedDataParallel`, as PyTorch names them."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

import lucid

__all__ = [
    "BackwardPrefetch",
    "CPUOffload",
    "FullOptimStateDictConfig",
    "FullStateDictConfig",
    "LocalOptimStateDictConfig",
    "LocalStateDictConfig",
    "MixedPrecision",
    "OptimStateDictConfig",
    "OptimStateKeyType",
    "ShardedOptimStateDictConfig",
    "ShardedStateDictConfig",
    "ShardingStrategy",
    "StateDictConfig",
    "StateDictSettings",
    "StateDictType",
]


class ShardingStrategy(enum.Enum):
    """What is sharded: `FULL_SHARD` parameters, gradients and state, whole parameters dropped after the forward pass;
    `SHARD_GRAD_OP` the same, whole parameters kept until the backward pass. The others are not there."""

    FULL_SHARD = 1
    SHARD_GRAD_OP = 2
    NO_SHARD = 3
    HYBRID_SHARD = 4
    _HYBRID_SHARD_ZERO2 = 5


class BackwardPrefetch(enum.Enum):
    """When the next parameters are gathered in a backward pass; every value gathers them when they are needed."""

    BACKWARD_PRE = 1
    BACKWARD_POST = 2


@dataclasses.dataclass
class MixedPrecision:
    """Dtypes of `FullyShardedDataParallel`.

    Attributes:
        param_dtype: what parameters are gathered and computed in.
        reduce_dtype: what gradients are summed in.
        buffer_dtype: what buffers are cast to, once.
        cast_forward_inputs: whether floating point inputs become `param_dtype`.
    """

    param_dtype: lucid.dtype | None = None
    reduce_dtype: lucid.dtype | None = None
    buffer_dtype: lucid.dtype | None = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = True
    cast_root_forward_inputs: bool = True
    _module_classes_to_ignore: tuple[Any, ...] = ()


@dataclasses.dataclass
class CPUOffload:
    """Whether shards are kept on the CPU; only `False` is there."""

    offload_params: bool = False


class StateDictType(enum.Enum):
    """What `state_dict` gives: whole tensors, the own parts, or `DTensor`s."""

    FULL_STATE_DICT = 1
    LOCAL_STATE_DICT = 2
    SHARDED_STATE_DICT = 3


@dataclasses.dataclass
class StateDictConfig:
    """`offload_to_cpu`: whether the tensors are copied to the CPU."""

    offload_to_cpu: bool = False


@dataclasses.dataclass
class FullStateDictConfig(StateDictConfig):
    """`rank0_only`: whether only rank 0 gets the tensors; the others then get an empty dict."""

    rank0_only: bool = False


@dataclasses.dataclass
class LocalStateDictConfig(StateDictConfig):
    """Of the own parts."""


@dataclasses.dataclass
class ShardedStateDictConfig(StateDictConfig):
    """Of `DTensor`s."""

    _use_dtensor: bool = True


@dataclasses.dataclass
class OptimStateDictConfig:
    """`offload_to_cpu`: whether the tensors are copied to the CPU."""

    offload_to_cpu: bool = True


@dataclasses.dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """`rank0_only`: whether only rank 0 gets the state; the others then get an empty dict."""

    rank0_only: bool = False


@dataclasses.dataclass
class LocalOptimStateDictConfig(OptimStateDictConfig):
    """Of the own parts."""

    offload_to_cpu: bool = False


@dataclasses.dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """Of `DTensor`s."""

    _use_dtensor: bool = True


@dataclasses.dataclass
class StateDictSettings:
    """What `set_state_dict_type` replaced."""

    state_dict_type: StateDictType
    state_dict_config: StateDictConfig
    optim_state_dict_config: OptimStateDictConfig


class OptimStateKeyType(enum.Enum):
    """What the keys of an optimizer's state dict are."""

    PARAM_NAME = 1
    PARAM_ID = 2
