"""Checkpoints of several files, and what is left of any checkpoint when its writer is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import lucid
import pytest
from lucid import serialization as ser
from lucid.serialization import _atomic, _sharded


def test_sharded(tmp_path: Path) -> None:
    tensors = {f"layer.{i}": lucid.full((100,), float(i)) for i in range(10)}
    files = lucid.save_sharded(tensors, tmp_path / "new", max_shard_size="1KB")
    assert files == [f"model-{i:05d}-of-00005.safetensors" for i in range(1, 6)]
    index = json.loads((tmp_path / "new" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 4000
    assert index["weight_map"]["layer.9"] == files[-1]
    for where in (tmp_path / "new", tmp_path / "new" / "model.safetensors.index.json"):
        back = lucid.load_sharded(where)
        assert list(back) == list(tensors)
        assert all(lucid.equal(back[k], tensors[k]) for k in tensors)
    # The files of the old checkpoint go with it, those of others stay.
    (tmp_path / "new" / "other.txt").write_text("x")
    assert lucid.save_sharded(tensors, tmp_path / "new") == ["model.safetensors"]
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["model.safetensors", "other.txt"]
    assert len(lucid.load_sharded(tmp_path / "new")) == 10
    assert len(lucid.save_sharded(tensors, tmp_path / "b", max_shard_size=1)) == 10
    for size in ("", "5 parsecs", 0, -1, "0GB", 1.5, True):
        with pytest.raises(ValueError, match="max_shard_size"):
            lucid.save_sharded(tensors, tmp_path, max_shard_size=size)  # type: ignore[arg-type]
    for name in ("../x.safetensors", "x.bin"):
        with pytest.raises(ValueError, match="filename"):
            lucid.save_sharded(tensors, tmp_path, filename=name)
    assert lucid.save_sharded({"a": 1}, tmp_path / "other") == ["checkpoint.lucid"]
    assert lucid.load_sharded(tmp_path / "other") == {"a": 1}


def test_hostile_indexes(tmp_path: Path) -> None:
    lucid.save_safetensors({"a": lucid.ones(1)}, tmp_path / "m.safetensors")
    index = tmp_path / "m.safetensors.index.json"
    for text in ("", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": 3}}', "[" * 100_000):
        index.write_text(text)
        with pytest.raises(ser.InvalidFileError, match="not an index"):
            lucid.load_sharded(index)
    for name in ("../m.safetensors", "/etc/passwd", "", "..", "x/y"):
        index.write_text(json.dumps({"weight_map": {"a": name}}))
        with pytest.raises(ser.InvalidFileError, match="not a file beside it"):
            lucid.load_sharded(index)
    index.write_text(json.dumps({"weight_map": {"b": "m.safetensors"}}))
    with pytest.raises(ser.InvalidFileError, match=r"not in m\.safetensors"):
        lucid.load_sharded(index)
    index.write_text(json.dumps({"weight_map": {"b": "none.safetensors"}}))
    with pytest.raises(FileNotFoundError):
        lucid.load_sharded(index)
    with pytest.raises(FileNotFoundError):
        lucid.load_sharded(tmp_path / "nowhere.json")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        lucid.load_sharded(tmp_path / "empty")


def test_shards_never_take_the_place_of_others(tmp_path: Path) -> None:
    tensors = {f"{i}": lucid.full((10,), float(i)) for i in range(3)}
    first = lucid.save_sharded(tensors, tmp_path, max_shard_size=1)
    second = lucid.save_sharded(tensors, tmp_path, max_shard_size=1)
    assert first[0] == "model-00001-of-00003.safetensors"
    assert second[0] == "model-v2-00001-of-00003.safetensors"
    assert lucid.save_sharded(tensors, tmp_path, max_shard_size=1) == first
    # What an interrupted save left is no checkpoint and is in nobody's way. Nobody knows whose it is: it stays.
    left = ["model-00001-of-00002.safetensors", "model-v7-00001-of-00003.safetensors"]
    for name in left:
        lucid.save_safetensors({"x": lucid.ones(1)}, tmp_path / name)
    lucid.save_safetensors({"y": lucid.ones(1)}, tmp_path / "other-00001-of-00002.safetensors")
    assert set(lucid.load_sharded(tmp_path)) == set(tensors)
    lucid.save_sharded(tensors, tmp_path)
    names = sorted([*left, "model.safetensors", "other-00001-of-00002.safetensors"])
    assert sorted(p.name for p in tmp_path.iterdir()) == names
    assert set(lucid.load_sharded(tmp_path)) == set(tensors)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        lucid.load_sharded(tmp_path)
    # Hugging Face's name of a single file.
    lucid.save_safetensors({"x": lucid.ones(1)}, tmp_path / "other-00001-of-00001.safetensors")
    assert set(lucid.load_sharded(tmp_path)) == {"x"}


class Stop(BaseException):
    """Ends a save in the middle."""


def generation(value: int, count: int) -> dict[str, lucid.Tensor]:
    return {f"{i}": lucid.full((50,), float(value)) for i in range(count)}


def read_one_generation(folder: Path) -> int:
    back = lucid.load_sharded(folder)
    values = {v for t in back.values() for v in t.tolist()}
    assert len(values) == 1, "tensors of several checkpoints"
    value = int(values.pop())
    assert len(back) == value % 3 + 1, "tensors are missing"
    return value


@pytest.mark.parametrize(("before", "after"), [(3, 4), (4, 3), (4, 5), (5, 8), (3, 6)])
def test_a_save_that_stops_at_any_step_leaves_a_whole_checkpoint(
    before: int, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = 0

    def counted(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            if left == 0:
                raise Stop
            left -= 1
            return function(*args, **kwargs)

        return call

    folder = tmp_path / "x"
    lucid.save_sharded(generation(before, before % 3 + 1), folder, max_shard_size=1)
    with monkeypatch.context() as patch:
        patch.setattr(_sharded, "save_safetensors", counted(_sharded.save_safetensors))
        patch.setattr(_atomic.os, "replace", counted(os.replace))
        patch.setattr(_sharded.os, "unlink", counted(os.unlink))
        seen, steps = set(), 0
        while True:
            left = steps
            try:
                lucid.save_sharded(generation(after, after % 3 + 1), folder, max_shard_size=1)
            except Stop:
                seen.add(read_one_generation(folder))
                steps += 1
                left = -1
                lucid.save_sharded(generation(before, before % 3 + 1), folder, max_shard_size=1)
                assert read_one_generation(folder) == before
            else:
                break
    assert read_one_generation(folder) == after
    assert steps >= 2
    assert before in seen


# ---- kill -9 ---------------------------------------------------------------------------------------------------------

START = """
import sys, lucid
print("ready", flush=True)
i = int(sys.argv[2])
while True:
    i += 1
