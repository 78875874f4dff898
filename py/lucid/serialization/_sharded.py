"""Checkpoints in several files, as Hugging Face's hub has them: safetensors files and an index that says what is
where."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Mapping
from typing import Any

import lucid
from lucid import Tensor
from lucid.serialization import _atomic
from lucid.serialization._errors import InvalidFileError
from lucid.serialization._load import restored
from lucid.serialization._safetensors import PathLike, _path, load_safetensors, save_safetensors
from lucid.utils import _pytree

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
    obj: Any,
    path: PathLike,
    shard_size_mb: float | None = None,
    *,
    max_shard_size: int | str = "5GB",
    filename: str = "model.safetensors",
    metadata: Mapping[str, str] | None = None,
) -> list[str]:
    """Writes tensors to safetensors files of at most `max_shard_size` each, in the order of the dict.

    Gives the names of the files. However the process ends, the folder holds the old checkpoint or the new one, whole:
    files are written under names that no other has (`model-v2-00001-of-00003.safetensors` where the first choice is
    taken), the index or the single file is replaced in one step, and only then are the files removed that the former
    index of this name lists. Files that another index lists stay, and so does what a killed process left. One process
    at a time may save under a name.

    Args:
        obj (any): Tensors by name, in Hugging Face's layout; or whatever `save` takes, whose tensors go to such
            files and the rest to `checkpoint.lucid` beside them, which `load_sharded` reads too.
        path (PathLike): The folder, made if it does not exist.
        shard_size_mb (float, optional): `max_shard_size` in units of 10^6 bytes.
        max_shard_size (int or str, default: "5GB"): Bytes, or a text such as `"200MB"` or `"2GiB"`. A tensor that
            is larger gets a file of its own.
        filename (str, default: "model.safetensors"): The name of a single file; several are
            `model-00001-of-00003.safetensors`, with the index `model.safetensors.index.json`.
        metadata (Mapping[str, str], optional): Texts that every file carries.

    Returns:
        list of str: the names of the files.

    Raises:
        ValueError: sizes that are not positive.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = lucid.serialization.save_sharded({"x": lucid.ones(2)}, folder)
        ...     print(lucid.serialization.load_sharded(folder))
        {'x': tensor([1., 1.])}
    """
    if shard_size_mb is not None:
        if isinstance(shard_size_mb, bool) or not isinstance(shard_size_mb, int | float) or not shard_size_mb > 0:
            raise lucid.errors.ValueError(
                f"save_sharded: shard_size_mb should be a number above 0, got {shard_size_mb!r}"
            )
        max_shard_size = max(1, int(shard_size_mb * 10**6))
    most = _bytes_of(max_shard_size)
    if not filename.endswith(_SUFFIX) or os.path.basename(filename) != filename:
        raise lucid.errors.ValueError(
            f"save_sharded: filename should be a name that ends in {_SUFFIX}, got {filename!r}"
        )
    folder = _path("save_sharded", path)
    os.makedirs(folder, exist_ok=True)
    if not (isinstance(obj, Mapping) and all(isinstance(k, str) and isinstance(v, Tensor) for k, v in obj.items())):
        return _save_nested(obj, folder, most, metadata)
    state_dict: Mapping[str, Tensor] = obj
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


_NESTED = "checkpoint.lucid"


def _save_nested(obj: Any, folder: str, most: int, metadata: Mapping[str, str] | None) -> list[str]:
    """Any object: its tensors in shards of a name of their own, and last the rest, which names their index."""
    leaves, spec = _pytree.tree_flatten(obj)
    tensors = {f"tensor{i}": leaf for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)}
    stem = f"checkpoint-{secrets.token_hex(4)}"
    former = _nested(folder)
    files: list[str] = []
    if tensors:
        files = save_sharded(tensors, folder, max_shard_size=most, filename=f"{stem}{_SUFFIX}", metadata=metadata)
    rest = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    lucid.save(
        {
            "tensors": stem if tensors else None,
            "count": len(tensors),
            "rest": _pytree.tree_unflatten(rest, spec),
            "places": [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)],
        },
        os.path.join(folder, _NESTED),
    )
    if former is not None:
        index = os.path.join(folder, f"{former}{_SUFFIX}.index.json")
        for old in _former(folder, f"{former}{_SUFFIX}", index):
            _remove(folder, old)
        _remove(folder, os.path.basename(index))
    return [_NESTED, *files]


def _nested(folder: str) -> str | None:
    """What the shards of a folder's nested checkpoint are called, if it has one with tensors."""
    with contextlib.suppress(OSError, RuntimeError, ValueError, KeyError, TypeError):
        stem = lucid.load(os.path.join(folder, _NESTED))["tensors"]
        return stem if isinstance(stem, str) and re.fullmatch(r"checkpoint-[0-9a-f]{8}", stem) else None
    return None


