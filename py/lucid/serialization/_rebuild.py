"""What checkpoints may name, and what it becomes here: PyTorch's storages, dtypes and rebuilding functions.

Every function here is called with whatever a file says, so each checks all of its arguments.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import lucid
from lucid import Tensor
from lucid._C import device as Device
from lucid._C import dtype as DType
from lucid._dtypes import CLASSES, dtypes
from lucid.serialization._errors import UnpicklingError
from lucid.serialization._unpickle import Budget, counted

# PyTorch's storage class of each dtype.
STORAGES: dict[str, DType] = {f"{short}Storage": dtype for short, dtype in CLASSES.items()}
# What PyTorch has and this has not; named, so that the error can say so.
_MISSING_STORAGES = (
    "QUInt8Storage",
    "QInt8Storage",
    "QInt32Storage",
    "QUInt4x2Storage",
    "QUInt2x4Storage",
)
# The most dimensions a tensor of a file may have, as in NumPy and PyTorch.
_MOST_DIMS = 64


class StorageType:
    """A storage class as a file names it."""

    def __init__(self, name: str, dtype: DType | None) -> None:
        self.name = name
        self.dtype = dtype


class Storage:
    """A storage of the file: `numel` elements of `dtype`, read when the first tensor needs them."""

    def __init__(self, numel: int, dtype: DType | None, read: Callable[[DType, int, list[int] | None], Tensor]) -> None:
        self.numel = numel
        self.dtype = dtype
        self._read = read
        self._base: Tensor | None = None

    def show(self, dtype: DType | None, offset: int, size: list[int], stride: list[int]) -> Tensor:
        """A tensor on the storage. Raises where it would reach outside."""
        numel = self.numel
        if self.dtype is None:
            # An untyped one counts bytes until a tensor says what they are.
            if dtype is None:
                raise UnpicklingError("a tensor on untyped storage names no dtype")
            if numel % dtype.itemsize:
                raise UnpicklingError(f"a storage of {numel} bytes does not hold {dtype} elements")
            self.dtype, self.numel = dtype, numel // dtype.itemsize
            numel = self.numel
        if dtype is not None and dtype is not self.dtype:
            raise UnpicklingError(f"tensors of dtypes {self.dtype} and {dtype} share one storage")
        check_layout(numel, offset, size, stride)
        whole = offset == 0 and _count(size) == numel and stride == contiguous(size)
        if self._base is None:
            # Of the shape of the one tensor that most storages have: then it is no view of anything.
            self._base = self._read(self.dtype, numel, size if whole else None)
        if whole and list(self._base.shape) == size:
            return self._base.detach()
        return lucid.as_strided(self._base, size, stride, offset).detach()


def _count(size: list[int]) -> int:
    n = 1
    for s in size:
        n *= s
    return n


def contiguous(size: list[int]) -> list[int]:
    """Row-major strides, as PyTorch gives them."""
    stride, step = [], 1
    for n in reversed(size):
        stride.append(step)
        step *= max(n, 1)
    return stride[::-1]


def _ints(values: Any, what: str) -> list[int]:
    if not isinstance(values, tuple | list) or any(type(v) is not int or v < 0 or v >= 2**62 for v in values):
        raise UnpicklingError(f"a tensor's {what} is not a tuple of non-negative integers")
    if len(values) > _MOST_DIMS:
        raise UnpicklingError(f"a tensor has {len(values)} dimensions, more than {_MOST_DIMS}")
    return list(values)


def check_layout(numel: int, offset: int, size: list[int], stride: list[int]) -> None:
    """Raises where a tensor would reach outside of a storage of `numel` elements."""
    if len(size) != len(stride):
        raise UnpicklingError(f"a tensor has {len(size)} sizes and {len(stride)} strides")
    product = _count([max(n, 1) for n in size])
    end = offset if 0 in size else offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) + 1
    # An expanded dimension makes more elements than the storage has, but they must still be countable.
    if end > numel or product >= 2**48:
        raise UnpicklingError(
            f"a tensor of sizes {size} with strides {stride} at {offset} reaches outside of its storage of {numel} "
            f"elements"
        )


def _rebuild_tensor(storage: Any, offset: Any, size: Any, stride: Any, dtype: Any = None) -> Tensor:
    if type(storage) is not Storage:
        raise UnpicklingError("a tensor is made of something else than a storage")
    if type(offset) is not int or offset < 0:
        raise UnpicklingError("a tensor's offset is not a non-negative integer")
    if dtype is not None and not isinstance(dtype, DType):
        raise UnpicklingError("a tensor's dtype is none of those here")
    return storage.show(dtype, offset, _ints(size, "size"), _ints(stride, "stride"))


def _finish(storage: Storage, tensor: Tensor, requires_grad: Any, metadata: Any, budget: Budget | None) -> Tensor:
    if type(metadata) is dict and (metadata.get("conj") or metadata.get("neg")):
        # What is computed takes memory of its own, which an expanded tensor could make as large as it says.
        if tensor.numel() > storage.numel:
            raise UnpicklingError("a lazily conjugated or negated tensor is larger than its storage")
        if budget is not None:
            budget.charge(2 * tensor.nbytes)
        if metadata.get("conj"):
            tensor = lucid.conj(tensor)
        if metadata.get("neg"):
            tensor = -tensor
    return tensor.requires_grad_() if requires_grad is True else tensor


@counted
def _rebuild_tensor_v2(
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any,
    hooks: Any = None,
    metadata: Any = None,
    *,
    budget: Budget | None = None,
) -> Tensor:
    return _finish(storage, _rebuild_tensor(storage, offset, size, stride), requires_grad, metadata, budget)


@counted
def _rebuild_tensor_v3(
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any,
    hooks: Any,
    dtype: Any,
    metadata: Any = None,
    *,
    budget: Budget | None = None,
) -> Tensor:
    return _finish(storage, _rebuild_tensor(storage, offset, size, stride, dtype), requires_grad, metadata, budget)


def _parameter(data: Any = None, requires_grad: Any = True, hooks: Any = None) -> Any:
    from lucid.nn.parameter import Parameter

    if not isinstance(data, Tensor):
        raise UnpicklingError("a parameter is made of something else than a tensor")
    return Parameter(data.detach(), requires_grad is True)


def _parameter_with_state(data: Any, requires_grad: Any, hooks: Any, state: Any) -> Any:
    made = _parameter(data, requires_grad)
    _set_attributes(made, state)
    return made


def _set_attributes(made: Any, state: Any) -> None:
    if type(state) is tuple and len(state) == 2:
        state = state[0]
    if state and (type(state) is not dict or not all(type(k) is str for k in state)):
        raise UnpicklingError("a tensor's attributes are not a dict of names")
    made.__dict__.update(state or {})


def _tensor_type(*args: Any) -> Tensor:
    raise UnpicklingError("a tensor of the format before PyTorch 0.4 is not read")


def from_any_type(function: Any, kind: Any, args: Any, state: Any) -> Any:
    """A tensor with attributes, or of any subclass, in a file that is trusted."""
    return from_type(function, kind, args, state, listed=False)


@counted
def from_type(
    function: Any, kind: Any, args: Any, state: Any, listed: bool = True, *, budget: Budget | None = None
) -> Any:
    """A tensor with attributes, or of a subclass that the user has listed."""
    from lucid.serialization import _unpickle

    if function not in (_rebuild_tensor_v2, _rebuild_tensor_v3, _rebuild_sparse, _parameter) or type(args) is not tuple:
        raise UnpicklingError("a tensor with attributes is made by something else than PyTorch's functions")
    made: Any = function(*args) if function is _parameter else function(*args, budget=budget)
    if type(state) is dict and state.get("_is_buffer") is True:
        from lucid.nn.parameter import Buffer

        return Buffer(made, persistent=state.get("persistent") is not False)
    if kind is not _tensor_type:
        known = not listed or any(kind is own for own in _unpickle._user_globals.values())
        if not known or not isinstance(kind, type):
            raise UnpicklingError(f"a tensor of the class {kind!r} that is not allowlisted via `add_safe_globals`")
        made = Tensor._make_subclass(kind, made, made.requires_grad)
    _set_attributes(made, state)
    return made


@counted
def _ordered(items: Any = (), *, budget: Budget) -> OrderedDict[Any, Any]:
    if type(items) not in (list, tuple, dict):
        raise UnpicklingError("an OrderedDict is made of something else than items")
    pairs = list(items.items()) if type(items) is dict else items
    return OrderedDict((budget.key(k), v) for k, v in pairs)


def _counter(items: Any = None) -> Counter[Any]:
    if items is not None and type(items) is not dict:
        raise UnpicklingError("a Counter is made of something else than a dict")
    return Counter(items or {})


@counted
def _set(items: Any = (), *, budget: Budget) -> set[Any]:
    if type(items) not in (list, tuple, set):
        raise UnpicklingError("a set is made of something else than a list")
    return {budget.key(i) for i in items}


@counted
def _frozenset(items: Any = (), *, budget: Budget) -> frozenset[Any]:
    return frozenset(_set(items, budget=budget))


def _complex(real: Any = 0.0, imag: Any = 0.0) -> complex:
    if type(real) not in (int, float) or type(imag) not in (int, float):
        raise UnpicklingError("a complex number is made of something else than numbers")
    return complex(real, imag)


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    if type(text) is not str or encoding not in ("latin1", "latin-1"):
        raise UnpicklingError("bytes are made of something else than Latin-1 text")
    return text.encode("latin1")


def _bytearray(data: Any = b"", encoding: Any = None) -> bytearray:
    if type(data) is str:
        return bytearray(_encode(data, encoding))
    if type(data) is not bytes or encoding is not None:
        # A number would be a size, of any size.
        raise UnpicklingError("a bytearray is made of something else than bytes")
    return bytearray(data)


def _bytes(data: Any = b"") -> bytes:
    if type(data) is not bytes:
        raise UnpicklingError("bytes are made of something else than bytes")
    return data


def _size(sizes: Any = ()) -> lucid.Size:
    return lucid.Size(_ints(sizes, "size"))


def _device(kind: Any, index: Any = None) -> Device:
    if type(kind) is not str or not (index is None or type(index) is int):
        raise UnpicklingError("a device is named by something else than a string")
    name = kind.split(":")[0]
    return lucid.device(name)


class NumpyDtype:
    """NumPy's dtype of numbers, as a file describes it."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.order = "="


