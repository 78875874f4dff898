"""Reading checkpoints: the zip archives that `save` and `torch.save` write, and PyTorch's older format without a zip.

Files are not trusted: the archive is checked by `_zip`, the pickle is run by `_unpickle`, and tensors must be inside
their storages. Memory use is bounded by the size of the file.
"""

from __future__ import annotations

import array
import io
import json
import os
import pickle
import struct
import sys
from collections.abc import Callable
from typing import Any

import lucid
from lucid import Tensor
from lucid._C import dtype as DType
from lucid._guards import active_fake_mode
from lucid._warnings import warn
from lucid.serialization import _migrations, _rebuild, _save, _zip
from lucid.serialization._errors import InvalidFileError, UnpicklingError
from lucid.serialization._options import options
from lucid.serialization._rebuild import Storage, StorageType
from lucid.serialization._safetensors import load_safetensors
from lucid.serialization._source import FileSource, MappedSource
from lucid.serialization._unpickle import Unpickler

_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_PROTOCOL = 1001
# The most pickle that is read at once of a file without a zip, whose pickles do not tell their sizes.
_UNSAFE = (
    "lucid.load with weights_only=False runs whatever code the file's pickle names. Use it only with files that you "
    "trust, or allow the classes it needs by lucid.serialization.add_safe_globals."
)


def _device_of(location: str) -> lucid.device:
    """The device that a storage was on, by PyTorch's tag for it."""
    name, _, index = location.partition(":")
    if name not in ("cpu", "gpu", "cuda", "mps", "metal", "mlx"):
        raise lucid.errors.RuntimeError(
            f"load: don't know how to restore data tagged with {location!r}; map it with map_location='cpu'"
        )
    if index not in ("", "0"):
        try:
            return lucid.device(location)
        except RuntimeError as e:
            why = f"load: the data was on {location} ({e}); map it with map_location='cpu'"
            raise lucid.errors.RuntimeError(why) from None
    return lucid.device(name)


Restore = Callable[[Tensor, str], Tensor]


def _restorer(map_location: Any) -> tuple[Callable[[str], lucid.device | None], Restore | None]:
    """Where storages go, by their tag; and what to call with each where that is a function's business."""
    if map_location is None:
        return _device_of, None
    if isinstance(map_location, dict):
        table = {str(k): v for k, v in map_location.items()}

        def by_table(location: str) -> lucid.device:
            target = table.get(location, location)
            return target if isinstance(target, lucid.device) else _device_of(str(target))

        return by_table, None
    if isinstance(map_location, str | lucid.device):
        target = map_location if isinstance(map_location, lucid.device) else _device_of(map_location)
        return lambda location: target, None
    if callable(map_location):
        return lambda location: None, map_location
    raise lucid.errors.TypeError(
        f"load: map_location must be a device, a string, a dict or a function, got {type(map_location).__name__}"
    )


def _native(data: Any, dtype: DType, order: str) -> Any:
    """The bytes in this machine's order."""
    size = dtype.to_real().itemsize
    if order == sys.byteorder or size == 1:
        return data
    words = array.array({2: "H", 4: "I", 8: "Q"}[size], bytes(data))
    words.byteswap()
    return words.tobytes()


def _make(data: Any, dtype: DType, numel: int, size: list[int] | None, device: lucid.device | None) -> Tensor:
    """A tensor of these bytes; on the CPU it shares them where they are writable."""
    # A byte of a file is no bool until it has been looked at.
    shared = isinstance(data, memoryview) and dtype is not lucid.bool
    if shared and numel and (device is None or device.type == "cpu"):
        made = lucid.frombuffer(data, dtype=dtype, count=numel)
        return made if size is None else made.reshape(size)
    return lucid._C._from_bytes(bytes(data), [numel] if size is None else size, dtype, device)


def _fake(mode: Any, dtype: DType, size: list[int], device: lucid.device | None) -> Tensor:
    """A fake tensor in the place of what a file has."""
    from lucid._subclasses.fake_tensor import FakeTensor

    with lucid._C.DisableTorchFunction():
        elem = lucid.empty(size, dtype=dtype, device="meta")
    return FakeTensor(mode, elem, device or "cpu")


