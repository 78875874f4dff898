"""Files: a save never destroys another checkpoint, a small file never takes much memory or time, any name works."""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lucid
import pytest
from lucid.serialization import _sharded

TENSORS = {f"{i}": lucid.full((4,), float(i)) for i in range(3)}


# ---- shards ----------------------------------------------------------------------------------------------------------


def test_shards_of_another_name_stay(tmp_path: Path) -> None:
    """`model-v2` looks like what `model` writes when its names are taken."""
    other = {k: t + 10 for k, t in TENSORS.items()}
    first = lucid.save_sharded(other, tmp_path, max_shard_size=1, filename="model-v2.safetensors")
    second = lucid.save_sharded(TENSORS, tmp_path, max_shard_size=1)
    third = lucid.save_sharded(TENSORS, tmp_path, max_shard_size=1)
    lucid.save_sharded(TENSORS, tmp_path)
    for index in ("model-v2.safetensors.index.json", "model.safetensors"):
        back = lucid.load_sharded(tmp_path / index)
        assert {k: t.tolist() for k, t in back.items()} == {
            k: t.tolist() for k, t in (other if "v2" in index else TENSORS).items()
        }
    left = {p.name for p in tmp_path.iterdir()}
    assert left == {*first, "model-v2.safetensors.index.json", "model.safetensors"}
    assert not left & {*second, *third}


def test_a_damaged_index_deletes_nothing(tmp_path: Path) -> None:
    files = lucid.save_sharded(TENSORS, tmp_path, max_shard_size=1)
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../x"}}')
    lucid.save_sharded(TENSORS, tmp_path, max_shard_size=1)
    assert {p.name for p in tmp_path.iterdir()} >= set(files)
    assert len(lucid.load_sharded(tmp_path)) == 3


