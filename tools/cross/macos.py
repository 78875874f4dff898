#!/usr/bin/env python3
"""Cross-build for macOS arm64 on Linux, and check what can be checked without a Mac.

    python tools/cross/macos.py wheel     the wheel, in dist/, with every symbol resolved (checked)
    python tools/cross/macos.py check     types, lints, tests compiled, Apple's declarations, the linker's strictness
    python tools/cross/macos.py cached    exit status 0 if an earlier check left all in place, so that the next is quick

Nothing here runs on macOS: docs/macos.md says what that leaves open.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import declarations
import macho
import parts
import sdk
from parts import HERE, ROOT, ZIG, run, rust_env, say
from sdk import SDK

TARGET = "aarch64-apple-darwin"


def environment() -> dict[str, str]:
    """What cargo needs to build for the Mac."""
    env = rust_env()
    upper, lower = TARGET.upper().replace("-", "_"), TARGET.replace("-", "_")
    headers = f"-isystem {ZIG}/lib/include -isystem {ZIG}/lib/libc/include/any-darwin-any"
    return env | {
        "MACOSX_DEPLOYMENT_TARGET": "14.0",
        "SDKROOT": str(SDK),
        f"CARGO_TARGET_{upper}_LINKER": f"{HERE}/ld64",
        f"CARGO_TARGET_{upper}_RUSTFLAGS": "-Clinker-flavor=ld64.lld",
        f"CC_{lower}": f"{HERE}/zig-cc",
        f"CXX_{lower}": f"{HERE}/zig-c++",
        f"AR_{lower}": f"{HERE}/zig-ar",
        f"BINDGEN_EXTRA_CLANG_ARGS_{lower}": headers,
        "MLX_DIR": str(sdk.MLX),
        # Tests are compiled and never run: the quickest way will do.
        "CARGO_PROFILE_DEV_OPT_LEVEL": "0",
        "CARGO_PROFILE_DEV_DEBUG": "0",
        "PYO3_NO_PYTHON": "1",
    }


def ready() -> dict[str, str]:
    """Fetch what is missing, write the SDK, and return cargo's environment."""
    parts.ensure("macos")
    sdk.write()
    return environment()


def cargo(env: dict[str, str], command: str, *words: str) -> None:
    """Run cargo for the Mac."""
    run(["cargo", command, "--target", TARGET, *words], env=env)


def link(env: dict[str, str], words: list[object]) -> subprocess.CompletedProcess[str]:
    """Link a dylib as an extension module is linked."""
    command: list[object] = [f"{HERE}/ld64", "-arch", "arm64", "-platform_version", "macos", "14.0", "14.0", "-dylib"]
    command += ["-undefined", "dynamic_lookup", "-syslibroot", SDK, *words, "-lSystem"]
    return subprocess.run([str(word) for word in command], env=env, capture_output=True, text=True, check=False)


def built_mlx_c() -> list[Path]:
    """mlx-c as cargo has compiled it, the newest last."""
    found = Path(rust_env()["CARGO_TARGET_DIR"], TARGET).glob("*/build/mlx-ffi-*/out/libmlxc.a")
    return sorted(found, key=lambda path: path.stat().st_mtime)


def check_linker(env: dict[str, str]) -> None:
    """Every symbol of the whole of mlx-c resolves; a misspelt one of each library ends the link."""
    archive = built_mlx_c()[-1]
    libraries: list[object] = [sdk.MLX / "lib/libmlx.dylib", "-lc++", "-framework", "Accelerate"]
    with tempfile.TemporaryDirectory(prefix="cross-") as scratch:
        out = f"{scratch}/out.dylib"
        done = link(env, ["-all_load", archive, *libraries, "-o", out])
        if done.returncode != 0:
            raise SystemExit(f"cross: mlx-c does not link whole:\n{done.stderr}")
        names = ["vDSP_vadd", "vvexpf", "cblas_sgemm", "sgetrf_", "sgetrf$NEWLAPACK", "malloc", "PyObject_Repr"]
        for name in [*names, *(f"{name}x" for name in names)]:
            (Path(scratch) / "one.c").write_text(f"void {name}(); void call(void) {{ {name}(); }}\n")
            compiler = [f"{HERE}/zig-cc", "-w", "-fno-builtin", "-c", "one.c", "-o", "one.o"]
            run(compiler, cwd=Path(scratch), env=env)
            done = link(env, [f"{scratch}/one.o", *libraries, "-o", out])
            if (done.returncode == 0) != (name in names) or (name not in names and f"_{name}" not in done.stderr):
                raise SystemExit(f"cross: linking {name} ended in {done.returncode}:\n{done.stderr}")
    say(f"mlx-c links whole; the linker knows {', '.join(names)} and refuses each with a letter too many")


def wheel(env: dict[str, str]) -> None:
    """Build the wheel and look at what was built."""
    maturin = [ROOT / ".venv/bin/maturin", "build", "--release", "--target", TARGET, "--out", ROOT / "dist"]
    run([*maturin, "--manifest-path", ROOT / "py/Cargo.toml"], env=env)
    built = max((ROOT / "dist").glob("*macosx*.whl"), key=lambda path: path.stat().st_mtime)
    for line in macho.check_wheel(built):
        say(line)
    check_linker(env)


def check(env: dict[str, str]) -> None:
    """What needs no wheel."""
    cargo(env, "clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings")
    say("clippy has nothing to say of any target for the Mac")
    declarations.check(env)
    check_linker(env)
    cargo(env, "test", "--quiet", "--workspace", "--no-run")
    say("all tests compile and link for the Mac")


def main() -> int:
    """Do what the command line says."""
    what = sys.argv[1] if len(sys.argv) == 2 else ""
    if what == "cached":
        return 0 if parts.in_place("macos") and built_mlx_c() else 1
    if what not in ("wheel", "check"):
        print(__doc__, file=sys.stderr)
        return 2
    env = ready()
    if what == "wheel":
        wheel(env)
    else:
        check(env)
    return 0


if __name__ == "__main__":
    sys.exit(main())
