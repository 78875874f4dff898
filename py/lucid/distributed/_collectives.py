"""The collectives as PyTorch names them. Each is an operation of the engine's group; see `lucid._C._Group`."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Callable, Sequence
from typing import Any

import lucid
from lucid import _C, Tensor, errors
from lucid.distributed._state import (
    ProcessGroup,
    default_group,
    get_rank,
    get_world_size,
    messages_to,
    resolve,
)
from lucid.distributed.store import seconds


class ReduceOp(enum.Enum):
    """How values of several processes become one."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7


class reduce_op:
    """`ReduceOp`'s members under their older name."""

    SUM = ReduceOp.SUM
    PRODUCT = ReduceOp.PRODUCT
    MIN = ReduceOp.MIN
    MAX = ReduceOp.MAX


class Work:
    """An operation that was begun with `async_op=True`."""

    def __init__(self, works: Sequence[_C._Work], then: Callable[[list[Any]], Any] | None = None) -> None:
        self._works, self._then = list(works), then
        self._result: Any = None
        self._error: BaseException | None = None
        self._done = False

    def is_completed(self) -> bool:
        """Is it done, or has it failed?"""
        return self._done or all(w.is_completed() for w in self._works)

    def wait(self, timeout: datetime.timedelta | float | None = None) -> bool:
        """Waits until it is done.

        Raises:
            DistBackendError: what went wrong.
        """
        if not self._done:
            limit = None if timeout is None else seconds(timeout)
            try:
                results = [w.wait(limit) for w in self._works]
                if self._then is not None:
                    with lucid.no_grad():
                        self._result = self._then(results)
                else:
                    self._result = results[0] if len(results) == 1 else results
            except BaseException as e:
                self._error = e
                raise
            self._done = True
        return True

    def is_success(self) -> bool:
        """Is it done, and did it not fail?"""
        return self._done

    def exception(self) -> BaseException | None:
        """What went wrong."""
        return self._error

    def result(self) -> Any:
        """What it made; waits."""
        self.wait()
        return self._result

    def synchronize(self) -> None:
        """As `wait`."""
        self.wait()

    def get_future(self) -> Any:
        """A `lucid.futures.Future` of the result, as a list of tensors. Waits."""
        from lucid.futures import Future

        made: Any = Future()
        self.wait()
        made.set_result(self._result if isinstance(self._result, list) else [self._result])
        return made


def _tensor(x: Any, op: str) -> Tensor:
    if not isinstance(x, Tensor):
        raise errors.TypeError(f"{op}: expected a Tensor, got {type(x).__name__}")
    return x


def _how(op: Any, name: str) -> str:
    if not isinstance(op, ReduceOp):
        raise errors.ValueError(f"{name}: {op!r} is no ReduceOp")
    return op.name


def _ended(work: Work, async_op: bool) -> Work | None:
    if async_op:
        return work
    work.wait()
    return None


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """Reduces the tensors of all members, in place: each then has `op(x_0, …, x_{n-1})`.

    Args:
        tensor (Tensor): Any shape and dtype, the same on every member; overwritten.
        op (ReduceOp, optional): The reduction. AVG is for floating point and complex numbers, BAND, BOR and BXOR
            for integers and Booleans.
        group (object, optional): The group; all processes where it is None.
        async_op (bool, default: False): Whether to return at once, with a `Work`.

    Returns:
        A `Work` with `async_op=True`; None otherwise, and where this process is not in the group.

    Raises:
        DistBackendError: where the members do not call the same, with the same shape and dtype, within the group's
            timeout; it names the rank and the operation.
    """
    found = resolve(group, "all_reduce")
    how = _how(op, "all_reduce")
    if found is None:
        return None
    x = _tensor(tensor, "all_reduce")
    return _ended(Work([found.native.begin("all_reduce", x, how, 0, x, found.timeout)]), async_op)


