"""Modules and names of PyTorch that Lucid lacks and that packages import before they know whether they need them.

Each is there under `torch` alone, so that the import succeeds: a class that nothing is an instance of, a function or a
class that says why it is not there when it is called, or a constant. What Lucid gets itself takes their place.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from typing import Any

import lucid
from lucid import errors
from lucid._absent import COMPILER, CUDA, TRACES

_GROUP = "one process computes; lucid.distributed has what there is of it"
_FFT = "comes with lucid.fft"


class _Meta(type):
    """Attributes of an absent class are absent members: enumerations are read in signatures."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Member(cls, name)


class _Member:
    """A member of an absent enumeration, such as `StateDictType.FULL_STATE_DICT`."""

    def __init__(self, cls: Any, name: str) -> None:
        self.cls, self.name = cls, name

    def __repr__(self) -> str:
        return f"<{self.cls.__qualname__}.{self.name}: not there>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise _error(f"{self.cls.__module__}.{self.cls.__qualname__}.{self.name}", self.cls.reason)


def _error(name: str, reason: str) -> errors.NotImplementedError:
    return errors.NotImplementedError(f"{name}: {reason}")


def _class(module: str, name: str, reason: str) -> type:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        raise _error(f"{module}.{name}", reason)

    return _Meta(
        name, (), {"__init__": __init__, "__module__": module, "__doc__": f"Not there: {reason}.", "reason": reason}
    )


def _function(module: str, name: str, reason: str) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise _error(f"{module}.{name}", reason)

    call.__name__ = call.__qualname__ = name
    call.__module__, call.__doc__ = module, f"Not there: {reason}."
    return call


class Partial:
    """A placement of distributed tensors whose parts are to be reduced: a value of tables. Nothing takes it."""

    def __init__(self, reduce_op: str = "sum") -> None:
        self.reduce_op = reduce_op


def _never(*args: Any, **kwargs: Any) -> bool:
    """Of nothing is this so: `False`."""
    return False


class _Dtype:
    """A dtype that Lucid lacks, to be compared and looked up; no tensor has it."""

    is_complex = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_floating_point = name.startswith("float")

    def __repr__(self) -> str:
        return f"torch.{self.name}"


