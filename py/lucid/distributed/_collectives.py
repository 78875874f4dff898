"""Reductions, copies and gathers of all members of a group. Each is an operation of the engine's group; see
`lucid._C._Group`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.distributed._groups import get_world_size
from lucid.distributed._state import default_group, resolve
from lucid.distributed._work import ReduceOp, Work, _ended, _how, _root, _tensor
from lucid.distributed.store import seconds


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """Reduces the tensors of all members of a group, in place: each then holds `op(x_0, …, x_{n-1})`.

    Args:
        tensor (Tensor): the input, of any shape and dtype, the same on every member; overwritten by the result.
        op (ReduceOp, optional): the reduction: SUM, AVG (floating point and complex), PRODUCT, MIN, MAX, or BAND, BOR,
            BXOR (integers and Booleans). Default: `ReduceOp.SUM`.
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.
        async_op (bool, optional): whether to return at once with a handle to wait for. Default: False.

    Returns:
        Work or None: with `async_op=True` a handle, whose `wait()` ends when the result is written; None otherwise,
        and on a process that is not in the group.

    Raises:
        TypeError: `tensor` is no tensor.
        ValueError: `op` is no `ReduceOp`, or there is no process group.
        DistBackendError: the members' calls, shapes or dtypes differ, a member has ended, or the group's timeout ran
            out; the message names the rank and the operation.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> x = lucid.tensor([1.0, 2.0])
        >>> dist.all_reduce(x)  # of n processes: the sum of their n tensors
        >>> x
        tensor([1., 2.])
        >>> dist.destroy_process_group()
    """
    found = resolve(group, "all_reduce")
    how = _how(op, "all_reduce")
    if found is None:
        return None
    x = _tensor(tensor, "all_reduce")
    return _ended(Work([found.native.begin("all_reduce", x, how, 0, x, found.timeout, not async_op)]), async_op)


def all_reduce_coalesced(
    tensors: Sequence[Tensor], op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Reduces each of several tensors over all members of a group, in place; they travel in one message.

    Args:
        tensors (sequence of Tensor): tensors of any shapes and of one dtype, the same on every member; overwritten.
        op (ReduceOp, optional): the reduction: SUM, AVG (floating point and complex), PRODUCT, MIN, MAX, or BAND, BOR,
            BXOR (integers and Booleans). Default: `ReduceOp.SUM`.
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.
        async_op (bool, optional): whether to return at once with a handle to wait for. Default: False.

    Returns:
        Work or None: with `async_op=True` a handle, whose `wait()` ends when the result is written; None otherwise,
        and on a process that is not in the group.
        None, too, for an empty list.

    Raises:
        ValueError: `op` is no `ReduceOp`, or there is no process group.
        DistBackendError: the members' calls, shapes or dtypes differ, a member has ended, or the group's timeout ran
            out; the message names the rank and the operation.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> weight, bias = lucid.ones(2, 2), lucid.ones(2)
        >>> dist.all_reduce_coalesced([weight, bias], op=dist.ReduceOp.AVG)
        >>> bias
        tensor([1., 1.])
        >>> dist.destroy_process_group()
    """
    found = resolve(group, "all_reduce_coalesced")
    if found is None or not tensors:
        return None
    with lucid.no_grad():
        flat = lucid.cat([t.detach().reshape(-1) for t in tensors])

    def back(results: list[Any]) -> None:
        at = 0
        for t in tensors:
            t.detach().copy_(results[0][at : at + t.numel()].reshape(t.shape))
            at += t.numel()

    how = _how(op, "all_reduce_coalesced")
    begun = found.native.begin("all_reduce", flat, how, 0, flat, found.timeout, not async_op)
    return _ended(Work([begun], back), async_op)


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: ReduceOp = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Reduces the tensors of all members of a group onto one of them; the others' tensors keep their values.

    Args:
        tensor (Tensor): the input, of any shape and dtype, the same on every member; overwritten on the destination.
        dst (int, optional): the destination's rank in the job. Give it or `group_dst`.
        op (ReduceOp, optional): the reduction: SUM, AVG (floating point and complex), PRODUCT, MIN, MAX, or BAND, BOR,
            BXOR (integers and Booleans). Default: `ReduceOp.SUM`.
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.
        async_op (bool, optional): whether to return at once with a handle to wait for. Default: False.
        group_dst (int, optional): the destination's rank in the group, in place of `dst`.

    Returns:
        Work or None: with `async_op=True` a handle, whose `wait()` ends when the result is written; None otherwise,
        and on a process that is not in the group.

    Raises:
        ValueError: both or neither of `dst` and `group_dst` are given, the rank is not in the group, or `op` is no
            `ReduceOp`.
        DistBackendError: the members' calls, shapes or dtypes differ, a member has ended, or the group's timeout ran
            out; the message names the rank and the operation.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> loss = lucid.tensor(0.5)
        >>> dist.reduce(loss, dst=0, op=dist.ReduceOp.AVG)
        >>> loss.item()
        0.5
        >>> dist.destroy_process_group()
    """
    found = resolve(group, "reduce")
    if found is None:
        return None
    root = _root(found, dst, group_dst, "reduce")
    x = _tensor(tensor, "reduce")
    begun = found.native.begin("reduce", x, _how(op, "reduce"), root, x, found.timeout)
    return _ended(Work([begun]), async_op)


def broadcast(
    tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None
) -> Work | None:
    """Copies the tensor of one member of a group into the tensors of all others.

    Args:
        tensor (Tensor): of any shape and dtype, the same on every member: the data on the source, overwritten
            elsewhere.
        src (int, optional): the source's rank in the job. Give it or `group_src`.
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.
        async_op (bool, optional): whether to return at once with a handle to wait for. Default: False.
        group_src (int, optional): the source's rank in the group, in place of `src`.

    Returns:
        Work or None: with `async_op=True` a handle, whose `wait()` ends when the result is written; None otherwise,
        and on a process that is not in the group.

    Raises:
        ValueError: both or neither of `src` and `group_src` are given, or the rank is not in the group.
        DistBackendError: the members' calls, shapes or dtypes differ, a member has ended, or the group's timeout ran
            out; the message names the rank and the operation.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> weight = lucid.ones(2, 3)
        >>> dist.broadcast(weight, src=0)  # every process starts from rank 0's weight
        >>> weight.sum().item()
        6.0
        >>> dist.destroy_process_group()
    """
    found = resolve(group, "broadcast")
    if found is None:
        return None
    root = _root(found, src, group_src, "broadcast")
    x = _tensor(tensor, "broadcast")
    return _ended(Work([found.native.begin("broadcast", x, "SUM", root, x, found.timeout, not async_op)]), async_op)


def _check_list(tensors: Sequence[Tensor] | None, n: int, like: Tensor, op: str) -> list[Tensor]:
    given = list(tensors or ())
    if len(given) != n:
        raise errors.ValueError(f"{op}: a list of {n} tensors is needed, one for each member; got {len(given)}")
    for t in given:
        if _tensor(t, op).shape != like.shape or t.dtype != like.dtype:
            raise errors.ValueError(
                f"{op}: each tensor must be {like.dtype} of shape {tuple(like.shape)}, got {t.dtype} of shape "
                f"{tuple(t.shape)}"
            )
    return given


def _spread(outs: Sequence[Tensor]) -> Callable[[list[Any]], Any]:
    def then(results: list[Any]) -> None:
        for i, out in enumerate(outs):
            out.detach().copy_(results[0][i])

    return then


def all_gather(tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """Copies the tensors of all members of a group into a list on each of them: `tensor_list[i] = x_i`.

    Args:
        tensor_list (list of Tensor): one tensor for each member, in the group's order, of `tensor`'s shape and dtype;
            overwritten.
        tensor (Tensor): this member's input, of any shape; the same shape and dtype on every member.
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.
        async_op (bool, optional): whether to return at once with a handle to wait for. Default: False.

    Returns:
        Work or None: with `async_op=True` a handle, whose `wait()` ends when the result is written; None otherwise,
        and on a process that is not in the group.

    Raises:
        ValueError: `tensor_list` has another length than the group, or a tensor in it another shape or dtype.
        DistBackendError: the members' calls, shapes or dtypes differ, a member has ended, or the group's timeout ran
            out; the message names the rank and the operation.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> outputs = [lucid.zeros(2) for _ in range(dist.get_world_size())]
        >>> dist.all_gather(outputs, lucid.tensor([3.0, 4.0]))
        >>> outputs
        [tensor([3., 4.])]
        >>> dist.destroy_process_group()
    """
    found = resolve(group, "all_gather")
    if found is None:
        return None
    x = _tensor(tensor, "all_gather")
    outs = _check_list(tensor_list, found.size(), x, "all_gather")
    begun = found.native.begin("all_gather", x, timeout=found.timeout, now=not async_op)
    return _ended(Work([begun], _spread(outs)), async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Gathers the tensors of all `n` members of a group into one tensor on each of them.

    Args:
        output_tensor (Tensor): stacked, of shape `(n, *s)`, or concatenated, of shape `(n·s[0], *s[1:])`; overwritten.
        input_tensor (Tensor): this member's part, of shape `s`, and of the output's dtype.
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.
        async_op (bool, optional): whether to return at once with a handle to wait for. Default: False.

    Returns:
        Work or None: with `async_op=True` a handle, whose `wait()` ends when the result is written; None otherwise,
        and on a process that is not in the group.

    Raises:
        ValueError: the output does not hold `n` times the elements of the input, or has another dtype.
        DistBackendError: the members' calls, shapes or dtypes differ, a member has ended, or the group's timeout ran
            out; the message names the rank and the operation.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> out = lucid.empty(dist.get_world_size(), 2)
        >>> dist.all_gather_into_tensor(out, lucid.tensor([3.0, 4.0]))
        >>> out
        tensor([[3., 4.]])
        >>> dist.destroy_process_group()
    """
    found = resolve(group, "all_gather_into_tensor")
    if found is None:
        return None
    out, x = _tensor(output_tensor, "all_gather_into_tensor"), _tensor(input_tensor, "all_gather_into_tensor")
    if out.numel() != x.numel() * found.size() or out.dtype != x.dtype:
        raise errors.ValueError(
            f"all_gather_into_tensor: the output of {out.numel()} {out.dtype} does not hold {found.size()} times "
            f"{x.numel()} {x.dtype}"
        )

    def then(results: list[Any]) -> None:
        out.detach().copy_(results[0].reshape(out.shape))

    return _ended(Work([found.native.begin("all_gather", x, timeout=found.timeout, now=not async_op)], then), async_op)


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Collects the tensors of all members of a group in a list on one of them.

    Args:
        tensor (Tensor): this member's input, of any shape; the same shape and dtype on every member.
        gather_list (list of Tensor, optional): on the destination one tensor for each member, of `tensor`'s shape and
            dtype, overwritten; None elsewhere.
        dst (int, optional): the destination's rank in the job. Default: 0.
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.
        async_op (bool, optional): whether to return at once with a handle to wait for. Default: False.
        group_dst (int, optional): the destination's rank in the group, in place of `dst`.

    Returns:
        Work or None: with `async_op=True` a handle, whose `wait()` ends when the result is written; None otherwise,
        and on a process that is not in the group.

    Raises:
        ValueError: a list is given on another rank than the destination, or does not have one tensor of the right shape
            and dtype for each member.
        DistBackendError: the members' calls, shapes or dtypes differ, a member has ended, or the group's timeout ran
            out; the message names the rank and the operation.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> parts = [lucid.zeros(2)] if dist.get_rank() == 0 else None
        >>> dist.gather(lucid.tensor([3.0, 4.0]), parts, dst=0)
        >>> parts
        [tensor([3., 4.])]
        >>> dist.destroy_process_group()
    """
    found = resolve(group, "gather")
    if found is None:
        return None
    dst = 0 if dst is None and group_dst is None else dst
    root = _root(found, dst, group_dst, "gather")
    x = _tensor(tensor, "gather")
    if found.rank() == root:
        outs = _check_list(gather_list, found.size(), x, "gather")
    elif gather_list:
        raise errors.ValueError("gather: Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    else:
        outs = []
    begun = found.native.begin("all_gather", x, timeout=found.timeout, now=not async_op)
    return _ended(Work([begun], _spread(outs)), async_op)


def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Sends each member of a group its own tensor of a list that one of them has.

    Args:
        tensor (Tensor): overwritten by this member's tensor; of the same shape and dtype on every member.
        scatter_list (list of Tensor, optional): on the source one tensor for each member, of `tensor`'s shape and
            dtype; None elsewhere.
        src (int, optional): the source's rank in the job. Default: 0.
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.
        async_op (bool, optional): whether to return at once with a handle to wait for. Default: False.
        group_src (int, optional): the source's rank in the group, in place of `src`.

    Returns:
        Work or None: with `async_op=True` a handle, whose `wait()` ends when the result is written; None otherwise,
        and on a process that is not in the group.

    Raises:
        ValueError: a list is given on another rank than the source, or does not have one tensor of the right shape and
            dtype for each member.
        DistBackendError: the members' calls, shapes or dtypes differ, a member has ended, or the group's timeout ran
            out; the message names the rank and the operation.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> x = lucid.zeros(2)
        >>> dist.scatter(x, [lucid.tensor([3.0, 4.0])] if dist.get_rank() == 0 else None, src=0)
        >>> x
        tensor([3., 4.])
        >>> dist.destroy_process_group()
    """
    found = resolve(group, "scatter")
    if found is None:
        return None
    src = 0 if src is None and group_src is None else src
    root = _root(found, src, group_src, "scatter")
    x = _tensor(tensor, "scatter")
    with lucid.no_grad():
        if found.rank() == root:
            parts = _check_list(scatter_list, found.size(), x, "scatter")
            stacked = lucid.stack([p.detach() for p in parts])
        elif scatter_list:
            raise errors.ValueError("scatter: Argument ``scatter_list`` must NOT be specified on non-source ranks.")
        else:
            stacked = x.detach().unsqueeze(0).expand(found.size(), *x.shape)
    return _ended(Work([found.native.begin("scatter", stacked, "SUM", root, x, found.timeout)]), async_op)


