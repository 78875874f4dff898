"""Tensors from and to what is not a tensor: NumPy, buffers, pickles, copies.

The only module that imports NumPy, and only where an array is asked for.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from lucid import _C
from lucid._C import Tensor
from lucid._C import dtype as DType

if TYPE_CHECKING:
    import numpy as np

# A buffer's element format: the struct module's letter, or NumPy's kind and size.
_FORMATS = {
    "?": _C.bool,
    "B": _C.uint8,
    "b": _C.int8,
    "h": _C.int16,
    "i": _C.int32,
    "e": _C.float16,
    "f": _C.float32,
    "d": _C.float64,
    "Zf": _C.complex64,
}
_NUMPY = {
    "bool": _C.bool,
    "uint8": _C.uint8,
    "int8": _C.int8,
    "int16": _C.int16,
    "int32": _C.int32,
    "int64": _C.int64,
    "float16": _C.float16,
    "float32": _C.float32,
    "float64": _C.float64,
    "complex64": _C.complex64,
}


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise ImportError("this needs NumPy: run pip install 'lucid[numpy]'") from None
    return numpy


# ---- into tensors ----------------------------------------------------------------------------------------------------


def from_foreign(data: Any) -> Tensor:
    """A CPU tensor that copies an array or a buffer."""
    if hasattr(data, "__array__"):
        return from_array(_numpy().asarray(data))
    try:
        view = memoryview(data)
    except TypeError:
        pass
    else:
        return _from_view(view)
    if hasattr(data, "__iter__") and hasattr(data, "__len__"):
        return _C.tensor(list(data))
    raise TypeError(f"tensor(): invalid data type '{type(data).__name__}'")


def _from_view(view: memoryview) -> Tensor:
    code = view.format.lstrip("@=<") if view.format else "B"
    if code in ("l", "q", "n"):
        dtype: DType | None = _C.int64 if view.itemsize == 8 else _C.int32
    else:
        dtype = _FORMATS.get(code)
    if dtype is None or dtype.itemsize != view.itemsize or (view.format or "").startswith((">", "!")):
        raise TypeError(f"tensor(): a buffer of format {view.format!r} has no dtype here")
    return _C._from_bytes(view.tobytes(), list(view.shape or ()), dtype, None)


def from_array(array: np.ndarray[Any, Any]) -> Tensor:
    """A CPU tensor that copies a NumPy array."""
    dtype = _NUMPY.get(array.dtype.name)
    if dtype is None:
        names = ", ".join(_NUMPY)
        raise TypeError(f"can't convert np.ndarray of type {array.dtype}. The supported types are: {names}.")
    native = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    return _C._from_bytes(native.tobytes(), list(array.shape), dtype, None)


def from_numpy(ndarray: np.ndarray[Any, Any]) -> Tensor:
    """A CPU tensor of a NumPy array's elements.

    Differs from PyTorch: it is a copy, so that a write to one is not seen by the other.
    """
    if not isinstance(ndarray, _numpy().ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    return from_array(ndarray)


def frombuffer(buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A vector of a buffer's bytes, read as `dtype`; a copy. `offset` is in bytes, `count` in elements."""
    data = memoryview(buffer).cast("B")
    room = len(data) - offset
    if offset < 0 or room < 0 or (offset > 0 and room == 0):
        raise ValueError(f"offset ({offset} bytes) must be within the buffer of {len(data)} bytes")
    if count < 0:
        count, rest = divmod(room, dtype.itemsize)
        if rest:
            raise ValueError(f"buffer length ({room} bytes) after offset must be a multiple of {dtype.itemsize}")
    if count * dtype.itemsize > room:
        raise ValueError(f"the buffer holds {room} bytes after the offset, {count} elements of {dtype} need more")
    part = data[offset : offset + count * dtype.itemsize]
    tensor = _C._from_bytes(part.tobytes(), [count], dtype, None)
    return tensor.requires_grad_() if requires_grad else tensor


# ---- out of tensors --------------------------------------------------------------------------------------------------


def to_numpy(tensor: Tensor, force: bool = False) -> np.ndarray[Any, Any]:
    """A NumPy array of the tensor's elements, a copy."""
    numpy = _numpy()
    if not force:
        if tensor.requires_grad:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        if not tensor.is_cpu:
            raise TypeError(
                f"can't convert {tensor.device} device type tensor to numpy. "
                "Use Tensor.cpu() to copy the tensor to host memory first."
            )
    if tensor.dtype is _C.bfloat16:
        raise TypeError("Got unsupported ScalarType BFloat16: NumPy has none; use .float() first")
    name = repr(tensor.dtype).removeprefix("lucid.")
    array: np.ndarray[Any, Any] = numpy.frombuffer(tensor._bytearray(), dtype=numpy.dtype(name))
    return array.reshape(tuple(tensor.shape))


def to_array(tensor: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
    """NumPy's array protocol."""
    if copy is False:
        raise ValueError("a tensor's elements cannot be shown to NumPy without a copy")
    array = to_numpy(tensor)
    return array if dtype is None else array.astype(dtype, copy=False)


# ---- copies and pickles ----------------------------------------------------------------------------------------------


def _rebuild(
    cls: type[Tensor], data: bytes, shape: tuple[int, ...], dtype: DType, device: Any, requires_grad: bool
) -> Tensor:
    tensor = _C._from_bytes(data, list(shape), dtype, device)
    if cls is not Tensor:
        made: Tensor = Tensor._make_subclass(cls, tensor, requires_grad)
        return made
    return tensor.requires_grad_() if requires_grad else tensor


def reduce_tensor(tensor: Tensor) -> tuple[Any, ...]:
    """The pickle protocol: elements, and what the instance carries. The tape is not kept."""
    args = (
        type(tensor),
        tensor._bytes(),
        tuple(tensor.shape),
        tensor.dtype,
        tensor.device,
        tensor.requires_grad,
    )
    return (_rebuild, args, tensor.__dict__ or None)


def deepcopy(tensor: Tensor, memo: dict[int, Any]) -> Tensor:
    """A tensor of its own with the same elements, gradient and attributes; leaves only."""
    if not tensor.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment."
        )
    if id(tensor) in memo:
        found: Tensor = memo[id(tensor)]
        return found
    made = tensor.detach().clone()
    if type(tensor) is not Tensor:
        made = Tensor._make_subclass(type(tensor), made, tensor.requires_grad)
    elif tensor.requires_grad:
        made.requires_grad_()
    memo[id(tensor)] = made
    if tensor.grad is not None:
        made.grad = tensor.grad.detach().clone()
    made.__dict__.update(copy.deepcopy(tensor.__dict__, memo))
    return made
