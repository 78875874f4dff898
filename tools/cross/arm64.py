#!/usr/bin/env python3
"""Run the Rust tests on Linux arm64, emulated: the NEON kernels, arm64's MLX and OpenBLAS, and all built on them.

    python tools/cross/arm64.py [TEST ARGUMENTS]     as after `cargo test`; without any, the kernels first, then all

QEMU's user mode runs the programs one by one on this machine's kernel, some ten times slower than the machine itself.
"""

from __future__ import annotations

import sys

import parts
from parts import CROSS, SYSTEM, run, rust_env, say

TARGET = "aarch64-unknown-linux-gnu"


def environment() -> dict[str, str]:
    """What cargo needs to build for arm64 and to run what it built."""
    env = rust_env()
    upper, lower = TARGET.upper().replace("-", "_"), TARGET.replace("-", "_")
    libraries = SYSTEM / "usr/aarch64-linux-gnu"
    gcc = f"{SYSTEM}/usr/bin/aarch64-linux-gnu"
    return env | {
        f"CARGO_TARGET_{upper}_LINKER": f"{gcc}-g++-12",
        f"CARGO_TARGET_{upper}_RUNNER": f"{SYSTEM}/usr/bin/qemu-aarch64 -L {libraries}",
        f"CC_{lower}": f"{gcc}-gcc-12",
        f"CXX_{lower}": f"{gcc}-g++-12",
        f"AR_{lower}": f"{gcc}-ar",
        f"BINDGEN_EXTRA_CLANG_ARGS_{lower}": f"-isystem {libraries}/include",
        "MLX_DIR": str(CROSS / "arm64" / "mlx"),
        "OPENBLAS_DIR": str(CROSS / "arm64" / "openblas"),
        # Emulated, optimised code is worth its compile time; timing-dependent tests get one thread less to fight with.
        "CARGO_PROFILE_DEV_DEBUG": "0",
    }


def main() -> int:
    """Fetch what is missing, build, run."""
    parts.ensure("arm64")
    env = environment()
    test = ["cargo", "test", "--quiet", "--target", TARGET]
    if sys.argv[1:]:
        run([*test, *sys.argv[1:]], env=env)
        return 0
    for what in (["-p", "mlx-ffi"], ["-p", "lucid"]):
        run([*test, *what], env=env)
    say("the Rust tests pass on emulated arm64")
    return 0


if __name__ == "__main__":
    sys.exit(main())
