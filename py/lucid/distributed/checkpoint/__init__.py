"""Checkpoints that many processes write together, and that any number of them read.

A checkpoint is a folder: a file for each process with the parts that it has, and `metadata.json`, which tells where the
parts of each tensor are. It appears whole: it is written under another name, and renamed when every process is done.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.distributed._objects import _gathered, _sent_to_all
from lucid.distributed._state import ProcessGroup, is_initialized, resolve
from lucid.distributed.checkpoint import _storage
from lucid.distributed.checkpoint._storage import DefaultLoadPlanner as DefaultLoadPlanner
from lucid.distributed.checkpoint._storage import DefaultSavePlanner as DefaultSavePlanner
from lucid.distributed.checkpoint._storage import FileSystemReader as FileSystemReader
from lucid.distributed.checkpoint._storage import FileSystemWriter as FileSystemWriter
from lucid.distributed.tensor import DTensor, Shard, chunk_range

__all__ = [
    "AsyncSave",
    "CheckpointException",
    "DefaultLoadPlanner",
    "DefaultSavePlanner",
    "FileSystemReader",
    "FileSystemWriter",
    "async_save",
    "load",
    "load_state_dict",
    "save",
    "save_state_dict",
]

VERSION = 1


class CheckpointException(errors.RuntimeError):
    """A checkpoint that cannot be written, or is not what it should be."""


def _flat(state: Any, prefix: str = "") -> dict[str, Any]:
    """Leaves by their path."""
    if isinstance(state, dict):
        items = [(str(k), v) for k, v in state.items()]
    elif isinstance(state, (list, tuple)):
        items = [(str(i), v) for i, v in enumerate(state)]
    else:
        return {prefix: state}
    out: dict[str, Any] = {}
    for key, value in items:
        path = f"{prefix}/{key}" if prefix else key
        nested = isinstance(value, (dict, list, tuple))
        out.update(_flat(value, path) if not nested or value else {})
    return out


def _sharded(value: Any) -> DTensor | None:
    if isinstance(value, Tensor) and getattr(value, "_sharding", None) is not None:
        return DTensor.of(value)
    return value if isinstance(value, DTensor) else None


def _region(d: DTensor) -> tuple[list[int], list[int]]:
    """Where the local part begins in the whole, and its sizes."""
    begin, sizes = [0] * len(d.shape), list(d.shape)
    for mesh_dim, placement in enumerate(d.placements):
        if isinstance(placement, Shard):
            dim = placement.dim % len(d.shape)
            mesh = d.device_mesh
            begin[dim], sizes[dim] = chunk_range(d.shape[dim], mesh.size(mesh_dim), mesh.get_local_rank(mesh_dim))
    return begin, sizes


def _is_mine(value: Any, rank: int) -> bool:
    """Does this process write the value? Of what several have alike, the first one does."""
    d = _sharded(value)
    if d is None:
        return rank == 0
    at = d.device_mesh.get_coordinate()
    return at is not None and all(i == 0 or isinstance(p, Shard) for i, p in zip(at, d.placements, strict=True))


def _group(process_group: Any, no_dist: bool) -> ProcessGroup | None:
    if no_dist or not is_initialized():
        return None
    return resolve(process_group, "checkpoint")


def _agree(group: ProcessGroup | None, error: str | None, what: str) -> None:
    """An error on every process where one has one."""
    told = _gathered(group, error) if group is not None else [error]
    for rank, why in enumerate(told):
        if why is not None:
            raise CheckpointException(f"{what}: rank {rank}: {why}")


def _snapshot(state_dict: dict[str, Any], rank: int) -> tuple[dict[str, Tensor], dict[str, Any], dict[str, Any]]:
    """Copies of the tensors that this process writes, where they belong, and the other values."""
    tensors: dict[str, Tensor] = {}
    places: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for path, value in _flat(state_dict).items():
        if not _is_mine(value, rank):
            continue
        d = _sharded(value)
        if d is not None:
            begin, sizes = _region(d)
            tensors[path] = d.to_local().detach().cpu().clone()
            places[path] = {"shape": list(d.shape), "begin": begin, "sizes": sizes, "dtype": str(d.dtype)}
        elif isinstance(value, Tensor):
            tensors[path] = value.detach().cpu().clone()
            shape = list(value.shape)
            places[path] = {"shape": shape, "begin": [0] * len(shape), "sizes": shape, "dtype": str(value.dtype)}
        else:
            values[path] = value
    return tensors, places, values


def _write(snapshot: Any, group: ProcessGroup | None, target: Path) -> None:
    rank = group.rank() if group is not None else 0
    tensors, places, values = snapshot
    name = secrets.token_hex(6)
    name = _sent_to_all(group, name, 0) if group is not None else name
    folder = target.with_name(f".{target.name}.{name}.partial")
    error = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if tensors:
            lucid.save(tensors, folder / f"rank{rank}.pt")
    except Exception as e:
        error = f"{type(e).__name__}: {e}"
    try:
        _agree(group, error, f"save('{target}')")
        everywhere = _gathered(group, places) if group is not None else [places]
        if rank == 0:
            try:
                _finish(folder, target, everywhere, values)
            except Exception as e:
                error = f"{type(e).__name__}: {e}"
        _agree(group, error, f"save('{target}')")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _finish(folder: Path, target: Path, everywhere: list[Any], values: dict[str, Any]) -> None:
    lucid.save(values, folder / "values.pt")
    parts: dict[str, Any] = {}
    for rank, places in enumerate(everywhere):
        for path, place in places.items():
            entry = parts.setdefault(path, {"shape": place["shape"], "dtype": place["dtype"], "parts": []})
            entry["parts"].append({"file": f"rank{rank}.pt", "begin": place["begin"], "sizes": place["sizes"]})
    told = {"version": VERSION, "world_size": len(everywhere), "tensors": parts}
    with open(folder / "metadata.json", "w") as file:
        json.dump(told, file)
        file.flush()
        os.fsync(file.fileno())
    former = target.with_name(f".{target.name}.{secrets.token_hex(6)}.former")
    if target.exists():
        target.rename(former)
    try:
        folder.rename(target)
    except OSError:
        if former.exists():
            former.rename(target)
        raise
    shutil.rmtree(former, ignore_errors=True)


def save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: Any = None,
    planner: Any = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> None:
    """Writes a state dict to a folder, of the processes of a group together: each writes its own shards.

    Args:
        state_dict (dict): nested dicts and lists of tensors, sharded parameters, `DTensor`s and other values. What is
            not sharded is the same on every process, and rank 0 writes it.
        checkpoint_id (str or os.PathLike): the folder, which all processes see. A checkpoint that is there is replaced
            when all have written.
        storage_writer (FileSystemWriter, optional): names the folder in place of `checkpoint_id`.
        planner (DefaultSavePlanner, optional): without effect: there is one way to take a state dict apart.
        process_group (ProcessGroup, optional): the group; default: all processes of the job.
        no_dist (bool, optional): whether this process saves alone. Default: False.

    Raises:
        ValueError: no folder is named.
        CheckpointException: on every process, where one of them cannot write. The folder then is as it was before.

    Example:
        >>> import tempfile
        >>> import lucid.distributed.checkpoint as dcp
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     dcp.save({"weight": lucid.ones(2, 2), "epoch": 3}, checkpoint_id=f"{folder}/c", no_dist=True)
        ...     state = {"weight": lucid.zeros(2, 2), "epoch": 0}
        ...     dcp.load(state, checkpoint_id=f"{folder}/c", no_dist=True)
        >>> state["epoch"], state["weight"].sum().item()
        (3, 4.0)
    """
    target = _storage.folder("save", checkpoint_id, storage_writer, planner)
    group = _group(process_group, no_dist)
    _write(_snapshot(state_dict, group.rank() if group is not None else 0), group, target)


class AsyncSave:
    """A save that runs in a thread; `async_save` makes it.

    Args:
        run (callable): what the thread calls, without arguments.

    Example:
        >>> from lucid.distributed.checkpoint import AsyncSave
        >>> saving = AsyncSave(lambda: None)
        >>> saving.result()  # waits, and raises what the save raised
    """

    def __init__(self, run: Callable[[], None]) -> None:
        self._error: BaseException | None = None
        self._run = run
        self._thread = threading.Thread(target=self._go, name="lucid-async-save")
        self._thread.start()

    def _go(self) -> None:
        try:
            self._run()
        except BaseException as e:
            self._error = e

    def result(self, timeout: float | None = None) -> None:
        """Waits until the checkpoint is there; raises what went wrong."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise errors.RuntimeError(f"async_save: not done in {timeout} s")
        if self._error is not None:
            raise self._error

    wait = result

    def done(self) -> bool:
        """Is it over?"""
        return not self._thread.is_alive()


