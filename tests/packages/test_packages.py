"""Packages from PyPI, unmodified and without PyTorch, under `lucid.as_torch`.

Each case of `cases/` runs in PyTorch and in Lucid with the same weights and inputs, and the results agree.
`make test-packages` runs it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES = sorted((HERE / "cases").glob("*.py"))
#: Where the packages are installed, with a stamp of what they are.
PACKAGES = Path(os.environ.get("LUCID_PACKAGES") or ROOT / "target" / "packages")


@pytest.fixture(scope="session")
def packages() -> Path:
    """The folder of the packages, which is filled when the list has changed."""
    wanted = (HERE / "requirements.txt").read_text()
    stamp = PACKAGES / ".stamp"
    if not stamp.exists() or stamp.read_text() != wanted:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--upgrade", "--target", str(PACKAGES), "-r", str(HERE / "requirements.txt")], check=True)
        stamp.write_text(wanted)
    return PACKAGES


def run(command: list[str], packages: Path) -> str:
    """Runs a process that sees the packages; its output, after an assertion that it ended well."""
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(packages), str(ROOT / "py")]), OMP_NUM_THREADS="1")
    env.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", PYTHONWARNINGS="ignore", TORCH_HOME=str(packages))
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    return done.stdout


def compare(case: str, expected: dict[str, np.ndarray], found: dict[str, np.ndarray]) -> list[str]:
    """What differs: names of results, shapes, kinds of dtypes, text and integers, and numbers by more than rounding."""
    wrong = [f"{case}: results differ: {sorted(set(expected) ^ set(found))}"] if set(expected) != set(found) else []
    for name in sorted(set(expected) & set(found)):
        theirs, ours = expected[name], found[name]
        if theirs.shape != ours.shape or theirs.dtype.kind != ours.dtype.kind:
            wrong.append(f"{case}: {name}: {theirs.dtype}{theirs.shape} in PyTorch, {ours.dtype}{ours.shape} here")
        elif theirs.dtype.kind not in "fc":
            if not np.array_equal(theirs, ours):
                wrong.append(f"{case}: {name}: {theirs.ravel()[:8]} in PyTorch, {ours.ravel()[:8]} here")
        elif theirs.size:
            scale = max(float(np.abs(theirs[np.isfinite(theirs)]).max(initial=0.0)), 1e-3)
            # Single precision through networks; doubles through as many steps.
            limit = scale * (3e-4 if theirs.dtype.itemsize <= 4 else 1e-7)
            if not np.allclose(
                theirs, ours, rtol=1e-3 if theirs.dtype.itemsize <= 4 else 1e-6, atol=limit, equal_nan=True
            ):
                far = np.nanmax(np.abs(theirs - ours))
                wrong.append(f"{case}: {name}: off by {far:.3g} where the largest is {scale:.3g}")
    return wrong


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_cases_agree_with_pytorch(file: Path, packages: Path, tmp_path: Path) -> None:
    child = str(HERE / "child.py")
    told = run([sys.executable, child, str(file), str(tmp_path), "cpu"], packages)
    told += run([sys.executable, "-m", "lucid.as_torch", child, str(file), str(tmp_path), "cpu"], packages)
    if "on_gpu = True" in file.read_text():
        told += run([sys.executable, "-m", "lucid.as_torch", child, str(file), str(tmp_path), "gpu"], packages)
    print(told)
    wrong: list[str] = []
    references = sorted(tmp_path.glob("*.torch.npz"))
    assert references, "no case ran"
    for path in references:
        case = path.name.removesuffix(".torch.npz")
        expected = dict(np.load(path))
        assert expected, f"{case} has no results"
        for device in ("cpu", "gpu"):
            ours = tmp_path / f"{case}.{device}.npz"
            # What needs tensors without memory is refused where there are none, which `child.py` checks.
            if ours.exists() or (device == "cpu" and f"{case.split('.')[1]}: refused" not in told):
                wrong += compare(f"{case} on {device}", expected, dict(np.load(ours)))
    assert not wrong, "\n".join(wrong)