@pytest.mark.parametrize("at", ["second shard", "index"])
def test_shards_of_a_failed_save_are_removed(at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lucid.save_sharded(TENSORS, tmp_path, max_shard_size=1)
    before = sorted(p.name for p in tmp_path.iterdir())
    written = 0

    def save(*args: Any) -> None:
        nonlocal written
        if written == 1 and at == "second shard":
            raise OSError("the disk is full")
        written += 1
        lucid.save_safetensors(*args)

    def dumps(*args: Any, **kwargs: Any) -> str:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(_sharded, "save_safetensors", save)
        if at == "index":
            patch.setattr(_sharded.json, "dumps", dumps)
        with pytest.raises(OSError, match="full"):
            lucid.save_sharded({k: t + 1 for k, t in TENSORS.items()}, tmp_path, max_shard_size=1)
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    assert lucid.load_sharded(tmp_path)["2"].tolist() == [2.0] * 4


# ---- pickles ---------------------------------------------------------------------------------------------------------


def archive(path: Path, pickled: bytes, storages: dict[str, bytes] | None = None) -> Path:
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("archive/data.pkl", pickled)
        out.writestr("archive/byteorder", "little")
        out.writestr("archive/version", "3\n")
        for key, content in (storages or {}).items():
            out.writestr(f"archive/data/{key}", content)
    return path


def call(name: str) -> bytes:
    module, _, function = name.rpartition(".")
    return b"c" + module.encode() + b"\n" + function.encode() + b"\n"


def memoised_bytes(name: str, count: int = 4000, size: int = 900_000) -> bytes:
    """A list of `count` results of a function of the same bytes."""
    big = b"B" + struct.pack("<I", size) + bytes(size) + b"\x94"
    one = b"h\x01h\x00\x85R"
    return b"\x80\x04" + big + b"0" + call(name) + b"\x940" + b"](" + one * count + b"e."


def memoised_list(name: str, count: int = 20_000, size: int = 100_000) -> bytes:
    """The same of a list of numbers."""
    items = b"](" + b"".join(b"J" + struct.pack("<i", i) for i in range(size)) + b"e\x94"
    return b"\x80\x04" + items + b"0" + call(name) + b"\x940](" + b"h\x01h\x00\x85R" * count + b"e."


def negated(count: int = 3000, size: int = 200_000) -> tuple[bytes, dict[str, bytes]]:
    """Tensors that each are the negative of one storage."""
    storage = (
        b"(X\x07\0\0\0storage" + call("torch.FloatStorage") + b"X\x01\0\0\x000X\x03\0\0\0cpuJ" + struct.pack("<i", size)
    ) + b"tQ\x94"
    size_of = b"J" + struct.pack("<i", size)
    args = b"(h\x00K\x00" + size_of + b"\x85K\x01\x85\x89N}X\x03\0\0\0neg\x88st\x94"
    return (
        b"\x80\x04" + storage + b"0" + args + b"0" + call("torch._utils._rebuild_tensor_v2") + b"\x940]("
    ) + b"h\x02h\x01R" * count + b"e.", {"0": bytes(4 * size)}


def colliding(kind: str) -> bytes:
    """Numbers that all have one hash, as keys."""
    n, step = 40_000, (1 << 61) - 1
    number = lambda i: b"\x8a\x0a" + (i * step).to_bytes(10, "little", signed=True)  # noqa: E731
    if kind == "dict":
        return b"\x80\x04}(" + b"".join(number(i) + b"N" for i in range(n)) + b"u."
    if kind == "set":
        return b"\x80\x04\x8f(" + b"".join(number(i) for i in range(n)) + b"\x90."
    if kind == "frozenset":
        return b"\x80\x04(" + b"".join(number(i) for i in range(n)) + b"\x91."
    if kind == "memo":
        return b"\x80\x04" + b"".join(b"Np%d\n0" % (i * step) for i in range(n)) + b"N."
    items = b"](" + b"".join(number(i) for i in range(n)) + b"e"
    return b"\x80\x04" + call("builtins.set") + items + b"\x85R."


HOSTILE: dict[str, Callable[[], Any]] = {
    "bytearray": lambda: memoised_bytes("builtins.bytearray"),
    "set": lambda: memoised_list("builtins.set"),
    "frozenset": lambda: memoised_list("builtins.frozenset"),
    "neg": negated,
    **{f"colliding keys of a {kind}": lambda kind=kind: colliding(kind) for kind in ("dict", "set", "frozenset")},
    "colliding keys of the memo": lambda: colliding("memo"),
    "colliding items of a list": lambda: colliding("list"),
}

LOAD = """
import resource, sys, lucid
from lucid.serialization import UnpicklingError
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    lucid.load(sys.argv[1])
except UnpicklingError as e:
    print("refused:", e)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) // 1024)
"""


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_small_pickle_takes_little_memory_and_time(kind: str, tmp_path: Path) -> None:
    made = HOSTILE[kind]()
    path = archive(tmp_path / "x.pt", *(made if isinstance(made, tuple) else (made,)))
    size = path.stat().st_size >> 20
    start = time.monotonic()
    env = {**os.environ, "PYTHONPATH": str(Path(lucid.__file__).resolve().parent.parent)}
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(path)], capture_output=True, text=True, timeout=60, env=env, check=True
    )
    assert "refused: " in done.stdout, done.stdout
    assert int(done.stdout.split()[-1]) <= 100 + 80 * (size + 1)
    assert time.monotonic() - start < 20


def test_what_programs_save_is_within_the_budget(tmp_path: Path) -> None:
    shared = lucid.randn(1000)
    content = {
        "model": {f"layers.{i}.weight": lucid.ones(1) for i in range(3000)},
        "optimizer": {"state": {i: {"step": i, "exp": (i, float(i))} for i in range(3000)}},
        "sets": [set(range(1000)), frozenset(range(1000)), {(i, i + 1): i for i in range(1000)}],
        "bytes": [bytearray(b"abc" * 1000) for _ in range(100)],
        "views": [shared[i:] for i in range(500)],
        "numbers": {-1: 0, -2: 0, 0.0: 0, 1: 1, 2**61 - 1: 2, 2.5: 3, 1j: 4, (1,): 5},
    }
    lucid.save(content, tmp_path / "x.pt")
    back = lucid.load(tmp_path / "x.pt")
    assert back["sets"] == content["sets"]
    assert back["numbers"] == content["numbers"]
    assert len(back["model"]) == 3000


