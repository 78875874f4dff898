"""Settings of `FullyShardedDataParallel`, as PyTorch names them."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

import lucid
from lucid._warnings import warn_without_effect

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
    """Dtypes that `FullyShardedDataParallel` gathers, computes and reduces in. None leaves a dtype as it is.

    Args:
        param_dtype (dtype, optional): what parameters are gathered and computed in; the shards keep their own dtype.
        reduce_dtype (dtype, optional): what gradients are summed in. Default: `param_dtype`.
        buffer_dtype (dtype, optional): what floating point buffers are cast to, once.
        keep_low_precision_grads (bool, optional): gradients have their shard's dtype; True gives one warning.
        cast_forward_inputs (bool, optional): whether floating point inputs are cast to `param_dtype`. Default: True.
        cast_root_forward_inputs (bool, optional): `cast_forward_inputs` decides; False gives one warning.

    Example:
        >>> from lucid.distributed.fsdp import MixedPrecision
        >>> MixedPrecision(param_dtype=lucid.bfloat16).cast_forward_inputs
        True
    """

    param_dtype: lucid.dtype | None = None
    reduce_dtype: lucid.dtype | None = None
    buffer_dtype: lucid.dtype | None = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = True
    cast_root_forward_inputs: bool = True
    _module_classes_to_ignore: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        warn_without_effect(
            "MixedPrecision",
            "gradients have their shard's dtype, and cast_forward_inputs decides of inputs",
            keep_low_precision_grads=self.keep_low_precision_grads,
            cast_root_forward_inputs=not self.cast_root_forward_inputs,
        )


@dataclasses.dataclass
class CPUOffload:
    """Whether shards are kept on the CPU.

    Args:
        offload_params (bool, optional): must be False where `FullyShardedDataParallel` takes it: there is no
            offloading.

    Example:
        >>> lucid.distributed.fsdp.CPUOffload()
        CPUOffload(offload_params=False)
    """

    offload_params: bool = False


class StateDictType(enum.Enum):
    """What `state_dict` gives: whole tensors, the own parts, or `DTensor`s."""

    FULL_STATE_DICT = 1
    LOCAL_STATE_DICT = 2
    SHARDED_STATE_DICT = 3


@dataclasses.dataclass
class StateDictConfig:
    """How `state_dict` gives tensors; the base of the settings for each `StateDictType`.

    Args:
        offload_to_cpu (bool, optional): whether the tensors are copied to the CPU. Default: False.

    Example:
        >>> lucid.distributed.fsdp.StateDictConfig(offload_to_cpu=True)
        StateDictConfig(offload_to_cpu=True)
    """

    offload_to_cpu: bool = False


@dataclasses.dataclass
class FullStateDictConfig(StateDictConfig):
    """How `state_dict` gives whole tensors.

    Args:
        offload_to_cpu (bool, optional): whether the tensors are copied to the CPU. Default: False.
        rank0_only (bool, optional): whether only rank 0 gets them; the others get an empty dict. Default: False.

    Example:
        >>> from lucid.distributed.fsdp import FullStateDictConfig
        >>> FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    """

    rank0_only: bool = False


@dataclasses.dataclass
class LocalStateDictConfig(StateDictConfig):
    """How `state_dict` gives each process's own parts.

    Args:
        offload_to_cpu (bool, optional): whether the parts are copied to the CPU. Default: False.

    Example:
        >>> lucid.distributed.fsdp.LocalStateDictConfig()
        LocalStateDictConfig(offload_to_cpu=False)
    """


@dataclasses.dataclass
class ShardedStateDictConfig(StateDictConfig):
    """How `state_dict` gives `DTensor`s.

    Args:
        offload_to_cpu (bool, optional): whether the local parts are copied to the CPU. Default: False.

    Example:
        >>> lucid.distributed.fsdp.ShardedStateDictConfig(offload_to_cpu=True).offload_to_cpu
        True
    """

    _use_dtensor: bool = True


@dataclasses.dataclass
class OptimStateDictConfig:
    """How `optim_state_dict` gives tensors; the base of the settings for each `StateDictType`.

    Args:
        offload_to_cpu (bool, optional): whether the tensors are copied to the CPU. Default: True.

    Example:
        >>> lucid.distributed.fsdp.OptimStateDictConfig()
        OptimStateDictConfig(offload_to_cpu=True)
    """

    offload_to_cpu: bool = True


@dataclasses.dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """How `optim_state_dict` gives whole tensors.

    Args:
        offload_to_cpu (bool, optional): whether the tensors are copied to the CPU. Default: True.
        rank0_only (bool, optional): whether only rank 0 gets the state; the others get an empty dict. Default: False.

    Example:
        >>> lucid.distributed.fsdp.FullOptimStateDictConfig(rank0_only=True)
        FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True)
    """

    rank0_only: bool = False


@dataclasses.dataclass
class LocalOptimStateDictConfig(OptimStateDictConfig):
    """How `optim_state_dict` gives each process's own parts.

    Args:
        offload_to_cpu (bool, optional): whether the parts are copied to the CPU. Default: False.

    Example:
        >>> lucid.distributed.fsdp.LocalOptimStateDictConfig()
        LocalOptimStateDictConfig(offload_to_cpu=False)
    """

    offload_to_cpu: bool = False


@dataclasses.dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """How `optim_state_dict` gives `DTensor`s.

    Args:
        offload_to_cpu (bool, optional): whether the local parts are copied to the CPU. Default: True.

    Example:
        >>> lucid.distributed.fsdp.ShardedOptimStateDictConfig().offload_to_cpu
        True
    """

    _use_dtensor: bool = True


@dataclasses.dataclass
class StateDictSettings:
    """A `FullyShardedDataParallel`'s settings, as `set_state_dict_type` replaced them.

    Args:
        state_dict_type (StateDictType): whole tensors, own parts or `DTensor`s.
        state_dict_config (StateDictConfig): how `state_dict` gives them.
        optim_state_dict_config (OptimStateDictConfig): how `optim_state_dict` gives them.

    Example:
        >>> from lucid.distributed import fsdp
        >>> settings = fsdp.StateDictSettings(
        ...     fsdp.StateDictType.FULL_STATE_DICT, fsdp.FullStateDictConfig(), fsdp.FullOptimStateDictConfig()
        ... )
        >>> settings.state_dict_type.name
        'FULL_STATE_DICT'
    """

    state_dict_type: StateDictType
    state_dict_config: StateDictConfig
    optim_state_dict_config: OptimStateDictConfig


class OptimStateKeyType(enum.Enum):
    """What the keys of an optimizer's state dict are."""

    PARAM_NAME = 1
    PARAM_ID = 2