class _Archive:
    """A checkpoint in a zip archive."""

    def __init__(self, source: Any, mapped: bool, map_location: Any) -> None:
        self.source = source
        self.mapped = mapped
        self.mode = active_fake_mode()
        self.entries = _zip.read_entries(source)
        roots = [n.removesuffix("/data.pkl") for n in self.entries if n.endswith("/data.pkl") and n.count("/") == 1]
        if len(roots) != 1:
            if any(n.endswith("/constants.pkl") for n in self.entries):
                raise InvalidFileError("not a readable checkpoint: it is a TorchScript archive")
            raise InvalidFileError("not a readable checkpoint: the archive has no data.pkl")
        self.root = roots[0]
        self.device_for, self.restore = _restorer(map_location)
        self.storages: dict[str, Storage] = {}
        order = self.text("byteorder", "little")
        if order not in ("little", "big"):
            raise InvalidFileError(f"not a readable checkpoint: unknown byte order {order[:20]!r}")
        self.order = order
        #: The versions of ops that are not 1; None in files of other programs, to which no migration applies.
        self.ops: dict[str, int] | None = None
        self.on_gpu = self._own()
        if f"{self.root}/constants.pkl" in self.entries:
            raise InvalidFileError("not a readable checkpoint: it is a TorchScript archive")

    def text(self, name: str, default: str) -> str:
        entry = self.entries.get(f"{self.root}/{name}")
        if entry is None:
            return default
        if entry.size > 1 << 24:
            raise InvalidFileError(f"not a readable checkpoint: the record {name} is {entry.size} bytes long")
        return bytes(self.read(entry)).decode(errors="replace").strip()

    def read(self, entry: _zip.Entry) -> Any:
        data = self.source.read(entry.start, entry.size)
        if not self.mapped:
            _zip.check(entry, data)
        return data

    def _own(self) -> set[str]:
        """The storages that were on the GPU, from the record that `save` adds; migrates what older versions wrote."""
        text = self.text("lucid", "")
        if not text:
            return set()
        try:
            record = json.loads(text)
            schema = record["schema"]
            if type(schema) is not int or schema < 1:
                raise ValueError(f"schema {schema!r}")
            if schema > _save.SCHEMA:
                raise InvalidFileError(
                    f"the checkpoint was written by a newer version (schema {schema}, this reads {_save.SCHEMA}): "
                    f"lucid {record.get('lucid', '?')}"
                )
            ops = record.get("ops", {})
            if not isinstance(ops, dict) or not all(type(v) is int and v > 0 for v in ops.values()):
                raise TypeError("ops is no table of versions")
            self.ops = ops
            return {str(k) for k in record["gpu"]}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
            raise InvalidFileError(f"not a readable checkpoint: its record `lucid` is damaged ({e})") from None

    def storage(self, kind: StorageType, key: str, location: str, numel: int) -> Storage:
        entry = self.entries.get(f"{self.root}/data/{key}")
        if entry is None:
            raise InvalidFileError(f"not a readable checkpoint: it has no storage {key!r}")
        size = numel * (kind.dtype.itemsize if kind.dtype is not None else 1)
        if size != entry.size:
            raise InvalidFileError(
                f"not a readable checkpoint: storage {key} should have {size} bytes and has {entry.size}"
            )
        tag = "gpu" if key in self.on_gpu else location

        def read(dtype: DType, count: int, size: list[int] | None) -> Tensor:
            if self.mode is not None:
                if self.restore is not None:
                    raise lucid.errors.NotImplementedError("load: map_location is no function under a FakeTensorMode")
                return _fake(self.mode, dtype, [count] if size is None else size, self.device_for(tag))
            if options.skip:
                made = lucid.zeros([count] if size is None else size, dtype=dtype, device=self.device_for(tag))
                return made if self.restore is None else _restored(self.restore, made, tag)
            data = _native(self.read(entry), dtype, self.order)
            if self.mapped and entry.start % dtype.itemsize:
                # An archive of another program: not aligned, so that its memory cannot be mapped.
                data = bytes(data)
            if self.restore is None:
                return _make(data, dtype, count, size, self.device_for(tag))
            made = _make(data, dtype, count, None, None)
            return _restored(self.restore, made, tag)

        return Storage(numel, kind.dtype, read)

    def persistent(self, pid: Any) -> Storage:
        kind, key, location, numel = _storage_id(pid, 5)
        found = self.storages.get(key)
        if found is None:
            found = self.storages[key] = self.storage(kind, key, location, numel)
        elif found.dtype is not None and kind.dtype is not None and found.dtype is not kind.dtype:
            raise UnpicklingError(f"storage {key} has two dtypes")
        return found

    def pickled(self) -> bytes:
        return bytes(self.read(self.entries[f"{self.root}/data.pkl"]))


