"""The memory behind a tensor and all of its views: `UntypedStorage` as bytes, `TypedStorage` in elements.

`FloatStorage` and the others are older names of `TypedStorage` for one dtype. Storages that are made here begin with
zeros, where PyTorch's have anything in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

from lucid import _C, errors
from lucid._C import Tensor, uint8
from lucid._C import dtype as DType
from lucid._convert import from_file
from lucid._dtypes import CLASSES


def _made(op: str, args: tuple[Any, ...], dtype: DType, device: Any, size: Any = None) -> Tensor:
    """A vector of so many zeros, or of the elements of a sequence."""
    if len(args) > 1 or (args and size is not None):
        raise TypeError(f"{op}() takes a size or a sequence, got {len(args) + (size is not None)} arguments")
    data = args[0] if args else 0 if size is None else size
    device = "cpu" if device is None else device
    if isinstance(data, int):
        if data < 0:
            raise errors.RuntimeError(f"{op}(): a storage cannot have {data} elements")
        return _C.zeros(data, dtype=dtype, device=device)
    bytes_ = op == "UntypedStorage"
    if (
        isinstance(data, str)
        or not isinstance(data, Sequence)
        or (bytes_ and any(not isinstance(v, int) for v in data))
    ):
        kind = errors.RuntimeError if bytes_ else TypeError
        raise kind(f"{op}(): expected a size or a sequence of numbers, got {type(data).__name__}")
    return _C.tensor([_byte(v) for v in data] if bytes_ else list(data), dtype=dtype, device=device)


def _byte(value: Any) -> Any:
    """An integer as C keeps it in a byte."""
    return value & 255 if isinstance(value, int) else value


def is_storage(obj: object) -> bool:
    """Is it a storage?"""
    return isinstance(obj, _Storage)


class _Storage:
    """What both kinds answer alike: where the memory is, and its size in bytes."""

    __slots__ = ()

    @property
    def _tensor(self) -> Tensor:
        """A vector of what it holds."""
        raise NotImplementedError

    def nbytes(self) -> int:
        """Its size in bytes."""
        return self._tensor.nbytes

    def data_ptr(self) -> int:
        """The address of its first byte."""
        return self._tensor.data_ptr()

    @property
    def device(self) -> Any:
        """Where it is."""
        return self._tensor.device

    @property
    def is_cuda(self) -> bool:
        """Is it on a CUDA GPU?"""
        return self._tensor.is_cuda

    @property
    def is_sparse(self) -> bool:
        """Storages never are."""
        return False

    def is_pinned(self, device: Any = None) -> bool:
        """Is it memory that GPUs read without help of the CPU?"""
        return self._tensor.is_pinned()

    def clone(self) -> Self:
        """A copy of its own."""
        return self._of(self._tensor.clone())

    def _elements(self) -> Tensor:
        """What it holds, one by one, to be read and written."""
        return self._tensor

    def copy_(self, source: Self, non_blocking: bool | None = None) -> Self:
        """Writes what is in `source`, which has as much, over what is in it."""
        self._elements().copy_(source._elements())
        return self

    def fill_(self, value: Any) -> Self:
        """Writes `value` everywhere."""
        self._elements().fill_(value)
        return self

    def cpu(self) -> Self:
        """Itself, or a copy on the CPU."""
        return self if self._tensor.is_cpu else self._of(self._tensor.cpu())

    def to(self, *, device: Any, non_blocking: bool = False) -> Self:
        """Itself, or a copy on another device."""
        moved = self._tensor.to(device)
        return self if moved is self._tensor else self._of(moved)

    def get_device(self) -> int:
        """The device's number; -1 on the CPU."""
        return self._tensor.get_device()

    def new(self) -> Self:
        """An empty one of the same kind."""
        return self._of(_C.empty(0, dtype=self._tensor.dtype, device=self._tensor.device))

    def __copy__(self) -> Self:
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        made: Self = memo.setdefault(id(self), self._of(self._tensor.__deepcopy__(memo)))
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self)._of, (self._tensor,)

    def resizable(self) -> bool:
        """Can it get another size? Not where its memory is that of an array, or shared with other processes."""
        return not self.untyped()._is_part and self._tensor._is_resizable()

    def untyped(self) -> UntypedStorage:
        """The same as bytes, in the same memory."""
        raise NotImplementedError

    def _as(self, dtype: DType) -> Any:
        """Its elements as those of another dtype, in a storage of their own."""
        return TypedStorage._of(self._elements().to(dtype, copy=True))

    @classmethod
    def _of(cls, tensor: Tensor) -> Self:
        """The storage of a tensor."""
        raise NotImplementedError

    def is_shared(self) -> bool:
        """Is it in memory that other processes can map?"""
        return self._tensor.is_shared()

    def share_memory_(self) -> Self:
        """Moves it to memory that other processes can map."""
        self._tensor.share_memory_()
        return self


