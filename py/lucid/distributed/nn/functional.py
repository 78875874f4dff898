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


def _apply(found: ProcessGroup, op: str, x: Tensor, how: str = "SUM", peer: int = 0) -> Tensor:
    made: Tensor = found.native.apply(op, x, how, peer, found.timeout)
    return made


class _Reduce(Function):
    @staticmethod
    def forward(ctx: Any, root: int, op: ReduceOp, found: ProcessGroup, x: Tensor) -> Tensor:
        ctx.root, ctx.found, ctx.op = root, found, op
        out = _apply(found, "all_reduce", x.detach(), op.name)
        return out if found.rank() == root else x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        if ctx.op is not ReduceOp.SUM:
            raise NotImplementedError(f"reduce: {ctx.op} has no gradient here; use all_reduce")
        return None, None, None, _apply(ctx.found, "broadcast", g, "SUM", ctx.root)


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
    out: Tensor = _apply(_group(group, "all_reduce"), "all_reduce", tensor, op.name)
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
    out: Tensor = _apply(found, "broadcast", tensor, "SUM", found.local(src, "broadcast"))
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
    return tuple(_apply(found, "all_gather", tensor).unbind(0))


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
    rows = _apply(found, "all_gather", tensor)
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
    whole: Tensor = _apply(found, "broadcast", lucid.stack(list(tensors)), "SUM", found.local(src, "scatter"))
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
    out: Tensor = _apply(_group(group, "reduce_scatter"), "reduce_scatter", lucid.stack(list(input_list)), op.name)
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
    return tuple(_apply(found, "all_to_all", lucid.stack(list(input_tensor_list))).unbind(0))


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
    parts = input.reshape(n, input.shape[0] // n, *input.shape[1:])
    return _apply(found, "all_to_all", parts).reshape(input.shape)