def _restored(restore: Restore, made: Tensor, tag: str) -> Tensor:
    found = restore(made, tag)
    if found is None:
        # As in PyTorch, a function may leave a storage to the default.
        found = made.to(_device_of(tag))
    if not isinstance(found, Tensor) or found.dim() != 1 or found.numel() != made.numel():
        raise lucid.errors.TypeError("load: map_location must return its tensor, moved or as it is, or None")
    return found


def _storage_id(pid: Any, length: int) -> tuple[StorageType, str, str, int]:
    if type(pid) is not tuple or len(pid) != length or pid[0] != "storage":
        raise UnpicklingError("Only persistent_load of storage is allowed")
    _, kind, key, location, numel = pid[:5]
    if type(kind) is not StorageType:
        raise UnpicklingError("a storage has something else than a storage class")
    if kind.dtype is None and kind.name != "UntypedStorage":
        raise UnpicklingError(f"torch.{kind.name} holds a dtype that does not exist here")
    if type(key) is not str or type(location) is not str:
        raise UnpicklingError("a storage is named by something else than strings")
    if type(numel) is not int or not 0 <= numel < 2**60:
        raise UnpicklingError("a storage's size is not a non-negative integer")
    return kind, key, location, numel


def _unpickler(data: bytes, persistent: Callable[[Any], Any], size: int) -> Unpickler:
    return Unpickler(data, _rebuild.ALLOWED, persistent, _rebuild.BUILDERS, size)


class _Trusting(pickle.Unpickler):
    """The standard unpickler for files that the user vouches for; PyTorch's names still mean what they mean here."""

    def __init__(self, file: Any, persistent: Callable[[Any], Any]) -> None:
        super().__init__(file)
        self._persistent = persistent

    def find_class(self, module: str, name: str) -> Any:
        found = _rebuild.ALLOWED.get(f"{module}.{name}")
        if found is _rebuild.from_type:
            return _rebuild.from_any_type
        if found is not None and module.split(".")[0] in ("torch", "lucid"):
            return found
        return super().find_class(module, name)

    def persistent_load(self, pid: Any) -> Any:
        return self._persistent(pid)


def _check_whole(what: str) -> None:
    if options.skip or active_fake_mode() is not None:
        raise lucid.errors.NotImplementedError(
            f"load: {what} are read whole, not under skip_data or a FakeTensorMode; save the object again"
        )


