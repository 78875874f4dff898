"""Tensors from and to what is not a tensor: NumPy, buffers, pickles, copies.

The only module that imports NumPy, and only where an array is asked for. On the CPU memory is shared both ways; who
shares sees the other's writes.
"""

from __future__ import annotations

import copy as copy_module
import mmap
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lucid import _C, errors
from lucid._C import Tensor
from lucid._C import dtype as DType
from lucid._warnings import warn_once

if TYPE_CHECKING:
    import numpy as np

# A buffer's element format: the struct module's letter, or NumPy's.
_FORMATS = {
    "?": _C.bool,
    "B": _C.uint8,
    "b": _C.int8,
    "c": _C.uint8,
    "h": _C.int16,
    "H": _C.uint16,
    "I": _C.uint32,
    "i": _C.int32,
    "e": _C.float16,
    "f": _C.float32,
    "d": _C.float64,
    "Zf": _C.complex64,
    "Zd": _C.complex128,
}
_NUMPY = {
    name: getattr(_C, name)
    for name in (
        *("float64", "float32", "float16", "complex64", "complex128", "int64", "int32", "int16", "int8"),
        *("uint16", "uint32", "uint64", "uint8", "bool"),
    )
}


def _leaf(tensor: Tensor) -> Tensor:
    """The tensor, which requires a gradient from now on; inside of function transforms, too."""
    tensor.requires_grad = True
    return tensor


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise ImportError("this needs NumPy: run pip install 'lucid[numpy]'") from None
    return numpy


def _warn_read_only(what: str) -> None:
    warn_once(
        f"read-only {what}",
        f"The given {what} is not writable. The tensor shows its memory and must not be written to, which is an error; "
        "copy it first (lucid.tensor(...)) if it is to be changed.",
    )


# ---- into tensors ----------------------------------------------------------------------------------------------------


def from_foreign(data: Any, share: bool = False) -> Tensor:
    """A CPU tensor of an array or a buffer. With `share` it shows that memory where it can, else it is a copy."""
    if data is None:
        raise errors.RuntimeError("Could not infer dtype of NoneType")
    if hasattr(data, "__array__") or hasattr(data, "__array_interface__"):
        return _of_array(_numpy().asarray(data), share)
    try:
        view = memoryview(data)
    except TypeError:
        pass
    else:
        made = _of_view(view, share)
        if share or made.dtype is _C.bool or made.dtype.is_complex:
            return made
        # PyTorch reads a buffer as a sequence of Python's numbers here.
        return made.to(_C.get_default_dtype() if made.dtype.is_floating_point else _C.int64)
    if hasattr(data, "__dlpack__"):
        from lucid.utils.dlpack import from_dlpack

        return from_dlpack(data) if share else from_dlpack(data).clone()
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, Mapping):
        return _C.tensor(list(data))
    raise errors.RuntimeError(f"tensor(): Could not infer dtype of {type(data).__name__}")


