"""Messages between two processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid import Tensor, errors
from lucid.distributed._groups import get_rank
from lucid.distributed._state import ProcessGroup, messages_to, resolve, sender_of
from lucid.distributed._work import Work, _root, _tensor
from lucid.distributed.store import seconds


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
    """Starts to send a tensor to another process.

    Messages between two ranks arrive in the order in which they were sent.

    Args:
        tensor (Tensor): the data, of any shape and dtype; it must not change until the message is sent.
        dst (int, optional): the receiver's rank in the job. Give it or `group_dst`.
        group (ProcessGroup, optional): the group whose timeout counts; default: all processes of the job.
        tag (int, optional): a number that the receiver's `tag` must equal. Default: 0.
        group_dst (int, optional): the receiver's rank in the group, in place of `dst`.

    Returns:
        Work or None: a handle to wait for; None on a process that is not in the group.

    Raises:
        ValueError: the rank is this process's own or not in the group, or both or neither ranks are given.
        DistBackendError: from the handle's `wait()`: tags, shapes or dtypes differ, or the receiver does not answer.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> rank, size = dist.get_rank(), dist.get_world_size()
        >>> if size > 1:  # around a ring of processes
        ...     out = dist.isend(lucid.ones(2), (rank + 1) % size)
        ...     into = dist.irecv(lucid.empty(2), (rank - 1) % size)
        ...     out.wait(), into.wait()
        >>> dist.destroy_process_group()
    """
    found = _peer(group, dst, group_dst, "send")
    if found is None:
        return None
    channel = messages_to(get_rank(), found[1])
    return Work([channel.begin("send", _tensor(tensor, "send"), "SUM", tag, None, found[0].timeout)])


class _FromAny(Work):
    """A message of whoever sends first; who that is becomes known while it is waited for."""

    def __init__(self, tensor: Tensor, found: ProcessGroup, tag: int) -> None:
        super().__init__([])
        self._tensor, self._found, self._tag = tensor, found, tag
        self.source = -1

    def is_completed(self) -> bool:
        return bool(self._works) and super().is_completed()

    def wait(self, timeout: Any = None) -> bool:
        if not self._works:
            limit = self._found.timeout if timeout is None else seconds(timeout)
            self.source = sender_of(self._found, limit)
            channel = messages_to(self.source, get_rank())
            self._works.append(channel.begin("recv", self._tensor, "SUM", self._tag, None, self._found.timeout))
        return super().wait(timeout)


def irecv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None
) -> Work | None:
    """Starts to receive a tensor from another process.

    Args:
        tensor (Tensor): overwritten by the data; it must have the shape and dtype of what is sent.
        src (int, optional): the sender's rank in the job. Default: any member of the group; `wait()` finds out which
            one.
        group (ProcessGroup, optional): the group whose timeout counts; default: all processes of the job.
        tag (int, optional): a number that the sender's `tag` must equal. Default: 0.
        group_src (int, optional): the sender's rank in the group, in place of `src`.

    Returns:
        Work or None: a handle to wait for; None on a process that is not in the group.

    Raises:
        ValueError: the rank is this process's own, or not in the group.
        DistBackendError: from the handle's `wait()`: tags, shapes or dtypes differ, or the sender does not answer.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> dist.irecv(lucid.empty(2), src=0)
        Traceback (most recent call last):
        ...
        lucid.errors.ValueError: recv: rank 0 is this process; a message goes to another
        >>> dist.destroy_process_group()
    """
    if src is None and group_src is None:
        members = resolve(group, "recv")
        return None if members is None else _FromAny(_tensor(tensor, "recv"), members, tag)
    found = _peer(group, src, group_src, "recv")
    if found is None:
        return None
    channel = messages_to(found[1], get_rank())
    return Work([channel.begin("recv", _tensor(tensor, "recv"), "SUM", tag, None, found[0].timeout)])


def send(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Sends a tensor to another process, and waits until it is received. Arguments as of `isend`.

    Args:
        tensor (Tensor): the data, of any shape and dtype.
        dst (int, optional): the receiver's rank in the job. Give it or `group_dst`.
        group (ProcessGroup, optional): the group whose timeout counts; default: all processes of the job.
        tag (int, optional): a number that the receiver's `tag` must equal. Default: 0.
        group_dst (int, optional): the receiver's rank in the group, in place of `dst`.

    Raises:
        ValueError: the rank is this process's own or not in the group.
        DistBackendError: tags, shapes or dtypes differ, or the receiver does not answer within the timeout.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> if dist.get_world_size() > 1:
        ...     x = lucid.arange(3)
        ...     dist.send(x, dst=1) if dist.get_rank() == 0 else dist.recv(x, src=0)
        >>> dist.destroy_process_group()
    """
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """Receives a tensor from another process, and waits for it. Arguments as of `irecv`.

    Args:
        tensor (Tensor): overwritten by the data; it must have the shape and dtype of what is sent.
        src (int, optional): the sender's rank in the job. Default: any member of the group.
        group (ProcessGroup, optional): the group whose timeout counts; default: all processes of the job.
        tag (int, optional): a number that the sender's `tag` must equal. Default: 0.
        group_src (int, optional): the sender's rank in the group, in place of `src`.

    Returns:
        int: the sender's rank in the job; -1 on a process that is not in the group.

    Raises:
        ValueError: the rank is this process's own or not in the group.
        DistBackendError: tags, shapes or dtypes differ, or the sender does not answer within the timeout.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> if dist.get_world_size() > 1:  # from whoever sends first
        ...     x = lucid.empty(2)
        ...     dist.recv(x) if dist.get_rank() == 0 else dist.send(lucid.ones(2), dst=0)
        >>> dist.destroy_process_group()
    """
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    if isinstance(work, _FromAny):
        return work.source
    found = resolve(group, "recv")
    assert found is not None
    return found.ranks[_root(found, src, group_src, "recv")]


