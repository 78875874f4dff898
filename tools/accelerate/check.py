#!/usr/bin/env python3
"""The CPU backend's code for Apple's Accelerate, computed on Linux.

    python tools/accelerate/check.py quick   the CPU crate's Rust tests, and mistakes that they must find
    python tools/accelerate/check.py         also the engine's Rust tests, and the op table's Python tests

With `--profile develop` they are built as `make develop` builds.

`accelerate.c` has Accelerate's names over OpenBLAS and libm; the feature `accelerate-stand-in` compiles the engine's
code for Apple against it. Each part runs twice where results of vForce may differ in their last places: as libm
computes them, and with each moved by up to one unit.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).resolve().parent / "accelerate.c"
FEATURE = "accelerate-stand-in"
NEVER = ("instructions",)
LINEAR_ALGEBRA = "unit/test_linalg.py"
PYTHON_TESTS = (
    "unit/test_table.py",
    LINEAR_ALGEBRA,
    "unit/test_vmap_table.py",
    "parity/linalg",
    "parity/ops/test_table_parity.py",
)
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
    9: ("cblas_*trsm without its flag for diagonals of ones", "blas::lapack_tests::"),
    10: ("sgetrs without its transposition", "blas::lapack_tests::"),
    11: ("dpotrf with the other half", "blas::lapack_tests::"),
    12: ("ssyevd with its values in descending order", "blas::lapack_tests::"),
}
# Of these the Python tests of linear algebra must tell too.
OF_LAPACK = (9, 10, 11, 12)


@dataclass(frozen=True)
class Profile:
    """How cargo builds what is tested."""

    name: str

    @property
    def words(self) -> list[str]:
        """As cargo's arguments. Kernels that are loops take no part in what is compared: vDSP, vForce, BLAS, LAPACK.

        The CPU crate's arithmetic is checked for overflow here, and nowhere else in `make test`."""
        profile = f"profile.{self.name}.package.lucid-cpu"
        settings = ("opt-level=1", "overflow-checks=true", "debug-assertions=true")
        return ["--profile", self.name, *(word for s in settings for word in ("--config", f"{profile}.{s}"))]


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


def mistaken(number: int, scratch: str) -> Path:
    """The library with one of its mistakes."""
    library = Path(scratch) / f"planted{number}.so"
    words = [os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-fPIC", "-ffp-contract=off", "-shared"]
    words += [f"-DPLANTED={number}", str(SOURCE), "-o", str(library)]
    words += [f"-L{openblas()}", "-lscipy_openblas", f"-Wl,-rpath,{openblas()}", "-lm"]
    subprocess.run(words, check=True)
    return library


def planted(program: str) -> None:
    """Each planted mistake must be found by the tests."""
    with tempfile.TemporaryDirectory(prefix="accelerate-") as scratch:
        for number, (what, filtered) in PLANTED.items():
            if run(program, filtered, LD_PRELOAD=str(mistaken(number, scratch))).returncode == 0:
                raise SystemExit(f"accelerate: no test finds {what}")
    say(f"{len(PLANTED)} planted mistakes are found")


def pytest(package: Path, tests: Iterable[str], **env: str) -> int:
    """Run Python tests with the extension in that folder."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    words += [str(ROOT / "tests" / "python" / t) for t in tests]
    env = os.environ | {"PYTHONPATH": str(package.parent)} | env
    return subprocess.run(words, cwd=ROOT, env=env, check=False).returncode


def python_tests(profile: Profile) -> None:
    """The op table's Python tests, over an extension whose CPU device computes with what stands in for Accelerate."""
    cargo("build", *profile.words, "-p", "lucid-py", "--features", f"lucid-py/{FEATURE}")
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
    package = target / "accelerate" / "lucid"
    shutil.rmtree(package.parent, ignore_errors=True)
    package.mkdir(parents=True)
    for part in (ROOT / "py" / "lucid").iterdir():
        if not part.name.startswith("_C."):
            (package / part.name).symlink_to(part)
    shutil.copy2(target / profile.name / "liblucid_py.so", package / "_C.abi3.so")
    # What cargo put there is the other extension's place.
    cargo("build", "--profile", profile.name, "-p", "lucid-py")
    code = "import lucid; open('/proc/self/maps').read().index('libaccelerate_stand_in.so')"
    for ulps in ("0", "1"):
        env = os.environ | {"PYTHONPATH": str(package.parent), "LUCID_ACCELERATE_ULPS": ulps}
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, check=True)
        if pytest(package, PYTHON_TESTS, LUCID_ACCELERATE_ULPS=ulps) != 0:
            raise SystemExit(f"accelerate: the op table's tests fail (ulps={ulps})")
    with tempfile.TemporaryDirectory(prefix="accelerate-") as scratch:
        for number in OF_LAPACK:
            found = pytest(package, [LINEAR_ALGEBRA], LD_PRELOAD=str(mistaken(number, scratch)))
            if found != 1:
                raise SystemExit(f"accelerate: no Python test finds {PLANTED[number][0]} (exit status {found})")
    say(f"the op table's Python tests pass, and find {len(OF_LAPACK)} mistakes in LAPACK")


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["quick"])
    parser.add_argument("--profile", default="release")
    asked = parser.parse_args()
    profile = Profile(asked.profile)
    if sys.platform != "linux":
        raise SystemExit("accelerate: what stands in for Accelerate is for Linux; on a Mac the tests use the real one")
    (program,) = cargo("test", *profile.words, "-p", "lucid-cpu", "--lib", "--features", FEATURE, "--no-run")
    tests([program], 0)
    tests([program], 1)
    planted(program)
    if asked.what != "quick":
        names = sorted(p.stem for p in (ROOT / "tests").glob("*.rs") if p.stem not in NEVER)
        words = ["test", *profile.words, "-p", "lucid", "--lib", *(w for n in names for w in ("--test", n))]
        programs = cargo(*words, "--features", FEATURE, "--no-run")
        tests(programs, 0)
        python_tests(profile)
    return 0


if __name__ == "__main__":
    sys.exit(main())
