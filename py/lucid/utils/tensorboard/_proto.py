"""Protocol buffers, encoded: the fields that TensorBoard's messages have, as functions that give bytes.

A message is the concatenation of its fields. Reference: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import struct
from collections.abc import Iterable


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; a negative int64 takes ten bytes."""
    value = int(value) & (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(field: int, value: int) -> bytes:
    """An int32, int64, bool or enum."""
    return varint(field << 3) + varint(value)


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", float(value))


def single(field: int, value: float) -> bytes:
    return varint(field << 3 | 5) + float32(value)


def float32(value: float) -> bytes:
    """Four bytes; a value beyond float32's range is an infinity, as in C++."""
    value = float(value)
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))


def data(field: int, value: bytes | str) -> bytes:
    """Bytes, a string, or a message."""
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def doubles(field: int, values: Iterable[float]) -> bytes:
    """Packed doubles; nothing for no values."""
    given = [float(v) for v in values]
    return data(field, struct.pack(f"<{len(given)}d", *given)) if given else b""


def shape(sizes: Iterable[int]) -> bytes:
    """A TensorShapeProto."""
    return b"".join(data(2, integer(1, n)) for n in sizes)


def plugin(name: str, content: bytes = b"") -> bytes:
    """A SummaryMetadata that names a plugin."""
    return data(1, data(1, name) + (data(2, content) if content else b""))


def value(tag: str, content: bytes) -> bytes:
    """A Summary of one value; `content` is its other fields."""
    return data(1, data(1, tag) + content)


def event(wall_time: float, step: int | None = None, *, field: int | None = None, content: bytes | str = b"") -> bytes:
    """An Event: time, step, and one field that says what happened."""
    out = double(1, wall_time) + (b"" if step is None else integer(2, step))
    return out if field is None else out + data(field, content)