def async_save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: Any = None,
    planner: Any = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> AsyncSave:
    """Writes a state dict as `save` does, in a thread, from copies that are made before it returns.

    Messages go through a group of their own, so that training may go on. Save one checkpoint at a time.

    Args:
        state_dict (dict): as of `save`; its tensors may change as soon as this returns.
        checkpoint_id (str or os.PathLike): the folder, which all processes see.
        storage_writer (FileSystemWriter, optional): names the folder in place of `checkpoint_id`.
        planner (DefaultSavePlanner, optional): without effect: there is one way to take a state dict apart.
        process_group (ProcessGroup, optional): the group; default: all processes of the job.
        no_dist (bool, optional): whether this process saves alone. Default: False.

    Returns:
        AsyncSave: `result()` waits until the folder is written, and raises `CheckpointException` where it is not.

    Raises:
        ValueError: no folder is named.

    Example:
        >>> import tempfile
        >>> import lucid.distributed.checkpoint as dcp
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     saving = dcp.async_save({"epoch": 3}, checkpoint_id=f"{folder}/c", no_dist=True)
        ...     saving.result()
    """
    from lucid.distributed._groups import new_group

    target = _storage.folder("async_save", checkpoint_id, storage_writer, planner)
    group = _group(process_group, no_dist)
    if group is not None:
        # Kept with the group that it is of.
        apart = group.__dict__.get("_saving")
        if apart is None:
            apart = group.__dict__["_saving"] = new_group(group.ranks)
        group = apart
    snapshot = _snapshot(state_dict, group.rank() if group is not None else 0)
    return AsyncSave(lambda: _write(snapshot, group, target))


