"""Where a checkpoint is, as PyTorch's readers, writers and planners name it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lucid import errors
from lucid._warnings import warn_without_effect

__all__ = ["DefaultLoadPlanner", "DefaultSavePlanner", "FileSystemReader", "FileSystemWriter"]


class FileSystemWriter:
    """The folder that a checkpoint is written to; `save` takes it as `storage_writer`.

    Args:
        path (str or os.PathLike): the folder.
        single_file_per_rank (bool, optional): must be True: each rank writes one file. Default: True.
        sync_files (bool, optional): files are always synced before the checkpoint replaces an older one; False warns.
        thread_count (int, optional): one thread writes; more give one warning.
        per_thread_copy_ahead (int, optional): nothing is copied ahead; another number gives one warning.
        cache_staged_state_dict (bool, optional): nothing is staged; True gives one warning.
        overwrite (bool, optional): must be True: a checkpoint that is there is replaced. Default: True.

    Raises:
        NotImplementedError: `single_file_per_rank` or `overwrite` is False.

    Example:
        >>> from lucid.distributed.checkpoint import FileSystemWriter
        >>> FileSystemWriter("run/step-100").path.name
        'step-100'
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
        warn_without_effect(
            "FileSystemWriter",
            "one thread writes, straight from the tensors",
            thread_count=thread_count != 1,
            per_thread_copy_ahead=per_thread_copy_ahead != 10_000_000,
            cache_staged_state_dict=cache_staged_state_dict,
        )
        warn_without_effect("FileSystemWriter", "files are always synced", sync_files=not sync_files)
        if not single_file_per_rank or not overwrite:
            raise errors.NotImplementedError(
                "FileSystemWriter: each rank writes one file, and a checkpoint that is there is replaced"
            )
        self.path = Path(path)


class FileSystemReader:
    """The folder that a checkpoint is read from; `load` takes it as `storage_reader`.

    Args:
        path (str or os.PathLike): the folder.

    Example:
        >>> from lucid.distributed.checkpoint import FileSystemReader
        >>> FileSystemReader("run/step-100").path.name
        'step-100'
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
    """How `save` takes a state dict apart: each value of nested dicts and lists has its path as name. There is no other
    way.

    Args:
        flatten_state_dict (bool, optional): must be True. Default: True.
        flatten_sharded_tensors (bool, optional): there is one way; False gives one warning.
        options (object): PyTorch's others; ignored.

    Raises:
        NotImplementedError: `flatten_state_dict` is False.

    Example:
        >>> from lucid.distributed.checkpoint import DefaultSavePlanner
        >>> planner = DefaultSavePlanner()
        >>> DefaultSavePlanner(flatten_state_dict=False)
        Traceback (most recent call last):
        ...
        lucid.errors.NotImplementedError: DefaultSavePlanner: state dicts are always flattened
    """

    def __init__(self, flatten_state_dict: bool = True, flatten_sharded_tensors: bool = True, **options: Any) -> None:
        warn_without_effect(
            type(self).__name__,
            "there is one way to take a state dict apart",
            flatten_sharded_tensors=not flatten_sharded_tensors,
            **dict.fromkeys(options, True),
        )
        if not flatten_state_dict:
            raise errors.NotImplementedError("DefaultSavePlanner: state dicts are always flattened")


class DefaultLoadPlanner(DefaultSavePlanner):
    """How `load` fills a state dict: by the path of each value. There is no other way.

    Args:
        flatten_state_dict (bool, optional): must be True. Default: True.
        flatten_sharded_tensors (bool, optional): there is one way; False gives one warning.
        allow_partial_load (bool, optional): must be False: every name that `load` is given has to be in the checkpoint.
        options (object): PyTorch's others; ignored.

    Raises:
        NotImplementedError: `flatten_state_dict` is False, or `allow_partial_load` True.

    Example:
        >>> from lucid.distributed.checkpoint import DefaultLoadPlanner
        >>> planner = DefaultLoadPlanner()
    """

    def __init__(
        self,
        flatten_state_dict: bool = True,
        flatten_sharded_tensors: bool = True,
        allow_partial_load: bool = False,
        **options: Any,
    ) -> None:
        warn_without_effect(
            "DefaultLoadPlanner", "there is one way to fill a state dict", **dict.fromkeys(options, True)
        )
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
