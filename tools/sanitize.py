"""Runs the tests of memory, threads and undefined behaviour: the Rust tests and a share of the hostile sweep.

    python tools/sanitize.py asan|tsan|ubsan|miri|valgrind [--seconds 300] [--part rust|python]

asan      Rust and C++ with AddressSanitizer, and the sweep with the sanitized module
tsan      Rust with ThreadSanitizer, with its standard library too where the component rust-src is there
ubsan     C++ with UndefinedBehaviorSanitizer, Rust with its checks of overflow and of what unsafe calls require
miri      what calls no foreign code (the component miri); without it, says so and fails. MLX and OpenBLAS are not
          linked: MLX's functions are Rust's that fail, as on docs.rs, and tests that need either are left out
valgrind  memcheck over the sweep, which also sees what MLX and OpenBLAS read and write

Without a nightly toolchain the stable one is asked to take nightly's flags (RUSTC_BOOTSTRAP): it ships the sanitizers'
runtimes, and nothing that is built so is used for anything else.

What is suppressed stands in tools/sanitizers/, each with its reason. Builds are in target/asan and so on.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
SUPPRESSIONS = ROOT / "tools" / "sanitizers"
#: A sanitizer keeps freed memory for a while, so what measures how much a process has cannot be measured under it.
MEASURES_MEMORY = "ten_thousand_steps_that_never_evaluate_keep_memory_flat"
#: The crates that Lucid is made of and that have tests of their own.
NAMES = ("lucid-core", "lucid-cpu", "lucid-mlx", "lucid", "mlx-ffi")
CRATES = [word for name in NAMES for word in ("-p", name)]
#: Code with a sanitizer beside a standard library without.
MIXED = "-Cunsafe-allow-abi-mismatch=sanitizer"
#: The Rust tests that have threads in them.
THREADED = ["--test", "threads", "--test", "lazy", "--test", "transfer", "--test", "views"]
#: The modules that Miri runs, by crate, all where none is named: those whose tests call neither MLX nor OpenBLAS, are
#: small enough for it, and run the code that is `unsafe`.
PURE = {
    "lucid-core": [],
    "lucid-ir": [],
    "lucid-cpu": ["copy::", "create::", "scan::", "strided::"]
    + ["simd::" + name for name in ("affinity", "alloc", "arith", "buffer", "bytes", "exit", "half", "remainder")]
    + ["simd::" + name for name in ("shared_memory", "strips", "tally", "thread_cache", "threads")],
}
#: What the sweep tries under a sanitizer: what ends in a plain error costs much time there and tells nothing.
CONDITIONS = "temporary,empty,scalar,special,read-only,misaligned,resized,shared,mutated,overlapping,permuted,out,same"


def has_nightly(component: str = "rustc") -> bool:
    """Is there a nightly toolchain with this component?"""
    if not shutil.which("rustup"):
        return False
    asked = ["rustup", "component", "list", "--toolchain", "nightly", "--installed"]
    said = subprocess.run(asked, capture_output=True, text=True).stdout
    return any(line.startswith(component) for line in said.splitlines())


def host() -> str:
    said = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    return next(line.removeprefix("host: ") for line in said.splitlines() if line.startswith("host: "))


class Sanitizer:
    """How one sanitizer builds and runs, and what it found."""

    def __init__(self, name: str, seconds: int) -> None:
        self.name, self.seconds = name, seconds
        self.failed: list[str] = []
        self.nightly = has_nightly()
        self.env = (
            dict(os.environ)
            | {
                "CARGO_TARGET_DIR": str(TARGET / name),
                "CARGO_INCREMENTAL": "0",
                "CARGO_PROFILE_DEV_OPT_LEVEL": "1",
                "CARGO_PROFILE_DEV_DEBUG": "line-tables-only",
            }
            | ({"RUSTUP_TOOLCHAIN": "nightly"} if self.nightly else {"RUSTC_BOOTSTRAP": "1"})
        )
        #: What the sweep's children run with.
        self.python: dict[str, str] = {}
        self.before: list[str] = []
        self.cargo: list[str] = []
        self.triple = host()

    def run(self, what: str, command: list[str], env: dict[str, str] | None = None, cwd: Path = ROOT) -> bool:
        print(f"== {self.name}, {what}: {' '.join(command)}", flush=True)
        if subprocess.run(command, env=env or self.env, cwd=cwd).returncode:
            self.failed.append(what)
            return False
        return True

    def rust(self, selected: list[str], skip: list[str]) -> None:
        skips = [word for name in skip for word in ("--skip", name)]
        test = ["cargo", "test", *self.cargo, "--target", self.triple, *selected, "--", *skips]
        self.run("the Rust tests", test)

    def module(self) -> Path | None:
        """The package with the module as this sanitizer builds it."""
        build = ["cargo", "build", *self.cargo, "--target", self.triple, "-p", "lucid-py"]
        if not self.run("the module", build):
            return None
        place = TARGET / self.name / "python"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(ROOT / "py" / "lucid", place / "lucid", ignore=shutil.ignore_patterns("_C.*.so", "__pycache__"))
        built = TARGET / self.name / self.triple / "debug" / "liblucid_py.so"
        shutil.copy(built, place / "lucid" / "_C.abi3.so")
        return place

    def sweep(self, package: Path, slower: float = 4, more: list[str] | None = None) -> None:
        """The hostile sweep with a package, for a time."""
        path = os.pathsep.join([str(package), str(ROOT)])
        env = {**os.environ, "PYTHONPATH": path, "PYTHONMALLOC": "malloc", "LUCID_HOSTILE_SLOWER": str(slower)}
        env["LUCID_HOSTILE_RUNNER"] = " ".join(self.before)
        report = TARGET / self.name / "hostile-report.txt"
        report.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tests.python.hostile", "--seconds", str(self.seconds), "--jobs", "1"]
        command += ["--conditions", CONDITIONS, "--report", str(report), *(more or [])]
        self.run("the hostile sweep", command, env | self.python, TARGET / self.name)


def asan(s: Sanitizer, part: str) -> None:
    s.env |= {"LUCID_BUILD_MODE": "debug-asan", "RUSTFLAGS": "-Zsanitizer=address -Cforce-frame-pointers=yes"}
    # What the engine keeps for later is no leak; tests of their own look for those.
    options = "detect_leaks=0:allocator_may_return_null=1:handle_abort=0:quarantine_size_mb=64"
    s.env["ASAN_OPTIONS"] = options
    if not s.nightly:
        # The standard library as it was shipped hands memory on and reads none of what a sanitizer marks.
        s.env["RUSTFLAGS"] += f" {MIXED}"
    if part != "python":
        s.rust([*CRATES, "--lib", "--tests"], [MEASURES_MEMORY])
    if part != "rust" and (package := s.module()):
        # Python is not sanitized, so the runtime must come before it. GCC's and LLVM's are one.
        runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
        s.python = {"LD_PRELOAD": os.path.realpath(runtime.stdout.strip()), "ASAN_OPTIONS": options}
        s.sweep(package)


def tsan(s: Sanitizer, part: str) -> None:
    s.env["RUSTFLAGS"] = "-Zsanitizer=thread -Cforce-frame-pointers=yes"
    s.env["TSAN_OPTIONS"] = f"suppressions={SUPPRESSIONS / 'tsan.supp'}:halt_on_error=0:second_deadlock_stack=1"
    # The tests run one after the other: the threads are the engine's, not the harness's.
    s.env["RUST_TEST_THREADS"] = "1"
    if has_nightly("rust-src"):
        s.cargo = ["-Zbuild-std"]
    else:
        # Locks that nobody holds are taken in code that is inlined here; the wait for one that is held is not seen.
        s.env["RUSTFLAGS"] += f" {MIXED}"
    s.rust(["-p", "lucid-cpu", "--lib"], [])
    s.rust(["-p", "lucid", "--lib", *THREADED], [MEASURES_MEMORY])


def ubsan(s: Sanitizer, part: str) -> None:
    checks = "-Cdebug-assertions=yes -Coverflow-checks=yes -Zub-checks=yes"
    s.env |= {"LUCID_BUILD_MODE": "debug-ubsan", "RUSTFLAGS": checks, "UBSAN_OPTIONS": "print_stacktrace=1"}
    if part != "python":
        s.rust([*CRATES, "--lib", "--tests"], [])
    if part != "rust" and (package := s.module()):
        s.sweep(package, 2)


def miri(s: Sanitizer, part: str) -> None:
    if not has_nightly("miri"):
        s.failed.append("Miri is a part of a nightly toolchain: rustup toolchain install nightly -c miri -c rust-src")
        return
    # The pool's threads outlive the main thread by design, which Miri takes for a leak. On docs.rs MLX is not compiled.
    s.env["MIRIFLAGS"] = "-Zmiri-disable-isolation -Zmiri-permissive-provenance -Zmiri-ignore-leaks"
    s.env["DOCS_RS"] = "1"
    for crate, modules in PURE.items():
        s.run(f"the tests of {crate}", ["cargo", "miri", "test", "-p", crate, "--lib", "--", *modules])


def valgrind(s: Sanitizer, part: str, tool: str = "memcheck") -> None:
    """Over the module as it was built for use: MLX and OpenBLAS are seen, too."""
    if not shutil.which("valgrind"):
        s.failed.append("valgrind is not installed")
        return
    s.before = ["valgrind", f"--tool={tool}", "--error-exitcode=9", "--exit-on-first-error=yes"]
    s.before += [f"--suppressions={SUPPRESSIONS / 'valgrind.supp'}", "-q", "--gen-suppressions=all"]
    # Python's own import system reads what valgrind calls uninitialised: addresses are what is checked.
    s.before += ["--undef-value-errors=no"] if tool == "memcheck" else ["--check-stack-var=no"]
    # Valgrind does not know AVX-512.
    s.python = {"OPENBLAS_CORETYPE": "Haswell"}
    # It runs one thread at a time: what threads do to each other is drd's to tell.
    conditions = CONDITIONS if tool == "drd" else CONDITIONS.replace("mutated,", "")
    # A child takes a minute to begin, and a program a second.
    s.seconds = max(s.seconds, 900)
    if part != "rust":
        s.sweep(ROOT / "py", 10, ["--conditions", conditions])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sanitizer", choices=["asan", "tsan", "ubsan", "miri", "valgrind"])
    parser.add_argument("--seconds", type=int, default=300, help="for the sweep")
    parser.add_argument("--part", choices=["rust", "python", "all"], default="all")
    options = parser.parse_args()
    s = Sanitizer(options.sanitizer, options.seconds)
    {"asan": asan, "tsan": tsan, "ubsan": ubsan, "miri": miri, "valgrind": valgrind}[options.sanitizer](s, options.part)
    print(f"{s.name}: {'failed: ' + ', '.join(s.failed) if s.failed else 'nothing found'}")
    return bool(s.failed)


if __name__ == "__main__":
    sys.exit(main())
