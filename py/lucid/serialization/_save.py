"""Writing checkpoints: the pickle with PyTorch's names in it, and the archive around it.

The pickler is the standard library's Python one, since the C one insists on importing the modules that it names, and
PyTorch need not be installed. Protocol 2, as PyTorch's safe reader knows no other.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import pickle
import sys
import zlib
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import lucid
from lucid import _C, Tensor
from lucid._subclasses.fake_tensor import FakeTensor
from lucid.serialization import _atomic, _migrations, _zip
from lucid.serialization._options import options
from lucid.serialization._rebuild import STORAGES
from lucid.utils.hooks import warn_if_has_hooks

PROTOCOL = 2
# The version of what this writes in the record `lucid`; `_load` migrates older ones.
SCHEMA = 1

_STORAGE_NAMES = {dtype: name for name, dtype in STORAGES.items()}


class _Global:
    """A name that is written as it is, without a look at what is installed here."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self) -> None:
        """Never called: the pickler only asks whether it could be."""


class _StorageRef:
    def __init__(self, kind: _Global, key: str, numel: int) -> None:
        self.kind, self.key, self.numel = kind, key, numel


_UNTYPED = _Global("torch.storage", "UntypedStorage")
_REBUILD = _Global("torch._utils", "_rebuild_tensor_v2")
_REBUILD_UNTYPED = _Global("torch._utils", "_rebuild_tensor_v3")
_REBUILD_PARAMETER = _Global("torch._utils", "_rebuild_parameter")
_REBUILD_PARAMETER_STATE = _Global("torch._utils", "_rebuild_parameter_with_state")
_REBUILD_SPARSE = _Global("torch._utils", "_rebuild_sparse_tensor")
_LAYOUT = _Global("torch.serialization", "_get_layout")
_REBUILD_TYPE = _Global("torch._tensor", "_rebuild_from_type_v2")
_TENSOR = _Global("torch", "Tensor")
_SIZE = _Global("torch", "Size")
_DEVICE = _Global("torch", "device")
_OWN_DEVICE = _Global("lucid", "device")