class StorageBase(_Storage):
    """What storages of bytes are instances of, by PyTorch's name."""

    __slots__ = ()


class UntypedStorage(StorageBase):
    """A storage as PyTorch's `Tensor.untyped_storage()` gives it. Two are equal where tensors on them share memory.

    Args:
        args (int or sequence of int): the number of bytes, all 0, or the bytes. Default: none.
        size (int, optional): the number of bytes.
        device (device or str, optional): where the result is made; the current default device by default.

    Example:
        >>> lucid.UntypedStorage(4).nbytes()
        4
    """

    __slots__ = ("_is_part", "_whole")
    _whole: Tensor
    #: Is it a part of another one?
    _is_part: bool

    def __init__(self, *args: Any, size: int | None = None, device: Any = None) -> None:
        """So many bytes, all 0, or the bytes of a sequence; none by default."""
        self._whole, self._is_part = _made("UntypedStorage", args, uint8, device, size), False

    @classmethod
    def _of(cls, tensor: Tensor) -> Self:
        made = cls.__new__(cls)
        made._whole, made._is_part = tensor._storage_vector(), False
        return made

    @property
    def _tensor(self) -> Tensor:
        # It may have got another size since.
        if not self._is_part and self._whole.nbytes != self._whole._storage_nbytes():
            self._whole = self._whole._storage_vector()
        return self._whole

    def nbytes(self) -> int:
        """Its size in bytes."""
        return self._whole.nbytes if self._is_part else self._whole._storage_nbytes()

    @classmethod
    def from_buffer(cls, buffer: Any, *, dtype: DType = uint8) -> Self:
        """The bytes of an object with the buffer protocol, copied."""
        return cls(bytes(buffer))

    @classmethod
    def from_file(cls, filename: str, shared: bool = False, nbytes: int = 0) -> Self:
        """The bytes of a file, as `lucid.from_file` shows them."""
        return cls._of(from_file(filename, shared, nbytes, dtype=uint8))

    def type(self) -> str:
        """The name of its class."""
        return "lucid.UntypedStorage"

    def untyped(self) -> Self:
        """Itself."""
        return self

    def size(self) -> int:
        """Its size in bytes."""
        return self.nbytes()

    def __len__(self) -> int:
        return self.nbytes()

    def element_size(self) -> int:
        """Bytes per element: one."""
        return 1

    def _elements(self) -> Tensor:
        return self._tensor.view(uint8)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._elements()[self._place(index)] = _byte(value)

    def _place(self, index: Any) -> Any:
        """An index that has been checked as PyTorch's storages do it."""
        if isinstance(index, slice):
            if index.step not in (None, 1):
                raise errors.RuntimeError(
                    f"Trying to slice with a step of {index.step}, but only a step of 1 is supported"
                )
            return index
        if not isinstance(index, int):
            raise TypeError(f"can't index a {type(self).__name__} with {type(index).__name__}")
        if not -self.nbytes() <= index < self.nbytes():
            raise IndexError(f"index {index} out of range for storage of size {self.nbytes()}")
        return index

    def fill_(self, value: Any) -> Self:
        """Writes a byte everywhere."""
        self._elements().fill_(_byte(value))
        return self

    def copy_(self, source: Any, non_blocking: bool | None = None) -> Self:
        """Writes the bytes of `source`, which has as many, over its own."""
        theirs = source.untyped()
        if theirs.nbytes() != self.nbytes():
            why = f"self was {self.nbytes()} bytes but src was {theirs.nbytes()} bytes"
            raise errors.RuntimeError(f"size does not match, {why}")
        self._elements().copy_(theirs._elements())
        return self

    def byteswap(self, dtype: DType) -> None:
        """Turns the bytes of each element of a dtype around."""
        parts = self._elements().view(-1, dtype.to_real().itemsize)
        parts.copy_(parts.flip(1))

    def resize_(self, size: int) -> Self:
        """Another number of bytes, for all tensors that show it: the old ones, then zeros. Tensors keep their sizes;
        what they show beyond its end is zeros. An error where it is not resizable, and on the GPU device where it would
        become larger than it was made while a tensor shows it."""
        had = self.nbytes()
        if size < 0:
            raise errors.RuntimeError(f"resize_(): a storage cannot have {size} bytes")
        if size == had:
            return self
        if self.resizable() and self._whole._resize_storage(size):
            return self
        if self._whole.is_cpu or self._is_part or not self._whole._storage_is_unshared():
            why = f"it has {had} bytes, which are not its own, or which a tensor on the GPU device shows"
            raise errors.RuntimeError(f"Trying to resize storage that is not resizable: {why}")
        new, kept = _C.zeros(size, dtype=uint8, device=self.device), min(size, had)
        new[:kept].copy_(self._elements()[:kept])
        self._whole = new
        return self

    def tolist(self) -> list[int]:
        """Its bytes."""
        return list(self._tensor._bytes())

    def __getitem__(self, index: Any) -> Any:
        place = self._place(index)
        if not isinstance(place, slice):
            return self._elements()[place].item()
        part = type(self).__new__(type(self))
        part._whole, part._is_part = self._elements()[place], True
        return part

    def __iter__(self) -> Iterator[int]:
        return iter(self._tensor._bytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and self._tensor._storage_key() == other._tensor._storage_key()

    def __hash__(self) -> int:
        return hash(self._tensor._storage_key())

    def __repr__(self) -> str:
        bytes_ = "".join(f" {b}\n" for b in self)
        return f"{bytes_}[lucid.UntypedStorage(device={self.device}) of size {self.nbytes()}]"


class TypedStorage(_Storage):
    """A storage as PyTorch's `Tensor.storage()` gives it: a vector of elements, written where the tensor is.

    Args:
        args (int or sequence of number): the number of elements, all 0, or the elements. Default: none.
        wrap_storage (UntypedStorage, optional): the bytes that are shown, rather than new ones; needs a `dtype`.
        dtype (dtype, optional): the elements' dtype; the default dtype by default.
        device (device or str, optional): where the result is made; the current default device by default.

    Raises:
        RuntimeError: arguments that do not go together.

    Example:
        >>> lucid.FloatStorage(2).tolist()
        [0.0, 0.0]
    """

    __slots__ = ("_dtype", "_untyped")
    _untyped: UntypedStorage
    _dtype: DType

    def __init__(
        self,
        *args: Any,
        wrap_storage: UntypedStorage | None = None,
        dtype: DType | None = None,
        device: Any = None,
        _internal: bool = False,
    ) -> None:
        """So many elements of a dtype, by default the default one, all 0, or the elements of a sequence; or those that
        the bytes of `wrap_storage` are, in the same memory."""
        if wrap_storage is None:
            self._dtype = dtype or _C.get_default_dtype()
            self._untyped = UntypedStorage._of(_made("TypedStorage", args, self._dtype, device))
            return
        if args or device is not None or dtype is None:
            why = "`wrap_storage` takes a dtype beside it, and nothing else"
            raise errors.RuntimeError(f"TypedStorage.__init__ received an invalid combination of arguments: {why}")
        if not isinstance(wrap_storage, UntypedStorage):
            raise TypeError(f"Argument 'wrap_storage' must be UntypedStorage, but got {type(wrap_storage).__name__}")
        self._untyped, self._dtype = wrap_storage, dtype

    @classmethod
    def _of(cls, tensor: Tensor) -> Self:
        made = cls.__new__(cls)
        made._untyped, made._dtype = UntypedStorage._of(tensor), tensor.dtype
        return made

    @property
    def _tensor(self) -> Tensor:
        whole = self._untyped._tensor
        if whole.dtype is self._dtype:
            return whole
        bytes_ = self._untyped._elements()
        return bytes_[: bytes_.numel() // self._dtype.itemsize * self._dtype.itemsize].view(self._dtype)

    @classmethod
    def from_buffer(cls, buffer: Any, *, dtype: DType | None = None, device: Any = None) -> Self:
        """The elements of a dtype that the bytes of an object with the buffer protocol are, copied."""
        return cls(wrap_storage=UntypedStorage(bytes(buffer), device=device), dtype=dtype or _C.get_default_dtype())

    def untyped(self) -> UntypedStorage:
        """The same as bytes, in the same memory."""
        return self._untyped

    def type(self, dtype: str | storagetype | None = None, non_blocking: bool = False) -> Any:
        """The older name for storages of its dtype; with that of another dtype, or the class, its elements as such a
        storage, itself where it is one. PyTorch's own conversion fails for every other dtype."""
        if dtype is not None:
            wanted = next((c for c in _CLASSES if dtype is c or dtype == f"lucid.{c.__name__}"), None)
            if wanted is None:
                known = ", ".join(f"lucid.{c.__name__}" for c in _CLASSES)
                raise errors.ValueError(f"type: {dtype!r} names no storage; there are {known}")
            return self if isinstance(self, wanted) else self._as(wanted.dtype)
        short = self.pickle_storage_type()
        return f"lucid.{short}" if self._tensor.is_cpu else f"lucid.{self.device.type}.{short}"

    def pickle_storage_type(self) -> str:
        """The older name for storages of its dtype, without the package's."""
        if self.dtype not in _NAMES:
            raise KeyError(f"{self.dtype} is newer than the names of storages; untyped() has its bytes")
        return _NAMES[self.dtype]

    def resize_(self, size: int) -> None:
        """Another number of elements, as `UntypedStorage.resize_`."""
        self._untyped.resize_(size * self._dtype.itemsize)

    @property
    def dtype(self) -> Any:
        """The elements' dtype."""
        return self._tensor.dtype

    def size(self) -> int:
        """How many elements it has."""
        return self._tensor.numel()

    def __len__(self) -> int:
        return self._tensor.numel()

    def element_size(self) -> int:
        """Bytes per element."""
        return self._tensor.element_size()

    def tolist(self) -> list[Any]:
        """Its elements."""
        elements: list[Any] = self._tensor.tolist()
        return elements

    def __getitem__(self, index: int) -> Any:
        if isinstance(index, slice):
            raise errors.RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        if not isinstance(index, int):
            raise errors.RuntimeError(f"can't index a {type(self).__name__} with {type(index).__name__}")
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} out of range for storage of size {len(self)}")
        return self._tensor[index].item()

    def __setitem__(self, index: int | slice, value: Any) -> None:
        self._tensor[index] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self._tensor.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedStorage) and self.untyped() == other.untyped() and self.dtype is other.dtype

    def __hash__(self) -> int:
        return hash(self.untyped())

    def __repr__(self) -> str:
        elements = "".join(f" {v}\n" for v in self)
        return f"{elements}[lucid.TypedStorage(dtype={self.dtype}, device={self.device}) of size {len(self)}]"