class P2POp:
    """One message of `batch_isend_irecv`.

    Args:
        op (callable): `isend` or `irecv`.
        tensor (Tensor): the data of any shape, or the tensor that receives it.
        peer (int, optional): the other process's rank in the job. Give it or `group_peer`.
        group (ProcessGroup, optional): the group whose timeout counts; default: all processes of the job.
        tag (int, optional): a number that has to be the same on both sides. Default: 0.
        group_peer (int, optional): the other process's rank in the group, in place of `peer`.

    Raises:
        ValueError: `op` is another function.

    Example:
        >>> import lucid.distributed as dist
        >>> message = dist.P2POp(dist.isend, lucid.ones(2), peer=1)
        >>> message.peer
        1
    """

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
    """Starts several messages together, so that no order of sends and receives can block.

    Args:
        p2p_op_list (list of P2POp): the messages; at least one.

    Returns:
        list of Work: one handle for each message, to wait for.

    Raises:
        ValueError: the list is empty, or holds something other than `P2POp`s.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> rank, size = dist.get_rank(), dist.get_world_size()
        >>> if size > 1:
        ...     into = lucid.empty(2)
        ...     messages = [
        ...         dist.P2POp(dist.isend, lucid.ones(2), (rank + 1) % size),
        ...         dist.P2POp(dist.irecv, into, (rank - 1) % size),
        ...     ]
        ...     for work in dist.batch_isend_irecv(messages):
        ...         work.wait()
        >>> dist.destroy_process_group()
    """
    if not p2p_op_list or not all(isinstance(p, P2POp) for p in p2p_op_list):
        raise errors.ValueError("batch_isend_irecv: expected a list of P2POp")
    begun = [p.op(p.tensor, p.peer, p.group, p.tag, p.group_peer) for p in p2p_op_list]
    return [w for w in begun if w is not None]
