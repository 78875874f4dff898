"""Tensor parallelism: layers whose weights are split over the processes of a mesh.

A column-wise layer computes its own columns of the output from the whole input; a row-wise layer a share of every
output from its own part of the input, whose sum all share. One after the other costs one all-reduce in the forward pass
and one in the backward pass. Every process computes the same loss.
"""

from __future__ import annotations

import fnmatch
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.autograd import Function
from lucid.distributed._state import ProcessGroup
from lucid.distributed._work import ReduceOp
from lucid.distributed.device_mesh import DeviceMesh
from lucid.distributed.nn.functional import _apply
from lucid.distributed.tensor import Replicate, Shard, chunk_range, shard_parameter
from lucid.nn.modules.module import Module

__all__ = ["ColwiseParallel", "ParallelStyle", "RowwiseParallel", "parallelize_module"]


class _ToParallel(Function):
    """The input as it is; its gradient is the sum over the group."""

    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, x: Tensor) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return None, _FromParallel.apply(ctx.group, g)


class _FromParallel(Function):
    """The sum over the group; its gradient goes to every member as it is."""

    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, x: Tensor) -> Tensor:
        ctx.group = group
        return _apply(group, "all_reduce", x, ReduceOp.SUM.name)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return None, _ToParallel.apply(ctx.group, g)


class _Join(Function):
    """All members' last dimensions, joined; the gradient is the own part of it."""

    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, x: Tensor) -> Tensor:
        ctx.group = group
        return lucid.cat(list(_apply(group, "all_gather", x)), -1)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return None, _Part.apply(ctx.group, g)


class _Part(Function):
    """The own part of the last dimension; the gradient is all members', joined."""

    @staticmethod
    def forward(ctx: Any, group: ProcessGroup, x: Tensor) -> Tensor:
        ctx.group = group
        if x.shape[-1] % group.size():
            raise errors.ValueError(f"a dimension of {x.shape[-1]} does not split into {group.size()} equal parts")
        return x.chunk(group.size(), -1)[group.rank()].clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return None, _Join.apply(ctx.group, g)


class ParallelStyle:
    """How a module is split."""

    def apply(self, module: Module, mesh: DeviceMesh) -> None:
        """Splits the module in place."""
        raise NotImplementedError


def _even(module: Module, name: str, size: int, n: int) -> None:
    if size % n:
        raise errors.ValueError(
            f"parallelize_module: {size} {name} of {type(module).__name__} do not split over {n} processes"
        )


def _replicated(layout: Any) -> bool:
    return layout is None or isinstance(layout, Replicate)


class ColwiseParallel(ParallelStyle):
    """Splits a `Linear`'s outputs, or an `Embedding`'s features, over a mesh's processes.

    Args:
        input_layouts (Placement, optional): must be `Replicate()`, which is the default: every process has the whole
            input.
        output_layouts (Placement, optional): `Shard(-1)` (the default): each process keeps its own outputs;
            `Replicate()`: they are gathered.
        use_local_output (bool, optional): must be True: modules give tensors. Default: True.

    Raises:
        NotImplementedError: another layout, or `use_local_output=False`.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> model = lucid.nn.Sequential(lucid.nn.Linear(4, 8), lucid.nn.ReLU(), lucid.nn.Linear(8, 2))
        >>> plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        >>> model = parallelize_module(model, dist.init_device_mesh("cpu", (1,)), plan)
        >>> model(lucid.ones(3, 4)).shape
        lucid.Size([3, 2])
        >>> dist.destroy_process_group()
    """

    def __init__(self, *, input_layouts: Any = None, output_layouts: Any = None, use_local_output: bool = True) -> None:
        if not _replicated(input_layouts) or not use_local_output:
            raise errors.NotImplementedError("ColwiseParallel: the input is replicated and the output a tensor")
        if output_layouts not in (None, Shard(-1), Replicate()):
            raise errors.NotImplementedError("ColwiseParallel: output_layouts is Shard(-1) or Replicate()")
        self.joins = output_layouts == Replicate()

    def apply(self, module: Module, mesh: DeviceMesh) -> None:
        """Splits the module in place."""
        group, n = mesh.get_group(), mesh.size()
        if isinstance(module, lucid.nn.Linear):
            _even(module, "outputs", module.out_features, n)
            shard_parameter(module, "weight", mesh, [Shard(0)])
            if module.bias is not None:
                shard_parameter(module, "bias", mesh, [Shard(0)])
            module.register_forward_pre_hook(lambda m, args: (_ToParallel.apply(group, args[0]), *args[1:]))
        elif isinstance(module, lucid.nn.Embedding):
            _even(module, "features", module.embedding_dim, n)
            shard_parameter(module, "weight", mesh, [Shard(1)])
        else:
            raise errors.NotImplementedError(f"ColwiseParallel: {type(module).__name__} is no Linear or Embedding")
        if self.joins:
            module.register_forward_hook(lambda m, args, out: _Join.apply(group, out))


