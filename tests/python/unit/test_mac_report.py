"""`make mac-report`, rehearsed: its parts, a failure among them, and both files."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import lucid
import pytest

ROOT = Path(lucid.__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools import mac_report  # noqa: E402


def run(folder: Path, *words: str) -> tuple[int, dict[str, dict[str, object]]]:
    status = mac_report.main(["--out", str(folder), "--seconds", "0.1", *words])
    report = json.loads((folder / "mac-report.json").read_text())
    assert report["version"] == mac_report.VERSION
    return status, report["parts"]


def test_parts_that_are_quick(tmp_path: Path) -> None:
    status, parts = run(
        tmp_path, "--parts", "machine,library,memory,python", "--tests", "tests/python/unit/test_repr.py"
    )
    assert status == 0, parts
    assert list(parts) == ["machine", "library", "memory", "python"]
    assert all(part["result"] == "ok" for part in parts.values())
    memory, tests = parts["memory"]["found"], parts["python"]["found"]
    assert memory["parent_sees"] == 1000.0 and memory["loader_sum"] == 2016
    assert "out of memory" in memory["refused"] and memory["works_after"]
    assert ("limits" in memory) == lucid.mps.is_available()
    assert parts["library"]["found"]["imported"] == {
        "lucid": lucid.__version__,
        "module": lucid._C.__file__,
        "gpu": str(lucid.device("gpu")),
    }
    assert tests["tests"] > 0 and tests["failed"] == []
    page = (tmp_path / "mac-report.html").read_text()
    assert all(f"id={name}" in page for name in parts)
    assert "http" not in page.replace("https://", "").split("<table>")[0]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="on a Mac the library is Apple's own")
def test_accelerate_is_asked(tmp_path: Path) -> None:
    status, parts = run(tmp_path, "--parts", "accelerate")
    assert status == 0, parts
    answers = parts["accelerate"]["found"]["answers"]
    assert len(answers) == 9 and all(found["ok"] is not False for found in answers.values())


def test_a_part_that_fails_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = tmp_path / "test_wrong.py"
    wrong.write_text("def test_sum():\n    assert 1 + 1 == 3\n")
    monkeypatch.setitem(mac_report.PARTS, "lenet", lambda _: 1 // 0)
    status, parts = run(tmp_path, "--parts", "python,lenet,machine", "--tests", str(wrong))
    assert status == 1
    assert [part["result"] for part in parts.values()] == ["failed", "failed", "ok"]
    (failure,) = parts["python"]["found"]["failed"]
    assert failure["name"].endswith("test_sum") and "1 + 1" in failure["says"]
    assert "ZeroDivisionError" in parts["lenet"]["error"]
    assert "test_sum" in (tmp_path / "mac-report.html").read_text()


def test_a_crash_costs_the_tests_of_its_process_alone(tmp_path: Path) -> None:
    crash, sound = tmp_path / "test_crash.py", tmp_path / "test_sound.py"
    crash.write_text("import os\n\ndef test_first():\n    pass\n\ndef test_crash():\n    os.abort()\n")
    sound.write_text("def test_sound():\n    pass\n")
    status, parts = run(tmp_path, "--parts", "python", "--tests", str(crash), str(sound))
    part = parts["python"]
    assert status == 1 and part["result"] == "failed"
    assert part["found"]["tests"] == 1 and part["found"]["failed"] == []
    assert [(row["path"], "error" in row) for row in part["found"]["folders"]] == [
        (str(crash), True),
        (str(sound), False),
    ]
    assert str(crash) in part["error"] and "exit status -6" in part["error"]
    # pytest's faulthandler says which test it was.
    assert "in test_crash" in part["found"]["ended_early"][str(crash)]


def test_an_extension_that_ends_the_process_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mac_report, "IMPORT", "import os; os.abort()")
    status, parts = run(tmp_path, "--parts", "library")
    assert status == 1
    assert parts["library"]["error"].startswith("the extension is not imported: exit status -6")
    assert parts["library"]["found"]["loads"]


def test_all_tests_are_run_by_folder() -> None:
    folders = mac_report.test_folders([mac_report.ALL_TESTS])
    tests = set((ROOT / "tests" / "python").rglob("test_*.py"))
    assert len(folders) > 5
    assert {test for folder in folders for test in (ROOT / folder).rglob("test_*.py")} == tests
    assert mac_report.test_folders(["tests/python/unit"]) == ["tests/python/unit"]


def test_what_does_not_install_leaves_the_list_of_what_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "make").write_text("#!/bin/sh\necho 'ERROR: No matching distribution found for torch'\nexit 2\n")
    (tmp_path / "make").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    status, parts = run(tmp_path, "--parts", "packages,build")
    assert status == 1
    why = "exit status 2: ERROR: No matching distribution found for torch"
    assert [part["error"] for part in parts.values()] == [why, why]
    assert any(line.startswith("pytest==") for line in parts["packages"]["found"]["installed"])


def test_a_command_that_hangs_is_stopped_with_its_children() -> None:
    """It prints nothing, and its child holds the pipe."""
    hangs = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    with pytest.raises(mac_report.Failed, match="exit status -9") as failed:
        mac_report.command(sys.executable, "-c", hangs, seconds=0.5)
    assert failed.value.found["output"] == "stopped after 0.5 seconds\n"


def test_a_rehearsal_measures_small_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLX's CPU stream takes minutes for a step of the large ones."""
    ran: list[tuple[str, ...]] = []

    def command(*words: str, **_: object) -> dict[str, str]:
        ran.append(words)
        return {"text": '{"rows": []}'}

    monkeypatch.setattr(mac_report, "command", command)
    status, _ = run(tmp_path, "--parts", "zoo,lightning")
    models, lightning = ran
    assert status == 0
    assert ("--quick" in models) == (sys.platform != "darwin")
    assert lightning[lightning.index("--suite") + 1] == ("all" if sys.platform == "darwin" else "quick")


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_nothing_that_may_fail_comes_before_the_report() -> None:
    """Building and installing are parts of it, which say what went wrong."""
    asked = subprocess.run(["make", "-n", "mac-report"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "tools/mac_report.py" in asked
    assert "cargo" not in asked and "torch" not in asked


def test_the_page_shows_each_kind_of_value() -> None:
    found = {
        "macos": None,
        "answers": {"first": {"answer": [], "ok": True}, "second": {"answer": "<-4>", "ok": None}},
        "time_us": 61923.504,
        "ratio": 0.0652778,
        "installed": [f"package{i}==1.0" for i in range(mac_report.SCROLLED + 1)],
    }
    part = {"result": "failed", "error": "exit status 1: <why>", "found": found, "seconds": 2.5}
    page = mac_report.page({"system": "Linux", "started": "now", "parts": {"one": part}})
    assert "<title>Rehearsal on Linux</title>" in page and "<p class=bad>exit status 1: &lt;why&gt;</p>" in page
    assert "<tr><th>macos</th><td>–</td></tr>" in page
    # One table, whose rows are the answers.
    assert "<tr><th></th><th>answer</th><th>ok</th></tr>" in page
    assert "<tr><td>first</td><td>none</td><td>True</td></tr>" in page
    assert "<tr><td>second</td><td>&lt;-4&gt;</td><td>–</td></tr>" in page
    assert "<td>61,924</td>" in page and "<td>0.06528</td>" in page
    assert "<pre>package0==1.0\n" in page


def test_unknown_parts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        mac_report.main(["--out", str(tmp_path), "--parts", "machine,frobnicate"])
    assert not list(tmp_path.iterdir())


def test_every_function_of_apples_is_stood_in_for() -> None:
    """What the engine declares of Accelerate is what tools/accelerate defines."""
    engine = ROOT / "engine" / "cpu"
    wanted = set(re.findall(r'or "(\w+\$NEWLAPACK)" fn', (engine / "blas" / "ffi.rs").read_text()))
    wanted |= set(re.findall(r"\b(?:vDSP_\w+|vv\w+)", (engine / "simd" / "apple.rs").read_text()))
    found = (ROOT / "target").glob("*/build/lucid-cpu-*/out/libaccelerate_stand_in.so")
    built = sorted(found, key=lambda path: path.stat().st_mtime)
    source = (ROOT / "tools" / "accelerate" / "accelerate.c").read_text()
    assert len(wanted) > 100
    if not built:
        # `make accelerate-quick` links all of them; here the names of what is no family of macros.
        assert all(name in source for name in ("vDSP_vsubD", "VFORCE(vvrsqrtf", "ALL(geev", "COMPLEX(ungqr"))
        return
    names = built[-1].read_bytes()
    assert not {name for name in wanted if name.encode() not in names}
