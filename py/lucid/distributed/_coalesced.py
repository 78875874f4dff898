"""`_broadcast_coalesced`: a broadcast of many tensors in few buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lucid
from lucid import Tensor
from lucid.distributed._collectives import broadcast


def _buckets(tensors: Sequence[Tensor], size: int) -> list[list[Tensor]]:
    """Tensors of one dtype and device together, in order, up to a number of bytes; a longer one alone."""
    done: list[list[Tensor]] = []
    filling: dict[Any, list[Tensor]] = {}
    for t in tensors:
        key = (t.dtype, t.device)
        bucket = filling.setdefault(key, [])
        if bucket and sum(x.nbytes for x in bucket) + t.nbytes > size:
            done.append(bucket)
            bucket = filling[key] = []
        bucket.append(t)
    return [*done, *filling.values()]


def _broadcast_coalesced(process_group: Any, tensors: Sequence[Tensor], buffer_size: int, src: int = 0) -> None:
    """Copies the tensors of one member of a group into those of all others.

    Args:
        process_group (ProcessGroup): the group, all of whose members make this call.
        tensors (sequence of Tensor): of any shapes and dtypes, the same on every member.
        buffer_size (int): how many bytes go together.
        src (int, default: 0): the source's rank in the group.
    """
    with lucid.no_grad():
        for bucket in _buckets(tensors, buffer_size):
            flat = lucid.cat([t.detach().reshape(-1) for t in bucket])
            broadcast(flat, group=process_group, group_src=src)
            for t, part in zip(bucket, flat.split([t.numel() for t in bucket]), strict=True):
                t.detach().copy_(part.view(t.shape))