class RowwiseParallel(ParallelStyle):
    """Splits a `Linear`'s inputs, or an `Embedding`'s rows, over a mesh's processes; the outputs are summed.

    Args:
        input_layouts (Placement, optional): `Shard(-1)` (a `Linear`'s default): the input is this process's part;
            `Replicate()`: it is all of it.
        output_layouts (Placement, optional): must be `Replicate()`, which is the default: every process gets the sum.
        use_local_output (bool, optional): must be True: modules give tensors. Default: True.

    Raises:
        NotImplementedError: another layout, or `use_local_output=False`.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.distributed.tensor import Replicate
        >>> from lucid.distributed.tensor.parallel import RowwiseParallel, parallelize_module
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> style = RowwiseParallel(input_layouts=Replicate())
        >>> layer = parallelize_module(lucid.nn.Linear(4, 2), dist.init_device_mesh("cpu", (1,)), style)
        >>> layer(lucid.ones(3, 4)).shape
        lucid.Size([3, 2])
        >>> dist.destroy_process_group()
    """

    def __init__(self, *, input_layouts: Any = None, output_layouts: Any = None, use_local_output: bool = True) -> None:
        if not _replicated(output_layouts) or not use_local_output:
            raise errors.NotImplementedError("RowwiseParallel: the output is a replicated tensor")
        if input_layouts not in (None, Shard(-1), Replicate()):
            raise errors.NotImplementedError("RowwiseParallel: input_layouts is Shard(-1) or Replicate()")
        self.splits = input_layouts == Replicate()

    def apply(self, module: Module, mesh: DeviceMesh) -> None:
        """Splits the module in place."""
        group, n = mesh.get_group(), mesh.size()
        if isinstance(module, lucid.nn.Linear):
            _even(module, "inputs", module.in_features, n)
            shard_parameter(module, "weight", mesh, [Shard(1)])
            splits = self.splits

            def forward(x: Tensor) -> Tensor:
                x = _Part.apply(group, x) if splits else x
                out: Tensor = _FromParallel.apply(group, lucid.nn.functional.linear(x, module.weight))
                return out if module.bias is None else out + module.bias

            module.__dict__["forward"] = forward
        elif isinstance(module, lucid.nn.Embedding):
            begin, length = chunk_range(module.num_embeddings, n, mesh.get_local_rank())
            if module.max_norm is not None or module.padding_idx is not None or length == 0:
                raise errors.NotImplementedError(
                    "RowwiseParallel: an Embedding without padding_idx and max_norm, with rows for every process"
                )
            shard_parameter(module, "weight", mesh, [Shard(0)])

            def look_up(ids: Tensor) -> Tensor:
                inside = (ids >= begin) & (ids < begin + length)
                rows = lucid.nn.functional.embedding(lucid.where(inside, ids - begin, 0), module.weight)
                out: Tensor = _FromParallel.apply(group, rows * inside.unsqueeze(-1).to(rows.dtype))
                return out

            module.__dict__["forward"] = look_up
        else:
            raise errors.NotImplementedError(f"RowwiseParallel: {type(module).__name__} is no Linear or Embedding")


def parallelize_module(
    module: Module,
    device_mesh: DeviceMesh,
    parallelize_plan: ParallelStyle | dict[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Module:
    """Splits a module's layers over a mesh of one dimension, in place.

    Args:
        module (Module): built alike on every process.
        device_mesh (DeviceMesh): the processes, in one dimension; take one of a grid with `mesh["name"]`.
        parallelize_plan (ParallelStyle or dict of str to ParallelStyle, optional): a style for the module itself, or
            styles by the names of its submodules, in which `*` stands for any text.
        src_data_rank (int, optional): whose parameters count; None: each process's own. Default: 0.

    Returns:
        Module: `module` itself.

    Raises:
        ValueError: the mesh has several dimensions, or a name of the plan fits no submodule.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> model = lucid.nn.TransformerEncoderLayer(4, 1, dim_feedforward=8, batch_first=True)
        >>> plan = {"linear1": ColwiseParallel(), "linear2": RowwiseParallel()}
        >>> model = parallelize_module(model, dist.init_device_mesh("cpu", (1,)), plan)
        >>> model(lucid.ones(2, 3, 4)).shape
        lucid.Size([2, 3, 4])
        >>> dist.destroy_process_group()
    """
    if device_mesh.ndim != 1:
        raise errors.ValueError("parallelize_module: a mesh of one dimension; take one with mesh['name']")
    if src_data_rank is not None:
        from lucid.distributed._collectives import broadcast

        for p in module.parameters():
            broadcast(p.detach(), group=device_mesh.get_group(), group_src=src_data_rank)
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan.apply(module, device_mesh)
    for pattern, style in parallelize_plan.items() if isinstance(parallelize_plan, dict) else ():
        found = [m for name, m in module.named_modules() if fnmatch.fnmatchcase(name, pattern)]
        if not found:
            raise errors.ValueError(f"parallelize_module: no submodule is named '{pattern}'")
        for submodule in found:
            style.apply(submodule, device_mesh)
    return module