def reduce_scatter(
    output: Tensor,
    input_list: list[Tensor],
    op: ReduceOp = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Reduces the lists of all members element by element and gives member `i` the result number `i`.

    `output = op(input_list[rank] of rank 0, …, input_list[rank] of rank n-1)`.

    Args:
        output (Tensor): of any shape; overwritten by this member's result.
        input_list (list of Tensor): one tensor for each member, of `output`'s shape and dtype.
        op (ReduceOp, optional): the reduction: SUM, AVG (floating point and complex), PRODUCT, MIN, MAX, or BAND, BOR,
            BXOR (integers and Booleans). Default: `ReduceOp.SUM`.
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.
        async_op (bool, optional): whether to return at once with a handle to wait for. Default: False.

    Returns:
        Work or None: with `async_op=True` a handle, whose `wait()` ends when the result is written; None otherwise,
        and on a process that is not in the group.

    Raises:
        ValueError: `input_list` does not have one tensor of `output`'s shape and dtype for each member, or `op` is no
            `ReduceOp`.
        DistBackendError: the members' calls, shapes or dtypes differ, a member has ended, or the group's timeout ran
            out; the message names the rank and the operation.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> out = lucid.zeros(2)
        >>> dist.reduce_scatter(out, [lucid.tensor([3.0, 4.0])])
        >>> out
        tensor([3., 4.])
        >>> dist.destroy_process_group()
    """
    found = resolve(group, "reduce_scatter")
    if found is None:
        return None
    out = _tensor(output, "reduce_scatter")
    parts = _check_list(input_list, found.size(), out, "reduce_scatter")
    with lucid.no_grad():
        stacked = lucid.stack([p.detach() for p in parts])
    how = _how(op, "reduce_scatter")
    begun = found.native.begin("reduce_scatter", stacked, how, 0, out, found.timeout, not async_op)
    return _ended(Work([begun]), async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Reduces the tensors of all `n` members and gives member `i` part `i` of the result.

    Args:
        output (Tensor): of shape `s`; overwritten by this member's part.
        input (Tensor): of shape `(n, *s)` or `(n·s[0], *s[1:])`, and of the output's dtype.
        op (ReduceOp, optional): the reduction: SUM, AVG (floating point and complex), PRODUCT, MIN, MAX, or BAND, BOR,
            BXOR (integers and Booleans). Default: `ReduceOp.SUM`.
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.
        async_op (bool, optional): whether to return at once with a handle to wait for. Default: False.

    Returns:
        Work or None: with `async_op=True` a handle, whose `wait()` ends when the result is written; None otherwise,
        and on a process that is not in the group.

    Raises:
        ValueError: the input does not have `n` times the elements of the output, or has another dtype; or `op` is no
            `ReduceOp`.
        DistBackendError: the members' calls, shapes or dtypes differ, a member has ended, or the group's timeout ran
            out; the message names the rank and the operation.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> out = lucid.zeros(2)
        >>> dist.reduce_scatter_tensor(out, lucid.tensor([[3.0, 4.0]]))
        >>> out
        tensor([3., 4.])
        >>> dist.destroy_process_group()
    """
    found = resolve(group, "reduce_scatter_tensor")
    if found is None:
        return None
    out, x = _tensor(output, "reduce_scatter_tensor"), _tensor(input, "reduce_scatter_tensor")
    if x.numel() != out.numel() * found.size() or out.dtype != x.dtype:
        raise errors.ValueError(
            f"reduce_scatter_tensor: the input of {x.numel()} {x.dtype} is not {found.size()} times the output of "
            f"{out.numel()} {out.dtype}"
        )
    parts = x.detach().reshape(found.size(), *out.shape)
    how = _how(op, "reduce_scatter_tensor")
    begun = found.native.begin("reduce_scatter", parts, how, 0, out, found.timeout, not async_op)
    return _ended(Work([begun]), async_op)


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Waits until every member of a group has made this call.

    Args:
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.
        async_op (bool, optional): whether to return at once with a handle to wait for. Default: False.
        device_ids (list of int, optional): a process has one GPU in any case here.

    Returns:
        Work or None: with `async_op=True` a handle, whose `wait()` ends when the result is written; None otherwise,
        and on a process that is not in the group.

    Raises:
        DistBackendError: the members' calls, shapes or dtypes differ, a member has ended, or the group's timeout ran
            out; the message names the rank and the operation.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> dist.barrier()
        >>> dist.destroy_process_group()
    """
    found = resolve(group, "barrier")
    if found is None:
        return None
    return _ended(Work([found.native.barrier(found.timeout)]), async_op)


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """Waits until every member of a group has made this call; the error names each rank that has not.

    Args:
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.
        timeout (datetime.timedelta or float, optional): how long to wait, in seconds where it is a number. Default: the
            group's timeout.
        wait_all_ranks (bool, optional): the error always names all ranks that are missing.

    Raises:
        DistBackendError: a member has not come within the timeout, or has ended.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> dist.monitored_barrier(timeout=5)
        >>> dist.destroy_process_group()
    """
    found = resolve(group, "monitored_barrier")
    if found is not None:
        found.native.barrier(seconds(timeout, found.timeout)).wait()


def world_barrier() -> None:
    """A barrier of all processes, where there are several."""
    if get_world_size(default_group()) > 1:
        barrier()
