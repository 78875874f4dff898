"""Checkpoints in several files, as Hugging Face's hub has them: safetensors files and an index that says what is
where."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from typing import Any

import lucid
from lucid import Tensor
from lucid.serialization import _atomic
from lucid.serialization._errors import InvalidFileError
from lucid.serialization._safetensors import PathLike, _path, load_safetensors, save_safetensors

_DECIMAL = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS = {**_DECIMAL, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_SUFFIX = ".safetensors"
# An index of more is no index: about a hundred bytes per tensor.
_LARGEST_INDEX = 1 << 28
_SHARD = re.compile(rf"(?P<stem>.+?)(-v\d+)?-(?P<number>\d{{5}})-of-(?P<count>\d{{5}}){re.escape(_SUFFIX)}", re.DOTALL)


def _bytes_of(size: int | str) -> int:
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", size) if isinstance(size, str) else None
    if match is None or match[2].upper() not in _UNITS or float(match[1]) <= 0:
        raise lucid.errors.ValueError(
            f"save_sharded: max_shard_size should be a number of bytes or a text such as '5GB', got {size!r}"
        )
    return max(1, int(float(match[1]) * _UNITS[match[2].upper()]))


def _split(tensors: Mapping[str, Tensor], most: int) -> list[dict[str, Tensor]]:
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if shards[-1] and size + tensor.nbytes > most:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += tensor.nbytes
    return shards


def save_sharded(
    state_dict: Mapping[str, Tensor],
    save_directory: PathLike,
    *,
    max_shard_size: int | str = "5GB",
    filename: str = "model.safetensors",
    metadata: Mapping[str, str] | None = None,
) -> list[str]:
    """Writes tensors to safetensors files of at most `max_shard_size` each, in the order of the dict.

    Args:
        state_dict: Tensors by name.
        save_directory: The folder, made if it does not exist.
        max_shard_size: Bytes, or a text such as `"200MB"` or `"2GiB"`. A tensor that is larger gets a file of its own.
        filename: The name of a single file; several are `model-00001-of-00003.safetensors`, with the index
            `model.safetensors.index.json`.
        metadata: Texts that every file carries.

    Gives the names of the files. However the process ends, the folder holds the old checkpoint or the new one, whole:
    files are written under names that no other has (`model-v2-00001-of-00003.safetensors` where the first choice is
    taken), the index or the single file is replaced in one step, and only then are the files removed that the former
    index of this name lists. Files that another index lists stay, and so does what a killed process left. One process
    at a time may save under a name.
    """
    most = _bytes_of(max_shard_size)
    if not filename.endswith(_SUFFIX) or os.path.basename(filename) != filename:
        raise lucid.errors.ValueError(
            f"save_sharded: filename should be a name that ends in {_SUFFIX}, got {filename!r}"
        )
    for name, tensor in state_dict.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise lucid.errors.TypeError(
                f"save_sharded: expected tensors by name, got {type(tensor).__name__} under {name!r}"
            )
    folder = _path("save_sharded", save_directory)
    os.makedirs(folder, exist_ok=True)
    shards = _split(state_dict, most)
    stem, count = filename.removesuffix(_SUFFIX), len(shards)
    index = os.path.join(folder, f"{filename}.index.json")
    files = [filename] if count == 1 else _unused(folder, stem, count)
    texts = {"format": "pt", **(metadata or {})}
    former = _former(folder, filename, index)
    try:
        for file, shard in zip(files, shards, strict=True):
            save_safetensors(shard, os.path.join(folder, file), texts)
        if count == 1:
            # Until here an index of earlier shards counts, from here on the file.
            _remove(folder, os.path.basename(index))
        else:
            record = {
                "metadata": {"total_size": sum(t.nbytes for t in state_dict.values())},
                "weight_map": {name: file for file, shard in zip(files, shards, strict=True) for name in shard},
            }
            with _atomic.replacing(index) as out:
                out.write((json.dumps(record, indent=2, sort_keys=False) + "\n").encode())
    except BaseException:
        # The single file is replaced in one step and stays; an interrupt may come when the index is the new one.
        listed = _former(folder, filename, index)
        for file in files if count > 1 else ():
            if file not in listed:
                _remove(folder, file)
        raise
    _atomic.sync_folder(folder)
    for old in former:
        if old not in files:
            _remove(folder, old)
    return files


def _remove(folder: str, file: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, file))


def _former(folder: str, filename: str, index: str) -> list[str]:
    """The files of the checkpoint that this name has now: the single one, or the shards that its index lists.

    Other files stay, also where they look like shards: `model-v2` may be another checkpoint's name.
    """
    files = [filename]
    # An index that is none says nothing of what belongs to it.
    with contextlib.suppress(FileNotFoundError, InvalidFileError):
        files += dict.fromkeys(_index(index).values())
    return [file for file in files if os.path.exists(os.path.join(folder, file))]


def _unused(folder: str, stem: str, count: int) -> list[str]:
    """Names for shards, none of which there is a file of."""
    taken, version = set(os.listdir(folder)), 1
    while True:
        mark = stem if version == 1 else f"{stem}-v{version}"
        names = [f"{mark}-{i:05d}-of-{count:05d}{_SUFFIX}" for i in range(1, count + 1)]
        if taken.isdisjoint(names):
            return names
        version += 1


def _index(path: str) -> dict[str, str]:
    """The file of each tensor. Names of files only: an index must not lead out of its folder."""
    try:
        if os.path.getsize(path) > _LARGEST_INDEX:
            raise InvalidFileError(f"{path}: too large for an index")
        with open(path, encoding="utf-8") as file:
            table = json.load(file)["weight_map"]
        if not isinstance(table, dict) or not all(isinstance(f, str) for f in table.values()):
            raise TypeError("weight_map is no table of names")
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise InvalidFileError(f"{path}: not an index of a sharded checkpoint ({type(e).__name__}: {e})") from None
    for file in table.values():
        if os.path.basename(file) != file or file in ("", ".", ".."):
            raise InvalidFileError(f"{path}: the index names {file!r}, which is not a file beside it")
    return table


def _is_whole(name: str) -> bool:
    """Is a file of this name a checkpoint without an index? Shards may be what a killed writer left."""
    shard = _SHARD.fullmatch(name)
    return shard is None or int(shard["count"]) == 1


def load_sharded(path: PathLike, device: Any = None, *, mmap: bool = False) -> dict[str, Tensor]:
    """The tensors of a checkpoint that `save_sharded` or Hugging Face's libraries wrote.

    Args:
        path: The folder, the index, or a single safetensors file.
        device: Where the tensors go; the default device where none is given.
        mmap: As in `load_safetensors`.

    Raises FileNotFoundError where the folder has no checkpoint or a file of the index is missing; `InvalidFileError`
    for an index that is none, that leads out of its folder, or that does not agree with its files.
    """
    found = _path("load_sharded", path)
    if os.path.isdir(found):
        indexes = sorted(n for n in os.listdir(found) if n.endswith(f"{_SUFFIX}.index.json"))
        single = sorted(n for n in os.listdir(found) if n.endswith(_SUFFIX) and _is_whole(n))
        choices = indexes or single
        if len(choices) != 1:
            what = "no checkpoint" if not choices else f"several: {', '.join(choices[:5])}"
            raise lucid.errors.FileNotFoundError(f"{found}: expected one index or safetensors file, found {what}")
        found = os.path.join(found, choices[0])
    if not found.endswith(".json"):
        return load_safetensors(found, device, mmap=mmap)
    if not os.path.exists(found):
        raise lucid.errors.FileNotFoundError(f"{found}: No such file or directory")
    table = _index(found)
    folder = os.path.dirname(found)
    shards = {
        file: load_safetensors(os.path.join(folder, file), device, mmap=mmap) for file in dict.fromkeys(table.values())
    }
    for name, file in table.items():
        if name not in shards[file]:
            raise InvalidFileError(f"{found}: tensor {name!r} is not in {file}, where the index says it is")
    return {name: shards[file][name] for name, file in table.items()}