#: Names by module, with the reason. A name that begins in upper case is a class.
THIN: dict[str, tuple[str, str]] = {
    "fft": (
        _FFT,
        """fft ifft rfft irfft hfft ihfft fft2 ifft2 rfft2 irfft2 fftn ifftn rfftn irfftn hfftn ihfftn hfft2 ihfft2
        fftfreq rfftfreq fftshift ifftshift""",
    ),
    "onnx": (COMPILER, "operators"),
    **{f"onnx.symbolic_opset{n}": (COMPILER, "") for n in range(9, 19)},
    "_dynamo.eval_frame": ("lucid.compile makes no such module", "OptimizedModule"),
    "distributed._tensor": (_GROUP, "DTensor DeviceMesh Replicate Shard Partial distribute_tensor distribute_module"),
    "distributed.tensor": (
        _GROUP,
        "DTensor DeviceMesh Placement Replicate Shard Partial distribute_tensor distribute_module",
    ),
    "distributed.tensor.placement_types": (_GROUP, "Placement Replicate Shard Partial _StridedShard"),
    "distributed.tensor.parallel": (
        _GROUP,
        """ColwiseParallel RowwiseParallel PrepareModuleInput PrepareModuleOutput SequenceParallel ParallelStyle
        parallelize_module loss_parallel""",
    ),
    "distributed.tensor._utils": (_GROUP, "compute_local_shape_and_global_offset"),
    "distributed.tensor.experimental": (_GROUP, "context_parallel implicit_replication"),
    "distributed.tensor.experimental._attention": (_GROUP, "set_rotate_method"),
    "distributed._tensor.experimental": (_GROUP, "implicit_replication"),
    "distributed._composable": (_GROUP, ""),
    "distributed._composable.fsdp": (_GROUP, "FSDPModule fully_shard"),
    "distributed.checkpoint.hf_storage": (_GROUP, "HuggingFaceStorageReader HuggingFaceStorageWriter"),
    "distributed.checkpoint._consolidate_hf_safetensors": (_GROUP, "consolidate_safetensors_files"),
    "distributed.device_mesh": (_GROUP, "DeviceMesh init_device_mesh _mesh_resources"),
    "distributed.constants": (_GROUP, ""),
    "distributed.distributed_c10d": (_GROUP, "ProcessGroup ReduceOp _get_default_group _find_pg_by_ranks_and_tag"),
    "distributed.utils": (_GROUP, "_sync_module_states"),
    "distributed.nn": (_GROUP, "all_reduce all_gather"),
    "distributed.nn.functional": (_GROUP, "all_reduce all_gather reduce_scatter broadcast"),
    "distributed._functional_collectives": (
        _GROUP,
        """all_reduce all_gather_tensor all_to_all_single all_to_all_single_autograd wait_tensor
        AsyncCollectiveTensor""",
    ),
    "distributed.elastic": (_GROUP, ""),
    "distributed.elastic.multiprocessing": (_GROUP, ""),
    "distributed.elastic.multiprocessing.errors": (_GROUP, "ChildFailedError record"),
    "distributed.run": (_GROUP, "main config_from_args get_args_parser"),
    "distributed.launcher": (_GROUP, ""),
    "distributed.launcher.api": (_GROUP, "LaunchConfig elastic_launch"),
    "distributed.optim": (_GROUP, "ZeroRedundancyOptimizer PostLocalSGDOptimizer DistributedOptimizer"),
    "distributed.pipelining": (_GROUP, "ScheduleGPipe SplitPoint pipeline Pipe PipelineStage"),
    "distributed.algorithms": (_GROUP, ""),
    "distributed.algorithms.join": (_GROUP, "Join Joinable JoinHook"),
    "distributed.algorithms.ddp_comm_hooks": (_GROUP, ""),
    "distributed.algorithms.ddp_comm_hooks.default_hooks": (
        _GROUP,
        "fp16_compress_hook bf16_compress_hook allreduce_hook",
    ),
    "distributed.algorithms.ddp_comm_hooks.debugging_hooks": (_GROUP, "noop_hook"),
    "distributed.algorithms.ddp_comm_hooks.powerSGD_hook": (
        _GROUP,
        "PowerSGDState powerSGD_hook batched_powerSGD_hook",
    ),
    "distributed.algorithms.ddp_comm_hooks.post_localSGD_hook": (_GROUP, "PostLocalSGDState post_localSGD_hook"),
    "distributed.algorithms.model_averaging": (_GROUP, ""),
    "distributed.algorithms.model_averaging.averagers": (_GROUP, "ModelAverager PeriodicModelAverager"),
    "distributed.algorithms._checkpoint": (_GROUP, ""),
    "distributed.algorithms._checkpoint.checkpoint_wrapper": (
        _GROUP,
        "CheckpointWrapper CheckpointImpl checkpoint_wrapper apply_activation_checkpointing offload_wrapper",
    ),
    "distributed.checkpoint": (
        _GROUP,
        """FileSystemReader FileSystemWriter DefaultSavePlanner DefaultLoadPlanner StorageReader StorageWriter load save
        load_state_dict save_state_dict async_save""",
    ),
    "distributed.checkpoint.state_dict": (
        _GROUP,
        """StateDictOptions get_model_state_dict get_optimizer_state_dict set_model_state_dict set_optimizer_state_dict
        get_state_dict set_state_dict""",
    ),
    "distributed.checkpoint.state_dict_loader": (_GROUP, "_load_state_dict load"),
    "distributed.checkpoint.format_utils": (_GROUP, "_EmptyStateDictLoadPlanner dcp_to_torch_save"),
    "distributed.checkpoint.optimizer": (_GROUP, "load_sharded_optimizer_state_dict"),
    "distributed.checkpoint.default_planner": (_GROUP, "DefaultSavePlanner DefaultLoadPlanner"),
    "distributed.fsdp": (
        _GROUP,
        """FullyShardedDataParallel FSDPModule MixedPrecision MixedPrecisionPolicy CPUOffload CPUOffloadPolicy
        OffloadPolicy BackwardPrefetch ShardingStrategy StateDictType FullStateDictConfig ShardedStateDictConfig
        LocalStateDictConfig StateDictConfig OptimStateDictConfig OptimStateKeyType FullOptimStateDictConfig
        ShardedOptimStateDictConfig FlatParameter fully_shard register_fsdp_forward_method""",
    ),
    "distributed.fsdp.api": (
        _GROUP,
        """StateDictType FullStateDictConfig ShardedStateDictConfig FullOptimStateDictConfig ShardedOptimStateDictConfig
        ShardingStrategy MixedPrecision CPUOffload BackwardPrefetch""",
    ),
    "distributed.fsdp.fully_sharded_data_parallel": (
        _GROUP,
        """FullyShardedDataParallel MixedPrecision CPUOffload ShardingStrategy StateDictType BackwardPrefetch
        FullStateDictConfig ShardedStateDictConfig FullOptimStateDictConfig ShardedOptimStateDictConfig""",
    ),
    "distributed.fsdp.sharded_grad_scaler": (_GROUP, "ShardedGradScaler"),
    "distributed.fsdp.wrap": (
        _GROUP,
        """ModuleWrapPolicy CustomPolicy size_based_auto_wrap_policy transformer_auto_wrap_policy
        lambda_auto_wrap_policy always_wrap_policy enable_wrap wrap _or_policy""",
    ),
    "utils.cpp_extension": ("extensions are compiled for PyTorch's own tensors", "load load_inline CUDAExtension"),
}

