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
from lucid.distributed._state import ProcessGroup, resolve
from lucid.distributed._work import ReduceOp


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
    """Reduces the tensors of all members of a group, with gradients: `y = op(x_0, …, x_{n-1})` on each.

    MIN and MAX share the gradient among the members with the same extreme.

    Args:
        tensor (Tensor): this member's input, of any shape; the same shape and dtype on every member. It is not changed.
        op (ReduceOp, optional): the reduction: SUM, AVG, PRODUCT, MIN or MAX. Default: `ReduceOp.SUM`.
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.

    Returns:
        Tensor: of `tensor`'s shape and dtype.

    Raises:
        ValueError: this process is not in the group.
        NotImplementedError: in the backward pass, for BAND, BOR and BXOR.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.distributed.nn import all_reduce
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> x = lucid.tensor([1.0, 2.0], requires_grad=True)
        >>> (all_reduce(x) ** 2).sum().backward()
        >>> x.grad
        tensor([2., 4.])
        >>> dist.destroy_process_group()
    """
    out: Tensor = _AllReduce.apply(op, _group(group, "all_reduce"), tensor)
    return out


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """Gives every member of a group the tensor of one of them, with gradients: the source gets the sum of all members'.

    Args:
        tensor (Tensor): on the source the data; of the same shape and dtype, which counts, elsewhere.
        src (int): the source's rank in the job.
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.

    Returns:
        Tensor: of `tensor`'s shape and dtype.

    Raises:
        ValueError: `src`, or this process, is not in the group.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.distributed.nn import broadcast
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> x = lucid.tensor([1.0, 2.0], requires_grad=True)
        >>> broadcast(x, 0).sum().backward()
        >>> x.grad
        tensor([1., 1.])
        >>> dist.destroy_process_group()
    """
    found = _group(group, "broadcast")
    out: Tensor = _Broadcast.apply(found.local(src, "broadcast"), found, tensor)
    return out


def reduce(tensor: Tensor, dst: int, op: ReduceOp = ReduceOp.SUM, group: Any = None) -> Tensor:
    """Reduces the tensors of all members of a group onto one of them, with gradients.

    Args:
        tensor (Tensor): this member's input, of any shape; the same shape and dtype on every member.
        dst (int): the destination's rank in the job.
        op (ReduceOp, optional): the reduction; only SUM has a gradient. Default: `ReduceOp.SUM`.
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.

    Returns:
        Tensor: on the destination the reduction, elsewhere a copy of `tensor`, which has no part in gradients.

    Raises:
        ValueError: `dst`, or this process, is not in the group.
        NotImplementedError: in the backward pass, for other reductions than SUM.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.distributed.nn import reduce
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> reduce(lucid.tensor([1.0, 2.0]), dst=0)
        tensor([1., 2.])
        >>> dist.destroy_process_group()
    """
    found = _group(group, "reduce")
    out: Tensor = _Reduce.apply(found.local(dst, "reduce"), op, found, tensor)
    return out


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """Gives every member of a group the tensors of all, with gradients: each gets its gradients summed.

    Args:
        tensor (Tensor): this member's input, of any shape; the same shape and dtype on every member.
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.

    Returns:
        tuple of Tensor: one for each member, of `tensor`'s shape.

    Raises:
        ValueError: this process is not in the group.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.distributed.nn import all_gather
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> x = lucid.tensor([1.0, 2.0], requires_grad=True)
        >>> lucid.cat(all_gather(x)).sum().backward()
        >>> x.grad
        tensor([1., 1.])
        >>> dist.destroy_process_group()
    """
    found = _group(group, "all_gather")
    return tuple(_AllGather.apply(found, tensor).unbind(0))


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """Gives one member of a group the tensors of all, with gradients.

    Args:
        tensor (Tensor): this member's input, of any shape; the same shape and dtype on every member.
        dst (int, optional): the destination's rank in the job. Default: 0.
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.

    Returns:
        tuple of Tensor: one for each member, of `tensor`'s shape; zeros elsewhere than on the destination.

    Raises:
        ValueError: `dst`, or this process, is not in the group.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.distributed.nn import gather
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> gather(lucid.tensor([1.0, 2.0]))
        (tensor([1., 2.]),)
        >>> dist.destroy_process_group()
    """
    found = _group(group, "gather")
    rows = _AllGather.apply(found, tensor)
    return tuple((rows if found.rank() == found.local(dst, "gather") else rows * 0).unbind(0))