class _Reader:
    """The parts of a checkpoint's tensors."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            told = json.loads((folder / "metadata.json").read_text())
        except (OSError, ValueError) as e:
            raise CheckpointException(f"'{folder}' is no checkpoint: {e}") from None
        if told.get("version") != VERSION:
            raise CheckpointException(f"'{folder}' is of version {told.get('version')}, this reads version {VERSION}")
        self.tensors: dict[str, Any] = told["tensors"]
        self.files: dict[str, Any] = {}

    def file(self, name: str) -> Any:
        if name not in self.files:
            if Path(name).name != name:
                raise CheckpointException(f"'{self.folder}' names a file outside of it: '{name}'")
            self.files[name] = lucid.load(self.folder / name, map_location="cpu", mmap=True, weights_only=True)
        return self.files[name]

    def read(self, path: str, shape: list[int], begin: list[int], into: Tensor) -> None:
        """Fills `into` with what begins at `begin` of the whole tensor."""
        entry = self.tensors.get(path)
        if entry is None:
            raise CheckpointException(f"'{self.folder}' has no '{path}'")
        if entry["shape"] != shape:
            raise CheckpointException(f"'{path}' has shape {entry['shape']} in '{self.folder}', and {shape} here")
        filled = 0
        for part in entry["parts"]:
            there, size = part["begin"], part["sizes"]
            low = [max(a, b) for a, b in zip(begin, there, strict=True)]
            high = [min(a + n, b + m) for a, n, b, m in zip(begin, into.shape, there, size, strict=True)]
            if any(h <= lo for lo, h in zip(low, high, strict=True)):
                continue
            source = self.file(part["file"])[path]
            here = tuple(slice(lo - a, h - a) for lo, h, a in zip(low, high, begin, strict=True))
            from_ = tuple(slice(lo - b, h - b) for lo, h, b in zip(low, high, there, strict=True))
            # Without dimensions there is nothing to slice.
            into[here].copy_(source[from_]) if here else into.copy_(source)
            count = 1
            for lo, h in zip(low, high, strict=True):
                count *= h - lo
            filled += count
        if filled != into.numel():
            raise CheckpointException(f"'{path}' has {filled} of {into.numel()} elements in '{self.folder}'")


def load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_reader: Any = None,
    planner: Any = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> None:
    """Fills a state dict from a folder, in place. Each process reads what its tensors hold, whoever wrote it.

    Args:
        state_dict (dict): of the names and whole shapes that were saved; the number of processes and the placements may
            differ. Tensors are overwritten, other values replaced.
        checkpoint_id (str or os.PathLike): the folder that `save` has written.
        storage_reader (FileSystemReader, optional): names the folder in place of `checkpoint_id`.
        planner (DefaultLoadPlanner, optional): without effect: there is one way to fill a state dict.
        process_group (ProcessGroup, optional): the group; default: all processes of the job.
        no_dist (bool, optional): whether this process loads alone. Default: False.

    Raises:
        ValueError: no folder is named.
        CheckpointException: on every process, where a tensor is missing, cut short or of another shape.

    Example:
        >>> import tempfile
        >>> import lucid.distributed.checkpoint as dcp
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     dcp.save({"weight": lucid.ones(2)}, checkpoint_id=f"{folder}/c", no_dist=True)
        ...     state = {"weight": lucid.zeros(2)}
        ...     dcp.load(state, checkpoint_id=f"{folder}/c", no_dist=True)
        >>> state
        {'weight': tensor([1., 1.])}
    """
    target = _storage.folder("load", checkpoint_id, storage_reader, planner)
    group = _group(process_group, no_dist)
    error: str | None = None
    try:
        reader = _Reader(target)
        values = lucid.load(target / "values.pt", map_location="cpu", weights_only=True)
        with lucid.no_grad():
            _fill(state_dict, reader, values, "")
    except Exception as e:
        error = str(e)
    _agree(group, error, f"load('{target}')")


def _fill(state: Any, reader: _Reader, values: dict[str, Any], prefix: str) -> None:
    items = state.items() if isinstance(state, dict) else enumerate(state)
    for key, value in list(items):
        path = f"{prefix}/{key}" if prefix else str(key)
        d = _sharded(value)
        if d is not None:
            reader.read(path, list(d.shape), _region(d)[0], d.to_local().detach())
        elif isinstance(value, Tensor):
            reader.read(path, list(value.shape), [0] * value.ndim, value.detach())
        elif isinstance(value, (dict, list)) and value:
            _fill(value, reader, values, path)
        elif isinstance(value, tuple):
            _fill(list(value), reader, values, path)
        elif isinstance(state, (dict, list)) and path in values:
            state[key] = values[path]


def __getattr__(name: str) -> Any:
    # Their files import this one.
    if name == "save_state_dict":
        from lucid.distributed.checkpoint.state_dict_saver import save_state_dict

        return save_state_dict
    if name == "load_state_dict":
        from lucid.distributed.checkpoint.state_dict_loader import load_state_dict

        return load_state_dict
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