class _Legacy:
    """PyTorch's format before 1.6: pickles one after the other, then the storages' bytes."""

    def __init__(self, source: Any, weights_only: bool, map_location: Any) -> None:
        _check_whole("files from before PyTorch 1.6")
        self.source = source
        self.weights_only = weights_only
        self.device_for, self.restore = _restorer(map_location)
        self.storages: dict[str, Storage] = {}
        self.kinds: dict[str, tuple[DType, int]] = {}
        self.made: dict[str, Tensor] = {}
        self.bytes = 0

    def load(self) -> Any:
        # The pickles do not tell their lengths. They are read whole, once: a copy of the file at most.
        data = bytes(self.source.read(0, self.source.size))
        safe = _unpickler(data, self.persistent, len(data))
        try:
            first = safe.load()
        except UnpicklingError as e:
            if data.startswith(b"\x80"):
                raise
            # No pickle of the last twenty years: most likely not one at all.
            raise UnpicklingError(
                f"not a readable checkpoint: it begins with {data[:8]!r}, and is neither a zip archive nor a pickle "
                f"({e})"
            ) from None
        if first != _MAGIC:
            raise InvalidFileError("not a readable checkpoint: neither a zip archive nor PyTorch's older format")
        version = safe.load(safe.at)
        if version != _LEGACY_PROTOCOL:
            raise InvalidFileError(f"not a readable checkpoint: unknown protocol version {version!r}"[:200])
        system = safe.load(safe.at)
        if type(system) is not dict or system.get("little_endian") is not True:
            raise InvalidFileError("not a readable checkpoint: PyTorch's older format of a big-endian machine")
        if self.weights_only:
            result = safe.load(safe.at)
        else:
            stream = io.BytesIO(data)
            stream.seek(safe.at)
            result = _Trusting(stream, self.persistent).load()
            safe.at = stream.tell()
        result = _typed(result)
        keys = safe.load(safe.at)
        if type(keys) is not list or not all(type(k) is str for k in keys):
            raise InvalidFileError("not a readable checkpoint: its storages are not listed")
        self._fill(data, safe.at, keys)
        return result

    def persistent(self, pid: Any) -> Any:
        if type(pid) is tuple and len(pid) > 1 and pid[0] == "module":
            return pid[1]
        kind, key, location, numel = _storage_id(pid, 6)
        view = pid[5]
        if key not in self.storages:
            if kind.dtype is None:
                raise UnpicklingError("untyped storages do not exist in PyTorch's older format")
            self.kinds[key] = (kind.dtype, numel)
            self.storages[key] = Storage(numel, kind.dtype, self._later(key, location))
        root = self.storages[key]
        if kind.dtype is not root.dtype:
            raise UnpicklingError(f"storage {key} has two dtypes")
        if view is None:
            return root
        if type(view) is not tuple or len(view) != 3 or any(type(n) is not int or n < 0 for n in view[1:]):
            raise UnpicklingError("a view of a storage is malformed")
        _, start, count = view
        _rebuild.check_layout(root.numel, start, [count], [1])
        return Storage(count, root.dtype, lambda dtype, n, size: root.show(dtype, start, [n], [1]))

    def _later(self, key: str, location: str) -> Callable[[DType, int, list[int] | None], Tensor]:
        """Room for a storage whose bytes come after the pickle."""

        def read(dtype: DType, numel: int, size: list[int] | None) -> Tensor:
            self.bytes += numel * dtype.itemsize
            if self.bytes > self.source.size:
                raise InvalidFileError("not a readable checkpoint: its storages are larger than the file")
            shape = [numel] if size is None or self.restore is not None else size
            made = lucid.zeros(shape, dtype=dtype, device=self.device_for(location) or "cpu")
            if self.restore is not None:
                made = _restored(self.restore, made, location)
            self.made[key] = made
            return made

        return read

    def _fill(self, data: bytes, at: int, keys: list[str]) -> None:
        seen = set()
        for key in keys:
            if key not in self.kinds or key in seen:
                raise InvalidFileError(f"not a readable checkpoint: storage {key!r} is unknown or comes twice")
            seen.add(key)
            dtype, numel = self.kinds[key]
            size = numel * dtype.itemsize
            if at + 8 + size > len(data) or struct.unpack_from("<q", data, at)[0] != numel:
                raise InvalidFileError(f"not a readable checkpoint: storage {key} is truncated or of another size")
            at += 8
            if key in self.made:
                part = _native(data[at : at + size], dtype, "little")
                made = self.made[key]
                made.copy_(lucid._C._from_bytes(part, list(made.shape), dtype, None))
            at += size
        if missing := set(self.made) - seen:
            raise InvalidFileError(f"not a readable checkpoint: storages {sorted(missing)} are missing")


def _typed(result: Any) -> Any:
    """A storage that is all of a file, as pickles of tensors have it, as one that programs use; all else as it is."""
    if type(result) is not Storage:
        return result
    from lucid._storage import TypedStorage, UntypedStorage

    kind = UntypedStorage if result.dtype is None else TypedStorage
    dtype = result.dtype or lucid.uint8
    return kind._of(result.show(dtype, 0, [result.numel], [1]))


def _is_zip(source: Any) -> bool:
    return source.size >= 4 and bytes(source.read(0, 4)) in (b"PK\3\4", b"PK\5\6")


def _read(source: Any, mapped: bool, map_location: Any, weights_only: bool) -> Any:
    if source.size == 0:
        raise EOFError("load: ran out of input, the file is empty")
    if not _is_zip(source):
        if mapped:
            raise lucid.errors.RuntimeError(
                "load: mmap=True needs a file of the zip format; this one is not, save it again"
            )
        return _Legacy(source, weights_only, map_location).load()
    archive = _Archive(source, mapped, map_location)
    data = archive.pickled()
    if weights_only:
        unpickler = _unpickler(data, archive.persistent, source.size)
        result = unpickler.load()
        if unpickler.at != len(data):
            raise UnpicklingError("the pickle is followed by something else")
    else:
        result = _Trusting(io.BytesIO(data), archive.persistent).load()
    result = _typed(result)
    return result if archive.ops is None else _migrations.migrate(result, archive.ops)