# ---- names and links -------------------------------------------------------------------------------------------------

SAVES: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "save": (lambda p: lucid.save({"0": TENSORS["1"]}, p), lambda p: lucid.load(p)["0"]),
    "save_safetensors": (
        lambda p: lucid.save_safetensors({"0": TENSORS["1"]}, p),
        lambda p: lucid.load_safetensors(p)["0"],
    ),
}


@pytest.mark.parametrize("how", SAVES)
@pytest.mark.parametrize("length", [1, 230, 237, 245, 255])
def test_names_as_long_as_the_system_takes(how: str, length: int, tmp_path: Path) -> None:
    save, load = SAVES[how]
    path = tmp_path / ("n" * length)
    for _ in range(2):
        save(path)
    assert load(path).tolist() == [1.0] * 4
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("how", SAVES)
def test_names_that_are_too_long_are_an_error_and_leave_nothing(how: str, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="too long"):
        SAVES[how][0](tmp_path / ("n" * 256))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("how", SAVES)
@pytest.mark.parametrize("to", ["x.bin", "below/x.bin", "second", "{}/below/x.bin"])
def test_a_link_to_a_file_to_come_stays_one(how: str, to: str, tmp_path: Path) -> None:
    save, load = SAVES[how]
    (tmp_path / "below").mkdir()
    (tmp_path / "second").symlink_to("below/y.bin")
    link = tmp_path / "link"
    link.symlink_to(to.format(tmp_path))
    for _ in range(2):
        save(link)
        assert link.is_symlink()
        assert load(link).tolist() == [1.0] * 4
    assert link.resolve().is_file()
    assert not [p for p in tmp_path.rglob("*part*")]


@pytest.mark.parametrize("how", SAVES)
def test_links_that_lead_nowhere_are_errors(how: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "lost").symlink_to("nowhere/x.bin")
    for name in ("loop", "lost"):
        with pytest.raises(OSError):
            SAVES[how][0](tmp_path / name)
        assert (tmp_path / name).is_symlink()


@pytest.mark.parametrize("shape", [[0, 2**63], [2**63, 0], [0, 2**64 - 1], [2**40, 2**40, 0]])
def test_sizes_beyond_63_bits_beside_a_0_are_refused(shape: list[int], tmp_path: Path) -> None:
    head = json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(head)) + head)
    with pytest.raises(lucid.errors.FileError, match=r"x\.safetensors"):
        lucid.load_safetensors(path)


# ---- shared memory ---------------------------------------------------------------------------------------------------

HOLDER = """
import lucid, sys
x = lucid.ones(1000).share_memory_()
print("ready", flush=True)
sys.stdin.readline()
"""
SWEEPER = "import lucid; lucid.ones(1000).share_memory_()"


def segments() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if name.startswith("lucid-")}


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no list of shared memory")
@pytest.mark.parametrize("killed", [False, True])
def test_a_sweep_removes_the_segments_of_dead_processes_alone(killed: bool) -> None:
    """Whatever their process ids are: in another namespace these say nothing."""
    env = {**os.environ, "PYTHONPATH": str(Path(lucid.__file__).resolve().parent.parent)}
    before = segments()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        made = segments() - before
        assert len(made) >= 2
        assert not any(f"-{holder.pid:x}-" in name for name in made)
        if killed:
            holder.kill()
            holder.wait()
        subprocess.run([sys.executable, "-c", SWEEPER], check=True, env=env)
        assert segments() & made == (set() if killed else made)
        if not killed:
            holder.stdin.write("\n")
            holder.stdin.flush()
        holder.wait()
    assert not segments() & made


def test_pickles_of_the_standard_library_still_load(tmp_path: Path) -> None:
    content = {"a": [1, 2.5, "x", None, True, (1, 2)], "b": {1, 2}, "c": b"abc"}
    assert lucid.load(archive(tmp_path / "x.pt", pickle.dumps(content, 4))) == content
