#!/usr/bin/env python3
"""The CPU backend's code for Apple's Accelerate, computed on Linux.

    python tools/accelerate/check.py quick   the CPU crate's Rust tests, and mistakes that they must find
    python tools/accelerate/check.py         also the engine's Rust tests, and the op table's Python tests

`accelerate.c` has Accelerate's names over OpenBLAS and libm; the feature `accelerate-stand-in` compiles the engine's
code for Apple against it. Each part runs twice where results of vForce may differ in their last places: as libm
computes them, and with each moved by up to one unit.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).resolve().parent / "accelerate.c"
FEATURE = "accelerate-stand-in"
# Kernels that are loops take no part in this: what is compared is what vDSP, vForce, BLAS and LAPACK gave.
QUICK = ["--config", "profile.release.package.lucid-cpu.opt-level=1"]
NEVER = ("instructions", "rust_examples")
PYTHON_TESTS = ("unit/test_table.py", "unit/test_linalg.py", "unit/test_vmap_table.py", "parity/test_linalg_parity.py")
# Mistakes in accelerate.c, by number, with the tests that are run for them.
PLANTED = {
    1: ("strides of vDSP in bytes", "simd::"),
    2: ("vDSP_vsub with its operands as they are read", "simd::"),
    3: ("vDSP_vdivD with its operands as they are read", "simd::"),
    4: ("vvexpf without NaN", "simd::"),
    5: ("vvlog1pf as log(1 + x)", "simd::"),
    6: ("vvsqrtf of a number without its sign", "simd::"),
    7: ("vvrsqrt as vvrec", "simd::"),
    8: ("cblas_sgemv without beta", "blas::"),
}


def say(text: str) -> None:
    """One line of progress."""
    print(f"accelerate: {text}", flush=True)


def cargo(*words: str) -> list[str]:
    """Run cargo; the executables that it made."""
    command = [os.environ.get("CARGO", "cargo"), *words, "--message-format=json-render-diagnostics"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"accelerate: `{' '.join(words)}` failed")
    made = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [m["executable"] for m in made if m.get("executable")]


def run(program: str, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a test program, in the folder of its package as cargo does."""
    command = [program, "--quiet", *words]
    return subprocess.run(command, cwd=ROOT, env=os.environ | env, capture_output=True, text=True, check=False)


def tests(programs: Iterable[str], ulps: int) -> None:
    """Run test programs; end with what they say if one fails."""
    passed = 0
    for program in programs:
        done = run(program, LUCID_ACCELERATE_ULPS=str(ulps))
        if done.returncode != 0:
            raise SystemExit(f"{done.stdout}{done.stderr}\naccelerate: {Path(program).name} failed (ulps={ulps})")
        passed += sum(int(n) for n in re.findall(r"(\d+) passed", done.stdout))
    if passed == 0:
        raise SystemExit("accelerate: no test ran")
    say(f"{passed} tests pass, vForce's results {f'within {ulps} ulp of' if ulps else 'as'} libm's")


def openblas() -> Path:
    """The folder of OpenBLAS's library."""
    given = os.environ.get("OPENBLAS_DIR")
    return (Path(given) if given else ROOT / "vendor" / "openblas") / "lib"


def planted(program: str) -> None:
    """Each planted mistake must be found by the tests."""
    with tempfile.TemporaryDirectory(prefix="accelerate-") as scratch:
        for number, (what, filtered) in PLANTED.items():
            library = Path(scratch) / f"planted{number}.so"
            words = [os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-fPIC", "-ffp-contract=off", "-shared"]
            words += [f"-DPLANTED={number}", str(SOURCE), "-o", str(library)]
            words += [f"-L{openblas()}", "-lscipy_openblas", f"-Wl,-rpath,{openblas()}", "-lm"]
            subprocess.run(words, check=True)
            done = run(program, *([filtered] if filtered else []), LD_PRELOAD=str(library))
            if done.returncode == 0:
                raise SystemExit(f"accelerate: no test finds {what}")
    say(f"{len(PLANTED)} planted mistakes are found")


def python_tests() -> None:
    """The op table's Python tests, over an extension whose CPU device computes with what stands in for Accelerate."""
    cargo("build", "--release", *QUICK, "-p", "lucid-py", "--features", f"lucid-py/{FEATURE}")
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
    package = target / "accelerate" / "lucid"
    shutil.rmtree(package.parent, ignore_errors=True)
    package.mkdir(parents=True)
    for part in (ROOT / "py" / "lucid").iterdir():
        if not part.name.startswith("_C."):
            (package / part.name).symlink_to(part)
    shutil.copy2(target / "release" / "liblucid_py.so", package / "_C.abi3.so")
    # What cargo put there is the other extension's place.
    cargo("build", "--release", "-p", "lucid-py")
    code = "import lucid; open('/proc/self/maps').read().index('libaccelerate_stand_in.so')"
    for ulps in ("0", "1"):
        env = os.environ | {"PYTHONPATH": str(package.parent), "LUCID_ACCELERATE_ULPS": ulps}
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, check=True)
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        words += [str(ROOT / "tests" / "python" / t) for t in PYTHON_TESTS]
        if subprocess.run(words, cwd=ROOT, env=env, check=False).returncode != 0:
            raise SystemExit(f"accelerate: the op table's tests fail (ulps={ulps})")


def main() -> int:
    """Do what the command line says."""
    if sys.argv[1:] not in ([], ["quick"]):
        print(__doc__, file=sys.stderr)
        return 2
    if sys.platform != "linux":
        raise SystemExit("accelerate: what stands in for Accelerate is for Linux; on a Mac the tests use the real one")
    (program,) = cargo("test", "--release", *QUICK, "-p", "lucid-cpu", "--lib", "--features", FEATURE, "--no-run")
    tests([program], 0)
    tests([program], 1)
    planted(program)
    if not sys.argv[1:]:
        names = sorted(p.stem for p in (ROOT / "tests").glob("*.rs") if p.stem not in NEVER)
        words = ["test", "--release", *QUICK, "-p", "lucid", "--lib", *(w for n in names for w in ("--test", n))]
        programs = cargo(*words, "--features", FEATURE, "--no-run")
        tests(programs, 0)
        python_tests()
    return 0


if __name__ == "__main__":
    sys.exit(main())
