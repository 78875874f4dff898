"""Objects between processes: pickled, and sent as bytes. Unpickling runs what the sender says: use it within one
job."""

from __future__ import annotations

import pickle
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.distributed._collectives import _root, recv, send
from lucid.distributed._state import ProcessGroup, resolve


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
    """Every member's object into every member's list, which has as many places as there are members."""
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
    """Every member's object into the list of rank `dst` (default 0); others give no list."""
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
    """Overwrites each member's list by that of rank `src` (default 0); the lists are of one length."""
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
    """Element 0 of each member's output list becomes its own of the list of rank `src` (default 0)."""
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
    """Sends a list of objects to a rank, which calls `recv_object_list`."""
    data = _to_tensor(object_list)
    send(lucid.tensor([data.numel()], dtype=lucid.int64), dst, group, group_dst=more.get("group_dst"))
    send(data, dst, group, group_dst=more.get("group_dst"))


def recv_object_list(object_list: list[Any], src: int | None = None, group: Any = None, **more: Any) -> int:
    """Receives a list of objects into one of the same length; returns the source's rank."""
    n = lucid.zeros(1, dtype=lucid.int64)
    recv(n, src, group, group_src=more.get("group_src"))
    data = lucid.zeros(int(n.item()), dtype=lucid.uint8)
    rank = recv(data, src, group, group_src=more.get("group_src"))
    got = _to_object(data, data.numel())
    if len(got) != len(object_list):
        raise errors.ValueError(f"recv_object_list: {len(got)} objects came for a list of {len(object_list)}")
    object_list[:] = got
    return rank