class storagetype(type):
    """The type of the names below: calling one makes a storage of its dtype on the CPU, and an instance is one."""

    dtype: DType

    def __call__(cls, *args: Any, wrap_storage: UntypedStorage | None = None) -> TypedStorage:
        """So many zeros, the elements of a sequence, or those that the bytes of `wrap_storage` are."""
        return TypedStorage(*args, wrap_storage=wrap_storage, dtype=cls.dtype)

    def from_buffer(cls, buffer: Any, byte_order: str = "native") -> TypedStorage:
        """The elements that the bytes of an object with the buffer protocol are, in an order: native, little or big."""
        import sys

        if byte_order not in ("native", "little", "big"):
            raise ValueError(f"invalid byte_order '{byte_order}' (expected 'big', 'little', or 'native')")
        made = TypedStorage.from_buffer(buffer, dtype=cls.dtype)
        if byte_order not in ("native", sys.byteorder):
            made.untyped().byteswap(cls.dtype)
        return made

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, TypedStorage) and instance.dtype is cls.dtype and instance.device.type == "cpu"

    def __repr__(cls) -> str:
        return f"<class 'lucid.{cls.__name__}'>"


def _named(short: str) -> storagetype:
    dtype = CLASSES[short]
    doc = f"""Makes a `TypedStorage` of {dtype!r} on the CPU; an instance of it is any such storage.

    Args:
        args (int or sequence of number): the number of elements, all 0, or the elements. Default: none.
        wrap_storage (UntypedStorage, optional): the bytes that are shown, rather than new ones.

    Example:
        >>> lucid.{short}Storage(2).dtype
        {dtype!r}
    """
    body = {"dtype": dtype, "__module__": "lucid", "__doc__": doc}
    return storagetype(f"{short}Storage", (), body)


