"""PyTorch's older names for dtypes: `lucid.FloatTensor(2, 3)`, `isinstance(x, lucid.LongTensor)`, `x.type()`."""

from __future__ import annotations

from typing import Any

from lucid import _C, errors
from lucid._C import Tensor
from lucid._C import dtype as DType
from lucid._dtypes import CLASSES
from lucid._warnings import warn_once


class tensortype(type):
    """The type of the names below: calling one makes a tensor, and an instance is a tensor of its dtype on the CPU."""

    dtype: DType
    device: str

    def __call__(cls, *data: Any) -> Tensor:
        """Uninitialised for sizes, `FloatTensor(2, 3)`; on a storage; else from a nest of numbers or a tensor."""
        if not data:
            return _C.empty(0, dtype=cls.dtype, device=cls.device)
        if isinstance(data[0], Tensor):
            if len(data) != 1 or data[0].dtype is not cls.dtype:
                got = ", ".join(type(d).__name__ for d in data)
                raise TypeError(f"{cls.__name__}(): expected one tensor of {cls.dtype!r}, got {got}; use .to()")
            if cls.device != "cpu" and not isinstance(data[0], cls):
                raise TypeError(f"{cls.__name__}(): expected a tensor of {cls.device}, got one of {data[0].device}")
            return data[0].detach()
        if len(data) == 1 and hasattr(data[0], "_tensor"):
            return _C.empty(0, dtype=cls.dtype, device=data[0].device).set_(data[0])
        integer = hasattr(data[0], "__index__") and not hasattr(data[0], "__len__")
        if integer or type(data[0]).__name__ == "Size":
            return _C.empty(*data, dtype=cls.dtype, device=cls.device)
        if len(data) != 1:
            raise TypeError(f"{cls.__name__}(): expected sizes or one sequence, got {len(data)} arguments")
        if data[0] is None or isinstance(data[0], (float, complex)):
            raise TypeError(f"{cls.__name__}(): data must be a sequence (got {type(data[0]).__name__})")
        return _C.tensor(data[0], dtype=cls.dtype, device=cls.device)

    def __instancecheck__(cls, instance: object) -> bool:
        if not isinstance(instance, Tensor) or instance.dtype is not cls.dtype:
            return False
        return instance.device.type == ("cpu" if cls.device == "cpu" else _C.device(cls.device).type)

    def __repr__(cls) -> str:
        return f"<class '{cls.__module__}.{cls.__name__}'>"


def _of(short: str, device: str = "cpu") -> tensortype:
    dtype = CLASSES[short]
    name = f"{short}Tensor" if device == "cpu" else f"{device}.{short}Tensor"
    where = "the CPU" if device == "cpu" else "the GPU"
    like = "" if device == "cpu" else f", device={device!r}"
    doc = f"""Makes a tensor of {dtype!r} on {where}; an instance of it is any such tensor.

    Args:
        data (int, sequence, Tensor or storage): sizes, for a tensor that is not initialized; or one sequence of
            numbers, one tensor of the dtype, or a storage. Default: no elements.

    Raises:
        TypeError: `data` is something else, or a tensor of another dtype or device.

    Example:
        >>> lucid.{name}([1, 2]).shape
        lucid.Size([2])
        >>> isinstance(lucid.zeros(2, dtype={dtype!r}{like}), lucid.{name})
        True
    """
    module = "lucid" if device == "cpu" else f"lucid.{device}"
    body = {"dtype": dtype, "device": device, "__module__": module, "__doc__": doc}
    return tensortype(f"{short}Tensor", (), body)


FloatTensor = _of("Float")
DoubleTensor = _of("Double")
HalfTensor = _of("Half")
BFloat16Tensor = _of("BFloat16")
ByteTensor = _of("Byte")
CharTensor = _of("Char")
ShortTensor = _of("Short")
IntTensor = _of("Int")
LongTensor = _of("Long")
BoolTensor = _of("Bool")
ComplexFloatTensor = _of("ComplexFloat")
ComplexDoubleTensor = _of("ComplexDouble")

# Newer dtypes have names, but no classes.
_NEWER = {
    "UInt16": _C.uint16,
    "UInt32": _C.uint32,
    "UInt64": _C.uint64,
    "Float8_e4m3fn": _C.float8_e4m3fn,
    "Float8_e5m2": _C.float8_e5m2,
}
_TYPES: dict[DType, str] = {dtype: f"{short}Tensor" for short, dtype in (CLASSES | _NEWER).items()}


def name_of(dtype: DType, device: str) -> str:
    """What `Tensor.type()` says: `lucid.FloatTensor`, with the device before the name where it is not the CPU."""
    return f"lucid.{'' if device == 'cpu' else device + '.'}{_TYPES[dtype]}"


def parse(name: object) -> tuple[DType, str] | None:
    """The dtype and the device that one of these types, or such a name, stands for; `None` for anything else."""
    if isinstance(name, tensortype):
        return name.dtype, name.device
    if not isinstance(name, str):
        return None
    for dtype, short in _TYPES.items():
        head, dot, last = name.rpartition(".")
        if last == short and dot and head.partition(".")[0] in ("lucid", "torch"):
            return dtype, head.partition(".")[2] or "cpu"
    return None


def set_default_tensor_type(t: type[Tensor] | tensortype | str, /) -> None:
    """Sets the default dtype and device to those of a tensor type. An old name, of which it warns.

    Args:
        t (type or str): such as `lucid.DoubleTensor` or its name.

    Raises:
        TypeError: `t` is no such type, or not one of floating point numbers.

    Example:
        >>> lucid.set_default_tensor_type(lucid.FloatTensor)
        >>> lucid.get_default_dtype()
        lucid.float32
    """
    found = parse(t)
    if found is None or not found[0].is_floating_point:
        got = t if isinstance(t, str) else t.__name__ if isinstance(t, type) else type(t).__name__
        raise errors.TypeError(
            f"set_default_tensor_type(): only floating-point types are supported as the default type, got {got}; "
            "e.g. lucid.DoubleTensor"
        )
    text = "set_default_tensor_type() is deprecated, use set_default_dtype() and set_default_device() instead."
    warn_once("set_default_tensor_type", text)
    _C.set_default_device(found[1])
    _C.set_default_dtype(found[0])