def _load_nested(folder: str, map_location: Any, weights_only: bool, mmap: bool) -> Any:
    found = os.path.join(folder, _NESTED)
    record = lucid.load(found, weights_only=weights_only)
    try:
        stem, places, rest = record["tensors"], record["places"], record["rest"]
        leaves, spec = _pytree.tree_flatten(rest, is_leaf=lambda x: x is None)
        if stem is not None and not re.fullmatch(r"checkpoint-[0-9a-f]{8}", stem):
            raise InvalidFileError(f"{found}: names {stem!r}, which is no checkpoint beside it")
        tensors = {}
        if stem is not None:
            index = os.path.join(folder, f"{stem}{_SUFFIX}.index.json")
            single = os.path.join(folder, f"{stem}{_SUFFIX}")
            tensors = load_sharded(index if os.path.exists(index) else single, map_location, mmap=mmap)
        for place in places:
            leaves[place] = tensors[f"tensor{place}"]
    except (KeyError, TypeError, IndexError, AttributeError) as e:
        raise InvalidFileError(f"{found}: not a sharded checkpoint ({type(e).__name__}: {e})") from None
    return _pytree.tree_unflatten(leaves, spec)


def load_sharded(
    path: PathLike,
    map_location: Any = None,
    weights_only: bool = True,
    *,
    mmap: bool = False,
    device: Any = None,
) -> Any:
    """What `save_sharded` or Hugging Face's libraries wrote: tensors by name, or the object that was saved.

    Raises FileNotFoundError where the folder has no checkpoint or a file of the index is missing; `InvalidFileError`
    for an index that is none, that leads out of its folder, or that does not agree with its files.

    Args:
        path (PathLike): The folder, the index, or a single safetensors file.
        map_location (device, dict or callable, optional): Where the tensors go, as in `load`; the default device
            where none is given. `device=` by another name.
        weights_only (bool, default: True): As in `load`, for what is stored beside the tensors; safetensors files hold
            nothing else.
        mmap (bool, default: False): As in `load_safetensors`.
        device (lucid.device or str, optional): where the result is made; the current default device by default.

    Returns:
        object: tensors by name, or the object that was saved.

    Raises:
        FileError: there is no such file, or a shard is damaged.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = lucid.serialization.save_sharded({"x": lucid.ones(2)}, folder)
        ...     print(lucid.serialization.load_sharded(folder))
        {'x': tensor([1., 1.])}
    """
    if device is not None:
        if map_location is not None:
            raise lucid.errors.TypeError("load_sharded: expected map_location or device, got both")
        map_location = device
    found = _path("load_sharded", path)
    if os.path.isdir(found) and os.path.exists(os.path.join(found, _NESTED)):
        return _load_nested(found, map_location, weights_only, mmap)
    if map_location is not None and not isinstance(map_location, str | lucid.device):
        return restored(load_sharded(found, "cpu", mmap=mmap), map_location)
    device = map_location
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