class _Pickler(pickle._Pickler):
    """Pickles with tensors taken out: `storages` holds one tensor of each, by key."""

    dispatch: ClassVar[dict[Any, Any]] = dict(pickle._Pickler.dispatch)
    if TYPE_CHECKING:
        write: Callable[[bytes], Any]
        memoize: Callable[[Any], None]
        save_reduce: Callable[..., None]

    def __init__(self, file: Any) -> None:
        super().__init__(file, PROTOCOL)
        self.storages: dict[str, Tensor] = {}
        self._refs: dict[tuple[int, int], _StorageRef] = {}
        self._globals: dict[tuple[str, str], _Global] = {}

    def persistent_id(self, obj: Any) -> Any:
        if type(obj) is _StorageRef:
            return ("storage", obj.kind, obj.key, "cpu", obj.numel)
        return None

    def _storage(self, tensor: Tensor) -> _StorageRef:
        found = self._refs.get(tensor._storage_key())
        name = _STORAGE_NAMES.get(tensor.dtype)
        if found is not None and found.kind.name != (name or _UNTYPED.name):
            raise lucid.errors.RuntimeError(
                "save: cannot save multiple tensors that view the same data as different types"
            )
        if found is None:
            key = str(len(self.storages))
            # PyTorch has no storage class for newer dtypes; it counts their bytes.
            numel = tensor._storage_numel() * (1 if name else tensor.itemsize)
            found = _StorageRef(_Global("torch", name) if name else _UNTYPED, key, numel)
            self._refs[tensor._storage_key()] = found
            # Held until it is written, so that no other storage gets its number.
            self.storages[key] = tensor if type(tensor) is FakeTensor else tensor.detach()
        return found

    def _tensor(self, tensor: Tensor, requires_grad: bool) -> tuple[Any, tuple[Any, ...]]:
        args: tuple[Any, ...] = (
            self._storage(tensor),
            tensor.storage_offset(),
            tuple(tensor.shape),
            tuple(tensor.stride()),
            requires_grad,
            OrderedDict(),
        )
        if tensor.dtype not in _STORAGE_NAMES:
            return _REBUILD_UNTYPED, (*args, _Global("torch", repr(tensor.dtype).removeprefix("lucid.")))
        return _REBUILD, args

    def _sparse(self, tensor: Any) -> tuple[Any, tuple[Any, ...]]:
        if hasattr(tensor, "_named_parts"):
            parts = tuple(part.detach() for _, part in tensor._named_parts())
            return _REBUILD_SPARSE, (tensor.layout, (*parts, lucid.Size(tensor.shape)))
        tensor = tensor.detach()
        parts = (tensor._indices(), tensor._values(), lucid.Size(tensor.shape), tensor.is_coalesced())
        return _REBUILD_SPARSE, (tensor.layout, parts)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Tensor):
            return self._reduce_tensor(obj)
        if isinstance(obj, OrderedDict) and type(obj).__module__.startswith("lucid."):
            # A module's state dict: PyTorch's is an OrderedDict with the same attribute.
            state = dict(obj.__dict__) or None
            return OrderedDict, (), state, None, iter(obj.items())
        if type(obj) is lucid.Size:
            return _SIZE, (tuple(obj),)
        if isinstance(obj, lucid.layout):
            return _LAYOUT, (repr(obj).replace("lucid.", "torch."),)
        if isinstance(obj, lucid.device):
            names = {"cpu": "cpu", "cuda": "cuda", "metal": "mps"}
            name = names.get(obj.type)
            # PyTorch has no device for MLX without a GPU, and does not read this one.
            return (_OWN_DEVICE, ("gpu",)) if name is None else (_DEVICE, (name,))
        return NotImplemented

    def _reduce_fake(self, obj: Any) -> Any:
        if not (options.skip and options.materialize):
            return obj.__reduce_ex__(PROTOCOL)
        with _C.DisableTorchFunction():
            function, args = self._tensor(obj, obj.requires_grad)
            if not obj.__dict__.get("_is_param"):
                return function, args
        made = FakeTensor(obj.fake_mode, obj.detach(), obj.fake_device)
        return _REBUILD_PARAMETER, (made, args[4], OrderedDict())

    def _reduce_tensor(self, obj: Tensor) -> Any:
        kind = type(obj)
        if kind is FakeTensor:
            return self._reduce_fake(obj)
        if hasattr(kind, "_named_parts"):
            # A compressed layout: the attributes are its parts.
            return self._sparse(obj)
        state = dict(obj.__dict__)
        if kind is Tensor and obj._backward_hooks:
            warn_if_has_hooks(obj)
        if kind is not Tensor:
            from lucid.nn.parameter import Buffer, Parameter

            if kind is Parameter:
                data = obj.detach()
                if state:
                    return _REBUILD_PARAMETER_STATE, (data, obj.requires_grad, OrderedDict(), state)
                return _REBUILD_PARAMETER, (data, obj.requires_grad, OrderedDict())
            if obj._backward_hooks:
                warn_if_has_hooks(obj)
            if kind is Buffer:
                state = {"persistent": bool(state.get("persistent", True)), "_is_buffer": True}
                kind = Tensor
        function, args = self._sparse(obj) if obj.is_sparse else self._tensor(obj, obj.requires_grad)
        if kind is Tensor and not state:
            return function, args
        return _REBUILD_TYPE, (function, _TENSOR if kind is Tensor else kind, args, state)

    def save_named(self, obj: _Global) -> None:
        """The opcode that names a global."""
        self.write(pickle.GLOBAL + f"{obj.module}\n{obj.name}\n".encode())
        self.memoize(obj)

    dispatch[_Global] = save_named

    def save_dtype(self, obj: Any) -> None:
        """PyTorch's dtype of the same name."""
        self.write(pickle.GLOBAL + f"torch\n{repr(obj).removeprefix('lucid.')}\n".encode())
        self.memoize(obj)

    dispatch[lucid.dtype] = save_dtype

    def save_latin(self, obj: bytes) -> None:
        """Bytes as protocol 2 has them; the standard pickler names `bytes` for none, which PyTorch refuses."""
        self.save_reduce(codecs.encode, (obj.decode("latin1"), "latin1"), obj=obj)

    dispatch[bytes] = save_latin


