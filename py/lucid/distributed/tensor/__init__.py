"""`DTensor`: a tensor of which each process of a mesh has a part, and where the parts go.

A `DTensor` here is a holder: its local part, the mesh and the placements, with the ways between them. It is no
`Tensor`, and ops on it are not distributed; `to_local()` and `full_tensor()` give what ops take. Sharded parameters of
modules are parameters that hold the local part and have these methods, too (`ShardedParameter`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import lucid
from lucid import _C, Tensor, errors
from lucid.distributed import _collectives as base
from lucid.distributed._work import ReduceOp
from lucid.distributed.device_mesh import DeviceMesh, init_device_mesh
from lucid.distributed.nn import functional as with_grad
from lucid.nn.parameter import Parameter

__all__ = [
    "DTensor",
    "DeviceMesh",
    "Partial",
    "Placement",
    "Replicate",
    "Shard",
    "chunk_range",
    "distribute_module",
    "distribute_tensor",
    "init_device_mesh",
]


class Placement:
    """Where a mesh's dimension puts a tensor."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Is it a `Shard`, of this dimension?"""
        return isinstance(self, Shard) and (dim is None or self.dim == dim)

    def is_replicate(self) -> bool:
        """Is it `Replicate`?"""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Is it `Partial`, of this reduction?"""
        return isinstance(self, Partial) and (reduce_op is None or self.reduce_op == reduce_op)


class Shard(Placement):
    """A placement: each process of a mesh's dimension has its part of a tensor, as `tensor.chunk(n, dim)` splits it.

    Args:
        dim (int): the tensor's dimension that is split.

    Example:
        >>> from lucid.distributed.tensor import Shard
        >>> Shard(0), Shard(0).is_shard(dim=1)
        (Shard(dim=0), False)
    """

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shard) and other.dim == self.dim

    def __hash__(self) -> int:
        return hash(("shard", self.dim))

    def __repr__(self) -> str:
        return f"Shard(dim={self.dim})"


class Replicate(Placement):
    """Each process has all of it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Replicate)

    def __hash__(self) -> int:
        return hash("replicate")

    def __repr__(self) -> str:
        return "Replicate()"


class Partial(Placement):
    """A placement: each process of a mesh's dimension has a term; the tensor is their reduction.

    Args:
        reduce_op (str, optional): `sum` (the default), `avg`, `product`, `min` or `max`.

    Raises:
        ValueError: there is no such reduction.

    Example:
        >>> from lucid.distributed.tensor import Partial
        >>> Partial().is_partial("sum")
        True
    """

    def __init__(self, reduce_op: str = "sum") -> None:
        if reduce_op not in ("sum", "avg", "product", "min", "max"):
            raise errors.ValueError(f"Partial: no reduction '{reduce_op}'")
        self.reduce_op = reduce_op

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Partial) and other.reduce_op == self.reduce_op

    def __hash__(self) -> int:
        return hash(("partial", self.reduce_op))

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"


