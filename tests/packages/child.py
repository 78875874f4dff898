"""Runs the cases of one file in this process: `child.py FILE FOLDER DEVICE`, in PyTorch or under `lucid.as_torch`.

PyTorch writes `FOLDER/NAME.values.npz`; both write their results. The exit status is 0 if every case ran.
"""

from __future__ import annotations

import importlib.util
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import torch

from tests.packages.shared import Shared

OURS = "lucid" in torch.__version__


def has_meta() -> bool:
    """Whether there are tensors without memory."""
    try:
        with torch.device("meta"):
            return True
    except NotImplementedError:
        return False


def refused(case: Any, shared: Shared) -> None:
    """Without them, what builds models that way says so; results of this case are not compared then."""
    try:
        case(shared)
    except NotImplementedError as e:
        print(f"{case.__name__}: refused, as it should be: {e}")
        return
    raise AssertionError(f"{case.__name__} needs tensors without memory, and ran without")


def main() -> int:
    warnings.simplefilter("ignore")
    file, folder, device = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    spec = importlib.util.spec_from_file_location(f"cases_of_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    wanted = sys.argv[4:]
    failed = 0
    for name, case in list(vars(module).items()):
        if not name.startswith("case_") or (wanted and name not in wanted):
            continue
        if device != "cpu" and not getattr(case, "on_gpu", False):
            continue
        start = time.perf_counter()
        torch.manual_seed(0)
        np.random.seed(0)
        path = folder / f"{file.stem}.{name}.values.npz"
        values = dict(np.load(path)) if OURS else None
        (folder / f"{name}.{'lucid' if OURS else 'torch'}").mkdir(exist_ok=True)
        shared = Shared(values, device, folder / f"{name}.{'lucid' if OURS else 'torch'}")
        try:
            if getattr(case, "needs_meta", False) and not has_meta():
                refused(case, shared)
                continue
            case(shared)
        except BaseException:
            failed += 1
            print(f"FAILED {file.stem}.{name} on {device}")
            traceback.print_exc()
            continue
        if not OURS:
            np.savez(path, **shared.values)
        np.savez(folder / f"{file.stem}.{name}.{device if OURS else 'torch'}.npz", **shared.results)
        print(f"ran {file.stem}.{name} on {device} in {time.perf_counter() - start:.1f} s", flush=True)
    return failed


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.exit(min(status, 100))
