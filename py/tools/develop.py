#!/usr/bin/env python3
"""Make the freshly built extension importable in place: what `maturin develop` does, from cargo's own build.

    python py/tools/develop.py [TARGET_DIR] [--profile NAME]

Copies the library that cargo built (with `--release`, or the profile named) to py/lucid/_C.abi3.so, lets the running
virtual environment import py/lucid where it stands, and writes the stubs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

PY = Path(__file__).resolve().parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", nargs="?", default=os.environ.get("CARGO_TARGET_DIR", ""))
    parser.add_argument("--profile", default="release")
    given = parser.parse_args()
    target = Path(given.target) if given.target else PY.parent / "target"
    built = target / given.profile / ("liblucid_py.dylib" if sys.platform == "darwin" else "liblucid_py.so")
    if not built.exists():
        print(f"{built} does not exist: run cargo first", file=sys.stderr)
        return 1
    # Renamed into place: a process that runs with the old file keeps it whole.
    module, fresh = PY / "lucid" / "_C.abi3.so", PY / "lucid" / "_C.new"
    shutil.copy2(built, fresh)
    fresh.replace(module)
    Path(sysconfig.get_path("purelib"), "lucid-develop.pth").write_text(f"{PY}\n")
    return subprocess.run([sys.executable, PY / "tools" / "stubs.py"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