FloatStorage = _named("Float")
DoubleStorage = _named("Double")
HalfStorage = _named("Half")
BFloat16Storage = _named("BFloat16")
ByteStorage = _named("Byte")
CharStorage = _named("Char")
ShortStorage = _named("Short")
IntStorage = _named("Int")
LongStorage = _named("Long")
BoolStorage = _named("Bool")
ComplexFloatStorage = _named("ComplexFloat")
ComplexDoubleStorage = _named("ComplexDouble")

_CLASSES = [v for v in list(globals().values()) if isinstance(v, storagetype)]
_NAMES: dict[DType, str] = {c.dtype: c.__name__ for c in _CLASSES}


def _converter(dtype: DType) -> Any:
    def convert(self: _Storage) -> Any:
        return self._as(dtype)

    convert.__doc__ = f"Its elements as {dtype!r}, in memory of their own."
    return convert


# Methods, but with names of types that annotations above have in them.
for _name in ("float", "double", "half", "bfloat16", "long", "int", "short", "bool"):
    setattr(_Storage, _name, _converter(getattr(_C, _name)))
for _name, _dtype in (
    ("char", _C.int8),
    ("byte", _C.uint8),
    ("complex_float", _C.complex64),
    ("complex_double", _C.complex128),
):
    setattr(_Storage, _name, _converter(_dtype))
