"""The op table's Python tests on Linux arm64, emulated, over what stands in for Accelerate.

Python and NumPy are arm64's. What PyTorch gives is computed on this machine by a run of the same tests, which records
it in target/: emulated, PyTorch would take longer than all else.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import parts
from parts import CROSS, PYTHON, ROOT, say

TESTS = ("unit/test_table.py", "unit/test_linalg.py", "unit/test_vmap_table.py", "parity/ops/test_table_parity.py")
# What asks PyTorch for dtypes alone, where there is nothing to compute.
LEFT_OUT = "not promotion"
# What is Python alone is the same on every machine.
PURE = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py.py")
REFERENCES = ROOT / "target" / "references.sqlite"


def site(module: Path) -> Path:
    """The folder of what Python imports, with the extension beside the package's own files."""
    made = PYTHON / "site"
    package = made / "lucid"
    package.mkdir(parents=True, exist_ok=True)
    linked = {package / p.name: p for p in (ROOT / "py" / "lucid").iterdir() if not p.name.startswith("_C.")}
    linked |= {made / name: Path(sysconfig.get_path("purelib")) / name for name in PURE}
    linked[package / "_C.abi3.so"] = module
    for old in package.iterdir():
        old.unlink()
    for link, target in linked.items():
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    return made


def python(runner: str, libraries: Path, module: Path) -> list[str]:
    """The command that starts the emulated Python."""
    folders = [PYTHON / "usr/lib/aarch64-linux-gnu", PYTHON / "lib/aarch64-linux-gnu", libraries / "lib"]
    folders += [CROSS / "arm64/mlx/lib", CROSS / "arm64/openblas/lib"]
    env = {
        "LD_LIBRARY_PATH": ":".join(map(str, folders)),
        "PYTHONHOME": str(PYTHON / "usr"),
        "PYTHONPATH": str(site(module)),
        "LUCID_REFERENCES": str(REFERENCES),
    }
    words = runner.split()
    for name, value in env.items():
        words += ["-E", f"{name}={value}"]
    return [*words, str(PYTHON / "usr/bin/python3.11")]


def pytest(command: list[str], share: str, env: dict[str, str]) -> None:
    """Run a share of the tests; end if one fails."""
    words = [*command, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.python.share", f"--share={share}"]
    words += ["-k", LEFT_OUT, "--durations=5", *(f"tests/python/{name}" for name in TESTS)]
    done = subprocess.run(words, cwd=ROOT, env=env, check=False)
    if done.returncode != 0:
        raise SystemExit(f"cross: the op table's tests fail (exit status {done.returncode})")


def run_share(runner: str, libraries: Path, module: Path, share: str, env: dict[str, str]) -> None:
    """A share of the tests, on this machine with PyTorch and then emulated without."""
    parts.ensure("python")
    command = python(runner, libraries, module)
    code = "import lucid; open('/proc/self/maps').read().index('libaccelerate_stand_in.so')"
    subprocess.run([*command, "-c", code], cwd=ROOT, env=env, check=True)
    REFERENCES.parent.mkdir(parents=True, exist_ok=True)
    say(f"share {share} of the op table's Python tests, beside PyTorch")
    pytest([sys.executable], share, os.environ | {"LUCID_REFERENCES": str(REFERENCES)})
    say(f"share {share} of the op table's Python tests, on emulated arm64")
    pytest(command, share, env)
