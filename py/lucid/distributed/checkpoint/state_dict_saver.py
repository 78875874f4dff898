"""The older names of `save`."""

from __future__ import annotations

from typing import Any

from lucid.distributed.checkpoint import async_save as async_save
from lucid.distributed.checkpoint import save as save


def save_state_dict(
    state_dict: dict[str, Any],
    storage_writer: Any,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: Any = None,
) -> None:
    """`save` with its older arguments."""
    save(state_dict, storage_writer=storage_writer, process_group=process_group, no_dist=no_dist, planner=planner)
