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


def test_ops_compares_rows_of_the_table_and_with_a_recorded_run(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCH / "ops.py"), "--quick", "--rounds", "1"]
    wanted = r"^(nn\.functional\.leaky_relu 256|embedding_bag sum 256x16 of 64$|step of MLP$)"
    file = tmp_path / "rows.json"
    subprocess.run([*command, "--only", wanted, "--json", str(file)], capture_output=True, text=True, check=True)
    rows = json.loads(file.read_text())["rows"]
    assert [row["name"] for row in rows] == [
        "nn.functional.leaky_relu 256 (N(3, 4))",
        "nn.functional.leaky_relu 256 forward and backward (N(3, 4))",
        "embedding_bag sum 256x16 of 64",
        "step of MLP",
    ]
    assert all(min(row["ours_us"], row["peer_us"], row["ratio"], row["control"]) > 0 for row in rows)
    # A recorded run of a machine on which everything was a thousand times quicker for us.
    quick = [{**row, "ratio": row["ratio"] / 1000} for row in rows]
    names = {row["name"] for row in rows if row["ratio"] > 1.3 * 0.5 and row["ours_us"] > row["peer_us"] + 2}
    sys.path.insert(0, str(BENCH))
    try:
        import ops

        file.write_text(json.dumps({"rows": quick}))
        assert {line.partition(":")[0] for line in ops.check(rows, file)} == names
        slow = [{**row, "ratio": 3.0, "peer_us": 100.0, "ours_us": 300.0} for row in rows]
        file.write_text(json.dumps({"rows": [{**row, "ratio": 1.0} for row in rows]}))
        assert len(ops.check(slow, file)) == len(rows)
        file.write_text(json.dumps({"rows": slow}))
        assert ops.check(slow, file) == []
    finally:
        sys.path.remove(str(BENCH))