def scatter(tensors: list[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """Gives each member of a group its own tensor of one member's list, with gradients, which go back to that member.

    Args:
        tensors (list of Tensor): one for each member, all of one shape; on every member, the source's count.
        src (int, optional): the source's rank in the job. Default: 0.
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.

    Returns:
        Tensor: of the shape of one of `tensors`.

    Raises:
        ValueError: `src`, or this process, is not in the group.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.distributed.nn import scatter
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> scatter([lucid.tensor([1.0, 2.0])])
        tensor([1., 2.])
        >>> dist.destroy_process_group()
    """
    found = _group(group, "scatter")
    whole: Tensor = _Broadcast.apply(found.local(src, "scatter"), found, lucid.stack(list(tensors)))
    return whole[found.rank()]


def reduce_scatter(output: Tensor, input_list: list[Tensor], op: ReduceOp = ReduceOp.SUM, group: Any = None) -> Tensor:
    """Reduces all members' lists element by element, and gives member `i` the result number `i`, with gradients.

    Args:
        output (Tensor): says the shape and dtype of the result; it is not written to, as in PyTorch.
        input_list (list of Tensor): one for each member, of `output`'s shape and dtype.
        op (ReduceOp, optional): the reduction; SUM and AVG have gradients. Default: `ReduceOp.SUM`.
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.

    Returns:
        Tensor: this member's result, of `output`'s shape.

    Raises:
        ValueError: the list does not have one tensor of the right shape for each member, or this process is not in the
            group.
        NotImplementedError: in the backward pass, for other reductions.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.distributed.nn import reduce_scatter
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> reduce_scatter(lucid.empty(2), [lucid.tensor([1.0, 2.0])])
        tensor([1., 2.])
        >>> dist.destroy_process_group()
    """
    base._check_list(input_list, _group(group, "reduce_scatter").size(), output, "reduce_scatter")
    out: Tensor = _ReduceScatter.apply(op, _group(group, "reduce_scatter"), lucid.stack(list(input_list)))
    return out


def all_to_all(
    output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Any = None
) -> tuple[Tensor, ...]:
    """Sends tensor `i` of each member's list to member `i`, with gradients, which travel the other way.

    Args:
        output_tensor_list (list of Tensor): says the shapes of the results; it is not written to.
        input_tensor_list (list of Tensor): one for each member, all of one shape and dtype.
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.

    Returns:
        tuple of Tensor: the tensor that each member sent to this one.

    Raises:
        ValueError: a list does not have one tensor of the right shape for each member, or this process is not in the
            group.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.distributed.nn import all_to_all
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> all_to_all([lucid.empty(2)], [lucid.tensor([1.0, 2.0])])
        (tensor([1., 2.]),)
        >>> dist.destroy_process_group()
    """
    found = _group(group, "all_to_all")
    base._check_list(output_tensor_list, found.size(), input_tensor_list[0], "all_to_all")
    return tuple(_AllToAll.apply(found, lucid.stack(list(input_tensor_list))).unbind(0))


def all_to_all_single(output: Tensor, input: Tensor, group: Any = None) -> Tensor:
    """Sends equal parts of a tensor along its first dimension to the members of a group, with gradients.

    Args:
        output (Tensor): says the shape of the result, which is the input's; it is not written to.
        input (Tensor): of shape `(n·k, *s)` with `n` members; rows `i·k` to `(i+1)·k` go to member `i`.
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.

    Returns:
        Tensor: of `input`'s shape; rows `i·k` to `(i+1)·k` come from member `i`.

    Raises:
        ValueError: the first dimension is not divisible by `n`, `output` has another shape, or this process is not in
            the group.

    Example:
        >>> import lucid.distributed as dist
        >>> from lucid.distributed.nn import all_to_all_single
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> all_to_all_single(lucid.empty(2), lucid.tensor([1.0, 2.0]))
        tensor([1., 2.])
        >>> dist.destroy_process_group()
    """
    found = _group(group, "all_to_all_single")
    n = found.size()
    if input.shape[0] % n or output.shape != input.shape:
        raise ValueError(f"all_to_all_single: {tuple(input.shape)} does not split into {n} equal parts")
    out: Tensor = _AllToAll.apply(found, input.reshape(n, input.shape[0] // n, *input.shape[1:])).reshape(input.shape)
    return out
