#!/usr/bin/env python3
"""Run the Rust tests on Linux arm64, emulated: the NEON kernels, arm64's MLX and OpenBLAS, and all built on them.

    python tools/cross/arm64.py                  the first three below
    python tools/cross/arm64.py plain            every crate's tests
    python tools/cross/arm64.py accelerate       the CPU device's and the engine's, over what stands in for Accelerate
    python tools/cross/arm64.py pages            the same programs on a kernel whose pages have 16 KiB, as a Mac's do
    python tools/cross/arm64.py python --share 1/8   the op table's Python tests, or a share of them drawn at random
    python tools/cross/arm64.py cargo WORDS      any other `cargo WORDS`

QEMU's user mode runs the programs one by one on this machine's kernel, some ten times slower than the machine itself;
for `pages` its system mode starts a kernel (pages.py).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import op_table
import pages
import parts
from parts import CROSS, SYSTEM, run, rust_env, say

TARGET = "aarch64-unknown-linux-gnu"
# A processor without SVE, as Apple's are. With SVE, OpenBLAS's kernels give wrong products under QEMU 7.2.
CPU = "neoverse-n1"
LIBRARIES = SYSTEM / "usr/aarch64-linux-gnu"
# Cargo tells test programs where libraries are. Here they are started without it, and few crates' have a run path.
LINKED = ":".join(str(CROSS / "arm64" / name / "lib") for name in ("mlx", "openblas"))
# The machine's own are behind them, QEMU's among them: a program that starts itself again passes the list on.
HOST_LIBRARIES = SYSTEM / "usr/lib/x86_64-linux-gnu"
RUNNER = f"{SYSTEM}/usr/bin/qemu-aarch64 -cpu {CPU} -L {LIBRARIES} -E LD_LIBRARY_PATH={LINKED}:{HOST_LIBRARIES}"
CRATES = ("mlx-ffi", "lucid-core", "lucid-ir", "lucid-fft", "lucid-cpu", "lucid-mlx", "lucid")
STAND_IN = ("lucid-cpu", "lucid")
# The examples, which train for minutes: a processor that is emulated would take hours.
LEFT_OUT = ("rust_examples",)


def environment() -> dict[str, str]:
    """What cargo needs to build for arm64 and to run what it built."""
    env = rust_env()
    upper, lower = TARGET.upper().replace("-", "_"), TARGET.replace("-", "_")
    gcc = f"{SYSTEM}/usr/bin/aarch64-linux-gnu"
    return env | {
        f"CARGO_TARGET_{upper}_LINKER": f"{gcc}-g++-12",
        f"CARGO_TARGET_{upper}_RUNNER": RUNNER,
        f"CC_{lower}": f"{gcc}-gcc-12",
        f"CXX_{lower}": f"{gcc}-g++-12",
        f"AR_{lower}": f"{gcc}-ar",
        f"BINDGEN_EXTRA_CLANG_ARGS_{lower}": f"-isystem {LIBRARIES}/include",
        "MLX_DIR": str(CROSS / "arm64" / "mlx"),
        "OPENBLAS_DIR": str(CROSS / "arm64" / "openblas"),
        "CARGO_PROFILE_DEV_DEBUG": "0",
        # For tests that start themselves again as another process, which the kernel alone cannot do.
        "LUCID_TEST_RUNNER": RUNNER,
    }


def built(words: list[str], env: dict[str, str]) -> list[str]:
    """Run cargo; the programs that it made."""
    command = ["cargo", *words, "--target", TARGET, "--message-format=json-render-diagnostics"]
    done = subprocess.run(command, cwd=parts.ROOT, env=env, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"cross: `cargo {' '.join(words)}` failed")
    made = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    programs = [m["executable"] for m in made if m.get("executable")]
    return [p for p in programs if not os.path.basename(p).startswith(LEFT_OUT)]


def test_programs(packages: tuple[str, ...], env: dict[str, str], *features: str) -> list[str]:
    """The test programs of these packages."""
    words = [w for name in packages for w in ("-p", name)]
    return built(["test", "--no-run", *words, "--lib", "--tests", *features], env)


def stand_in_programs(env: dict[str, str]) -> list[str]:
    """The test programs over what stands in for Accelerate."""
    return test_programs(STAND_IN, env, "--features", ",".join(f"{name}/accelerate-stand-in" for name in STAND_IN))


def count(said: str, what: str) -> None:
    """Say how many tests passed; end if none did."""
    passed = sum(int(n) for n in re.findall(r"(\d+) passed", said))
    if passed == 0:
        raise SystemExit(f"cross: no test ran {what}")
    say(f"{passed} tests pass {what}")


def last_result(said: str) -> str:
    """How a test program says that it went, by its last such line: tests that start themselves again print more."""
    return "".join(re.findall(r"^test result: (.*?); finished", said, re.MULTILINE)[-1:])


def emulated(programs: list[str], env: dict[str, str], what: str) -> None:
    """Run test programs in QEMU's user mode; end with what they say if one fails."""
    said = ""
    for program in programs:
        start = time.monotonic()
        command = [*RUNNER.split(), program, "--quiet"]
        done = subprocess.run(command, cwd=parts.ROOT, env=env, capture_output=True, text=True, check=False)
        said += last_result(done.stdout)
        if done.returncode != 0:
            raise SystemExit(f"{done.stdout}{done.stderr}\ncross: {os.path.basename(program)} failed {what}")
        say(f"{os.path.basename(program)}: {last_result(done.stdout)}, {time.monotonic() - start:.0f} s")
    count(said, what)


def extension(env: dict[str, str]) -> Path:
    """The Python module, whose CPU device computes with what stands in for Accelerate."""
    built(["build", "-p", "lucid-py", "--features", "lucid-py/accelerate-stand-in"], env)
    return Path(env["CARGO_TARGET_DIR"]) / TARGET / "debug" / "liblucid_py.so"


PARTS = ("plain", "accelerate", "pages", "python")


def main() -> int:
    """Fetch what is missing, build, run."""
    if sys.argv[1:2] == ["cargo"]:
        parts.ensure("arm64")
        run(["cargo", *sys.argv[2:], "--target", TARGET], env=environment())
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)}; all but the last")
    parser.add_argument("--share", default="1/1", metavar="K/N", help="of the Python tests, the K-th of N shares")
    given = parser.parse_args()
    asked = given.parts or PARTS[:-1]
    if unknown := [name for name in asked if name not in PARTS]:
        parser.error(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    parts.ensure("arm64")
    env = environment()
    if "plain" in asked:
        emulated(test_programs(CRATES, env), env, "on emulated arm64")
    if "accelerate" in asked:
        emulated(stand_in_programs(env), env, "on emulated arm64, over what stands in for Accelerate")
    if "pages" in asked:
        parts.ensure("pages")
        said = pages.run_tests(stand_in_programs(env), CPU)
        count(said, f"on a kernel of {pages.SIZE >> 10} KiB pages, over what stands in for Accelerate")
    if "python" in asked:
        op_table.run_share(RUNNER, LIBRARIES, extension(env), given.share, env)
    return 0


if __name__ == "__main__":
    sys.exit(main())
