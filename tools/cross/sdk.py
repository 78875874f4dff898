"""A stub SDK for linking: text lists of what macOS 14's libraries export, in the form that linkers read (.tbd).

libSystem's list comes with zig, libc++'s from LLVM 16, Accelerate's from Apple's headers (and, for what these do not
declare, from what MLX's own library takes from it). CPython's, left for run time, come from the Python that runs this.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from parts import CROSS, SYSTEM, ZIG

SDK = CROSS / "sdk"
MLX = CROSS / "macos" / "mlx"
LLVM_NM = SYSTEM / "usr/lib/llvm-22/bin/llvm-nm"
TARGETS = "[ arm64-macos, arm64e-macos ]"
ICONV = ("_iconv", "_iconv_open", "_iconv_close")


def nm(file: Path, *options: str) -> list[str]:
    """What llvm-nm prints of a library."""
    env = {"LD_LIBRARY_PATH": f"{SYSTEM}/usr/lib/x86_64-linux-gnu"}
    done = subprocess.run([LLVM_NM, *options, file], capture_output=True, text=True, env=env, check=True)
    return done.stdout.splitlines()


def accelerate_functions() -> set[str]:
    """The names that Accelerate's headers declare."""
    return set(re.findall(r"^declare function (\w+)", (CROSS / "Accelerate.d.ts").read_text(), re.MULTILINE))


def new_lapack(functions: Iterable[str]) -> set[str]:
    """The symbols of the newer BLAS and LAPACK: `cblas_sgemm$NEWLAPACK`, `sgetrf$NEWLAPACK` for `sgetrf_`.

    Apple's headers give each function one where ACCELERATE_NEW_LAPACK is defined. The list at hand was made without, so
    these follow from the names; libmlx.dylib takes more than twenty in this form.
    """
    subroutines = {name for name in functions if re.fullmatch(r"[sdcz][a-z0-9]{3,}_", name)}
    blas = {name for name in functions if name.startswith("cblas_")}
    return {f"{name.removesuffix('_')}$NEWLAPACK" for name in subroutines | blas}


def python_symbols() -> set[str]:
    """The C names that this Python exports."""
    shared = Path(str(sysconfig.get_config_var("LIBDIR"))) / str(sysconfig.get_config_var("LDLIBRARY"))
    files = [Path(sys.executable).resolve(), *([shared] if shared.suffix == ".so" and shared.exists() else [])]
    lines = [line for file in files for line in nm(file, "-D", "--defined-only", "--format=just-symbols")]
    return {name.split("@")[0] for name in lines if re.match("_?Py", name)}


def write_tbd(path: Path, install_name: str, version: str, symbols: Iterable[str]) -> None:
    """One library's list."""
    path.parent.mkdir(parents=True, exist_ok=True)
    exports = ", ".join(f"'{name}'" for name in sorted(symbols))
    path.write_text(
        f"--- !tapi-tbd\ntbd-version: 4\ntargets: {TARGETS}\ninstall-name: '{install_name}'\n"
        f"current-version: {version}\ncompatibility-version: 1\n"
        + (f"exports:\n  - targets: {TARGETS}\n    symbols: [ {exports} ]\n" if exports else "")
        + "...\n"
    )


def write() -> None:
    """Write the SDK."""
    library, frameworks = SDK / "usr/lib", SDK / "System/Library/Frameworks"
    library.mkdir(parents=True, exist_ok=True)
    system = (ZIG / "lib/libc/darwin/libSystem.tbd").read_text()
    # The linker does not know this newest architecture, and wants plain arm64e beside arm64.
    system = re.sub(r",\s*arm64e\.x1-\w+", "", system)
    system = re.sub(r"\barm64e-macos\b", "arm64-macos, arm64e-macos", system)
    for name in ("libSystem", "libSystem.B", "libc", "libm"):
        (library / f"{name}.tbd").write_text(system)
    entries = [ast.literal_eval(x) for x in (CROSS / "libcxx.abilist").read_text().splitlines() if x.startswith("{")]
    cxx = [entry["name"] for entry in entries if entry["is_defined"]]
    write_tbd(library / "libc++.tbd", "/usr/lib/libc++.1.dylib", "1600", cxx)
    write_tbd(library / "libiconv.tbd", "/usr/lib/libiconv.2.dylib", "7", ICONV)
    write_tbd(library / "libobjc.tbd", "/usr/lib/libobjc.A.dylib", "228", [])
    used = [re.search(r"external (_\S+) \(from Accelerate\)", x) for x in nm(MLX / "lib/libmlx.dylib", "-m", "-u")]
    declared, taken = accelerate_functions(), {found[1] for found in used if found}
    newer = {f"_{name}" for name in new_lapack(declared)}
    # What MLX's library takes says whether the rule is right.
    if strange := {name for name in taken if "$NEWLAPACK" in name} - newer:
        raise SystemExit(f"cross: symbols of the newer LAPACK that no function of Apple's headers has: {strange}")
    accelerate = {f"_{name}" for name in declared} | newer | taken
    framework = "Accelerate.framework/Versions/A/Accelerate"
    stub = frameworks / "Accelerate.framework" / "Accelerate.tbd"
    write_tbd(stub, f"/System/Library/Frameworks/{framework}", "4", accelerate)
    (SDK / "python.txt").write_text("".join(f"-U\n_{name}\n" for name in sorted(python_symbols())))
