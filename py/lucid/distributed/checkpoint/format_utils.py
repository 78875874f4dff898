"""Between checkpoints in folders and files of `lucid.save`. One process does it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lucid
from lucid.distributed.checkpoint import _Reader, load, save

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
        dcp_checkpoint_dir: The folder that `save` has written.
        torch_save_path: The file.

    Raises:
        CheckpointException: where the folder is no checkpoint, or a part is missing.
    """
    folder = Path(dcp_checkpoint_dir)
    state: dict[str, Any] = {}
    for path, entry in _Reader(folder).tensors.items():
        dtype = getattr(lucid, entry["dtype"].rpartition(".")[2])
        _put(state, path, lucid.zeros(entry["shape"], dtype=dtype, device="cpu"))
    load(state, checkpoint_id=folder, no_dist=True)
    for path, value in lucid.load(folder / "values.pt", map_location="cpu", weights_only=True).items():
        _put(state, path, value)
    lucid.save(state, torch_save_path)


def torch_save_to_dcp(torch_save_path: str | os.PathLike[str], dcp_checkpoint_dir: str | os.PathLike[str]) -> None:
    """Writes what is in a file of `lucid.save` or `torch.save` as a checkpoint of one process.

    Args:
        torch_save_path: The file.
        dcp_checkpoint_dir: The folder.
    """
    state = lucid.load(torch_save_path, map_location="cpu", weights_only=True)
    save(state, checkpoint_id=dcp_checkpoint_dir, no_dist=True)
