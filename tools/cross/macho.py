"""What a wheel for the Mac must be, read from the file itself: tags, requirements, load commands, code signature."""

from __future__ import annotations

import hashlib
import re
import struct
import zipfile
from pathlib import Path

from sdk import python_symbols

TAG = "cp311-abi3-macosx_14_0_arm64"
LIBRARIES = {
    "@rpath/libmlx.dylib",
    "/System/Library/Frameworks/Accelerate.framework/Versions/A/Accelerate",
    "/usr/lib/libSystem.B.dylib",
    "/usr/lib/libc++.1.dylib",
}
# The system's own, which some crates of Rust's standard library name.
ALLOWED = LIBRARIES | {"/usr/lib/libiconv.2.dylib", "/usr/lib/libobjc.A.dylib"}
RUN_PATHS = {"@loader_path/../mlx/lib"}
LC_SYMTAB, LC_LOAD_DYLIB, LC_RPATH, LC_CODE_SIGNATURE, LC_BUILD_VERSION = 0x2, 0xC, 0x8000001C, 0x1D, 0x32
DYNAMIC_LOOKUP = 254


class MachO:
    """A 64-bit Mach-O file."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        magic, cpu, _, kind, count, _ = struct.unpack_from("<6I", data)
        if (magic, cpu, kind) != (0xFEEDFACF, 0x0100000C, 6):
            raise SystemExit("cross: not an arm64 Mach-O dylib")
        self.commands: list[tuple[int, int]] = []
        at = 32
        for _ in range(count):
            command, size = struct.unpack_from("<2I", data, at)
            self.commands.append((command, at))
            at += size

    def at(self, command: int) -> list[int]:
        """Where the load commands of that kind stand."""
        return [at for kind, at in self.commands if kind == command]

    def text(self, at: int) -> str:
        """A string that ends in 0."""
        return self.data[at : self.data.index(b"\0", at)].decode()

    def texts(self, command: int) -> set[str]:
        """The paths that load commands of that kind give."""
        return {self.text(at + struct.unpack_from("<I", self.data, at + 8)[0]) for at in self.at(command)}

    def left_open(self) -> set[str]:
        """Symbols that no library is named for: looked up in the whole process at run time."""
        _, _, symbols, count, strings, _ = struct.unpack_from("<6I", self.data, self.at(LC_SYMTAB)[0])
        found = set()
        for i in range(count):
            name, kind, _, description, _ = struct.unpack_from("<IBBHQ", self.data, symbols + 16 * i)
            if kind & 0x0F == 1 and description >> 8 == DYNAMIC_LOOKUP:
                found.add(self.text(strings + name))
        return found

    def minimum(self) -> tuple[int, int]:
        """The oldest macOS that it says it runs on."""
        version = struct.unpack_from("<I", self.data, self.at(LC_BUILD_VERSION)[0] + 12)[0]
        return version >> 16, version >> 8 & 0xFF

    def signed(self) -> bool:
        """Does the signature's hash of each page agree? Apple Silicon loads no code without."""
        found = self.at(LC_CODE_SIGNATURE)
        if not found:
            return False
        start = struct.unpack_from("<I", self.data, found[0] + 8)[0]
        magic, _, count = struct.unpack_from(">3I", self.data, start)
        blobs = dict(struct.unpack_from(">2I", self.data, start + 12 + 8 * i) for i in range(count))
        if magic != 0xFADE0CC0 or 0 not in blobs:
            return False
        at = start + blobs[0]
        hashes, pages, limit = (struct.unpack_from(">I", self.data, at + offset)[0] for offset in (16, 28, 32))
        size, kind, _, log_page = self.data[at + 36 : at + 40]
        page = 1 << log_page
        found_hashes = b"".join(
            hashlib.sha256(self.data[i : min(i + page, limit)]).digest() for i in range(0, limit, page)
        )
        return (size, kind) == (32, 2) and found_hashes == self.data[at + hashes :][: 32 * pages]


def check_wheel(wheel: Path) -> list[str]:
    """What was found to hold; ends with what does not."""
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
        metadata = content.read(next(n for n in names if n.endswith("/METADATA"))).decode()
        modules = [n for n in names if n.endswith((".so", ".dylib"))]
        module = MachO(content.read("lucid/_C.abi3.so"))
    libraries, run_paths = module.texts(LC_LOAD_DYLIB), module.texts(LC_RPATH)
    foreign = {name for name in module.left_open() if name.removeprefix("_") not in python_symbols()}
    unsound = MachO(module.data[:40000] + b"?" + module.data[40001:])
    wanted = {
        f"its name says {TAG}": wheel.name.endswith(f"-{TAG}.whl"),
        "it asks for Python 3.11 or newer": "Requires-Python: >=3.11" in metadata,
        "it asks for MLX of the very version it was built with": bool(
            re.search(r"^Requires-Dist: mlx==0\.32\.2 ?; ?sys_platform == 'darwin'", metadata, re.MULTILINE)
        ),
        "it holds the one extension, its stubs and its marker of types": modules == ["lucid/_C.abi3.so"]
        and {"lucid/_C.pyi", "lucid/py.typed", "lucid/__init__.py"} <= set(names),
        f"it loads {', '.join(sorted(libraries))}": LIBRARIES <= libraries <= ALLOWED,
        f"its run path is {', '.join(sorted(run_paths))}": run_paths == RUN_PATHS,
        "it is for macOS 14": module.minimum() == (14, 0),
        f"{len(module.left_open())} symbols are left open, all CPython's": not foreign and bool(module.left_open()),
        "its code signature is sound": module.signed() and not unsound.signed(),
    }
    wrong = [what for what, holds in wanted.items() if not holds]
    if wrong:
        raise SystemExit(f"cross: {wheel.name}: not so: {'; '.join(wrong)} {sorted(foreign)[:9]}")
    return [f"{wheel.name}: {what}" for what in wanted]
