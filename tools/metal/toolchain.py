"""The compiler of the kernels: zig's clang, from PyPI, pinned as tools/cross pins it.

Metal's language is C++14 with address spaces. clang's C++ for OpenCL has the same ones under other names, and refuses
what Metal refuses: pointers of one space in another, pointers of none, `double`, static variables, virtual functions.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
CROSS = ROOT / "vendor" / "cross"
ZIG = CROSS / "zig" / "zig"

for folder in (ROOT / "vendor", ROOT / "tools" / "cross"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
import fetch  # noqa: E402
import parts  # noqa: E402

TARGET = "x86_64-linux-gnu"
SANITIZERS = (
    "signed-integer-overflow,shift,integer-divide-by-zero,float-cast-overflow,bounds,alignment,bool,unreachable,return"
)
COMMON = ["-target", TARGET, "-nostdinc", "-O1", "-fPIC", "-fno-math-errno", "-ffp-contract=off", "-mf16c"]
COMMON += ["-fno-vectorize", "-fno-slp-vectorize", "-fsanitize=thread", f"-fsanitize={SANITIZERS}", "-c"]
# Or reads just before a write of the same place are left out.
COMMON += ["-mllvm", "-tsan-instrument-read-before-write"]
WARNINGS = ["-Wno-unknown-attributes", "-Wno-unused-command-line-argument"]
WARNINGS += ["-Werror=uninitialized", "-Wno-sometimes-uninitialized"]
METAL = [
    "-x",
    "clcpp",
    "-cl-std=clc++2021",
    "-cl-no-stdinc",
    "-isystem",
    str(HERE / "include"),
    "-Wno-c++17-extensions",
]
METAL += ["-Werror=pre-c++17-compat", "-Werror=implicit-function-declaration"]
EXTENSIONS = "-cl-ext=-all,+cl_khr_fp16,+__cl_clang_non_portable_kernel_param_types"
# With it structures can be passed by value, which clang needs unnamed address spaces for; Metal does not.
GENERIC = ",+__opencl_c_generic_address_space"
CUDA = ["-x", "c++", "-std=c++17", "-nostdinc++", "-fno-exceptions", "-fno-rtti", "-I", str(HERE / "include" / "cuda")]


class CompileError(Exception):
    """What the compiler says of a kernel."""


def available() -> bool:
    """Is the compiler there, without fetching anything?"""
    return fetch.in_place(parts.ZIG_WHEEL, CROSS) and shutil.which("cc") is not None


def ensure() -> None:
    """Fetch the compiler where it lacks."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise SystemExit("metal: kernels are compiled and run on Linux on x86-64 only")
    if not fetch.in_place(parts.ZIG_WHEEL, CROSS):
        fetch.fetch(parts.ZIG_WHEEL, CROSS)
    ZIG.chmod(0o755)


@functools.cache
def scratch() -> Path:
    """A folder that ends with the process."""
    folder = tempfile.TemporaryDirectory(prefix="kernels-")
    scratch.keep = folder  # type: ignore[attr-defined]
    return Path(folder.name)


def run(command: list[str], text: str | None = None) -> None:
    """Run a compiler or linker; what it says of a mistake is the error."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompileError(done.stderr.strip() or f"{command[0]} ended in {done.returncode}")


@functools.cache
def runtime() -> Path:
    """The library that runs grids, compiled by the machine's C compiler."""
    library = scratch() / "runtime.so"
    words = [os.environ.get("CC", "cc"), "-O2", "-Wno-builtin-declaration-mismatch", "-shared", "-fPIC"]
    run([*words, str(HERE / "runtime.c"), "-o", str(library), "-Wl,--no-as-needed", "-lm"])
    return library


@functools.cache
def compile_kernel(language: str, text: str) -> Path:
    """A whole text as a library."""
    stem = scratch() / hashlib.sha256(f"{language}\n{text}".encode()).hexdigest()[:24]
    made, library = stem.with_suffix(".o"), stem.with_suffix(".so")
    words = [str(ZIG), "clang"]
    if language == "metal":
        structures = re.search(r"\bstruct\b|complex64_t|simdgroup_(matrix|\w+8x8)", text)
        words += [*METAL, "-Xclang", EXTENSIONS + (GENERIC if structures else "")]
    else:
        words += CUDA
    run([*words, *COMMON, *WARNINGS, "-", "-o", str(made)], text)
    run([str(ZIG), "ld.lld", "-shared", "--hash-style=gnu", str(made), "-o", str(library)])
    made.unlink()
    return library
