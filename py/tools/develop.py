#!/usr/bin/env python3
"""Make the freshly built extension importable in place: what `maturin develop` does, from cargo's own build.

    python py/tools/develop.py [TARGET_DIR]

Copies the library that `cargo build --release` made to py/lucid/_C.abi3.so, lets the running virtual environment import
py/lucid where it stands, and writes the stubs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

PY = Path(__file__).resolve().parent.parent


def main() -> int:
    given = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("CARGO_TARGET_DIR", "")
    target = Path(given) if given else PY.parent / "target"
    built = target / "release" / ("liblucid_py.dylib" if sys.platform == "darwin" else "liblucid_py.so")
    if not built.exists():
        print(f"{built} does not exist: run `cargo build --release` first", file=sys.stderr)
        return 1
    # Renamed into place: a process that runs with the old file keeps it whole.
    module, fresh = PY / "lucid" / "_C.abi3.so", PY / "lucid" / "_C.new"
    shutil.copy2(built, fresh)
    fresh.replace(module)
    Path(sysconfig.get_path("purelib"), "lucid-develop.pth").write_text(f"{PY}\n")
    return subprocess.run([sys.executable, PY / "tools" / "stubs.py"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