#: Names that are put into modules of Lucid's that lack them.
ADDED: dict[str, tuple[str, str]] = {
    "_dynamo": ("lucid.compile makes no such module", "OptimizedModule"),
    "autograd.profiler": (TRACES, "EventList FunctionEvent emit_nvtx emit_itt"),
    "cuda": (CUDA, "ExternalStream"),
}

#: Values beside them, that mean what they say.
_VALUES: dict[str, dict[str, Any]] = {
    "distributed.tensor": {"Partial": Partial},
    "distributed.tensor.placement_types": {"Partial": Partial},
}


#: Dtypes that packages list in tables.
DTYPES = ("quint8", "qint8", "qint32", "quint4x2", "quint2x4")


def top() -> dict[str, Any]:
    """The thin names of `torch` itself."""
    reader = _class("torch", "PyTorchFileReader", "lucid.load reads checkpoints")
    return {**{name: _Dtype(name) for name in DTYPES}, "PyTorchFileReader": reader}


def names(module: str) -> dict[str, Any]:
    """The names of a thin module: `module` without `torch`."""
    reason, listed = THIN[module]
    here = f"torch.{module}"
    made = {n: (_class if n.lstrip("_")[:1].isupper() else _function)(here, n, reason) for n in listed.split()}
    if module == "distributed.constants":
        made["default_pg_timeout"] = lucid.distributed.default_pg_timeout
    return {**made, **_VALUES.get(module, {})}


#: Values that are put into modules of Lucid's that lack them.
_ADDED_VALUES: dict[str, dict[str, Any]] = {
    "profiler": {"kineto_available": _never},
    "autograd.profiler": {"kineto_available": _never},
}


#: Thin modules that are reached as attributes of Lucid's, without an import.
_ATTRIBUTES = ("_dynamo.eval_frame",)


def complete() -> None:
    """Puts the names of ADDED into the modules that lack them."""
    for path in _ATTRIBUTES:
        package, _, name = path.rpartition(".")
        found = importlib.import_module(f"lucid.{package}")
        if not hasattr(found, name):
            setattr(found, name, make(path))
    for module, values in _ADDED_VALUES.items():
        found = importlib.import_module(f"lucid.{module}")
        for name, value in values.items():
            if not hasattr(found, name):
                setattr(found, name, value)
    operations: Any = getattr(lucid.distributed, "ReduceOp", None)
    if operations is not None and not hasattr(operations, "RedOpType"):
        # In PyTorch the values are of a class inside of it.
        operations.RedOpType = operations
    for module, (reason, listed) in ADDED.items():
        found = importlib.import_module(f"lucid.{module}")
        for name in listed.split():
            if not hasattr(found, name):
                make_one = _class if name[:1].isupper() or name.startswith("emit") else _function
                setattr(found, name, make_one(f"torch.{module}", name, reason))


def fill(found: types.ModuleType, module: str) -> None:
    """Puts the names of THIN into a module that Lucid has, where it lacks them."""
    if module in THIN and not getattr(getattr(found, "__spec__", None), "_initializing", False):
        for name, value in names(module).items():
            if not hasattr(found, name):
                setattr(found, name, value)
        for path in THIN:
            # `from torch.onnx import symbolic_opset11` looks for attributes, and then below Lucid's own name.
            package, _, name = path.rpartition(".")
            if package == module and not hasattr(found, name) and importlib.util.find_spec(f"lucid.{path}") is None:
                setattr(found, name, sys.modules.setdefault(f"torch.{path}", make(path)))


def make(module: str) -> types.ModuleType:
    """A thin module of THIN, a package if others are below it."""
    made = types.ModuleType(f"torch.{module}", f"Not in Lucid: {THIN[module][0]}.")
    made.__path__ = []  # importlib asks for it before it looks for what is below.
    made.__dict__.update(names(module))

    def absent(name: str) -> Any:
        raise AttributeError(f"module 'torch.{module}' has no attribute {name!r}: {THIN[module][0]}", name=name)

    made.__dict__["__getattr__"] = absent
    return made
