"""Saving and loading: what goes in comes out, whatever the format, and hostile files do nothing but raise."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import struct
import zipfile
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import lucid
import lucid.nn as nn
import pytest
from lucid import serialization as ser

DTYPES = (
    lucid.bool,
    lucid.uint8,
    lucid.int8,
    lucid.int16,
    lucid.int32,
    lucid.int64,
    lucid.float16,
    lucid.bfloat16,
    lucid.float32,
    lucid.float64,
    lucid.complex64,
    lucid.complex128,
)


def through(obj: Any, **kwargs: Any) -> Any:
    file = io.BytesIO()
    lucid.save(obj, file)
    file.seek(0)
    return lucid.load(file, **kwargs)


def same(a: lucid.Tensor, b: lucid.Tensor) -> bool:
    return a.dtype is b.dtype and a.shape == b.shape and a.device == b.device and a._bytes() == b._bytes()


# ---- what can be saved -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "dtype"),
    [(device, d) for device in ("cpu", "gpu") for d in DTYPES if device == "cpu" or d.to_real() is not lucid.float64],
    ids=str,
)
def test_tensors_of_every_dtype_and_layout(dtype: Any, device: str, tmp_path: Path) -> None:
    base = (lucid.arange(24) % 2 if dtype is lucid.bool else lucid.arange(24)).to(dtype).reshape(2, 3, 4).to(device)
    views = [base, base.transpose(0, 2), base[1:, ::2], base[0, 0, 0], base[:0], base.reshape(-1)[:1].expand(5)]
    path = tmp_path / "x.pt"
    lucid.save(views, path)
    for mmap in (False, True):
        back = lucid.load(path, mmap=mmap)
        for a, b in zip(views, back, strict=True):
            assert same(a, b)
            assert a.stride() == b.stride()
            assert a.storage_offset() == b.storage_offset()
            assert b._shares_storage(back[0])
        back[0].zero_()
        assert not back[1].to(lucid.float32).any().item() if not dtype.is_complex else True
    # The file does not see what is written to a mapped tensor.
    assert same(lucid.load(path)[0], base)


def test_containers_and_scalars() -> None:
    obj = {
        "none": None,
        "bools": (True, False),
        "ints": [0, -1, 255, 256, 65536, 2**31, -(2**40), 10**50],
        "floats": [1.5, float("inf"), -0.0],
        "complex": 1 - 2j,
        "text": ["", "ü😀", "\ud800"],
        "bytes": [b"", b"\x00\xff", bytearray(b"ab")],
        "set": {1, "a", (2, 3)},
        "frozen": frozenset({1}),
        "ordered": OrderedDict(b=1, a=2),
        "counter": Counter("aab"),
        "dtypes": [*DTYPES],
        "devices": [lucid.device("cpu"), lucid.device("gpu")],
        "size": lucid.Size([2, 3]),
        (1, "key"): {2: 3},
    }
    back = through(obj)
    assert back == obj
    assert type(back["ordered"]) is OrderedDict
    assert type(back["counter"]) is Counter
    assert type(back["size"]) is lucid.Size
    assert all(a is b for a, b in zip(back["dtypes"], DTYPES, strict=True))
    shared: list[Any] = [1]
    twice = through([shared, shared])
    assert twice[0] is twice[1]
    loop: list[Any] = []
    loop.append(loop)
    turned = through(loop)
    assert turned[0] is turned


def test_parameters_buffers_attributes_and_gradients() -> None:
    p = nn.Parameter(lucid.ones(2), requires_grad=False)
    b = nn.Buffer(lucid.ones(3), persistent=False)
    t = lucid.ones(2, requires_grad=True)
    u = lucid.ones(1)
    u.note = "here"
    p.note = [1]
    back = through({"p": p, "b": b, "t": t, "u": u, "again": p})
    assert type(back["p"]) is nn.Parameter
    assert not back["p"].requires_grad
    assert back["p"].note == [1]
    assert back["again"] is back["p"]
    assert type(back["b"]) is nn.Buffer
    assert back["b"].persistent is False
    assert back["t"].requires_grad
    assert back["t"].is_leaf
    assert back["u"].note == "here"


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_training_goes_on_from_its_checkpoint(device: str, tmp_path: Path) -> None:
    lucid.manual_seed(0)
    x = lucid.randn(8, 3, device=device)

    def step(model: Any, optimizer: Any) -> float:
        loss = (model(x) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    def make() -> tuple[Any, Any]:
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).to(device)
        return model, lucid.optim.Adam(model.parameters(), lr=0.1)

    model, optimizer = make()
    for _ in range(3):
        step(model, optimizer)
    path = tmp_path / "checkpoint.pt"
    lucid.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, path)
    wanted = [step(model, optimizer) for _ in range(3)]
    model, optimizer = make()
    read = lucid.load(path)
    assert all(t.device == lucid.device(device) for t in read["model"].values())
    assert read["model"]._metadata[""]["version"] == 1
    model.load_state_dict(read["model"])
    optimizer.load_state_dict(read["optimizer"])
    assert [step(model, optimizer) for _ in range(3)] == wanted


def test_map_location(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    lucid.save({"g": lucid.ones(2, 2, device="gpu"), "c": lucid.zeros(2)}, path)
    gpu = lucid.device("gpu")
    assert [lucid.load(path)[k].device == gpu for k in "gc"] == [True, False]
    for where in ("cpu", lucid.device("cpu"), {"gpu": "cpu"}, lambda t, tag: t):
        read = lucid.load(path, where)
        assert all(t.is_cpu for t in read.values())
        assert read["g"].shape == (2, 2)
    assert all(t.device == gpu for t in lucid.load(path, map_location="gpu").values())
    tags: list[str] = []
    lucid.load(path, map_location=lambda t, tag: tags.append(tag))
    assert sorted(tags) == ["cpu", "gpu"]
    with pytest.raises(TypeError, match="map_location"):
        lucid.load(path, map_location=3)
    with pytest.raises(TypeError, match="map_location"):
        lucid.load(path, map_location=lambda t, tag: 3)
    double = tmp_path / "double.pt"
    lucid.save(lucid.ones(1, dtype=lucid.float64), double)
    with pytest.raises(RuntimeError, match="float64"):
        lucid.load(double, map_location="gpu")


def test_files_and_arguments(tmp_path: Path) -> None:
    path = tmp_path / "a file ü.pt"
    for f in (path, str(path)):
        lucid.save([1], f)
        assert lucid.load(f) == [1]
    with path.open("wb") as file:
        lucid.save([2], file)
    with path.open("rb") as file:
        assert lucid.load(file) == [2]
    shifted = io.BytesIO(b"before")
    shifted.seek(6)
    lucid.save([3], shifted)
    shifted.seek(6)
    assert lucid.load(shifted) == [3]
    with pytest.raises(FileNotFoundError):
        lucid.load(tmp_path / "none.pt")
    with pytest.raises(FileNotFoundError):
        lucid.load(tmp_path / "none.pt", mmap=True)
    with pytest.raises(RuntimeError, match="no folder does not exist"):
        lucid.save(1, tmp_path / "no folder" / "x.pt")
    with pytest.raises(EOFError):
        lucid.load(io.BytesIO())
    with pytest.raises(TypeError):
        lucid.save(1, 5)
    with pytest.raises(AttributeError):
        lucid.load(5)
    with pytest.raises(ValueError, match="protocol"):
        lucid.save(1, path, pickle_protocol=4)
    with pytest.raises(ValueError, match="mmap"):
        lucid.load(io.BytesIO(b"x"), mmap=True)
    with pytest.raises(pickle.PicklingError, match="lambda"):
        lucid.save(lambda: None, path)
    # A save that failed leaves the old file and nothing beside it.
    assert lucid.load(path) == [2]
    assert [p.name for p in tmp_path.iterdir() if "part" in p.name] == []


@pytest.mark.parametrize("content", [b"hello world, this is a text", b"\x89PNG\r\n\x1a\n", b"{}", b"\0" * 64], ids=repr)
def test_what_is_no_checkpoint_is_told_so(content: bytes) -> None:
    with pytest.raises(ser.UnpicklingError, match="not a readable checkpoint: it begins with"):
        lucid.load(io.BytesIO(content))


def test_equal_objects_make_equal_files_with_aligned_entries(tmp_path: Path) -> None:
    obj = {"a": lucid.arange(3), "b": lucid.ones(5, dtype=lucid.float16), "c": nn.Linear(2, 2, bias=False).state_dict()}
    one, two = io.BytesIO(), io.BytesIO()
    lucid.save(obj, one)
    lucid.save(obj, two)
    assert one.getvalue() == two.getvalue()
    archive = zipfile.ZipFile(one)
    assert archive.testzip() is None
    raw = one.getvalue()
    for info in archive.infolist():
        assert info.compress_type == zipfile.ZIP_STORED
        names, extras = struct.unpack_from("<2H", raw, info.header_offset + 26)
        assert (info.header_offset + 30 + names + extras) % 64 == 0
    record = json.loads(archive.read("archive/lucid"))
    assert record == {"schema": 1, "lucid": lucid.__version__, "gpu": [], "ops": {}}


def test_a_newer_schema_is_refused_and_a_missing_record_is_no_fault() -> None:
    file = io.BytesIO()
    lucid.save([1], file)

    def changed(record: bytes | None) -> io.BytesIO:
        out = io.BytesIO()
        with zipfile.ZipFile(file) as old, zipfile.ZipFile(out, "w") as new:
            for name in old.namelist():
                if name == "archive/lucid":
                    if record is not None:
                        new.writestr(name, record)
                else:
                    new.writestr(name, old.read(name))
        out.seek(0)
        return out

    assert lucid.load(changed(None)) == [1]
    with pytest.raises(ser.InvalidFileError, match="newer version"):
        lucid.load(changed(b'{"schema": 99, "lucid": "9.0", "gpu": []}'))
    for bad in (b"{", b"[]", b'{"schema": "1"}', b"[" * 100_000):
        with pytest.raises(ser.InvalidFileError, match="record"):
            lucid.load(changed(bad))


# ---- what must not be read -------------------------------------------------------------------------------------------

RAN: list[Any] = []


def run(*args: Any) -> None:
    RAN.append(args)


class Calls:
    def __reduce__(self) -> Any:
        return run, ("harm",)


class Plain:
    def __init__(self, a: int) -> None:
        self.a = a


def test_code_is_not_run() -> None:
    RAN.clear()
    file = io.BytesIO()
    lucid.save({"x": Calls()}, file)
    file.seek(0)
    with pytest.raises(ser.UnpicklingError, match=r"Unsupported global.*\.run .*add_safe_globals") as caught:
        lucid.load(file)
    assert isinstance(caught.value, pickle.UnpicklingError)
    assert RAN == []
    for target in (os.system, eval, exec, getattr, __import__, open, pickle.loads):
        evil = pickle.dumps((target, ("1",)), 2).replace(b"\x86q", b"Rq")
        with pytest.raises((ser.UnpicklingError, ser.InvalidFileError)):
            lucid.load(io.BytesIO(evil))


def test_safe_globals() -> None:
    file = io.BytesIO()
    lucid.save([Plain(3), Calls()], file)

    def load(**kwargs: Any) -> Any:
        file.seek(0)
        return lucid.load(file, **kwargs)

    with pytest.raises(ser.UnpicklingError, match="Plain"):
        load()
    RAN.clear()
    with ser.safe_globals([Plain, run]):
        assert load()[0].a == 3
        assert {Plain, run} <= set(ser.get_safe_globals())
    assert RAN == [("harm",)]
    with pytest.raises(ser.UnpicklingError, match="Plain"):
        load()
    ser.add_safe_globals([Plain, (run, f"{run.__module__}.run")])
    assert load()[0].a == 3
    ser.clear_safe_globals()
    assert ser.get_safe_globals() == []
    with pytest.raises(ser.UnpicklingError):
        load()
    with pytest.warns(UserWarning, match="runs whatever code"):
        assert load(weights_only=False)[0].a == 3
    with pytest.raises(ValueError, match="length 2"):
        ser.add_safe_globals([(run,)])
    with pytest.raises(TypeError):
        ser.add_safe_globals([(run, 3)])


def archive_of(pickled: bytes, storages: dict[str, bytes] | None = None, **records: bytes) -> io.BytesIO:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as new:
        new.writestr("archive/data.pkl", pickled)
        new.writestr("archive/byteorder", records.get("byteorder", b"little"))
        for key, data in (storages or {}).items():
            new.writestr(f"archive/data/{key}", data)
    out.seek(0)
    return out


def tensor_pickle(
    size: Any = (2,), stride: Any = (1,), offset: Any = 0, numel: Any = 2, kind: str = "FloatStorage"
) -> bytes:
    def tup(values: Any) -> bytes:
        return b"(" + b"".join(b"I%d\n" % v for v in values) + b"t"

    storage = b"(X\7\0\0\0storagectorch\n" + kind.encode() + b"\nX\1\0\0\x000X\3\0\0\0cpuI%d\ntQ" % numel
    args = storage + b"I%d\n" % offset + tup(size) + tup(stride) + b"\x89ccollections\nOrderedDict\n)R"
    return b"\x80\2ctorch._utils\n_rebuild_tensor_v2\n(" + args + b"tR."


DATA = {"0": struct.pack("<2f", 1.0, 2.0)}


def nested_tuple(depth: int, wide: bool) -> bytes:
    step = b"2\x86" if wide else b"\x85"
    return b"\x80\2}(" + b")" + step * depth + b"Nu."


def mutations(raw: bytes, seed: int, count: int) -> Any:
    rng = random.Random(seed)
    for _ in range(count):
        data = bytearray(raw)
        for _ in range(rng.choice((1, 1, 2, 8))):
            at = rng.randrange(len(data))
            kind = rng.randrange(5)
            if kind == 0:
                data[at] ^= 1 << rng.randrange(8)
            elif kind == 1:
                data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            elif kind == 2:
                del data[at : at + rng.randrange(1, 40)]
            elif kind == 3:
                data[at:at] = rng.randbytes(rng.randrange(1, 40))
            else:
                other = rng.randrange(len(data))
                data[at : at + 8] = data[other : other + 8]
            if not data:
                break
        yield bytes(data)


def fuzz_seeds() -> list[bytes]:
    obj = {"a": lucid.arange(12.0).reshape(3, 4), "b": nn.Parameter(lucid.ones(2)), "c": [1, "x", b"y", {1, 2}, (3.0,)]}
    obj["v"] = obj["a"].t()
    file = io.BytesIO()
    lucid.save(obj, file)
    # Without checksums to stop them, mutations reach the pickle.
    bare = zipfile.ZipFile(file).read("archive/data.pkl")
    return [file.getvalue(), bare]


# ---- safetensors -----------------------------------------------------------------------------------------------------


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
