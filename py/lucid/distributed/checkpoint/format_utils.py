"""Between checkpoints in folders and files of `lucid.save`. One process does it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lucid
from lucid.distributed.checkpoint import DefaultLoadPlanner, _Reader, _storage, load, save
from lucid.distributed.checkpoint.state_dict_loader import load_state_dict

__all__ = ["dcp_to_torch_save", "torch_save_to_dcp"]


def _put(state: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split("/")
    at = state
    for name in parents:
        at = at.setdefault(name, {})
    at[last] = value


def dcp_to_torch_save(dcp_checkpoint_dir: str | os.PathLike[str], torch_save_path: str | os.PathLike[str]) -> None:
    """Writes a checkpoint's whole tensors and values into one file, which `lucid.load` and `torch.load` read.

    Lists come out as dicts by number.

    Args:
        dcp_checkpoint_dir (str or os.PathLike): the folder that `save` has written.
        torch_save_path (str or os.PathLike): the file to write.

    Raises:
        CheckpointException: the folder is no checkpoint, or a part of it is missing.

    Example:
        >>> import tempfile
        >>> import lucid.distributed.checkpoint as dcp
        >>> from lucid.distributed.checkpoint.format_utils import dcp_to_torch_save
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     dcp.save({"weight": lucid.ones(2)}, checkpoint_id=f"{folder}/c", no_dist=True)
        ...     dcp_to_torch_save(f"{folder}/c", f"{folder}/whole.pt")
        ...     lucid.load(f"{folder}/whole.pt")
        {'weight': tensor([1., 1.])}
    """
    state: dict[str, Any] = {}
    _fill(state, Path(dcp_checkpoint_dir))
    lucid.save(state, torch_save_path)


def _fill(state: dict[str, Any], folder: Path) -> None:
    """Puts all that a checkpoint has into an empty state dict."""
    for path, entry in _Reader(folder).tensors.items():
        dtype = getattr(lucid, entry["dtype"].rpartition(".")[2])
        _put(state, path, lucid.zeros(entry["shape"], dtype=dtype, device="cpu"))
    load(state, checkpoint_id=folder, no_dist=True)
    for path, value in lucid.load(folder / "values.pt", map_location="cpu", weights_only=True).items():
        _put(state, path, value)


class _EmptyStateDictLoadPlanner(DefaultLoadPlanner):
    """The plan by which `_load_state_dict` puts all that a checkpoint has into an empty state dict."""


def _load_state_dict(
    state_dict: dict[str, Any],
    storage_reader: Any,
    process_group: Any = None,
    coordinator_rank: int = 0,
    no_dist: bool = False,
    planner: Any = None,
) -> None:
    """`load_state_dict`, or with the planner of empty state dicts all of the checkpoint."""
    if isinstance(planner, _EmptyStateDictLoadPlanner):
        _fill(state_dict, _storage.folder("_load_state_dict", None, storage_reader, None))
        return
    load_state_dict(state_dict, storage_reader, process_group, coordinator_rank, no_dist, planner)


def torch_save_to_dcp(torch_save_path: str | os.PathLike[str], dcp_checkpoint_dir: str | os.PathLike[str]) -> None:
    """Writes what is in a file of `lucid.save` or `torch.save` as a checkpoint of one process.

    Args:
        torch_save_path (str or os.PathLike): the file to read; it is loaded without running code of it.
        dcp_checkpoint_dir (str or os.PathLike): the folder to write.

    Raises:
        CheckpointException: the folder cannot be written.

    Example:
        >>> import tempfile
        >>> import lucid.distributed.checkpoint as dcp
        >>> from lucid.distributed.checkpoint.format_utils import torch_save_to_dcp
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     lucid.save({"weight": lucid.ones(2)}, f"{folder}/whole.pt")
        ...     torch_save_to_dcp(f"{folder}/whole.pt", f"{folder}/c")
        ...     state = {"weight": lucid.zeros(2)}
        ...     dcp.load(state, checkpoint_id=f"{folder}/c", no_dist=True)
        >>> state["weight"]
        tensor([1., 1.])
    """
    state = lucid.load(torch_save_path, map_location="cpu", weights_only=True)
    save(state, checkpoint_id=dcp_checkpoint_dir, no_dist=True)