def _is_safetensors(source: Any) -> bool:
    """Does the file begin as a safetensors file: the length of a JSON object, and the object?"""
    if source.size < 10:
        return False
    head = bytes(source.read(0, 9))
    # A file that is cut off is still one; its reader says what is wrong with it.
    return head[8:] == b"{" and 2 <= struct.unpack("<Q", head[:8])[0] <= 100_000_000


def restored(tensors: dict[str, Tensor], map_location: Any) -> dict[str, Tensor]:
    """Tensors read to the CPU, where `map_location` wants them; safetensors files say `cpu` of all."""
    device_for, restore = _restorer(map_location)
    if restore is not None:
        return {k: _restored(restore, t.reshape([-1]), "cpu").reshape(t.shape) for k, t in tensors.items()}
    return {k: t.to(device_for("cpu") or "cpu") for k, t in tensors.items()}


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Reads what `save` or `torch.save` wrote, and safetensors files, which it tells by their beginning.

    Raises FileNotFoundError; `UnpicklingError` where the pickle asks for something else; `InvalidFileError` (a
    RuntimeError) for damaged files; EOFError for an empty one. No code of the file runs, and the memory used is bounded
    by its size. Differs from PyTorch: compressed archives and TorchScript are refused.

    Args:
        f (path or file): A path, or an object with `read` and `seek`.
        map_location (device, dict or callable, optional): Where the tensors go: a device or its name; a dict from
            the names in the file to such; or a function of a one-dimensional tensor and its name in the file,
            which returns it, moved or not, or None. By default they go where they were saved from: PyTorch's
            `cuda` and `mps` are the GPU device.
        pickle_module (module, optional): Accepted where they change nothing; others are a ValueError.
        weights_only (bool, optional): True by default: only tensors and plain containers are read, and what
            `add_safe_globals` lists. False runs the code that the file names, and warns.
        mmap (bool, optional): Whether the file is mapped: tensors on the CPU are in it, nothing is read before it
            is used, and checksums are not looked at. Writes to such tensors do not reach the file. Needs a path.
        **pickle_load_args (object): Accepted where they change nothing; others are a ValueError.

    Returns:
        object: what was saved.

    Raises:
        FileError: the file is none that `save` wrote, or is damaged.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> lucid.save({"x": lucid.ones(2)}, file)
        >>> _ = file.seek(0)
        >>> lucid.load(file)
        {'x': tensor([1., 1.])}
    """
    if pickle_module not in (None, pickle):
        raise lucid.errors.ValueError("load: another pickle_module than the standard one is not taken")
    if pickle_load_args and weights_only is not False:
        warn("pickle_load_args only works if `weights_only=False`.")
    if pickle_load_args.pop("encoding", "utf-8") not in ("utf-8", "ascii") or pickle_load_args:
        raise lucid.errors.ValueError(f"load: pickle_load_args are not taken: {sorted(pickle_load_args)}")
    if weights_only is None:
        weights_only = True
    if not weights_only:
        warn(_UNSAFE)
    if isinstance(f, str | os.PathLike):
        with open(f, "rb") as file:
            named = _is_safetensors(FileSource(file))
        if named:
            _check_whole("safetensors files")
            return restored(load_safetensors(f, "cpu", mmap=bool(mmap)), map_location)
        if mmap:
            with open(f, "rb"):
                pass
            return _read(MappedSource(f), True, map_location, weights_only)
        with open(f, "rb") as file:
            return _read(FileSource(file), False, map_location, weights_only)
    if mmap:
        raise lucid.errors.ValueError("load: f must be a file path in order to use the mmap argument")
    if not (hasattr(f, "read") and hasattr(f, "seek") and hasattr(f, "tell")):
        raise AttributeError(
            "load: expected a path or an object with read, seek and tell; wrap bytes in io.BytesIO, got "
            f"{type(f).__name__}"
        )
    return _read(FileSource(f, f.tell()), False, map_location, weights_only)