def _numpy_dtype(code: Any, align: Any = False, copy: Any = False) -> NumpyDtype:
    if type(code) is not str or not re.fullmatch(r"[<>|=]?(b1|[iuf][1248]|f16|c8|c16)", code):
        raise UnpicklingError(f"the NumPy dtype {code!r} is none of a number")
    return NumpyDtype(code.lstrip("<>|="))


def _numpy_scalar(dtype: Any, data: Any) -> Any:
    from lucid import _convert

    if type(dtype) is not NumpyDtype or type(data) is not bytes:
        raise UnpicklingError("a NumPy scalar is made of something else than a dtype and bytes")
    order = dtype.order if dtype.order in "<>" else ""
    return _convert.scalar_of_bytes(order + dtype.code, data)


def _build_numpy_dtype(made: NumpyDtype, state: Any) -> None:
    if type(state) is not tuple or len(state) < 2 or state[1] not in ("<", ">", "|", "="):
        raise UnpicklingError("a NumPy dtype of numbers has no such state")
    made.order = state[1]


def _build_ordered(made: OrderedDict[Any, Any], state: Any) -> None:
    # The `_metadata` of a module's state dict is such an attribute.
    if type(state) is not dict or not all(type(k) is str for k in state):
        raise UnpicklingError("an OrderedDict's attributes are not a dict of names")
    made.__dict__.update(state)