def all_reduce_coalesced(
    tensors: Sequence[Tensor], op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """`all_reduce` of several tensors of one dtype, which travel as one."""
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

    begun = found.native.begin("all_reduce", flat, _how(op, "all_reduce_coalesced"), 0, flat, found.timeout)
    return _ended(Work([begun], back), async_op)


def _root(found: ProcessGroup, rank: int | None, group_rank: int | None, op: str) -> int:
    if (rank is None) == (group_rank is None):
        raise errors.ValueError(f"{op}: give one of the rank in the job and the rank in the group")
    if group_rank is not None:
        if not 0 <= group_rank < found.size():
            raise errors.ValueError(f"{op}: no rank {group_rank} in a group of {found.size()}")
        return group_rank
    assert rank is not None
    return found.local(int(rank), op)


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: ReduceOp = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """As `all_reduce`; only rank `dst` (of the job; `group_dst` of the group) gets the result. Others' tensors stay."""
    found = resolve(group, "reduce")
    if found is None:
        return None
    root = _root(found, dst, group_dst, "reduce")
    x = _tensor(tensor, "reduce")
    return _ended(Work([found.native.begin("reduce", x, _how(op, "reduce"), root, x, found.timeout)]), async_op)


def broadcast(
    tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None
) -> Work | None:
    """Overwrites each member's tensor by that of rank `src` of the job, or `group_src` of the group."""
    found = resolve(group, "broadcast")
    if found is None:
        return None
    root = _root(found, src, group_src, "broadcast")
    x = _tensor(tensor, "broadcast")
    return _ended(Work([found.native.begin("broadcast", x, "SUM", root, x, found.timeout)]), async_op)


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
    """Every member's tensor into every member's list, in the group's order. All have one shape and dtype."""
    found = resolve(group, "all_gather")
    if found is None:
        return None
    x = _tensor(tensor, "all_gather")
    outs = _check_list(tensor_list, found.size(), x, "all_gather")
    begun = found.native.begin("all_gather", x, timeout=found.timeout)
    return _ended(Work([begun], _spread(outs)), async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Every member's tensor into one: stacked, of shape `(n, *s)`, or joined, of shape `(n·s[0], *s[1:])`."""
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

    return _ended(Work([found.native.begin("all_gather", x, timeout=found.timeout)], then), async_op)


def gather(
    tensor: Tensor,
    gather_list: list[Tensor] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Every member's tensor into the list of rank `dst` (default 0); others give no list."""
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
    return _ended(Work([found.native.begin("all_gather", x, timeout=found.timeout)], _spread(outs)), async_op)


def scatter(
    tensor: Tensor,
    scatter_list: list[Tensor] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Overwrites each member's tensor by its own of the list of rank `src` (default 0); others give no list."""
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
    """`output` becomes the reduction of all members' tensors number `rank` of `input_list`."""
    found = resolve(group, "reduce_scatter")
    if found is None:
        return None
    out = _tensor(output, "reduce_scatter")
    parts = _check_list(input_list, found.size(), out, "reduce_scatter")
    with lucid.no_grad():
        stacked = lucid.stack([p.detach() for p in parts])
    how = _how(op, "reduce_scatter")
    return _ended(Work([found.native.begin("reduce_scatter", stacked, how, 0, out, found.timeout)]), async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """`output` becomes this member's part of the reduction of `input`, which is `n` times as large."""
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
    return _ended(Work([found.native.begin("reduce_scatter", parts, how, 0, out, found.timeout)]), async_op)


def all_to_all(
    output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Any = None, async_op: bool = False
) -> Work | None:
    """`output[i]` becomes member `i`'s `input[rank]`. All tensors have one shape and dtype; for parts of several sizes
    see `all_to_all_single`."""
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
    begun = found.native.begin("all_to_all", stacked, timeout=found.timeout)
    return _ended(Work([begun], _spread(outs)), async_op)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Sends part `i` of `input`, along the first dimension, to member `i`, and joins what comes in `output`.

    Without sizes the parts are equal. With sizes, each member's are exchanged first.
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

        return _ended(Work([found.native.begin("all_to_all", parts, timeout=found.timeout)], whole), async_op)
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

    return _ended(Work([found.native.begin("all_to_all", padded, timeout=found.timeout)], joined), async_op)


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Waits until every member has come here."""
    found = resolve(group, "barrier")
    if found is None:
        return None
    return _ended(Work([found.native.barrier(found.timeout)]), async_op)


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """As `barrier`, with a timeout of its own; the error names every rank that did not come."""
    found = resolve(group, "monitored_barrier")
    if found is not None:
        found.native.barrier(seconds(timeout, found.timeout)).wait()


def _peer(group: Any, rank: int | None, group_rank: int | None, op: str) -> tuple[ProcessGroup, int] | None:
    found = resolve(group, op)
    if found is None:
        return None
    peer = found.ranks[_root(found, rank, group_rank, op)]
    if peer == get_rank():
        raise errors.ValueError(f"{op}: rank {peer} is this process; a message goes to another")
    return found, peer


def isend(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None
) -> Work | None:
    """Begins to send a tensor to a rank of the job, or of the group. Messages between two ranks arrive in order; where
    the tags of a message and of the `recv` that gets it differ, both fail."""
    found = _peer(group, dst, group_dst, "send")
    if found is None:
        return None
    channel = messages_to(get_rank(), found[1])
    return Work([channel.begin("send", _tensor(tensor, "send"), "SUM", tag, None, found[0].timeout)])


def irecv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None
) -> Work | None:
    """Begins to receive a tensor, into `tensor`, whose shape and dtype must be those of what is sent.

    Raises:
        NotImplementedError: without a source: MLX receives from a rank that is named.
    """
    if src is None and group_src is None:
        raise errors.NotImplementedError("recv: name the source, src=; MLX cannot receive from any")
    found = _peer(group, src, group_src, "recv")
    if found is None:
        return None
    channel = messages_to(found[1], get_rank())
    return Work([channel.begin("recv", _tensor(tensor, "recv"), "SUM", tag, None, found[0].timeout)])


def send(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """As `isend`, and waits until the message is received."""
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """As `irecv`, and waits. Returns the source's rank in the job, -1 where this process is not in the group."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    found = resolve(group, "recv")
    assert found is not None
    return found.ranks[_root(found, src, group_src, "recv")]


class P2POp:
    """One message of `batch_isend_irecv`."""

    def __init__(
        self,
        op: Callable[..., Work | None],
        tensor: Tensor,
        peer: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise errors.ValueError("P2POp: op must be isend or irecv")
        self.op, self.tensor, self.peer, self.group, self.tag, self.group_peer = (
            op,
            tensor,
            peer,
            group,
            tag,
            group_peer,
        )


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Begins several messages together; one `Work` for each."""
    if not p2p_op_list or not all(isinstance(p, P2POp) for p in p2p_op_list):
        raise errors.ValueError("batch_isend_irecv: expected a list of P2POp")
    begun = [p.op(p.tensor, p.peer, p.group, p.tag, p.group_peer) for p in p2p_op_list]
    return [w for w in begun if w is not None]


def world_barrier() -> None:
    """A barrier of all processes, where there are several."""
    if get_world_size(default_group()) > 1:
        barrier()
