"""The benchmark scripts run, their sides agree, and they say what they promise; how fast anything is, is not tested."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parents[3] / "bench"


def test_cpu_vs_torch_compares_its_rows() -> None:
    command = [sys.executable, str(BENCH / "cpu_vs_torch.py"), "--seconds", "0", "--least", "1", "--json"]
    wanted = "^(linear 64x84x10|conv2d LeNet 1, (forward|backward)|add 4k|step of MLP, SGD)$"
    done = subprocess.run([*command, "--only", wanted], capture_output=True, text=True, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    assert [row["name"] for row in result["rows"]] == [
        "linear 64x84x10",
        "conv2d LeNet 1, forward",
        "conv2d LeNet 1, backward",
        "add 4k",
        "step of MLP, SGD",
    ]
    for row in result["rows"]:
        assert math.isclose(row["ratio"], row["ours_us"] / row["peer_us"])
        assert min(row["ours_us"], row["peer_us"], row["control"]) > 0


def test_cpu_vs_torch_knows_every_row_it_names() -> None:
    command = [sys.executable, str(BENCH / "cpu_vs_torch.py"), "--list"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(set(names)) == len(names)
    for family in ("matmul", "linear", "conv2d", "max_pool2d", "exp", "sum", "softmax", "sort", "cumsum", "step of"):
        assert any(name.startswith(family) for name in names), family
    bad = subprocess.run([*command, "--only", "no such row"], capture_output=True, text=True, check=False)
    assert bad.returncode == 2 and "no row matches" in bad.stderr