def _layout(name: Any) -> Any:
    layouts = ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr")
    if type(name) is not str or name.removeprefix("torch.") not in layouts:
        raise UnpicklingError(f"tensors of layout {name!r} are not read; those of {', '.join(layouts)} are")
    return getattr(lucid, name.removeprefix("torch."))


@counted
def _rebuild_sparse(layout: Any, parts: Any, *, budget: Budget | None = None) -> Tensor:
    makers: dict[Any, Callable[..., Tensor]] = {
        lucid.sparse_csr: lucid.sparse_csr_tensor,
        lucid.sparse_csc: lucid.sparse_csc_tensor,
        lucid.sparse_bsr: lucid.sparse_bsr_tensor,
    }
    compressed = makers.get(layout) if isinstance(layout, lucid.layout) else None
    known = compressed is not None or layout is lucid.sparse_coo
    if not known or type(parts) is not tuple or len(parts) not in ((4,) if compressed else (3, 4)):
        raise UnpicklingError("a sparse tensor is made of something else than indices, values and a size")
    tensors, size = (parts[:3], parts[3]) if compressed else (parts[:2], parts[2])
    for part in tensors:
        if type(part) is not Tensor or part.is_sparse:
            raise UnpicklingError("a sparse tensor's indices and values are not dense tensors")
        # Looking at the indices takes memory, which an expanded tensor could make as large as it says.
        if part.numel() > part._storage_numel():
            raise UnpicklingError("a sparse tensor's indices or values are larger than their storage")
        if budget is not None:
            budget.charge(4 * part.nbytes)
    if compressed is not None:
        try:
            return compressed(*tensors, _ints(size, "size"))
        except (lucid.errors.RuntimeError, lucid.errors.ValueError, lucid.errors.IndexError) as e:
            raise UnpicklingError(f"a sparse tensor's parts do not fit together: {e}") from None
    indices, values = tensors
    if indices.dtype is not lucid.int64 or indices.device != values.device:
        raise UnpicklingError(f"a sparse tensor's indices are {indices.dtype}, not int64, or on another device")
    try:
        made = lucid.sparse_coo_tensor(indices, values, _ints(size, "size"))
    except (lucid.errors.RuntimeError, lucid.errors.ValueError, lucid.errors.IndexError) as e:
        raise UnpicklingError(f"a sparse tensor's parts do not fit together: {e}") from None
    # A file's word that no index occurs twice is not taken.
    return made.coalesce() if len(parts) == 4 and parts[3] is True else made


