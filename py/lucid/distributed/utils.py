"""`_sync_module_states`: the parameters and buffers of one process on all of them."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import lucid
from lucid.distributed._state import resolve
from lucid.nn.modules.module import Module

__all__: list[str] = []


def _sync_module_states(
    module: Module,
    process_group: Any,
    broadcast_bucket_size: int,
    src: int,
    params_and_buffers_to_ignore: Container[str],
    broadcast_buffers: bool = True,
) -> None:
    """Gives every process of a group the parameters, and buffers, that the process `src` has.

    Args:
        module: the module, of the same shape everywhere.
        process_group: the group; all processes where it is None.
        broadcast_bucket_size: how many bytes travel together in PyTorch; here each tensor is one message.
        src: the rank, of the job, that sends.
        params_and_buffers_to_ignore: names of what stays as it is.
        broadcast_buffers: whether buffers travel, too.
    """
    group = resolve(process_group, "_sync_module_states")
    if group is None or group.size() == 1:
        return
    named = [*module.named_parameters(), *(module.named_buffers() if broadcast_buffers else ())]
    root = group.ranks.index(src)
    with lucid.no_grad():
        for name, t in named:
            if name not in params_and_buffers_to_ignore:
                made = group.native.begin("broadcast", t.detach(), "SUM", root, None, group.timeout).wait()
                if group.rank() != root:
                    t.copy_(made)
