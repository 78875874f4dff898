"""Builds the targets of fuzz/ for libFuzzer, as `cargo fuzz` does, and runs each for some seconds.

    python tools/fuzz.py [--seconds 60] [--sanitizer address] [target ...]

The stable toolchain will do; `--sanitizer` needs a nightly one (`rustup toolchain install nightly`) and finds what
unsafe code reads or writes out of bounds. What a target has learnt stays in fuzz/corpus/, what made it fail in
fuzz/artifacts/: the file's path as the target's argument runs it again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

FUZZ = Path(__file__).resolve().parents[1] / "fuzz"
TARGETS = sorted(p.stem for p in (FUZZ / "fuzz_targets").glob("*.rs"))
#: What libFuzzer is steered by: a counter for each edge, the places they stand for, and what is compared.
COVERAGE = ["level=4", "inline-8bit-counters", "pc-table", "trace-compares"]
FLAGS = ["--cfg fuzzing", "-Cpasses=sancov-module", "-Cdebug-assertions", "-Coverflow-checks"] + [
    f"-Cllvm-args=-sanitizer-coverage-{what}" for what in COVERAGE
]


def host() -> str:
    said = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
    return next(line.removeprefix("host: ") for line in said.splitlines() if line.startswith("host: "))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)}; all of them")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--sanitizer", choices=["address"])
    args = parser.parse_args()
    targets = args.targets or TARGETS
    if unknown := set(targets) - set(TARGETS):
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    flags, env, triple = [*FLAGS], dict(os.environ), host()
    if args.sanitizer:
        flags.append(f"-Zsanitizer={args.sanitizer}")
        env["RUSTUP_TOOLCHAIN"] = "nightly"
    built = Path(env.get("CARGO_TARGET_DIR", FUZZ / "target")) / "fuzz"
    env |= {"RUSTFLAGS": " ".join(flags), "CARGO_TARGET_DIR": str(built)}
    # The flags are for the targets, not for build scripts, which are not linked with libFuzzer: so a triple is named.
    subprocess.run(["cargo", "build", "--release", "--target", triple], cwd=FUZZ, env=env, check=True)
    failed = []
    for name in targets:
        corpus, artifacts = FUZZ / "corpus" / name, FUZZ / "artifacts" / name
        for folder in (corpus, artifacts):
            folder.mkdir(parents=True, exist_ok=True)
        # The engine keeps memory for later, which is no leak; names of functions take long to find.
        options = [f"-max_total_time={args.seconds}", "-detect_leaks=0", "-print_funcs=0", "-print_final_stats=1"]
        options += ["-timeout=20", "-rss_limit_mb=4096", f"-artifact_prefix={artifacts}/"]
        print(f"{name}:", flush=True)
        if subprocess.run([built / triple / "release" / name, corpus, *options], env=env).returncode:
            failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else f"{', '.join(targets)}: nothing found")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
