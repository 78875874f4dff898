"""Objects between processes: pickled, and sent as bytes. Unpickling runs what the sender says: use it within one
job."""

from __future__ import annotations

import pickle
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.distributed._messages import recv, send
from lucid.distributed._state import ProcessGroup, resolve
from lucid.distributed._work import _root


def _to_tensor(obj: Any) -> Tensor:
    return lucid.frombuffer(bytearray(pickle.dumps(obj)), dtype=lucid.uint8)


def _to_object(tensor: Tensor, size: int) -> Any:
    return pickle.loads(bytes(tensor[:size].tolist()))


def _padded(data: Tensor, size: int) -> Tensor:
    rest = size - data.numel()
    return data if rest == 0 else lucid.cat([data, lucid.zeros(rest, dtype=lucid.uint8)])


def _gathered(found: ProcessGroup, obj: Any) -> list[Any]:
    data = _to_tensor(obj)
    n = lucid.tensor([data.numel()], dtype=lucid.int64)
    sizes = [int(s) for s in found.native.begin("all_gather", n, timeout=found.timeout).wait().reshape(-1).tolist()]
    rows = found.native.begin("all_gather", _padded(data, max(sizes)), timeout=found.timeout).wait()
    return [_to_object(rows[i], size) for i, size in enumerate(sizes)]


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Collects an object of every member of a group in a list on each of them. Objects are pickled.

    Unpickling runs code that the sender chose: use it between processes that trust one another.

    Args:
        object_list (list): as many places as the group has members; overwritten in the group's order.
        obj (object): this member's object, which pickle must take.
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.

    Raises:
        ValueError: `object_list` has another length than the group.
        DistBackendError: the members' calls, shapes or dtypes differ, a member has ended, or the group's timeout ran
            out; the message names the rank and the operation.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> found = [None] * dist.get_world_size()
        >>> dist.all_gather_object(found, {"rank": dist.get_rank()})
        >>> found
        [{'rank': 0}]
        >>> dist.destroy_process_group()
    """
    found = resolve(group, "all_gather_object")
    if found is None:
        return
    if len(object_list) != found.size():
        raise errors.ValueError(f"all_gather_object: the list has {len(object_list)} places for {found.size()} members")
    object_list[:] = _gathered(found, obj)


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    """Collects an object of every member of a group in a list on one of them. Objects are pickled.

    Args:
        obj (object): this member's object, which pickle must take.
        object_gather_list (list, optional): on the destination as many places as the group has members; None elsewhere.
        dst (int, optional): the destination's rank in the job. Default: 0.
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.
        group_dst (int, optional): the destination's rank in the group, in place of `dst`.

    Raises:
        ValueError: the destination's list has another length than the group, or another rank gives a list.
        DistBackendError: the members' calls, shapes or dtypes differ, a member has ended, or the group's timeout ran
            out; the message names the rank and the operation.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> found = [None] if dist.get_rank() == 0 else None
        >>> dist.gather_object("ready", found)
        >>> found
        ['ready']
        >>> dist.destroy_process_group()
    """
    found = resolve(group, "gather_object")
    if found is None:
        return
    root = _root(found, 0 if dst is None and group_dst is None else dst, group_dst, "gather_object")
    own = found.rank() == root
    if own and (object_gather_list is None or len(object_gather_list) != found.size()):
        raise errors.ValueError(f"gather_object: the destination needs a list with {found.size()} places")
    if not own and object_gather_list:
        raise errors.ValueError("gather_object: only the destination gives a list")
    gathered = _gathered(found, obj)
    if own and object_gather_list is not None:
        object_gather_list[:] = gathered


def _sent_to_all(found: ProcessGroup, obj: Any, root: int) -> Any:
    own = found.rank() == root
    data = _to_tensor(obj) if own else None
    n = lucid.tensor([data.numel() if data is not None else 0], dtype=lucid.int64)
    size = int(found.native.begin("broadcast", n, "SUM", root, None, found.timeout).wait().item())
    data = data if data is not None else lucid.zeros(size, dtype=lucid.uint8)
    return _to_object(found.native.begin("broadcast", data, "SUM", root, None, found.timeout).wait(), size)


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """Copies the objects of one member's list into the lists of all others. Objects are pickled.

    Args:
        object_list (list): the objects on the source; overwritten elsewhere. Of the same length on every member.
        src (int, optional): the source's rank in the job. Default: 0.
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.
        device (device, optional): without effect: the bytes travel through the host.
        group_src (int, optional): the source's rank in the group, in place of `src`.

    Raises:
        ValueError: the lists have different lengths, or the rank is not in the group.
        DistBackendError: the members' calls, shapes or dtypes differ, a member has ended, or the group's timeout ran
            out; the message names the rank and the operation.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> settings = [{"lr": 0.1}] if dist.get_rank() == 0 else [None]
        >>> dist.broadcast_object_list(settings, src=0)
        >>> settings
        [{'lr': 0.1}]
        >>> dist.destroy_process_group()
    """
    found = resolve(group, "broadcast_object_list")
    if found is None:
        return
    root = _root(found, 0 if src is None and group_src is None else src, group_src, "broadcast_object_list")
    got = _sent_to_all(found, object_list, root)
    if len(got) != len(object_list):
        raise errors.ValueError(f"broadcast_object_list: {len(got)} objects came for a list of {len(object_list)}")
    object_list[:] = got


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """Gives each member of a group its own object of a list that one of them has. Objects are pickled.

    Args:
        scatter_object_output_list (list): element 0 is overwritten by this member's object.
        scatter_object_input_list (list, optional): on the source one object for each member; ignored elsewhere.
        src (int, optional): the source's rank in the job. Default: 0.
        group (ProcessGroup, optional): the group whose members all make this call; default: all processes of the job.
        group_src (int, optional): the source's rank in the group, in place of `src`.

    Raises:
        ValueError: the output list is empty, or the source's list does not have one object for each member; every
            member raises then.
        DistBackendError: the members' calls, shapes or dtypes differ, a member has ended, or the group's timeout ran
            out; the message names the rank and the operation.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> own = [None]
        >>> dist.scatter_object_list(own, ["part 0"] if dist.get_rank() == 0 else None)
        >>> own
        ['part 0']
        >>> dist.destroy_process_group()
    """
    found = resolve(group, "scatter_object_list")
    if found is None:
        return
    root = _root(found, 0 if src is None and group_src is None else src, group_src, "scatter_object_list")
    if not scatter_object_output_list:
        raise errors.ValueError("scatter_object_list: the output list needs a place")
    given = scatter_object_input_list
    # Said after the exchange, so that others do not wait for it.
    wrong = found.rank() == root and (given is None or len(given) != found.size())
    got = _sent_to_all(found, None if wrong else given, root)
    if got is None:
        raise errors.ValueError(f"scatter_object_list: the source needs a list of {found.size()} objects")
    scatter_object_output_list[0] = got[found.rank()]


def send_object_list(object_list: list[Any], dst: int | None = None, group: Any = None, **more: Any) -> None:
    """Sends a list of objects to another process, which calls `recv_object_list`. Objects are pickled.

    Args:
        object_list (list): objects that pickle takes.
        dst (int, optional): the receiver's rank in the job. Give it or `group_dst=`.
        group (ProcessGroup, optional): the group whose timeout counts; default: all processes of the job.
        more (object): `group_dst`, the receiver's rank in the group; PyTorch's `device` and `use_batch` are ignored.

    Raises:
        ValueError: the rank is this process's own or not in the group.
        DistBackendError: the receiver does not answer within the timeout.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> if dist.get_world_size() > 1 and dist.get_rank() == 0:
        ...     dist.send_object_list([{"epoch": 3}], dst=1)
        >>> dist.destroy_process_group()
    """
    data = _to_tensor(object_list)
    send(lucid.tensor([data.numel()], dtype=lucid.int64), dst, group, group_dst=more.get("group_dst"))
    send(data, dst, group, group_dst=more.get("group_dst"))


def recv_object_list(object_list: list[Any], src: int | None = None, group: Any = None, **more: Any) -> int:
    """Receives a list of objects from another process, which calls `send_object_list`. Objects are unpickled.

    Args:
        object_list (list): as many places as objects are sent; overwritten.
        src (int, optional): the sender's rank in the job. Give it or `group_src=`.
        group (ProcessGroup, optional): the group whose timeout counts; default: all processes of the job.
        more (object): `group_src`, the sender's rank in the group; PyTorch's `device` and `use_batch` are ignored.

    Returns:
        int: the sender's rank in the job.

    Raises:
        NotImplementedError: no source is given.
        ValueError: `object_list` has another length than what was sent.
        DistBackendError: the sender does not answer within the timeout.

    Example:
        >>> import lucid.distributed as dist
        >>> dist.init_process_group(init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        >>> if dist.get_world_size() > 1 and dist.get_rank() == 1:
        ...     dist.recv_object_list([None], src=0)
        >>> dist.destroy_process_group()
    """
    n = lucid.zeros(1, dtype=lucid.int64)
    recv(n, src, group, group_src=more.get("group_src"))
    data = lucid.zeros(int(n.item()), dtype=lucid.uint8)
    rank = recv(data, src, group, group_src=more.get("group_src"))
    got = _to_object(data, data.numel())
    if len(got) != len(object_list):
        raise errors.ValueError(f"recv_object_list: {len(got)} objects came for a list of {len(object_list)}")
    object_list[:] = got
    return rank