def _write(obj: Any, file: Any) -> None:
    buffer = io.BytesIO()
    pickler = _Pickler(buffer)
    try:
        pickler.dump(obj)
    except RecursionError as e:
        raise lucid.errors.ValueError("save: the object is nested too deeply to be saved") from e
    storages = pickler.storages
    if not options.skip:
        lucid.eval(list(storages.values()))
    on_gpu = [key for key, tensor in storages.items() if not tensor.is_cpu and tensor.device.type != "meta"]
    archive = _zip.Writer(file)
    root = "archive"
    pickled = buffer.getvalue()
    archive.add(f"{root}/data.pkl", pickled)
    archive.add(f"{root}/.format_version", b"1")
    archive.add(f"{root}/.storage_alignment", str(_zip.ALIGNMENT).encode())
    archive.add(f"{root}/byteorder", sys.byteorder.encode())
    identity = zlib.crc32(pickled)
    for key in list(storages):
        # One at a time, and freed at once: a checkpoint is never in memory twice.
        tensor = storages.pop(key)
        if options.skip:
            with _C.DisableTorchFunction():
                archive.add_zeros(f"{root}/data/{key}", tensor._storage_numel() * tensor.itemsize)
            continue
        data = tensor._storage_vector()._bytes()
        identity = zlib.crc32(data, identity)
        archive.add(f"{root}/data/{key}", data)
    record = {
        "schema": SCHEMA,
        "lucid": lucid.__version__,
        "gpu": on_gpu,
        "ops": _migrations.versions(),
    }
    archive.add(f"{root}/lucid", json.dumps(record).encode())
    archive.add(f"{root}/version", b"3\n")
    archive.add(f"{root}/.data/serialization_id", f"{identity:040d}".encode())
    archive.close()


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = pickle,
    pickle_protocol: int = PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Writes an object to a file that `load` and `torch.load` read.

    The format is PyTorch's (`docs/serialization.md`), whatever the file is called. Tensors that share storage do so
    again when they are loaded; a view brings its whole storage with it. Of a sparse tensor the indices and values are
    written; as in PyTorch it comes back without `requires_grad`. Tensors of the GPU device are evaluated;
    PyTorch reads them to its CPU, `load` to the GPU device. A file at a path is replaced in one step: a crash leaves
    the old one.

    Args:
        obj (any): Tensors, parameters, numbers, strings, bytes, None, dtypes, devices, sizes, and tuples, lists,
            dicts, OrderedDicts and sets of such. Other picklable objects are written too; reading them needs
            `add_safe_globals` or `weights_only=False`.
        f (path or file): A path, or an object with `write`.
        pickle_module (module, optional): Accepted where they are the standard ones (`pickle`, protocol 2).
        pickle_protocol (int, default: 2): Accepted where they are the standard ones (`pickle`, protocol 2).

    Raises:
        FileError: the file cannot be written.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> lucid.save({"x": lucid.ones(2)}, file)
        >>> file.tell() > 0
        True
    """
    if pickle_protocol != PROTOCOL:
        raise lucid.errors.ValueError(f"save: the format's pickle protocol is {PROTOCOL}, got {pickle_protocol}")
    if pickle_module not in (None, pickle):
        raise lucid.errors.ValueError("save: another pickle_module than the standard one is not taken")
    if not _use_new_zipfile_serialization or _disable_byteorder_record:
        raise lucid.errors.NotImplementedError("save: only zip files that say their byte order are written")
    if isinstance(f, str | os.PathLike):
        parent = os.path.dirname(os.path.abspath(os.fspath(f)))
        if not os.path.isdir(parent):
            raise lucid.errors.RuntimeError(f"save: Parent directory {os.fsdecode(parent)} does not exist.")
        with _atomic.replacing(f) as file:
            _write(obj, file)
    elif hasattr(f, "write"):
        _write(obj, f)
    else:
        raise lucid.errors.TypeError(
            f"save: expected a path or an object with a write method as the file, got {type(f).__name__}"
        )
