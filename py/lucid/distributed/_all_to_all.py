"""Collectives in which each member sends another part to each member."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.distributed._collectives import _check_list, _spread
from lucid.distributed._state import resolve
from lucid.distributed._work import Work, _ended, _tensor


def all_to_all(
    output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Any = None, async_op: bool = False
) -> Work | None:
    """Sends tensor `i` of a list to member `i`: `output_tensor_list[i]` becomes member `i`'s `input_tensor_list[rank]`.

    Args:
        output_tensor_list (list of Tensor): one tensor for each member, of the inputs' shape and dtype; overwritten.
        input_tensor_list (list of Tensor): one tensor for each member; all have one shape and dtype. For parts of
            several sizes see `all_to_all_single`.
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.
        async_op (bool, optional): whether to return at once with a handle to wait for. Default: False.

    Returns:
        Work or None: with `async_op=True` a handle, whose `wait()` ends when the result is written; None otherwise,
        and on a process that is not in the group.

    Raises:
        ValueError: a list is empty, has another length than the group, or holds tensors of several shapes or dtypes.
        DistBackendError: the members' calls, shapes or dtypes differ, a member has ended, or the group's timeout ran
            out; the message names the rank and the operation.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> out = [lucid.zeros(2)]
        >>> dist.all_to_all(out, [lucid.tensor([3.0, 4.0])])
        >>> out
        [tensor([3., 4.])]
        >>> dist.destroy_process_group()
    """
    found = resolve(group, "all_to_all")
    if found is None:
        return None
    if not input_tensor_list:
        raise errors.ValueError("all_to_all: the input list is empty")
    like = _tensor(input_tensor_list[0], "all_to_all")
    parts = _check_list(input_tensor_list, found.size(), like, "all_to_all")
    outs = _check_list(output_tensor_list, found.size(), like, "all_to_all")
    with lucid.no_grad():
        stacked = lucid.stack([p.detach() for p in parts])
    begun = found.native.begin("all_to_all", stacked, timeout=found.timeout, now=not async_op)
    return _ended(Work([begun], _spread(outs)), async_op)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Sends part `i` of a tensor, along its first dimension, to member `i`, and concatenates the parts that arrive.

    Args:
        output (Tensor): of shape `(r, *s)`; overwritten by the parts of member 0, 1, ….
        input (Tensor): of shape `(k, *s)`, and of the output's dtype.
        output_split_sizes (list of int, optional): how many rows come from each member; they add up to `r`. Default:
            equal parts.
        input_split_sizes (list of int, optional): how many rows go to each member; they add up to `k`. Default: equal
            parts.
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.
        async_op (bool, optional): whether to return at once with a handle to wait for. Default: False.

    Returns:
        Work or None: with `async_op=True` a handle, whose `wait()` ends when the result is written; None otherwise,
        and on a process that is not in the group.

    Raises:
        ValueError: a tensor has no first dimension, the sizes do not add up to it, or other members send other sizes.
        DistBackendError: the members' calls, shapes or dtypes differ, a member has ended, or the group's timeout ran
            out; the message names the rank and the operation.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> out = lucid.zeros(2)
        >>> dist.all_to_all_single(out, lucid.tensor([3.0, 4.0]))
        >>> out
        tensor([3., 4.])
        >>> dist.destroy_process_group()
    """
    found = resolve(group, "all_to_all_single")
    if found is None:
        return None
    op, n, rank = "all_to_all_single", found.size(), found.rank()
    out, x = _tensor(output, op), _tensor(input, op)
    if x.ndim == 0 or out.ndim == 0:
        raise errors.ValueError(f"{op}: the tensors need a first dimension")
    if not output_split_sizes and not input_split_sizes:
        if x.shape[0] % n or out.shape != x.shape:
            raise errors.ValueError(
                f"{op}: the first dimension of {tuple(x.shape)} must be divisible by {n}, and the "
                f"output, of {tuple(out.shape)}, have the same shape"
            )
        parts = x.detach().reshape(n, x.shape[0] // n, *x.shape[1:])

        def whole(results: list[Any]) -> None:
            out.detach().copy_(results[0].reshape(out.shape))

        begun = found.native.begin("all_to_all", parts, timeout=found.timeout, now=not async_op)
        return _ended(Work([begun], whole), async_op)
    sent = input_split_sizes or [x.shape[0] // n] * n
    wanted = output_split_sizes or [out.shape[0] // n] * n
    if len(sent) != n or len(wanted) != n or sum(sent) != x.shape[0] or sum(wanted) != out.shape[0]:
        raise errors.ValueError(
            f"{op}: the sizes {sent} and {wanted} do not split {x.shape[0]} and {out.shape[0]} rows"
        )
    sizes = found.native.begin("all_gather", lucid.tensor(sent, dtype=lucid.int64), timeout=found.timeout).wait()
    table = [[int(v) for v in row] for row in sizes.tolist()]
    coming = [table[i][rank] for i in range(n)]
    if coming != wanted:
        raise errors.ValueError(f"{op}: output_split_sizes is {wanted}, the others send {coming}")
    most = max((v for row in table for v in row), default=0)
    with lucid.no_grad():
        padded = x.new_zeros((n, most, *x.shape[1:]))
        at = 0
        for i, rows in enumerate(sent):
            padded[i, :rows] = x.detach()[at : at + rows]
            at += rows

    def joined(results: list[Any]) -> None:
        out.detach().copy_(lucid.cat([results[0][i][: wanted[i]] for i in range(n)]))

    begun = found.native.begin("all_to_all", padded, timeout=found.timeout, now=not async_op)
    return _ended(Work([begun], joined), async_op)
