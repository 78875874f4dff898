"""`UntypedStorage`: the memory behind a tensor and all of its views, as bytes."""

from __future__ import annotations

from typing import Any

from lucid._C import Tensor


class UntypedStorage:
    """A storage as PyTorch's `Tensor.untyped_storage()` gives it. Two are equal where tensors on them share memory."""

    __slots__ = ("_tensor",)
    _tensor: Tensor

    def __init__(self) -> None:
        raise TypeError("a storage is had from a tensor: tensor.untyped_storage()")

    @classmethod
    def _of(cls, tensor: Tensor) -> UntypedStorage:
        made = cls.__new__(cls)
        made._tensor = tensor._storage_vector()
        return made

    def nbytes(self) -> int:
        """Its size in bytes."""
        return self._tensor.nbytes

    def size(self) -> int:
        """Its size in bytes."""
        return self._tensor.nbytes

    def __len__(self) -> int:
        return self._tensor.nbytes

    def data_ptr(self) -> int:
        """The address of its first byte."""
        return self._tensor.data_ptr()

    def element_size(self) -> int:
        """Bytes per element: one."""
        return 1

    @property
    def device(self) -> Any:
        """Where it lies."""
        return self._tensor.device

    @property
    def is_cuda(self) -> bool:
        """Is it on a CUDA GPU?"""
        return self._tensor.is_cuda

    def is_shared(self) -> bool:
        """Does it lie in memory that other processes can map?"""
        return self._tensor.is_shared()

    def share_memory_(self) -> UntypedStorage:
        """Moves it to memory that other processes can map."""
        self._tensor.share_memory_()
        return self

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
