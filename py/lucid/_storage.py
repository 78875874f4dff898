"""The memory behind a tensor and all of its views: `UntypedStorage` as bytes, `TypedStorage` in elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

from lucid import errors
from lucid._C import Tensor, uint8


class _Storage:
    """What both kinds answer alike: where the memory is, and its size in bytes."""

    __slots__ = ("_tensor",)
    _tensor: Tensor

    def nbytes(self) -> int:
        """Its size in bytes."""
        return self._tensor.nbytes

    def data_ptr(self) -> int:
        """The address of its first byte."""
        return self._tensor.data_ptr()

    @property
    def device(self) -> Any:
        """Where it lies."""
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

    @classmethod
    def _of(cls, tensor: Tensor) -> Self:
        """The storage of a tensor."""
        raise NotImplementedError

    def is_shared(self) -> bool:
        """Does it lie in memory that other processes can map?"""
        return self._tensor.is_shared()

    def share_memory_(self) -> Self:
        """Moves it to memory that other processes can map."""
        self._tensor.share_memory_()
        return self


class UntypedStorage(_Storage):
    """A storage as PyTorch's `Tensor.untyped_storage()` gives it. Two are equal where tensors on them share memory."""

    __slots__ = ()

    def __init__(self) -> None:
        raise TypeError("a storage is had from a tensor: tensor.untyped_storage()")

    @classmethod
    def _of(cls, tensor: Tensor) -> Self:
        made = cls.__new__(cls)
        made._tensor = tensor._storage_vector()
        return made

    def size(self) -> int:
        """Its size in bytes."""
        return self._tensor.nbytes

    def __len__(self) -> int:
        return self._tensor.nbytes

    def element_size(self) -> int:
        """Bytes per element: one."""
        return 1

    def _elements(self) -> Tensor:
        return self._tensor.view(uint8)

    def __setitem__(self, index: int | slice, value: Any) -> None:
        self._elements()[index] = value

    def resize_(self, size: int) -> UntypedStorage:
        """Storages have one size for life: another one is an error."""
        if size != self.nbytes():
            raise RuntimeError(f"Trying to resize storage that is not resizable: it has {self.nbytes()} bytes")
        return self

    def tolist(self) -> list[int]:
        """Its bytes."""
        return list(self._tensor._bytes())

    def __getitem__(self, index: Any) -> Any:
        return self._tensor._bytes()[index] if not isinstance(index, slice) else list(self._tensor._bytes()[index])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and self._tensor._storage_key() == other._tensor._storage_key()

    def __hash__(self) -> int:
        return hash(self._tensor._storage_key())

    def __deepcopy__(self, memo: dict[int, Any]) -> UntypedStorage:
        return UntypedStorage._of(self._tensor.__deepcopy__(memo))

    def __repr__(self) -> str:
        return f"<lucid.UntypedStorage of {self.nbytes()} bytes on {self.device}>"


class TypedStorage(_Storage):
    """A storage as PyTorch's `Tensor.storage()` gives it: a vector of elements, written where the tensor is."""

    __slots__ = ("_untyped",)
    _untyped: UntypedStorage

    def __init__(self) -> None:
        raise TypeError("a storage is had from a tensor: tensor.storage()")

    @classmethod
    def _of(cls, tensor: Tensor) -> Self:
        made = cls.__new__(cls)
        made._tensor = tensor._storage_vector()
        made._untyped = UntypedStorage._of(tensor)
        return made

    def untyped(self) -> UntypedStorage:
        """The same as bytes."""
        return self._untyped

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
        if not isinstance(index, int):
            raise errors.RuntimeError(f"can't index a {type(self).__name__} with {type(index).__name__}")
        return self._tensor[index].item()

    def __setitem__(self, index: int | slice, value: Any) -> None:
        self._tensor[index] = value

    def __iter__(self) -> Iterator[Any]:
        return iter(self._tensor.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedStorage) and self._untyped == other._untyped and self.dtype is other.dtype

    def __hash__(self) -> int:
        return hash(self._untyped)

    def __repr__(self) -> str:
        return f"<lucid.TypedStorage of {len(self)} {self.dtype} on {self.device}>"
