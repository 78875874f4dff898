"""The older names of `save`."""

from __future__ import annotations

from typing import Any

from lucid._warnings import warn_without_effect
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
    """Writes a state dict to a folder: `save` with its older arguments.

    Args:
        state_dict (dict): nested dicts and lists of tensors, `DTensor`s and other values.
        storage_writer (FileSystemWriter): the folder.
        process_group (ProcessGroup, optional): the group; default: all processes of the job.
        coordinator_rank (int, optional): another than 0 gives one warning; rank 0 writes what is not sharded.
        no_dist (bool, optional): whether this process saves alone. Default: False.
        planner (DefaultSavePlanner, optional): without effect: there is one way to take a state dict apart.

    Raises:
        CheckpointException: on every process, where one of them cannot write.

    Example:
        >>> import tempfile
        >>> import lucid.distributed.checkpoint as dcp
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     dcp.save_state_dict({"epoch": 3}, dcp.FileSystemWriter(f"{folder}/c"), no_dist=True)
    """
    warn_without_effect("save_state_dict", "rank 0 writes what is not sharded", coordinator_rank=coordinator_rank != 0)
    save(state_dict, storage_writer=storage_writer, process_group=process_group, no_dist=no_dist, planner=planner)
