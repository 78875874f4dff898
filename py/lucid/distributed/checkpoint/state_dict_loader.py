"""The older names of `load`."""

from __future__ import annotations

from typing import Any

from lucid._absent import missing
from lucid._warnings import warn_without_effect
from lucid.distributed.checkpoint import load as load


def load_state_dict(
    state_dict: dict[str, Any],
    storage_reader: Any,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: Any = None,
) -> None:
    """Fills a state dict in place from a checkpoint: `load` with its older arguments.

    Args:
        state_dict (dict): of the names and shapes that were saved; tensors are overwritten, other values replaced.
        storage_reader (FileSystemReader): the folder.
        process_group (ProcessGroup, optional): the group; default: all processes of the job.
        coordinator_rank (int, optional): another than 0 gives one warning; all ranks read.
        no_dist (bool, optional): whether this process loads alone. Default: False.
        planner (DefaultLoadPlanner, optional): without effect: there is one way to fill a state dict.

    Raises:
        CheckpointException: on every process, where a tensor is missing, cut short or of another shape.

    Example:
        >>> import tempfile
        >>> import lucid.distributed.checkpoint as dcp
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     dcp.save({"epoch": 3}, checkpoint_id=f"{folder}/c", no_dist=True)
        ...     state = {"epoch": 0}
        ...     dcp.load_state_dict(state, dcp.FileSystemReader(f"{folder}/c"), no_dist=True)
        >>> state
        {'epoch': 3}
    """
    warn_without_effect("load_state_dict", "all ranks read", coordinator_rank=coordinator_rank != 0)
    load(state_dict, storage_reader=storage_reader, process_group=process_group, no_dist=no_dist, planner=planner)


def __getattr__(name: str) -> Any:
    if name == "_load_state_dict":
        from lucid.distributed.checkpoint.format_utils import _load_state_dict

        return _load_state_dict
    raise missing(__name__, name)
