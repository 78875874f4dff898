"""`fully_shard`: parameters, gradients and optimizer state in shards, one for each process.

A module that was given to `fully_shard` keeps, of each of its parameters, the rows that are this process's. Its forward
pass gathers them all at once and drops the whole ones again; what the graph saved of them is gathered again by the
backward pass, whose gradients are averaged and scattered, so that an optimizer steps shards.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid._warnings import warn_once, warn_without_effect
from lucid.autograd import Function
from lucid.autograd.graph import saved_tensors_hooks
from lucid.distributed._state import ProcessGroup, default_group
from lucid.distributed.device_mesh import DeviceMesh
from lucid.distributed.tensor import Shard, chunk_range, shard_parameter
from lucid.nn.modules.module import Module

__all__ = [
    "BackwardPrefetch",
    "CPUOffload",
    "CPUOffloadPolicy",
    "FSDPModule",
    "FullOptimStateDictConfig",
    "FullStateDictConfig",
    "FullyShardedDataParallel",
    "LocalOptimStateDictConfig",
    "LocalStateDictConfig",
    "MixedPrecision",
    "MixedPrecisionPolicy",
    "OffloadPolicy",
    "OptimStateDictConfig",
    "OptimStateKeyType",
    "ShardedOptimStateDictConfig",
    "ShardedStateDictConfig",
    "ShardingStrategy",
    "StateDictConfig",
    "StateDictSettings",
    "StateDictType",
    "fully_shard",
]


@dataclasses.dataclass(frozen=True)
class MixedPrecisionPolicy:
    """Dtypes that `fully_shard` gathers, computes and reduces in. None leaves a dtype as it is.

    Args:
        param_dtype (dtype, optional): what parameters are gathered and computed in; the shards keep their own dtype.
        reduce_dtype (dtype, optional): what gradients are summed in. Default: `param_dtype`.
        output_dtype (dtype, optional): what the module's floating point outputs are cast to.
        cast_forward_inputs (bool, optional): whether floating point inputs are cast to `param_dtype`. Default: True.

    Example:
        >>> from lucid.distributed.fsdp import MixedPrecisionPolicy
        >>> policy = MixedPrecisionPolicy(param_dtype=lucid.bfloat16, reduce_dtype=lucid.float32)
        >>> policy.param_dtype
        lucid.bfloat16
    """

    param_dtype: lucid.dtype | None = None
    reduce_dtype: lucid.dtype | None = None
    output_dtype: lucid.dtype | None = None
    cast_forward_inputs: bool = True


@dataclasses.dataclass(frozen=True)
class OffloadPolicy:
    """Where the shards are: on the device that they are on. There is no other policy."""


class CPUOffloadPolicy(OffloadPolicy):
    """A policy that would keep shards on the CPU. Lucid has no offloading, so that making one is an error.

    Args:
        pin_memory (bool, optional): PyTorch's argument; never used.

    Raises:
        NotImplementedError: always.

    Example:
        >>> lucid.distributed.fsdp.CPUOffloadPolicy()
        Traceback (most recent call last):
        ...
        lucid.errors.NotImplementedError: CPUOffloadPolicy: shards stay on the device that they are on
    """

    def __init__(self, pin_memory: bool = True) -> None:
        raise errors.NotImplementedError("CPUOffloadPolicy: shards stay on the device that they are on")


class _Unit:
    """The parameters of one call of `fully_shard`, which travel together."""

    def __init__(self, mesh: DeviceMesh, policy: MixedPrecisionPolicy, reshard: bool) -> None:
        self.mesh, self.policy, self.reshard = mesh, policy, reshard
        self.group: ProcessGroup = mesh.get_group()
        self.places: list[tuple[Module, str]] = []
        self.sync = True
        # Whole gradients of backward passes that were not summed over the processes.
        self.held: list[Tensor | None] = []
        # Whole parameters by their storage while a forward pass runs, and again while its backward does.
        self.whole: list[Tensor] | None = None
        self.shards: list[Any] = []

    def parameters(self) -> list[Any]:
        return [module._parameters[name] for module, name in self.places]

    def compute_dtype(self, p: Tensor) -> lucid.dtype:
        wanted = self.policy.param_dtype
        return wanted if wanted is not None and p.is_floating_point() else p.dtype

    def gather(self, shards: list[Tensor]) -> list[Tensor]:
        """The whole parameters; those of one dtype travel as one vector."""
        n = self.group.size()
        out: list[Any] = [None] * len(shards)
        kinds: dict[Any, list[int]] = {}
        for i, p in enumerate(shards):
            kinds.setdefault((self.compute_dtype(p), str(p.device)), []).append(i)
        for (dtype, _), own in kinds.items():
            parts = []
            for i in own:
                flat = shards[i].detach().to(dtype).reshape(-1)
                lack = self.rows(i) * self.width(i) - flat.numel()
                parts.append(lucid.cat([flat, flat.new_zeros(lack)]) if lack else flat)
            rows = self.group.native.begin("all_gather", lucid.cat(parts), timeout=self.group.timeout, now=True).wait()
            at = 0
            for i in own:
                size = self.rows(i) * self.width(i)
                shape = self.shape(i)
                whole = rows[:, at : at + size].reshape(n * self.rows(i), *shape[1:])
                out[i] = whole[: shape[0]].clone()
                at += size
        return out

    def scatter(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        """The mean of the whole gradients, of this process's rows."""
        n, rank = self.group.size(), self.group.rank()
        out: list[Tensor | None] = [None] * len(grads)
        kinds: dict[Any, list[int]] = {}
        for i, p in enumerate(self.shards):
            kinds.setdefault((self.policy.reduce_dtype or self.compute_dtype(p), str(p.device)), []).append(i)
        for (dtype, device), own in kinds.items():
            parts = []
            for i in own:
                g, (first, *rest) = grads[i], self.shape(i)
                g = lucid.zeros((first, *rest), dtype=dtype, device=device) if g is None else g.to(dtype)
                lack = n * self.rows(i) - first
                g = lucid.cat([g, g.new_zeros((lack, *rest))]) if lack else g
                parts.append(g.reshape(n, -1))
            flat = lucid.cat(parts, 1) / n
            mine = self.group.native.begin("reduce_scatter", flat, timeout=self.group.timeout, now=True).wait()
            at = 0
            for i in own:
                size = self.rows(i) * self.width(i)
                shape = self.shape(i)
                length = chunk_range(shape[0], n, rank)[1]
                part = mine[at : at + size].reshape(self.rows(i), *shape[1:])[:length]
                out[i] = part.to(self.shards[i].dtype).clone()
                at += size
        return out

    def shape(self, i: int) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.shards[i].__dict__["_sharding"].shape
        return shape

    def rows(self, i: int) -> int:
        return -(-self.shape(i)[0] // self.group.size())

    def width(self, i: int) -> int:
        width = 1
        for n in self.shape(i)[1:]:
            width *= n
        return width

    def accumulated(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        """Whole gradients with those that are held."""
        if not self.held:
            return grads
        return [b if a is None else a if b is None else a + b for a, b in zip(self.held, grads, strict=True)]

    def again(self) -> list[Tensor]:
        """The whole parameters in a backward pass."""
        if self.whole is None:
            with lucid.no_grad():
                self.whole = self.gather(self.shards)
        return self.whole


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, unit: _Unit, *shards: Tensor) -> Any:
        ctx.unit = unit
        ctx.set_materialize_grads(False)
        return tuple(unit.gather(list(shards)))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        unit = ctx.unit
        unit.whole = None
        whole = unit.accumulated(list(grads))
        if not unit.sync:
            unit.held = whole
            return (None, *(None for _ in grads))
        unit.held = []
        return (None, *unit.scatter(whole))


class _Saved:
    """A whole parameter that a graph needs, or a view of one: gathered again when it does."""

    def __init__(self, unit: _Unit, number: int, layout: tuple[Any, Any, int]) -> None:
        self.unit, self.number, self.layout = unit, number, layout

    def get(self) -> Tensor:
        shape, strides, offset = self.layout
        return self.unit.again()[self.number].as_strided(shape, strides, offset)


class FSDPModule:
    """What a module that was given to `fully_shard` is, too."""

    _unit: _Unit

    def reshard(self) -> None:
        """Drops whole parameters that a backward pass has gathered."""
        self._unit.whole = None

    def unshard(self, async_op: bool = False) -> None:
        """Gathers the whole parameters for a backward pass ahead of time."""
        warn_without_effect("unshard", "parameters are there when it returns", async_op=async_op)
        self._unit.again()

    def _units(self, recurse: bool) -> list[_Unit]:
        if not recurse:
            return [self._unit]
        module: Any = self
        return [m._unit for m in module.modules() if isinstance(m, FSDPModule)]

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Whether backward passes sum gradients over the processes.

        Those that do not keep the whole gradients here, in the memory that those take; the next one that does sums them
        all.

        Args:
            requires_gradient_sync: Whether they do.
            recurse: Whether this is for the modules inside that were sharded, too.
        """
        for unit in self._units(recurse):
            unit.sync = bool(requires_gradient_sync)

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Without effect, with one warning: meshes of two dimensions, where gradients of replicas are summed, are not
        there."""
        _without_effect("set_requires_all_reduce", "there are no replicas whose gradients are summed apart")

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Without effect, with one warning: gradients are summed when a backward pass gives them, and nothing waits for
        the last."""
        _without_effect("set_is_last_backward", "gradients are summed when a backward pass gives them")

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Whether the whole parameters are dropped after forward passes and gathered again in backward passes."""
        for unit in self._units(recurse):
            unit.reshard = bool(reshard_after_forward)

    def set_modules_to_forward_prefetch(self, modules: list[Any]) -> None:
        """Without effect, with one warning: parameters are gathered when a forward pass needs them."""
        _without_effect("set_modules_to_forward_prefetch", "parameters are gathered when a forward pass needs them")

    def set_modules_to_backward_prefetch(self, modules: list[Any]) -> None:
        """Without effect, with one warning: parameters are gathered when a backward pass needs them."""
        _without_effect("set_modules_to_backward_prefetch", "parameters are gathered when a backward pass needs them")


def _without_effect(name: str, why: str) -> None:
    warn_once(f"fsdp {name}", f"{name} has no effect: {why}")


def _cast(value: Any, dtype: lucid.dtype | None) -> Any:
    if dtype is None:
        return value
    if isinstance(value, Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_cast(v, dtype) for v in value)
    if isinstance(value, dict):
        return {k: _cast(v, dtype) for k, v in value.items()}
    return value


def _wrapped(unit: _Unit, forward: Any) -> Any:
    @functools.wraps(forward)
    def run(*args: Any, **kwargs: Any) -> Any:
        unit.shards = unit.parameters()
        whole = _Gather.apply(unit, *unit.shards)
        policy = unit.policy
        if policy.cast_forward_inputs:
            args, kwargs = _cast(args, policy.param_dtype), _cast(kwargs, policy.param_dtype)
        known = {t.untyped_storage().data_ptr(): i for i, t in enumerate(whole) if t.numel()}

        def pack(t: Tensor) -> Any:
            if t.numel() == 0 or t.device != whole[0].device:
                return t
            number = known.get(t.untyped_storage().data_ptr())
            if number is None or t.dtype != whole[number].dtype:
                return t
            return _Saved(unit, number, (t.shape, t.stride(), t.storage_offset()))

        def unpack(saved: Any) -> Tensor:
            made: Tensor = saved.get() if isinstance(saved, _Saved) else saved
            return made

        for (module, name), t in zip(unit.places, whole, strict=True):
            module._parameters[name] = t
        try:
            if unit.reshard and lucid.is_grad_enabled():
                with saved_tensors_hooks(pack, unpack):
                    out = forward(*args, **kwargs)
            else:
                out = forward(*args, **kwargs)
        finally:
            for (module, name), p in zip(unit.places, unit.shards, strict=True):
                module._parameters[name] = p
        return _cast(out, policy.output_dtype)

    return run


def fully_shard(
    module: Module,
    *,
    mesh: DeviceMesh | None = None,
    reshard_after_forward: bool | None = None,
    mp_policy: MixedPrecisionPolicy | None = None,
    offload_policy: OffloadPolicy | None = None,
    ignored_params: set[Any] | None = None,
) -> Module:
    """Shards a module's parameters over the processes, in place, along their first dimension.

    Parameters of submodules that were given to `fully_shard` before are theirs; so call it for the layers first, and
    then for the whole. Make the optimizer afterwards, of the shards. Rank 0's parameters count.

    Differences from PyTorch: parameters hold the shard, whose shape is their `shape`, and have the methods of a
    `DTensor`; the whole ones exist for their module's own `forward` alone; a mesh of two dimensions and offloading are
    not there.

    Args:
        module (Module): the module, built alike on every process.
        mesh (DeviceMesh, optional): a mesh of one dimension. Default: all processes of the job.
        reshard_after_forward (bool, optional): whether the whole parameters are dropped after the forward pass and
            gathered again in the backward pass, which takes a third gather and less memory. Default: True.
        mp_policy (MixedPrecisionPolicy, optional): the dtypes to gather and reduce in. Default: the parameters' own.
        offload_policy (OffloadPolicy, optional): shards stay on their device; another than `OffloadPolicy()` is an
            error.
        ignored_params (set of Parameter, optional): parameters that stay whole, and whose gradients stay each process's
            own.

    Returns:
        Module: `module` itself, whose class is now a subclass of its own and of `FSDPModule`.

    Raises:
        ValueError: the module was sharded before.
        NotImplementedError: `mesh` has several dimensions, or shards are to be offloaded.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.distributed.fsdp import fully_shard
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> model = lucid.nn.Sequential(lucid.nn.Linear(4, 4), lucid.nn.Linear(4, 2))
        >>> for layer in model:
        ...     _ = fully_shard(layer)
        >>> _ = fully_shard(model)
        >>> model(lucid.ones(3, 4)).shape
        lucid.Size([3, 2])
        >>> dist.destroy_process_group()

    Reference:
        Zhao et al., PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel, 2023.
    """
    if isinstance(module, FSDPModule):
        raise errors.ValueError("fully_shard: the module was sharded before")
    if mesh is None:
        mesh = DeviceMesh("cpu", list(range(default_group("fully_shard").size())))
    if offload_policy is not None and type(offload_policy) is not OffloadPolicy:
        raise errors.NotImplementedError("fully_shard: shards stay on their device; leave offload_policy out")
    if mesh.ndim != 1:
        raise errors.NotImplementedError("fully_shard: a mesh of one dimension")
    unit = _Unit(mesh, mp_policy or MixedPrecisionPolicy(), reshard_after_forward in (None, True))
    kept = {id(p) for p in ignored_params or ()}
    seen: dict[int, list[tuple[Module, str]]] = {}

    def collect(m: Module) -> None:
        if isinstance(m, FSDPModule):
            return
        for name, p in m._parameters.items():
            if p is not None and id(p) not in kept and not hasattr(p, "_sharding"):
                seen.setdefault(id(p), []).append((m, name))
        for child in m.children():
            collect(child)

    collect(module)
    for places in seen.values():
        if len(places) > 1:
            raise errors.NotImplementedError(
                "fully_shard: a parameter that two modules share; give it as ignored_params"
            )
        (owner, name) = places[0]
        p: Any = owner._parameters[name]
        if p.ndim == 0:
            raise errors.ValueError(f"fully_shard: '{name}' of {type(owner).__name__} has no dimension to shard")
        group = unit.group
        group.native.begin("broadcast", p.detach(), "SUM", 0, p.detach(), group.timeout).wait()
        shard_parameter(owner, name, mesh, [Shard(0)])
        unit.places.append((owner, name))
    unit.shards = unit.parameters()
    kind = type(module)
    module.__class__ = type(f"FSDP{kind.__name__}", (FSDPModule, kind), {})
    module.__dict__["_unit"] = unit
    if unit.places:
        module.__dict__["forward"] = _wrapped(unit, module.forward)
    return module


# The wrapper is made of what is above.
from lucid.distributed.fsdp._wrapper import FullyShardedDataParallel as FullyShardedDataParallel  # noqa: E402
from lucid.distributed.fsdp.api import BackwardPrefetch as BackwardPrefetch  # noqa: E402
from lucid.distributed.fsdp.api import CPUOffload as CPUOffload  # noqa: E402
from lucid.distributed.fsdp.api import FullOptimStateDictConfig as FullOptimStateDictConfig  # noqa: E402
from lucid.distributed.fsdp.api import FullStateDictConfig as FullStateDictConfig  # noqa: E402
from lucid.distributed.fsdp.api import LocalOptimStateDictConfig as LocalOptimStateDictConfig  # noqa: E402
from lucid.distributed.fsdp.api import LocalStateDictConfig as LocalStateDictConfig  # noqa: E402
from lucid.distributed.fsdp.api import MixedPrecision as MixedPrecision  # noqa: E402
from lucid.distributed.fsdp.api import OptimStateDictConfig as OptimStateDictConfig  # noqa: E402
from lucid.distributed.fsdp.api import OptimStateKeyType as OptimStateKeyType  # noqa: E402
from lucid.distributed.fsdp.api import ShardedOptimStateDictConfig as ShardedOptimStateDictConfig  # noqa: E402
from lucid.distributed.fsdp.api import ShardedStateDictConfig as ShardedStateDictConfig  # noqa: E402
from lucid.distributed.fsdp.api import ShardingStrategy as ShardingStrategy  # noqa: E402
from lucid.distributed.fsdp.api import StateDictConfig as StateDictConfig  # noqa: E402
from lucid.distributed.fsdp.api import StateDictSettings as StateDictSettings  # noqa: E402
from lucid.distributed.fsdp.api import StateDictType as StateDictType  # noqa: E402
