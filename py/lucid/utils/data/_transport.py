"""Batches between processes: the structure is pickled, and the bytes of tensors and arrays go through shared memory.

A segment's name tells its worker and number, so that the receiver can remove also those of a worker that died before it
could name them. The receiver unlinks a segment as soon as it has it; the resource tracker removes what a killed
receiver leaves.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable
from multiprocessing import shared_memory
from typing import Any

import lucid
from lucid import Tensor

# Below this many bytes a batch fits into the pipe, and a segment would cost more than it saves.
_INLINE = 1 << 15
_ALIGN = 64

# (structure, tensors, sizes of the parts, segment or the bytes themselves)
Packed = tuple[bytes, list[tuple[Any, ...]], list[int], str | bytes]


class _Packer(pickle.Pickler):
    """Replaces CPU tensors by numbers, and collects them."""

    def __init__(self, file: Any, buffers: list[pickle.PickleBuffer]) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffers.append)
        self.tensors: list[Tensor] = []
        self._numbers: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> int | None:
        if type(obj) is not Tensor or not obj.is_cpu or obj.__dict__:
            return None
        if obj.requires_grad and not obj.is_leaf:
            raise RuntimeError(
                "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not support "
                "crossing process boundaries. Call detach() on the tensor before returning it from a worker."
            )
        number = self._numbers.setdefault(id(obj), len(self.tensors))
        if number == len(self.tensors):
            self.tensors.append(obj)
        return number


class _Unpacker(pickle.Unpickler):
    def __init__(self, data: bytes, buffers: Iterable[Any], tensors: list[Tensor]) -> None:
        super().__init__(io.BytesIO(data), buffers=buffers)
        self.tensors = tensors

    def persistent_load(self, pid: Any) -> Tensor:
        tensor: Tensor = self.tensors[pid]
        return tensor


def _offsets(sizes: list[int]) -> tuple[list[int], int]:
    offsets, end = [], 0
    for size in sizes:
        offsets.append(end)
        end += -(-size // _ALIGN) * _ALIGN
    return offsets, end


def pack(obj: Any, name: str) -> Packed:
    """The object for the other side, its bytes in a new segment of that name where they are many."""
    file = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    packer = _Packer(file, buffers)
    packer.dump(obj)
    headers = [(tuple(t.shape), t.dtype, t.requires_grad) for t in packer.tensors]
    raws = [b.raw() for b in buffers]
    sizes = [t.nbytes for t in packer.tensors] + [len(r) for r in raws]
    offsets, total = _offsets(sizes)
    if total <= _INLINE:
        target: Any = bytearray(total)
        _fill(memoryview(target), packer.tensors, raws, offsets)
        return file.getvalue(), headers, sizes, bytes(target)
    segment = _Segment(name, create=True, size=total)
    try:
        _fill(memoryview(segment.buf or b""), packer.tensors, raws, offsets)
    except BaseException:
        segment.close()
        segment.unlink()
        raise
    segment.close()
    return file.getvalue(), headers, sizes, segment.name


def _tensor(data: memoryview, dtype: Any, shape: tuple[int, ...]) -> Tensor:
    """A tensor over the memory `data`."""
    if len(data) == 0:
        return lucid._C._from_bytes(b"", list(shape), dtype, None)
    return lucid.frombuffer(data, dtype=dtype).reshape(list(shape))


def _fill(target: memoryview, tensors: list[Tensor], raws: list[Any], offsets: list[int]) -> None:
    for tensor, at in zip(tensors, offsets, strict=False):
        _tensor(target[at : at + tensor.nbytes], tensor.dtype, tuple(tensor.shape)).copy_(tensor.detach())
    for raw, at in zip(raws, offsets[len(tensors) :], strict=True):
        target[at : at + len(raw)] = raw


class _Segment(shared_memory.SharedMemory):
    """Shared memory that tensors may be in after it is closed: the mapping goes with the last of them."""

    def close(self) -> None:
        try:
            super().close()
        except BufferError:
            self._mmap = None
            # The descriptor is still to be closed.
            super().close()


def unpack(packed: Packed) -> Any:
    """The object; its tensors are in the segment, whose name is removed."""
    structure, headers, sizes, where = packed
    offsets, _ = _offsets(sizes)
    if isinstance(where, bytes):
        return _restore(structure, headers, sizes, offsets, memoryview(bytearray(where)))
    segment = _Segment(where)
    # Unlinked at once: from here on, the memory goes when the mapping does, whatever happens.
    segment.unlink()
    try:
        return _restore(structure, headers, sizes, offsets, memoryview(segment.buf or b""))
    finally:
        segment.close()


def _restore(
    structure: bytes, headers: list[tuple[Any, ...]], sizes: list[int], offsets: list[int], data: memoryview
) -> Any:
    tensors = []
    for (shape, dtype, requires_grad), size, at in zip(headers, sizes, offsets, strict=False):
        tensor = _tensor(data[at : at + size], dtype, shape)
        tensors.append(tensor.requires_grad_() if requires_grad else tensor)
    n = len(headers)
    buffers = [data[at : at + size] for size, at in zip(sizes[n:], offsets[n:], strict=True)]
    return _Unpacker(structure, buffers, tensors).load()


def discard(packed: Packed) -> None:
    """Removes the segment of a batch that nobody wants any more."""
    if isinstance(packed[3], str):
        remove(packed[3])


def remove(name: str) -> bool:
    """Removes a segment by its name; says whether there was one."""
    try:
        segment = _Segment(name)
    except FileNotFoundError:
        return False
    segment.close()
    segment.unlink()
    return True