def chunk_range(size: int, n: int, i: int) -> tuple[int, int]:
    """Where part `i` of `n` begins, and how long it is; the last ones may be shorter, or empty.

    Args:
        size (int): how many there are in all.
        n (int): the number of parts, at least 1.
        i (int): which part, counted from 0.

    Returns:
        tuple[int, int]: the first index of the part, and its length.

    Raises:
        ValueError: `n` is below 1, `size` is negative, or there is no part `i`.

    Example:
        >>> [lucid.distributed.tensor.chunk_range(5, 3, i) for i in range(3)]
        [(0, 2), (2, 2), (4, 1)]
    """
    if n < 1 or size < 0 or not 0 <= i < n:
        raise errors.ValueError(f"chunk_range: there is no part {i} of {n} of {size} elements")
    step = -(-size // n)
    begin = min(i * step, size)
    return begin, min(step, size - begin)


class _Spec(NamedTuple):
    """How a parameter is sharded."""

    mesh: DeviceMesh
    placements: tuple[Placement, ...]
    shape: tuple[int, ...]


def _one_sharded(mesh: DeviceMesh, placements: Sequence[Placement]) -> tuple[int, int] | None:
    """The mesh's dimension that shards, and the tensor's; None where nothing does."""
    found = [(i, p.dim) for i, p in enumerate(placements) if isinstance(p, Shard)]
    if len(placements) != mesh.ndim:
        raise errors.ValueError(f"DTensor: {len(placements)} placements for a mesh of {mesh.ndim} dimensions")
    if len(found) > 1:
        raise errors.NotImplementedError("DTensor: one dimension of the mesh can shard; the others replicate")
    return found[0] if found else None


class _DTensorMeta(type):
    """A module's sharded parameter is a `DTensor`, too."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) or (cls is DTensor and isinstance(instance, ShardedParameter))


class DTensor(metaclass=_DTensorMeta):
    """A tensor of which each process of a mesh has a part: the local part, the mesh and the placements.

    `distribute_tensor`, `DTensor.from_local` and `DTensor.of` make it.

    Differences from PyTorch: it is no `Tensor`, and ops do not take it; `to_local()` and `full_tensor()` give what they
    take.

    Args:
        local (Tensor): this process's part, whose size along a sharded dimension is the part's.
        spec (named tuple): the mesh, the placements, and the whole tensor's shape.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.distributed.tensor import DTensor, Shard, init_device_mesh
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> x = DTensor.from_local(lucid.ones(2, 3), init_device_mesh("cpu", (1,)), [Shard(0)])
        >>> x.shape, x.full_tensor().sum().item()
        ((2, 3), 6.0)
        >>> dist.destroy_process_group()
    """

    def __init__(self, local: Tensor, spec: _Spec) -> None:
        self._local, self._spec = local, spec

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh."""
        return self._spec.mesh

    @property
    def placements(self) -> tuple[Placement, ...]:
        """One for each dimension of the mesh."""
        return self._spec.placements

    @property
    def shape(self) -> tuple[int, ...]:
        """The whole tensor's sizes."""
        return self._spec.shape

    @property
    def dtype(self) -> lucid.dtype:
        """The elements' dtype."""
        return self._local.dtype

    def __repr__(self) -> str:
        return f"DTensor(local={tuple(self._local.shape)}, shape={self.shape}, placements={self.placements})"

    @staticmethod
    def of(parameter: Tensor) -> DTensor:
        """A sharded parameter of `fully_shard` or `parallelize_module` as a `DTensor`.

        Raises:
            ValueError: where it is not sharded.
        """
        spec = getattr(parameter, "_sharding", None)
        if spec is None:
            raise errors.ValueError("DTensor.of: the parameter is not sharded")
        return DTensor(parameter, spec)

    @staticmethod
    def from_local(local: Tensor, device_mesh: DeviceMesh, placements: Sequence[Placement]) -> DTensor:
        """Of local parts, which are of one size along a sharded dimension."""
        at = _one_sharded(device_mesh, placements)
        shape = list(local.shape)
        if at is not None:
            shape[at[1]] *= device_mesh.size(at[0])
        return DTensor(local, _Spec(device_mesh, tuple(placements), tuple(shape)))

    def to_local(self) -> Tensor:
        """This process's part."""
        return self._local

    def full_tensor(self) -> Tensor:
        """All of it, on every process; its gradient is that of the parts."""
        at = _one_sharded(self.device_mesh, self.placements)
        local = self._local
        for i, p in enumerate(self.placements):
            if isinstance(p, Partial):
                how = ReduceOp[p.reduce_op.upper()]
                local = with_grad.all_reduce(local, how, self.device_mesh.get_group(i))
        if at is None:
            return local
        mesh_dim, dim = at
        n = self.device_mesh.size(mesh_dim)
        size = self.shape[dim]
        step = -(-size // n)
        lack = step - local.shape[dim]
        if lack:
            pad = list(local.shape)
            pad[dim] = lack
            local = lucid.cat([local, local.new_zeros(pad)], dim)
        rows = with_grad.all_gather(local, self.device_mesh.get_group(mesh_dim))
        whole = lucid.cat(list(rows), dim)
        return whole.narrow(dim, 0, size) if whole.shape[dim] != size else whole

    def shard_of(self) -> tuple[int, int]:
        """The dimension that is sharded, and the mesh's that shards it.

        Raises:
            ValueError: where none is.
        """
        at = _one_sharded(self.device_mesh, self.placements)
        if at is None:
            raise errors.ValueError("DTensor: it is not sharded")
        return at[1] % len(self.shape), at[0]

    def range_of(self, local_rank: int) -> tuple[int, int]:
        """Where a process's part begins along the sharded dimension, and how long it is."""
        dim, mesh_dim = self.shard_of()
        return chunk_range(self.shape[dim], self.device_mesh.size(mesh_dim), local_rank)

    def redistribute(
        self, device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None
    ) -> DTensor:
        """The same tensor placed otherwise on the mesh."""
        if device_mesh is not None and device_mesh != self.device_mesh:
            raise errors.NotImplementedError("DTensor.redistribute: the mesh stays the same")
        wanted = self.placements if placements is None else tuple(placements)
        if any(isinstance(p, Partial) for p in wanted) and wanted != self.placements:
            raise errors.NotImplementedError("DTensor.redistribute: not to Partial; make it of shares by from_local")
        return self if wanted == self.placements else _place(self.full_tensor(), self.device_mesh, wanted)


def _place(tensor: Tensor, mesh: DeviceMesh, placements: Sequence[Placement]) -> DTensor:
    spec = _Spec(mesh, tuple(placements), tuple(tensor.shape))
    at = _one_sharded(mesh, placements)
    if at is None:
        return DTensor(tensor, spec)
    mesh_dim, dim = at
    if not -tensor.ndim <= dim < tensor.ndim:
        raise errors.ValueError(f"Shard({dim}) of a tensor of {tensor.ndim} dimensions")
    begin, length = chunk_range(tensor.shape[dim], mesh.size(mesh_dim), mesh.get_local_rank(mesh_dim))
    return DTensor(tensor.narrow(dim, begin, length).clone(), spec)


def distribute_tensor(
    tensor: Tensor,
    device_mesh: DeviceMesh,
    placements: Sequence[Placement] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> DTensor:
    """Places a tensor on the processes of a mesh: each keeps the part that the placements say.

    Args:
        tensor (Tensor): of any shape; the same shape and dtype on every process.
        device_mesh (DeviceMesh): the processes, in a grid.
        placements (sequence of Placement, optional): one for each dimension of the mesh. Default: `Replicate()` each.
        src_data_rank (int, optional): whose data count along each dimension; None: each process's own. Default: 0.

    Returns:
        DTensor: its part is a copy.

    Raises:
        ValueError: there are more or fewer placements than dimensions of the mesh.
        NotImplementedError: two dimensions of the mesh shard.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.distributed.tensor import Shard, distribute_tensor, init_device_mesh
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> x = distribute_tensor(lucid.ones(4, 3), init_device_mesh("cpu", (1,)), [Shard(0)])
        >>> x.to_local().shape  # of n processes each has 4 / n rows
        lucid.Size([4, 3])
        >>> dist.destroy_process_group()
    """
    placements = placements or [Replicate()] * device_mesh.ndim
    _one_sharded(device_mesh, placements)
    whole = tensor.detach().clone()
    if src_data_rank is not None:
        for dim in range(device_mesh.ndim):
            base.broadcast(whole, group=device_mesh.get_group(dim), group_src=src_data_rank)
    return _place(whole, device_mesh, placements)


def distribute_module(
    module: Any,
    device_mesh: DeviceMesh | None = None,
    partition_fn: Any = None,
    input_fn: Any = None,
    output_fn: Any = None,
) -> Any:
    """Distributes a module's parameters by a function, and its inputs and outputs by two others.

    Args:
        module (Module): changed in place.
        device_mesh (DeviceMesh, optional): the processes, in a grid. Default: all processes of the job in a row.
        partition_fn (callable, optional): `partition_fn(name, module, mesh)`, called for each module below. Default:
            None, every process takes rank 0's parameters.
        input_fn (callable, optional): `input_fn(module, inputs, mesh)`, called before each call; gives the inputs.
        output_fn (callable, optional): `output_fn(module, output, mesh)`, called after each call; gives the output.

    Returns:
        Module: `module` itself.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.distributed.tensor import distribute_module
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> model = distribute_module(lucid.nn.Linear(4, 2), output_fn=lambda module, output, mesh: output * 2)
        >>> model(lucid.ones(4)).shape
        lucid.Size([2])
        >>> dist.destroy_process_group()
    """
    from lucid.distributed._state import default_group

    if device_mesh is None:
        device_mesh = DeviceMesh("cpu", list(range(default_group("distribute_module").size())))
    mesh = device_mesh
    for name, m in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, m, mesh)
            continue
        for p in m._parameters.values():
            if p is not None and getattr(p, "_sharding", None) is None:
                for dim in range(mesh.ndim):
                    base.broadcast(p.detach(), group=mesh.get_group(dim), group_src=0)
    if input_fn is not None:
        module.register_forward_pre_hook(lambda m, inputs: input_fn(m, inputs, mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda m, inputs, output: output_fn(m, output, mesh))
    return module


@_C._left_alone
class ShardedParameter(Parameter):
    """A module's parameter that holds this process's part: what `fully_shard` and `parallelize_module` leave.

    Ops, optimizers and `shape` see the part; the rest is as of a `DTensor`, which `isinstance` says that it is.
    """

    _sharding: _Spec

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh."""
        return self._sharding.mesh

    @property
    def placements(self) -> tuple[Placement, ...]:
        """One for each dimension of the mesh."""
        return self._sharding.placements

    def __deepcopy__(self, memo: dict[int, Any]) -> ShardedParameter:
        made = cast(ShardedParameter, super().__deepcopy__(memo))
        made._sharding = self._sharding
        return made

    def to_local(self) -> Tensor:
        """This process's part."""
        return self

    def full_tensor(self) -> Tensor:
        """All of it, on every process; its gradient is that of the parts."""
        return DTensor.of(self).full_tensor()

    def redistribute(
        self, device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None
    ) -> DTensor:
        """The same tensor placed otherwise on the mesh."""
        return DTensor.of(self).redistribute(device_mesh, placements)


def sharded_norm(parameters: Sequence[Tensor], norm_type: float) -> Tensor:
    """The norm of the gradients of all parameters, of those that are sharded over all processes. All of them call it.

    Args:
        parameters (Sequence[Tensor]): The parameters, in the same order everywhere.
        norm_type (float): Of which order; may be infinite.

    Returns:
        Tensor: 0-d, the same on every process.
    """
    from lucid.nn.utils.clip_grad import get_total_norm

    # What a part without elements or without a gradient adds to the reduction.
    nothing = math.inf if norm_type == -math.inf else 0.0
    parts: dict[Any, list[float | Tensor]] = {}
    for p in parameters:
        spec = getattr(p, "_sharding", None)
        at = None if spec is None else _one_sharded(spec.mesh, spec.placements)
        group = None if spec is None or at is None else spec.mesh.get_group(at[0])
        norm: float | Tensor = nothing
        if p.grad is not None and p.grad.numel():
            norm = get_total_norm(p.grad, norm_type) if norm_type else p.grad.count_nonzero()
        parts.setdefault(group, []).append(norm)
    norms: list[Tensor] = []
    for group, found in parts.items():
        each = lucid.tensor([float(norm) for norm in found])
        if group is None:
            pass
        elif math.isinf(norm_type):
            base.all_reduce(each, ReduceOp.MAX if norm_type > 0 else ReduceOp.MIN, group)
        elif norm_type == 0:
            base.all_reduce(each, group=group)
        else:
            powers = each.pow(norm_type)
            base.all_reduce(powers, group=group)
            each = powers.pow(1.0 / norm_type)
        norms.append(each)
    every = lucid.cat(norms)
    return (every != 0).sum().float() if norm_type == 0 else get_total_norm(every, norm_type)


def shard_parameter(module: Any, name: str, mesh: DeviceMesh, placements: Sequence[Placement]) -> None:
    """Replaces a module's parameter by its local part."""
    old = module._parameters[name]
    made = _place(old.detach(), mesh, placements)
    new = ShardedParameter(made._local.detach().clone(), requires_grad=old.requires_grad)
    new._sharding = made._spec
    module._parameters[name] = new