def _dtypes() -> dict[str, DType]:
    return {repr(d).removeprefix("lucid."): d for d in dtypes}


ALLOWED: dict[str, Any] = {
    "collections.OrderedDict": _ordered,
    "collections.Counter": _counter,
    "builtins.set": _set,
    "builtins.frozenset": _frozenset,
    "builtins.complex": _complex,
    "builtins.bytearray": _bytearray,
    "builtins.bytes": _bytes,
    "_codecs.encode": _encode,
    "torch.Size": _size,
    "torch.device": _device,
    "torch.Tensor": _tensor_type,
    "torch.nn.parameter.Parameter": _parameter,
    "torch.serialization._get_layout": _layout,
    "torch._utils._rebuild_tensor": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor_v2,
    "torch._utils._rebuild_tensor_v3": _rebuild_tensor_v3,
    "torch._utils._rebuild_sparse_tensor": _rebuild_sparse,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter_with_state,
    "torch._tensor._rebuild_from_type_v2": from_type,
    "torch.storage.UntypedStorage": StorageType("UntypedStorage", None),
    "numpy.dtype": _numpy_dtype,
    "numpy.core.multiarray.scalar": _numpy_scalar,
    "numpy._core.multiarray.scalar": _numpy_scalar,
    "lucid.device": _device,
    **{f"torch.{name}": StorageType(name, dtype) for name, dtype in STORAGES.items()},
    **{f"torch.{name}": StorageType(name, None) for name in _MISSING_STORAGES},
    **{f"torch.{name}": dtype for name, dtype in _dtypes().items()},
    **{f"lucid.{name}": dtype for name, dtype in _dtypes().items()},
}

BUILDERS: dict[type, Callable[[Any, Any], None]] = {
    OrderedDict: _build_ordered,
    NumpyDtype: _build_numpy_dtype,
}
