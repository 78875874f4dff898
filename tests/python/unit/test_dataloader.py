"""Samplers and loaders of data sets."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import data_cases as cases
import lucid
import pytest
from lucid.utils import data
from lucid.utils.data import DataLoader

from tests.python.unit.test_data import KINDS, gone, numbers, run_script, segments


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ("value", ValueError, "Caught ValueError in DataLoader worker"),
        ("key", KeyError, "two"),
        ("odd", RuntimeError, "Caught Odd"),
    ],
)
def test_exceptions_come_back_with_their_traceback(kind: str, how: str, error: type[Exception], words: str) -> None:
    it = iter(DataLoader(cases.Fails(how), None, num_workers=2, worker_type=kind))
    assert [next(it) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(error, match=words) as caught:
        next(it)
    assert "Original Traceback" in str(caught.value)
    assert "__getitem__" in str(caught.value)
    # As in PyTorch, the epoch goes on after the sample that failed.
    assert list(it) == [4, 5]


def test_what_cannot_be_pickled_is_told() -> None:
    for how, words in (("local", "Caught Local"), ("unpicklable", "pickle")):
        with pytest.raises(Exception, match=words):
            list(DataLoader(cases.Fails(how), None, num_workers=1))
    with pytest.raises(Exception, match="pickle") as caught:
        list(DataLoader(cases.Rows(2), num_workers=1, collate_fn=lambda b: b, multiprocessing_context="spawn"))
    assert any("worker_type='thread'" in n for n in caught.value.__notes__)
    with pytest.raises(ValueError, match="does not come back"):
        list(DataLoader(cases.Unloadable(), num_workers=2, multiprocessing_context="spawn"))
    assert list(DataLoader([1, 2], num_workers=1, collate_fn=lambda b: b, worker_type="thread")) == [[1], [2]]


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_workers_start_as_asked(context: str) -> None:
    loader = DataLoader(cases.Rows(6), 2, num_workers=2, multiprocessing_context=context)
    batches = list(loader)
    assert numbers(b["i"] for b in batches) == list(range(6))
    assert os.getpid() not in {p for b in batches for p in b["pid"].tolist()}


def test_platforms_that_do_not_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    from lucid import _warnings
    from lucid.utils.data import _team

    monkeypatch.setattr(_team, "forks", lambda: False)
    with pytest.raises(ValueError, match="'fork' is refused on this platform"):
        DataLoader(cases.Rows(4), num_workers=1, multiprocessing_context="fork")
    batches = list(DataLoader(cases.Rows(4), num_workers=1))
    assert os.getpid() not in {p for b in batches for p in b["pid"].tolist()}
    monkeypatch.setattr(_warnings, "_given", set())
    with pytest.warns(UserWarning, match=r"cannot be pickled.*workers are threads here"):
        assert list(DataLoader([1, 2], num_workers=1, collate_fn=lambda b: b)) == [[1], [2]]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="workers are forked on Linux")
def test_forked_workers_take_what_is_there(tmp_path: Path) -> None:
    """An unguarded script with a class, a closure and a lambda of its own, after both devices computed in threads."""
    script = tmp_path / "unguarded.py"
    script.write_text("""
