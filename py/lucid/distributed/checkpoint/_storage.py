"""Where a checkpoint is, as PyTorch's readers, writers and planners name it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lucid import errors

__all__ = ["DefaultLoadPlanner", "DefaultSavePlanner", "FileSystemReader", "FileSystemWriter"]


class FileSystemWriter:
    """A folder to write to.

    Args:
        path: The folder.
        options: PyTorch's others say how files are laid out, and have to have their defaults.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
    ) -> None:
        if not single_file_per_rank or not overwrite:
            raise errors.NotImplementedError(
                "FileSystemWriter: each rank writes one file, and a checkpoint that is there is replaced"
            )
        self.path = Path(path)


class FileSystemReader:
    """A folder to read from.

    Args:
        path: The folder.
    """

    def __init__(self, path: str | os.PathLike[str], _extension_registry: Any = None) -> None:
        self.path = Path(path)

    def read_metadata(self) -> dict[str, Any]:
        """The tensors by their path, with shapes and dtypes.

        Raises:
            CheckpointException: where the folder is no checkpoint.
        """
        from lucid.distributed.checkpoint import _Reader

        return dict(_Reader(self.path).tensors)


class DefaultSavePlanner:
    """How a state dict is taken apart: nested dicts and lists by their path. There is no other way."""

    def __init__(self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True, **options: Any) -> None:
        if not flatten_state_dict:
            raise errors.NotImplementedError("DefaultSavePlanner: state dicts are always flattened")


class DefaultLoadPlanner(DefaultSavePlanner):
    """How a state dict is filled.

    Args:
        allow_partial_load: Whether tensors that the checkpoint lacks stay as they are, which is not there.
    """

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        allow_partial_load: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(flatten_state_dict, flatten_sharded_tensors)
        if allow_partial_load:
            raise errors.NotImplementedError("DefaultLoadPlanner: give load() the names that the checkpoint has")


def folder(op: str, checkpoint_id: Any, storage: Any, planner: Any) -> Path:
    """The folder that a call names, in one way or the other."""
    if planner is not None and not isinstance(planner, DefaultSavePlanner):
        raise errors.NotImplementedError(f"checkpoint.{op}: planner must be None or a default one")
    if storage is not None and not isinstance(storage, (FileSystemReader, FileSystemWriter)):
        kind = type(storage).__name__
        raise errors.NotImplementedError(f"checkpoint.{op}: FileSystemReader or FileSystemWriter, not {kind}")
    if checkpoint_id is not None:
        return Path(checkpoint_id)
    if storage is None:
        raise errors.ValueError(f"checkpoint.{op}: checkpoint_id, the folder, is missing")
    return Path(storage.path)
