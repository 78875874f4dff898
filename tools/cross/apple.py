"""C types of the functions that Apple's headers declare.

The npm package that lists Accelerate in TypeScript, where types are but "number" and "pointer", carries the same
headers, read by the same clang, as a table that NativeScript uses to call into macOS. Its layout, as far as needed:
the word NSMD, a version, the places of eight sections, and strings. The fourth section holds for each function its name
and a place in the third, where the result and the parameters follow one another, a byte each for a plain type. A
structure has a place in the seventh, which begins with its name.
`const` is not recorded. Whether the table is read rightly shows in `functions`, which compares it with the TypeScript.
"""

from __future__ import annotations

import re
import struct

from parts import CROSS

KINDS = {
    0x0D: "void",
    0x01: "int",
    0x04: "long",
    0x09: "unsigned long",
    0x0A: "float",
    0x0B: "double",
    0x0E: "char *",
    0x1A: "void *",
}
POINTER, STRUCT, FUNCTION = 0x19, 0x18, 0x1B
# Set on a type after which another follows.
MORE = 0x80
# Set on the place of a structure that is a union.
UNION = 1 << 31
STRINGS = 38
SPLIT = re.compile(r",\s*(?=\w+\??:\s)")

Types = list[str]


class Table:
    """The table, by name of function."""

    def __init__(self, data: bytes) -> None:
        start = data.find(b"NSMD\1\0")
        if start < 0:
            raise SystemExit("cross: the npm package holds no table of types in the form known here")
        self.data = data[start:]
        _, _, self.signatures, first, last, _, self.structs, _ = struct.unpack_from("<8I", self.data, 6)
        self.places = {}
        for at in range(first, last - 7, 8):
            name, place = struct.unpack_from("<2I", self.data, at)
            self.places[self.string(name)] = place

    def string(self, offset: int) -> str:
        """A string of the table."""
        start = STRINGS + offset
        return self.data[start : self.data.index(b"\0", start)].decode()

    def one(self, at: int) -> tuple[str, int]:
        """The type that stands there, and where the next one does."""
        kind = self.data[at] & ~MORE
        if kind == POINTER:
            inner, at = self.one(at + 1)
            return f"{inner.removesuffix(' *')} {'*' * (inner.count('*') + 1)}", at
        if kind == STRUCT:
            place = struct.unpack_from("<I", self.data, at + 1)[0]
            if place & UNION:
                return "union", at + 5
            return self.string(struct.unpack_from("<I", self.data, self.structs + place)[0]), at + 5
        if kind == FUNCTION:
            return "function *", at + 5
        return KINDS.get(kind, f"type {kind:#x}"), at + 1

    def types(self, name: str) -> Types:
        """The result's type and the parameters'."""
        at, found, more = self.signatures + self.places[name], [], True
        while more:
            more = bool(self.data[at] & MORE)
            kind, at = self.one(at)
            found.append(kind)
        return found


def functions() -> dict[str, Types]:
    """Result and parameters of each function that Accelerate's headers declare, in C's words; enumerations are `enum`.

    Left out are some that take functions or lists of arguments of any length, which the two forms show differently.
    """
    table = Table((CROSS / "apple-headers").read_bytes())
    found, differ = {}, []
    for line in (CROSS / "Accelerate.d.ts").read_text().splitlines():
        if not (match := re.match(r"declare function (\w+)\((.*)\): (.*);\s*$", line)):
            continue
        shown = [part.split(":", 1)[1].strip() for part in SPLIT.split(match[2]) if part]
        types = table.types(match[1])
        pointers = [bool(re.search("Pointer|Reference|string", kind)) for kind in shown]
        if [kind.endswith("*") for kind in types[1:]] != pointers:
            differ.append(match[1])
            continue
        enums = ["interop.Enum" in kind for kind in shown]
        found[match[1]] = types[:1] + ["enum" if e else kind for e, kind in zip(enums, types[1:], strict=True)]
    if len(found) < 3000 or len(differ) > len(found) // 20:
        raise SystemExit(f"cross: the table of Apple's types is not read rightly: {len(found)} functions, not {differ}")
    return found