def _of_view(view: memoryview, share: bool) -> Tensor:
    code = view.format.lstrip("@=<") if view.format else "B"
    if code in ("l", "q", "n"):
        dtype: DType | None = _C.int64 if view.itemsize == 8 else _C.int32
    elif code in ("L", "Q", "N"):
        dtype = _C.uint64 if view.itemsize == 8 else _C.uint32
    else:
        dtype = _FORMATS.get(code)
    if dtype is None or dtype.itemsize != view.itemsize or (view.format or "").startswith((">", "!")):
        raise TypeError(f"tensor(): a buffer of format {view.format!r} has no dtype here")
    shape, strides = view.shape or (), view.strides or ()
    steps = [s // dtype.itemsize for s in strides]
    if share and all(s >= 0 and s % dtype.itemsize == 0 for s in strides):
        if view.readonly:
            _warn_read_only("buffer")
        return _C._show_buffer(view if view.ndim else view.cast("B"), dtype, shape, steps, 0)
    return _C._from_bytes(view.tobytes(), list(shape), dtype, None)


def _of_array(array: np.ndarray[Any, Any], share: bool) -> Tensor:
    dtype = _NUMPY.get(array.dtype.name)
    if dtype is None:
        names = ", ".join([*_NUMPY][:-1])
        kind = f"numpy.{array.dtype.type.__name__}"
        raise TypeError(f"can't convert np.ndarray of type {kind}. The only supported types are: {names}, and bool.")
    if not share:
        native = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
        return _C._from_bytes(native.tobytes(), list(array.shape), dtype, None)
    if not array.dtype.isnative:
        raise ValueError(
            "given numpy array has byte order different from the native byte order. "
            "Conversion between byte orders is currently not supported."
        )
    if any(s < 0 for s in array.strides):
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative strides are not "
            "currently supported. (You can probably work around this by making a copy of your array with array.copy().)"
        )
    if any(s % dtype.itemsize for s in array.strides):
        raise ValueError(
            "given numpy array strides not a multiple of the element byte size. "
            "Copy the numpy array to reallocate the memory."
        )
    seen: Any = array if array.ndim else array.reshape(1)
    view = memoryview(seen)
    return _C._show_buffer(view, dtype, array.shape, [s // dtype.itemsize for s in array.strides], 0)


def from_numpy(ndarray: np.ndarray[Any, Any]) -> Tensor:
    """Makes a CPU tensor that shares a NumPy array's memory: writes to either are seen by both.

    Differs from PyTorch: writing to a tensor on a read-only array is a RuntimeError.

    Args:
        ndarray (array): of any shape, in the machine's byte order; its strides are kept.

    Returns:
        Tensor: of the array's shape, strides and dtype.

    Raises:
        TypeError: `ndarray` is no array of such a dtype. ValueError: its strides are negative, or it is not aligned.

    Example:
        >>> import numpy as np
        >>> lucid.from_numpy(np.zeros(2, np.float32))
        tensor([0., 0.])
    """
    if not isinstance(ndarray, _numpy().ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    if not ndarray.flags.writeable:
        _warn_read_only("NumPy array")
    return _of_array(ndarray, True)


def as_tensor(data: Any) -> Tensor:
    """What `as_tensor` makes of data that is neither a tensor nor nested numbers: arrays are shared, buffers copied."""
    return share_foreign(data) if _is_array(data) else from_foreign(data)


def _is_array(data: Any) -> bool:
    """Does it say itself what its elements are?"""
    return any(hasattr(data, name) for name in ("__array__", "__array_interface__", "__dlpack__"))


def share_foreign(data: Any) -> Tensor:
    """A tensor that shows an array's or a buffer's memory, with PyTorch's warning where it must not be written to."""
    if hasattr(data, "__array__") and not getattr(getattr(data, "flags", None), "writeable", True):
        if getattr(data, "ndim", 0) == 0:
            return from_foreign(data)
        _warn_read_only("NumPy array")
    return from_foreign(data, True)


def frombuffer(buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """Makes a vector that shares a buffer's memory, read as elements of a dtype.

    Differences from PyTorch: writing to a tensor on a read-only buffer is a RuntimeError. What cannot be shared is
    copied where the buffer is read-only (an offset that is not aligned), and a bool is a copy where a byte is neither 0
    nor 1.

    Args:
        buffer (object): with Python's buffer protocol, such as bytearray, contiguous.
        dtype (dtype): what the bytes are read as.
        count (int, optional): how many elements. Default: -1, all.
        offset (int, optional): the first element's place, in bytes. Default: 0.
        requires_grad (bool, optional): whether a backward pass computes its gradient. Default: False.

    Returns:
        Tensor: a vector on the CPU.

    Raises:
        ValueError: the object has no buffer, or `count` and `offset` do not fit it; RuntimeError: it is not contiguous.
        TypeError: an argument is of another kind, or the buffer holds Python objects.

    Example:
        >>> lucid.frombuffer(bytearray([1, 0, 2, 0]), dtype=lucid.int16)
        tensor([1, 2], dtype=lucid.int16)
    """
    try:
        view = memoryview(buffer)
    except TypeError:
        raise ValueError("object does not implement Python buffer protocol.") from None
    if not isinstance(dtype, DType):
        raise TypeError(f"frombuffer(): argument 'dtype' must be lucid.dtype, not {type(dtype).__name__}")
    if not isinstance(requires_grad, bool):
        raise TypeError(f"frombuffer(): argument 'requires_grad' must be bool, not {type(requires_grad).__name__}")
    if not view.c_contiguous:
        raise errors.RuntimeError("frombuffer(): the buffer's memory must be contiguous")
    if "O" in re.sub(r":[^:]*:", "", view.format):
        raise TypeError("frombuffer(): the buffer holds Python objects, whose addresses are no numbers")
    data = view.cast("B") if view.nbytes else memoryview(b"")
    size, length = dtype.itemsize, len(data)
    if length == 0 or count == 0:
        raise ValueError(f"both buffer length ({length}) and count ({count}) must not be 0")
    if not 0 <= offset < length:
        raise ValueError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({length} bytes) minus 1"
        )
    if count < 0:
        count, rest = divmod(length - offset, size)
        if rest:
            raise ValueError(
                f"buffer length ({length - offset} bytes) after offset ({offset} bytes) must be a multiple of element "
                f"size ({size})"
            )
    if offset + count * size > length:
        raise ValueError(
            f"requested buffer length ({count} * {size} bytes) after offset ({offset} bytes) must not be greater than "
            f"actual buffer length ({length} bytes)"
        )
    if data.readonly:
        _warn_read_only("buffer")
    part = data[offset : offset + count * size]
    if dtype is _C.bool and not _are_truths(part):
        tensor = _C._from_bytes(part.tobytes(), [count], dtype, None)
    else:
        try:
            tensor = _C._show_buffer(part, dtype, [count], [1], 0)
        except ValueError:
            if not data.readonly:
                raise
            tensor = _C._from_bytes(part.tobytes(), [count], dtype, None)
    return _leaf(tensor) if requires_grad else tensor


def _are_truths(data: memoryview) -> bool:
    """Are all bytes 0 or 1?"""
    step = 1 << 20
    return not any(bytes(data[i : i + step]).translate(None, b"\0\1") for i in range(0, len(data), step))


def from_file(
    filename: str,
    shared: bool | None = None,
    size: int = 0,
    *,
    dtype: DType | None = None,
    layout: _C.layout | None = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Makes a vector that shares the memory of a mapped file, on the CPU.

    Whoever shortens the file while it is mapped ends this process when it is read (mmap(2)).

    Args:
        filename (str): the file's path.
        shared (bool, optional): whether writes go to the file, which is made longer where needed. Default: False.
        size (int, optional): the number of elements. Default: 0.
        dtype (dtype, optional): the elements' dtype. Default: the default dtype.
        layout, device, pin_memory (object, optional): must be dense, the CPU and False, as they are by default.
        requires_grad (bool, optional): whether it gets a gradient. Default: False.

    Returns:
        Tensor: a vector of `size` elements.

    Raises:
        RuntimeError: the file cannot be opened, or is too small; the size is negative; or the device is not the CPU.
        TypeError: an argument is of another kind.

    Example:
        >>> import os, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     x = lucid.from_file(f"{folder}/x.bin", shared=True, size=2)
        ...     os.path.getsize(f"{folder}/x.bin")
        8
    """
    op, dtype = "from_file", _C.get_default_dtype() if dtype is None else dtype
    for name, value, kind in (("filename", filename, str), ("size", size, int), ("dtype", dtype, DType)):
        if not isinstance(value, kind) or isinstance(value, bool):
            raise errors.TypeError(f"{op}(): argument '{name}' must be {kind.__name__}, not {type(value).__name__}")
    on = _C.get_default_device() if device is None else _C.device(device)
    if on.type != "cpu" or pin_memory or layout not in (None, _C.strided):
        raise errors.RuntimeError(f"{op}: files are shown as dense tensors on the cpu alone, without pin_memory")
    if size < 0:
        raise errors.RuntimeError(f"{op}: the size must not be negative, got {size}")
    length = size * dtype.itemsize
    try:
        with open(os.open(filename, os.O_RDWR | os.O_CREAT if shared else os.O_RDONLY), "r+b" if shared else "rb") as f:
            there = os.fstat(f.fileno()).st_size
            if there < length and not shared:
                raise errors.RuntimeError(
                    f"{op}: file <{filename}> size <{there}> is smaller than the required mapping size <{length}>"
                )
            if there < length:
                f.truncate(length)
            if size == 0:
                return _C.empty(0, dtype=dtype, device="cpu", requires_grad=requires_grad)
            memory = mmap.mmap(f.fileno(), length, access=mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY)
    except (OSError, OverflowError) as e:
        raise errors.RuntimeError(f"{op}: unable to open or map {length} bytes of file <{filename}>: {e}") from e
    return frombuffer(memory, dtype=dtype, requires_grad=requires_grad)


def asarray(
    obj: Any,
    *,
    dtype: DType | None = None,
    device: Any = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """Makes a tensor of an object, which shares its memory where that can be.

    It takes a tensor, a NumPy array, a DLPack capsule or exporter, or a buffer, whose bytes are read as `dtype`;
    numbers and sequences are copied. A tensor keeps its history, with a warning unless `requires_grad=True` says so.

    Args:
        obj (object): any of these.
        dtype (dtype, optional): the elements' dtype. Default: that of `obj`.
        device (device or str, optional): where the result is. Default: where `obj` is.
        copy (bool, optional): True always copies; False raises where a copy is needed. Default: None, where it is
            needed.
        requires_grad (bool, optional): whether the result requires a gradient; False cuts the history off. Default:
            None, as `obj` does.

    Returns:
        Tensor: of the shape of `obj`.

    Raises:
        ValueError: `copy` is False and a copy is needed; TypeError: `obj` is none of these.

    Example:
        >>> lucid.asarray([1, 2])
        tensor([1, 2])
    """
    if isinstance(obj, Tensor):
        tensor = obj.detach() if requires_grad is False and obj.requires_grad else obj
    elif isinstance(obj, (bool, int, float, complex, list, tuple, range)):
        if copy is False:
            raise ValueError("can't alias arbitrary sequence into a tensor.")
        made = _C.tensor(obj, dtype=dtype, device=device)
        return _leaf(made) if requires_grad else made
    elif type(obj).__name__ == "PyCapsule":
        tensor = _C._from_dlpack(obj)[0]
    elif type(obj).__name__ == "UntypedStorage":
        # Its bytes are elements of the dtype, as those of a buffer are.
        tensor = obj._tensor
        if obj._is_part and tensor.numel() and tensor.is_cpu:
            # Memory of its own account: its bytes may be Booleans though those around it are not.
            tensor = _C._from_dlpack(tensor.__dlpack__())[0]
        tensor = tensor if dtype is None else tensor.view(dtype)
    elif dtype is not None and not _is_array(obj):
        # The bytes of a buffer are read as the dtype, whatever it calls its elements.
        tensor = frombuffer(obj, dtype=dtype)
    else:
        tensor = share_foreign(obj)
    wanted_dtype = tensor.dtype if dtype is None else dtype
    wanted_device = tensor.device if device is None else _C.device(device)
    if copy is False:
        if wanted_device != tensor.device:
            raise ValueError(f"can't alias tensor from device '{tensor.device}' to '{wanted_device}'.")
        if wanted_dtype is not tensor.dtype:
            raise ValueError(f"can't alias tensor with dtype '{tensor.dtype}' into dtype '{wanted_dtype}'.")
    same = wanted_device == tensor.device and wanted_dtype is tensor.dtype
    if not same:
        tensor = tensor.to(wanted_device, wanted_dtype)
    elif copy:
        tensor = tensor.clone()
    if tensor.requires_grad:
        if requires_grad is None:
            warn_once(
                "asarray",
                "asarray: without requires_grad the result requires a gradient where the tensor does. Pass "
                "requires_grad=False to get one that does not.",
            )
        return tensor
    return _leaf(tensor) if requires_grad else tensor


# ---- out of tensors --------------------------------------------------------------------------------------------------


class _Shown:
    """What NumPy asks for an array's memory; the array keeps it, and it keeps the tensor."""

    def __init__(self, interface: dict[str, Any], tensor: Tensor) -> None:
        self.__array_interface__ = interface
        self._tensor = tensor


def to_numpy(tensor: Tensor, force: bool = False) -> np.ndarray[Any, Any]:
    """A NumPy array that shows a CPU tensor's memory, strides included: writes to either are seen by both.

    A tensor on the GPU device gives a copy on the host (PyTorch raises). One that requires gradients is a RuntimeError
    where these are recorded, bfloat16 or a float of 8 bits a TypeError. `force` detaches.
    """
    numpy = _numpy()
    if not force and tensor.requires_grad and _C.is_grad_enabled():
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    if tensor.dtype in (_C.bfloat16, _C.float8_e4m3fn, _C.float8_e5m2):
        name = {_C.bfloat16: "BFloat16"}.get(tensor.dtype) or repr(tensor.dtype)[len("lucid.") :].capitalize()
        raise TypeError(f"Got unsupported ScalarType {name}: NumPy has none; use .float() first")
    # An alias of its own: `tensor.data = …` puts other memory behind the object that was given.
    tensor = tensor.detach().cpu()
    dtype = numpy.dtype(repr(tensor.dtype).removeprefix("lucid."))
    shape, strides = tuple(tensor.shape), tensor.stride()
    if tensor.numel() == 0:
        return numpy.empty(shape, dtype)  # type: ignore[no-any-return]
    tensor._hold_storage()
    interface = {
        "version": 3,
        "typestr": dtype.str,
        "shape": shape,
        "strides": tuple(s * dtype.itemsize for s in strides),
        "data": (tensor.data_ptr(), not tensor._is_writable()),
    }
    return numpy.asarray(_Shown(interface, tensor))  # type: ignore[no-any-return]


def to_array(tensor: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
    """NumPy's array protocol: the tensor's memory, or a copy where the dtype is another or `copy` asks for one."""
    array = to_numpy(tensor)
    if dtype is None or _numpy().dtype(dtype) == array.dtype:
        return array.copy() if copy else array
    if copy is False:
        raise ValueError(f"a tensor of {tensor.dtype} cannot be shown as {dtype} without a copy")
    return array.astype(dtype)


def wrap_array(array: Any, context: Any = None, return_scalar: bool = False) -> Any:
    """What NumPy's functions give where a tensor is among their arguments: a tensor, as in PyTorch with uint8 for
    bool."""
    numpy = _numpy()
    array = numpy.asarray(array)
    return _of_array(array.astype("uint8") if array.dtype == bool else array, True)


# ---- copies and pickles ----------------------------------------------------------------------------------------------


class _Storage:
    """A storage on its way through one pickle or one deepcopy: tensors that share it share it afterwards."""

    def __init__(self, whole: Tensor) -> None:
        self.whole = whole

    def __reduce__(self) -> tuple[Any, ...]:
        w = self.whole
        return _storage, (w._bytes(), tuple(w.shape), w.dtype, w.device)


def _storage(data: bytes, shape: tuple[int, ...], dtype: DType, device: Any) -> _Storage:
    return _Storage(_C._from_bytes(data, list(shape), dtype, device))


def _whole(tensor: Tensor) -> Tensor:
    """A row-major tensor of all elements of a tensor's storage: the tensor itself, where it shows them."""
    if tensor.storage_offset() == 0 and tensor.numel() == tensor._storage_numel() and tensor.is_contiguous():
        return tensor.detach()
    return tensor._storage_vector()


# Storages that are being pickled, by what identifies them, so that one pickle names each once.
_PICKLED: dict[tuple[int, int], Any] = {}


def _storage_of(tensor: Tensor) -> _Storage:
    """The storage of a tensor; one object for all tensors on it, while any such object lives."""
    import weakref

    key = tensor._storage_key()
    known = _PICKLED.get(key)
    found: _Storage | None = known() if known is not None else None
    if found is None or not found.whole._shares_storage(tensor):
        found = _Storage(_whole(tensor))
        _PICKLED[key] = weakref.ref(found, lambda _: _PICKLED.pop(key, None))
    return found


def _rebuild(
    cls: type[Tensor],
    storage: _Storage,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    requires_grad: bool,
    dtype: DType | None = None,
) -> Tensor:
    whole = storage.whole
    if dtype is not None and dtype is not whole.dtype:
        # Of elements of another size a last one may be cut off.
        used = whole.nbytes // dtype.itemsize * dtype.itemsize // whole.element_size()
        whole = whole.reshape(-1)[:used].view(dtype)
    same = offset == 0 and tuple(whole.shape) == shape and whole.stride() == strides
    tensor = whole.detach() if same else whole.as_strided(shape, strides, offset).detach()
    if cls is not Tensor:
        made: Tensor = Tensor._make_subclass(cls, tensor, requires_grad)
        return made
    return _leaf(tensor) if requires_grad else tensor


def reduce_tensor(tensor: Tensor) -> tuple[Any, ...]:
    """The pickle protocol: the storage, what the tensor shows of it, and what the instance carries. The tape is not
    kept."""
    if tensor.is_sparse:
        parts = (tensor._indices(), tensor._values().detach(), tuple(tensor.shape), tensor.is_coalesced())
        return (_sparse, parts, tensor.__dict__ or None)
    warn_of_hooks(tensor)
    args = (
        type(tensor),
        _storage_of(tensor),
        tensor.storage_offset(),
        tuple(tensor.shape),
        tensor.stride(),
        tensor.requires_grad,
        tensor.dtype,
    )
    return (_rebuild, args, tensor.__dict__ or None)


def warn_of_hooks(tensor: Tensor) -> None:
    """Warns of a tensor's hooks, which are not written with it. Those of parameters are left out without a word."""
    from lucid.nn.parameter import Parameter

    if tensor._backward_hooks and not isinstance(tensor, Parameter):
        from lucid.utils.hooks import warn_if_has_hooks

        warn_if_has_hooks(tensor)


def _sparse(indices: Tensor, values: Tensor, size: tuple[int, ...], coalesced: bool) -> Tensor:
    return _C.sparse_coo_tensor(indices, values, size, is_coalesced=coalesced)


def deepcopy(tensor: Tensor, memo: dict[int, Any]) -> Tensor:
    """A tensor of its own with the same elements, gradient and attributes; leaves only. Tensors that share storage
    share their copies' storage, within one deepcopy."""
    if not tensor.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment."
        )
    if id(tensor) in memo:
        found: Tensor = memo[id(tensor)]
        return found
    if tensor.is_sparse:
        memo[id(tensor)] = made = tensor.clone()
        return made
    # Keyed apart from the ids of objects; the storage is kept alive by the memo so that its key stays its own.
    key: Any = ("lucid storage", *tensor._storage_key())
    if key not in memo:
        whole = _whole(tensor)
        memo[key] = (_Storage(whole.clone()), whole)
    storage = memo[key][0]
    shown = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.requires_grad, tensor.dtype)
    made = _rebuild(type(tensor), storage, *shown)
    memo[id(tensor)] = made
    if tensor.grad is not None:
        made.grad = deepcopy(tensor.grad, memo)
    made.__dict__.update(copy_module.deepcopy(tensor.__dict__, memo))
    return made


def scalar_of_bytes(code: str, data: bytes) -> Any:
    """A NumPy scalar of a dtype such as `<f8` from its bytes."""
    numpy = _numpy()
    dtype = numpy.dtype(code)
    if len(data) != dtype.itemsize:
        raise ValueError(f"{len(data)} bytes do not make a NumPy scalar of dtype {code}")
    return numpy.frombuffer(data, dtype)[0]
