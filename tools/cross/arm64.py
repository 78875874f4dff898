#!/usr/bin/env python3
"""Run the Rust tests on Linux arm64, emulated: the NEON kernels, arm64's MLX and OpenBLAS, and all built on them.

    python tools/cross/arm64.py [TEST ARGUMENTS]     as after `cargo test`; without any, all of mlx-ffi and lucid

QEMU's user mode runs the programs one by one on this machine's kernel, some ten times slower than the machine itself.
"""

from __future__ import annotations

import sys

import parts
from parts import CROSS, SYSTEM, run, rust_env, say

TARGET = "aarch64-unknown-linux-gnu"
# A processor without SVE, as Apple's are. With SVE, OpenBLAS's kernels give wrong products under QEMU 7.2.
CPU = "neoverse-n1"
# These start themselves again as another process, which an emulated program cannot do here.
STARTERS = ("a_forked_child", "dropped_arrays_free_their_memory", "evaluating_threads_leave_no_threads_behind")


def environment() -> dict[str, str]:
    """What cargo needs to build for arm64 and to run what it built."""
    env = rust_env()
    upper, lower = TARGET.upper().replace("-", "_"), TARGET.replace("-", "_")
    libraries = SYSTEM / "usr/aarch64-linux-gnu"
    gcc = f"{SYSTEM}/usr/bin/aarch64-linux-gnu"
    return env | {
        f"CARGO_TARGET_{upper}_LINKER": f"{gcc}-g++-12",
        f"CARGO_TARGET_{upper}_RUNNER": f"{SYSTEM}/usr/bin/qemu-aarch64 -cpu {CPU} -L {libraries}",
        f"CC_{lower}": f"{gcc}-gcc-12",
        f"CXX_{lower}": f"{gcc}-g++-12",
        f"AR_{lower}": f"{gcc}-ar",
        f"BINDGEN_EXTRA_CLANG_ARGS_{lower}": f"-isystem {libraries}/include",
        "MLX_DIR": str(CROSS / "arm64" / "mlx"),
        "OPENBLAS_DIR": str(CROSS / "arm64" / "openblas"),
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
    skips = [word for name in STARTERS for word in ("--skip", name)]
    run([*test, "-p", "mlx-ffi", "--lib", "--tests", "--", *skips], env=env)
    run([*test, "-p", "lucid", "--lib", "--tests"], env=env)
    say(f"the Rust tests pass on emulated arm64, without {len(STARTERS)} that need processes of their own")
    return 0


if __name__ == "__main__":
    sys.exit(main())