import lucid, os, threading
from lucid.utils.data import DataLoader, Dataset
lucid.set_num_threads(2)
(lucid.rand(300, 300) @ lucid.rand(300, 300)).sum().item()
x = lucid.rand(64, 64, device="gpu")
(x @ x).sum().item()
pending = x @ x
print("once")
class Own(Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return lucid.full((2000,), float(i)).exp().log().round()[0], os.getpid()
def make(scale):
    class Local(Own):
        def __getitem__(self, i): return super().__getitem__(i)[0] * scale
    return Local()
for _ in range(3):
    loaders = [DataLoader(Own(), 4, num_workers=2), DataLoader(make(2), 4, num_workers=2, collate_fn=lambda b: sum(b))]
    got = [list(l) for l in loaders]
assert [b[0].tolist() for b in got[0]] == [[0, 1, 2, 3], [4, 5, 6, 7]], got
assert [b.item() for b in got[1]] == [12, 44], got
assert os.getpid() not in {p for b in got[0] for p in b[1].tolist()}
assert pending.shape == (64, 64) and pending.sum().item() > 0
try:
    list(DataLoader([x], 1, num_workers=1))
except RuntimeError as e:
    assert "move the batch in the main process" in str(e), e
""")
    for command in ([str(script)], ["-c", script.read_text()], ["-W", "error::DeprecationWarning", str(script)]):
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "once\n", ""), done.stderr


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
def test_workers_end_with_a_killed_main_process(tmp_path: Path) -> None:
    code = """
import os, signal, lucid
from lucid.utils.data import DataLoader
it = iter(DataLoader(range(1000), 1, num_workers=3))
next(it)
print(*it.team.pids(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    pids = [int(p) for p in done.stdout.split()]
    end = time.monotonic() + 20
    while any(Path(f"/proc/{p}").exists() for p in pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert len(pids) == 3 and not any(Path(f"/proc/{p}").exists() for p in pids)


def test_advice_fits_the_cause() -> None:
    with pytest.raises(RuntimeError, match=r"SIGKILL.*short of memory"):
        list(DataLoader(cases.Fails("kill"), None, num_workers=1))
    with pytest.raises(RuntimeError, match=r"exited with code 3\.$"):
        list(DataLoader(cases.Fails("exit"), None, num_workers=1))
    code = "from lucid.utils.data import DataLoader\n"
    code += "print(list(DataLoader(range(2), num_workers=1, multiprocessing_context='spawn')))\n"
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "plain.py"
        script.write_text(code)
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0 and "if __name__ == '__main__':" in done.stderr


def test_gpu_use_in_a_worker_process_is_refused() -> None:
    rows = data.TensorDataset(lucid.ones(4, 2, device="gpu"))
    with pytest.raises(RuntimeError, match="cannot be used in a data loader's worker process"):
        list(DataLoader(rows, num_workers=1))
    assert next(iter(DataLoader(rows, num_workers=1, worker_type="thread")))[0].device == lucid.device("gpu")
    with pytest.raises(RuntimeError, match="cannot be used in a data loader's worker process"):
        list(DataLoader(cases.Rows(2), num_workers=1, collate_fn=cases.on_gpu))


@pytest.mark.parametrize(("how", "words"), [("exit", "code 3"), ("kill", "SIGKILL"), ("sys", "code 4")])
def test_a_dead_worker_is_an_error_that_names_it(how: str, words: str) -> None:
    begun = time.monotonic()
    with pytest.raises(RuntimeError, match=rf"worker \(pid\(s\) \d+\) exited unexpectedly.*{words}"):
        list(DataLoader(cases.Fails(how), None, num_workers=2))
    assert time.monotonic() - begun < 30
    assert multiprocessing.active_children() == []


def test_timeout() -> None:
    loader = DataLoader(cases.Fails("slow"), None, num_workers=1, timeout=60)
    it = iter(loader)
    assert [next(it) for _ in range(3)] == [0, 1, 2]
    loader.timeout = 1
    with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
        next(it)
    begun = time.monotonic()
    del it
    assert time.monotonic() - begun < 20
    assert multiprocessing.active_children() == []


def test_worker_init() -> None:
    out = list(DataLoader(range(4), num_workers=2, worker_init_fn=cases.init_marks, collate_fn=cases.mark))
    assert out == [("0", [0]), ("1", [1]), ("0", [2]), ("1", [3])]
    with pytest.raises(ValueError, match="worker 0 cannot begin"):
        list(DataLoader(range(4), num_workers=1, worker_init_fn=cases.init_fails))


@pytest.mark.parametrize("kind", KINDS)
def test_persistent_workers(kind: str) -> None:
    loader = DataLoader(cases.Rows(8), 2, num_workers=2, persistent_workers=True, worker_type=kind, shuffle=True)
    pids = []
    for _ in range(3):
        batches = list(loader)
        assert sorted(numbers(b["i"] for b in batches)) == list(range(8))
        pids.append({p for b in batches for p in b["pid"].tolist()})
    assert pids[0] == pids[1] == pids[2]
    next(iter(loader))
    assert len(list(loader)) == 4
    assert sorted(
        numbers(DataLoader(cases.Sharded(7), num_workers=2, persistent_workers=True, worker_type=kind))
    ) == list(range(7))
    del loader
    gc.collect()
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("kind", KINDS)
def test_out_of_order_gives_the_same_batches(kind: str) -> None:
    out = numbers(b["i"] for b in DataLoader(cases.Rows(9), 2, num_workers=2, in_order=False, worker_type=kind))
    assert sorted(out) == list(range(9))
    assert sorted(numbers(DataLoader(cases.Sharded(9), num_workers=2, in_order=False, worker_type=kind))) == list(
        range(9)
    )
    assert len(list(DataLoader(cases.Rows(5), num_workers=2, prefetch_factor=0, worker_type=kind))) == 5


def test_an_abandoned_iterator_leaves_nothing() -> None:
    before, files = segments(), len(os.listdir("/proc/self/fd")) if Path("/proc").exists() else 0
    for _ in range(2):
        it = iter(DataLoader(cases.Heavy(), num_workers=2, collate_fn=cases.first))
        next(it)
        del it
        gc.collect()
    assert multiprocessing.active_children() == []
    assert segments() == before
    if files:
        # The resource tracker's pipe stays open from the first loader on.
        assert len(os.listdir("/proc/self/fd")) <= files + 1
    it = iter(DataLoader(cases.Rows(100), num_workers=2, worker_type="thread"))
    next(it)
    del it
    gc.collect()
    assert not [t for t in threading.enumerate() if t.name.startswith("lucid data worker")]


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("way", ["interrupt", "exit", "killed"])
def test_no_orphans_however_the_main_process_ends(way: str, tmp_path: Path) -> None:
    before = segments()
    then = "pass" if way == "exit" else "time.sleep(60)"
    script = run_script(tmp_path, "Heavy()", then)
    assert script.stdout is not None
    pids = [int(p) for p in script.stdout.readline().split()]
    assert len(pids) == 2
    if way == "interrupt":
        os.killpg(script.pid, signal.SIGINT)
    elif way == "killed":
        script.kill()
    _, errors = script.communicate(timeout=60)
    if way == "interrupt":
        assert "KeyboardInterrupt" in errors
        assert errors.count("Traceback") == 1, errors
    elif way == "exit":
        assert errors == ""
    end = time.monotonic() + 60
    while time.monotonic() < end and not (all(map(gone, pids)) and segments() <= before):
        time.sleep(0.1)
    assert all(map(gone, pids))
    assert segments() <= before


def test_an_interrupt_while_waiting_for_a_batch(tmp_path: Path) -> None:
    script = run_script(
        tmp_path, "Fails('slow')", "threading.Timer(1.0, lambda: os.killpg(0, signal.SIGINT)).start(); list(it)"
    )
    assert script.stdout is not None
    pids = [int(p) for p in script.stdout.readline().split()]
    _, errors = script.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    assert all(map(gone, pids))


def test_many_batches_do_not_grow() -> None:
    def figures() -> tuple[int, int]:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1]) if Path("/proc").exists() else 0
        return pages * 4096, len(os.listdir("/proc/self/fd")) if Path("/proc").exists() else 0

    before = segments()
    loader = DataLoader(cases.Rows(10_000, 10_000), 1, num_workers=2)
    start: tuple[int, int] = (0, 0)
    for i, batch in enumerate(loader):
        if i == 300:
            start = figures()
        if i == 9900:
            end = figures()
        assert batch["x"].nbytes == 40_000
    assert end[1] == start[1]
    # 9,600 batches of 40 kB are 384 MB; what stays is noise.
    assert end[0] - start[0] < 32 << 20
    del loader
    assert segments() == before
