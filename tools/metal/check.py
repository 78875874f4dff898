#!/usr/bin/env python3
"""Fetch what runs Metal's kernels here and what tells which of MLX's exist, and run the tests of both.

python tools/metal/check.py           fetch what is missing, then the tests
python tools/metal/check.py fetch     only fetch
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools.metal import metallib, toolchain  # noqa: E402


def main() -> int:
    """Do what the command line says."""
    toolchain.ensure()
    metallib.ensure()
    if sys.argv[1:] == ["fetch"]:
        return 0
    tests = [sys.executable, "-m", "pytest", "-q", str(ROOT / "tests" / "python" / "metal_emulator")]
    return subprocess.run(tests, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