"""
WRITERS = {
    "save": """
    lucid.save({f"{j}": lucid.full((60_000,), float(i)) for j in range(i % 3 + 1)}, sys.argv[1])
""",
    "save_safetensors": """
    lucid.save_safetensors({f"{j}": lucid.full((60_000,), float(i)) for j in range(i % 3 + 1)}, sys.argv[1])
""",
    "save_sharded": """
    tensors = {f"{j}": lucid.full((20_000,), float(i)) for j in range(i % 3 + 1)}
    lucid.save_sharded(tensors, sys.argv[1], max_shard_size=1)
""",
}
READERS: dict[str, Any] = {
    "save": lucid.load,
    "save_safetensors": lucid.load_safetensors,
    "save_sharded": lucid.load_sharded,
}


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("how", WRITERS)
def test_a_killed_writer_leaves_a_whole_checkpoint(how: str, tmp_path: Path) -> None:
    target, rng, last = tmp_path / "x", random.Random(0), 0
    for n in range(8):
        writer = subprocess.Popen(
            [sys.executable, "-c", START + WRITERS[how] + "    print(i, flush=True)\n", str(target), str(last)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(lucid.__file__).resolve().parent.parent)},
        )
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        # Killed at any moment after none, one or two saves.
        done = [int(writer.stdout.readline()) for _ in range(n % 3)]
        time.sleep(rng.random() * 0.05)
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        try:
            back = READERS[how](target)
        except FileNotFoundError:
            # Killed within its very first save.
            assert last == 0
            continue
        values = {v for t in back.values() for v in set(t.tolist())}
        assert len(values) == 1
        now = int(values.pop())
        assert now >= max([last, *done])
        assert len(back) == now % 3 + 1
        last = now
    assert last >= 7
