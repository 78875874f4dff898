"""The zip archives that checkpoints are: stored entries only, each at a multiple of 64 bytes.

The reader trusts nothing: every offset and size is checked against the file, entries must not overlap, and compressed
or encrypted ones are refused, so that no file can make it use more memory than the file is long. PKWARE's APPNOTE.TXT,
4.3.
"""

from __future__ import annotations

import itertools
import struct
import zlib
from dataclasses import dataclass
from typing import Any, Protocol

from lucid.serialization._errors import InvalidFileError

ALIGNMENT = 64

_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64 = struct.Struct("<4sLQL")
_MAX16, _MAX32 = 0xFFFF, 0xFFFFFFFF
_ZEROS = bytes(1 << 20)
_ZIP64, _PADDING = 0x0001, 0x4246


class Source(Protocol):
    """Bytes that can be read anywhere."""

    size: int

    def read(self, offset: int, size: int) -> Any:
        """Exactly these bytes."""


def _fail(why: str) -> InvalidFileError:
    return InvalidFileError(f"not a readable checkpoint: {why}")


@dataclass(frozen=True)
class Entry:
    """One file of the archive: where its bytes are, and their checksum."""

    name: str
    start: int
    size: int
    crc: int


class Writer:
    """Writes an archive from front to back."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.at = 0
        self.directory: list[bytes] = []

    def _write(self, data: Any) -> None:
        self.file.write(data)
        self.at += len(data)

    def add(self, name: str, data: bytes) -> None:
        """Adds an entry."""
        self._add(name, len(data), [data])

    def add_zeros(self, name: str, size: int) -> None:
        """Adds an entry of zeros."""
        whole, rest = divmod(size, len(_ZEROS))
        self._add(name, size, [_ZEROS] * whole + [_ZEROS[:rest]])

    def _add(self, name: str, size: int, parts: list[bytes]) -> None:
        encoded = name.encode()
        offset, crc = self.at, 0
        for part in parts:
            crc = zlib.crc32(part, crc)
        wide = size >= _MAX32
        extra = struct.pack("<2H2Q", _ZIP64, 16, size, size) if wide else b""
        before = offset + _LOCAL.size + len(encoded) + len(extra) + 4
        gap = -before % ALIGNMENT
        extra += struct.pack("<2H", _PADDING, gap) + b"\0" * gap
        short = _MAX32 if wide else size
        version = 45 if wide or offset >= _MAX32 else 20
        # Flag 11: the name is UTF-8. The date is the format's first day: equal contents make equal files.
        common = (version, 0x0800, 0, 0, 0x21, crc, short, short, len(encoded))
        self._write(_LOCAL.pack(b"PK\3\4", *common, len(extra)) + encoded + extra)
        for part in parts:
            self._write(part)
        fields = ([size, size] if wide else []) + ([offset] if offset >= _MAX32 else [])
        far = struct.pack(f"<2H{len(fields)}Q", _ZIP64, 8 * len(fields), *fields) if fields else b""
        place = min(offset, _MAX32)
        self.directory.append(_CENTRAL.pack(b"PK\1\2", version, *common, len(far), 0, 0, 0, 0, place) + encoded + far)

    def close(self) -> None:
        """Writes the directory; the file is complete then."""
        start, count = self.at, len(self.directory)
        data = b"".join(self.directory)
        self._write(data)
        if count >= _MAX16 or start >= _MAX32 or len(data) >= _MAX32:
            end = self.at
            self._write(_END64.pack(b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(data), start))
            self._write(_LOCATOR64.pack(b"PK\6\7", 0, end, 1))
        few = min(count, _MAX16)
        self._write(_END.pack(b"PK\5\6", 0, 0, few, few, min(len(data), _MAX32), min(start, _MAX32), 0))


def _directory(source: Source) -> tuple[int, int, int]:
    """Where the directory starts, its size, and how many entries it has."""
    reach = min(source.size, _END.size + _MAX16)
    tail = bytes(source.read(source.size - reach, reach))
    found = tail.rfind(b"PK\5\6")
    if found < 0 or len(tail) - found < _END.size:
        raise _fail("its end is missing, so it is truncated or no zip archive")
    at = source.size - reach + found
    _, disk, first, here, count, size, start, _ = _END.unpack_from(tail, found)
    if at >= _LOCATOR64.size:
        locator = bytes(source.read(at - _LOCATOR64.size, _LOCATOR64.size))
        if locator[:4] == b"PK\6\7":
            end64 = _LOCATOR64.unpack(locator)[2]
            if end64 + _END64.size > at:
                raise _fail("its zip64 end is outside of the file")
            fields = _END64.unpack(bytes(source.read(end64, _END64.size)))
            if fields[0] != b"PK\6\6":
                raise _fail("its zip64 end is damaged")
            _, _, _, _, disk, first, here, count, size, start = fields
            at = end64
    if disk or first or here != count:
        raise _fail("it is spread over several files")
    if start + size > at or count > size // _CENTRAL.size:
        raise _fail("its directory is outside of the file")
    return start, size, count


def _wide(extra: bytes, values: list[int]) -> list[int]:
    """The values with those that say "see the zip64 field" taken from there."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        field = extra[at + 4 : at + 4 + length]
        if kind == _ZIP64:
            wide = iter(struct.unpack(f"<{len(field) // 8}Q", field[: len(field) // 8 * 8]))
            return [next(wide, v) if v == _MAX32 else v for v in values]
        at += 4 + length
    return values


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise _fail("an entry's name is not UTF-8") from None


def read_entries(source: Source) -> dict[str, Entry]:
    """The entries by name. Raises `InvalidFileError` for anything that does not add up."""
    start, size, count = _directory(source)
    directory = bytes(source.read(start, size))
    entries: dict[str, Entry] = {}
    spans: list[tuple[int, int]] = []
    at = 0
    for _ in range(count):
        if at + _CENTRAL.size > size or directory[at : at + 4] != b"PK\1\2":
            raise _fail("its directory is damaged")
        fields = _CENTRAL.unpack_from(directory, at)
        flags, method, crc, packed, plain = fields[3], fields[4], fields[7], fields[8], fields[9]
        names, extras, comments, offset = fields[10], fields[11], fields[12], fields[16]
        at += _CENTRAL.size
        name = _text(directory[at : at + names])
        packed, plain, offset = _central_sizes(directory[at + names : at + names + extras], packed, plain, offset)
        at += names + extras + comments
        if at > size:
            raise _fail("its directory is damaged")
        if flags & 1:
            raise _fail(f"entry {name!r} is encrypted")
        if method != 0 or packed != plain:
            raise _fail(f"entry {name!r} is compressed; checkpoints store their entries as they are")
        if name in entries:
            raise _fail(f"entry {name!r} comes twice")
        data = _data_start(source, name, offset, start)
        if data + plain > start:
            raise _fail(f"entry {name!r} of {plain} bytes reaches outside of the file")
        entries[name] = Entry(name, data, plain, crc)
        spans.append((offset, data + plain))
    spans.sort()
    for (_, end), (begin, _) in itertools.pairwise(spans):
        if begin < end:
            raise _fail("its entries overlap")
    return entries


def _central_sizes(extra: bytes, packed: int, plain: int, offset: int) -> tuple[int, int, int]:
    # The zip64 field lists what did not fit in this order: plain, packed, offset.
    plain, packed, offset = _wide(extra, [plain, packed, offset])
    return packed, plain, offset


def _data_start(source: Source, name: str, offset: int, limit: int) -> int:
    if offset + _LOCAL.size > limit:
        raise _fail(f"entry {name!r} is outside of the file")
    header = _LOCAL.unpack(bytes(source.read(offset, _LOCAL.size)))
    if header[0] != b"PK\3\4":
        raise _fail(f"entry {name!r} has no header where the directory says")
    start: int = offset + _LOCAL.size + header[9] + header[10]
    if start > limit or bytes(source.read(offset + _LOCAL.size, header[9])) != name.encode():
        raise _fail(f"entry {name!r} has another name in its header")
    return start


def check(entry: Entry, data: Any) -> None:
    """Raises where the bytes are not those that were written."""
    if zlib.crc32(data) != entry.crc:
        raise _fail(f"entry {entry.name!r} is damaged: its checksum differs")
