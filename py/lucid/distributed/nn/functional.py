"""Collectives with gradients: the backward of each is a collective, which every member has to run too.

They return new tensors. With `L` the sum of the losses of all members, the gradient of each is the one that one process
with all inputs would compute: `all_reduce` sums the gradients of its results, `all_gather` gives each member the sum of
the gradients for its part, and so on.
"""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor
from lucid.autograd import Function
from lucid.distributed import _collectives as base
from lucid.distributed._collectives import ReduceOp
from lucid.distributed._state import ProcessGroup, resolve


def _group(group: Any, op: str) -> ProcessGroup:
    found = resolve(group, op)
    if found is None:
        raise ValueError(f"{op}: this process is not in the group")
    return found


def _begin(found: ProcessGroup, op: str, x: Tensor, how: str = "SUM", peer: int = 0) -> Tensor:
    made: Tensor = found.native.begin(op, x.detach(), how, peer, None, found.timeout).wait()
    return made.clone() if made.data_ptr() == x.data_ptr() else made


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, op: ReduceOp, found: ProcessGroup, x: Tensor) -> Tensor:
        ctx.op, ctx.found = op, found
        out = _begin(found, "all_reduce", x, op.name)
        if op in (ReduceOp.MIN, ReduceOp.MAX, ReduceOp.PRODUCT):
            ctx.save_for_backward(x, out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        total = _AllReduce.apply(ReduceOp.SUM, ctx.found, g)
        if ctx.op is ReduceOp.AVG:
            total = total / ctx.found.size()
        elif ctx.op in (ReduceOp.MIN, ReduceOp.MAX):
            x, out = ctx.saved_tensors
            chosen = (x == out).to(g.dtype)
            total = total * chosen / _AllReduce.apply(ReduceOp.SUM, ctx.found, chosen)
        elif ctx.op is ReduceOp.PRODUCT:
            x, _ = ctx.saved_tensors
            rows = _AllGather.apply(ctx.found, x)
            keep = [rows[i] for i in range(ctx.found.size()) if i != ctx.found.rank()]
            for row in keep:
                total = total * row
        elif ctx.op is not ReduceOp.SUM:
            raise NotImplementedError(f"all_reduce: {ctx.op} has no gradient")
        return None, None, total


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, root: int, found: ProcessGroup, x: Tensor) -> Tensor:
        ctx.root, ctx.found = root, found
        return _begin(found, "broadcast", x, "SUM", root)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        total = _AllReduce.apply(ReduceOp.SUM, ctx.found, g)
        return None, None, total if ctx.found.rank() == ctx.root else total * 0


class _Reduce(Function):
    @staticmethod
    def forward(ctx: Any, root: int, op: ReduceOp, found: ProcessGroup, x: Tensor) -> Tensor:
        ctx.root, ctx.found, ctx.op = root, found, op
        out = _begin(found, "all_reduce", x, op.name)
        return out if found.rank() == root else x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        if ctx.op is not ReduceOp.SUM:
            raise NotImplementedError(f"reduce: {ctx.op} has no gradient here; use all_reduce")
        return None, None, None, _Broadcast.apply(ctx.root, ctx.found, g)


class _AllGather(Function):
    """Stacked along a new first dimension."""

    @staticmethod
    def forward(ctx: Any, found: ProcessGroup, x: Tensor) -> Tensor:
        ctx.found = found
        return _begin(found, "all_gather", x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return None, _ReduceScatter.apply(ReduceOp.SUM, ctx.found, g)


class _ReduceScatter(Function):
    """Of what is stacked along the first dimension."""

    @staticmethod
    def forward(ctx: Any, op: ReduceOp, found: ProcessGroup, x: Tensor) -> Tensor:
        ctx.op, ctx.found = op, found
        return _begin(found, "reduce_scatter", x, op.name)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        if ctx.op not in (ReduceOp.SUM, ReduceOp.AVG):
            raise NotImplementedError(f"reduce_scatter: {ctx.op} has no gradient here; use all_reduce")
        rows = _AllGather.apply(ctx.found, g)
        return None, None, rows if ctx.op is ReduceOp.SUM else rows / ctx.found.size()


class _AllToAll(Function):
    @staticmethod
    def forward(ctx: Any, found: ProcessGroup, x: Tensor) -> Tensor:
        ctx.found = found
        return _begin(found, "all_to_all", x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return None, _AllToAll.apply(ctx.found, g)


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The reduction of all members' tensors. MIN and MAX share the gradient among members with the same extreme."""
    out: Tensor = _AllReduce.apply(op, _group(group, "all_reduce"), tensor)
    return out


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """Rank `src`'s tensor; its gradient is the sum of all members'."""
    found = _group(group, "broadcast")
    out: Tensor = _Broadcast.apply(found.local(src, "broadcast"), found, tensor)
    return out


def reduce(tensor: Tensor, dst: int, op: ReduceOp = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The reduction on rank `dst`; elsewhere the tensor as it was, which counts for nothing."""
    found = _group(group, "reduce")
    out: Tensor = _Reduce.apply(found.local(dst, "reduce"), op, found, tensor)
    return out


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """All members' tensors."""
    found = _group(group, "all_gather")
    return tuple(_AllGather.apply(found, tensor).unbind(0))


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """All members' tensors on rank `dst`, zeros elsewhere."""
    found = _group(group, "gather")
    rows = _AllGather.apply(found, tensor)
    return tuple((rows if found.rank() == found.local(dst, "gather") else rows * 0).unbind(0))


def scatter(tensors: list[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """This member's part of rank `src`'s tensors."""
    found = _group(group, "scatter")
    whole: Tensor = _Broadcast.apply(found.local(src, "scatter"), found, lucid.stack(list(tensors)))
    return whole[found.rank()]


def reduce_scatter(output: Tensor, input_list: list[Tensor], op: ReduceOp = ReduceOp.SUM, group: Any = None) -> Tensor:
    """This member's part of the reduction. `output` gives the shape only, as in PyTorch."""
    base._check_list(input_list, _group(group, "reduce_scatter").size(), output, "reduce_scatter")
    out: Tensor = _ReduceScatter.apply(op, _group(group, "reduce_scatter"), lucid.stack(list(input_list)))
    return out


def all_to_all(
    output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Any = None
) -> tuple[Tensor, ...]:
    """Member `i`'s part for this one, for each `i`."""
    found = _group(group, "all_to_all")
    base._check_list(output_tensor_list, found.size(), input_tensor_list[0], "all_to_all")
    return tuple(_AllToAll.apply(found, lucid.stack(list(input_tensor_list))).unbind(0))


def all_to_all_single(output: Tensor, input: Tensor, group: Any = None) -> Tensor:
    """Equal parts along the first dimension, exchanged."""
    found = _group(group, "all_to_all_single")
    n = found.size()
    if input.shape[0] % n or output.shape != input.shape:
        raise ValueError(f"all_to_all_single: {tuple(input.shape)} does not split into {n} equal parts")
    out: Tensor = _AllToAll.apply(found, input.reshape(n, input.shape[0] // n, *input.shape[1:])).reshape(input.shape)
    return out
