"""Files of tensors and checkpoints: what they keep, and what is refused."""

from __future__ import annotations

import contextlib
import io
import os
import struct
import time
import tracemalloc
import zipfile
from pathlib import Path

import lucid
import pytest
from lucid import serialization as ser

from tests.python.unit.test_serialization import (
    DATA,
    DTYPES,
    RAN,
    Calls,
    archive_of,
    fuzz_seeds,
    mutations,
    nested_tuple,
    same,
    tensor_pickle,
    umask,
)


def test_hand_made_tensors() -> None:
    assert lucid.load(archive_of(tensor_pickle(), DATA)).tolist() == [1.0, 2.0]
    assert lucid.load(archive_of(tensor_pickle((3,), (0,)), DATA)).tolist() == [1.0, 1.0, 1.0]
    swapped = {"0": struct.pack(">2f", 1.0, 2.0)}
    assert lucid.load(archive_of(tensor_pickle(), swapped, byteorder=b"big")).tolist() == [1.0, 2.0]


def test_archives_that_are_not_aligned_are_mapped_too(tmp_path: Path) -> None:
    for n in range(8):
        path = tmp_path / f"{n}.pt"
        with zipfile.ZipFile(path, "w") as new:
            new.writestr("archive/data.pkl", tensor_pickle())
            new.writestr("archive/" + "x" * n, b"")
            new.writestr("archive/data/0", DATA["0"])
        assert lucid.load(path, mmap=True).tolist() == [1.0, 2.0]


def test_expanded_tensors_are_not_computed_with() -> None:
    flag = b"}X\3\0\0\0neg\x88st"
    pickled = tensor_pickle((2**40,), (0,)).removesuffix(b"tR.") + flag + b"R."
    with pytest.raises(ser.UnpicklingError, match="larger than its storage"):
        lucid.load(archive_of(pickled, DATA))
    pickled = tensor_pickle().removesuffix(b"tR.") + flag + b"R."
    assert lucid.load(archive_of(pickled, DATA)).tolist() == [-1.0, -2.0]


@pytest.mark.parametrize(
    "pickled",
    [
        tensor_pickle((3,)),
        tensor_pickle((2,), (2,)),
        tensor_pickle(offset=1),
        tensor_pickle(offset=2**63),
        tensor_pickle(offset=-1),
        tensor_pickle((-2,)),
        tensor_pickle((2**62,), (0,)),
        tensor_pickle((2**61, 2**61), (0, 0)),
        tensor_pickle((2**61, 2**61, 0), (0, 0, 1)),
        tensor_pickle((1,), (2**70,)),
        tensor_pickle((2, 1), (1,)),
        tensor_pickle((1,) * 65, (1,) * 65),
        tensor_pickle(numel=3),
        tensor_pickle(numel=2**62),
        tensor_pickle(numel=-1),
        tensor_pickle(kind="DoubleStorage"),
        tensor_pickle(kind="QInt8Storage"),
        tensor_pickle(kind="ComplexDoubleStorage"),
        tensor_pickle(kind="NoStorage"),
        tensor_pickle().replace(b"X\1\0\0\x000", b"X\1\0\0\x001"),
        tensor_pickle().replace(b"storage", b"modules"),
    ],
)
def test_tensors_that_do_not_fit_their_storage(pickled: bytes) -> None:
    with pytest.raises((ser.UnpicklingError, ser.InvalidFileError)):
        lucid.load(archive_of(pickled, DATA))


@pytest.mark.parametrize(
    "pickled",
    [
        b"",
        b".",
        b"\x80\2",
        b"\x80\xff.",
        b"\x80\2NN.",
        b"\x80\2N.trailing",
        b"\x80\2h\0.",
        b"\x80\2jxxxx.",
        b"\x80\2X\xff\xff\xff\xffabc.",
        b"\x80\4\x8d\xff\xff\xff\xff\xff\xff\xff\xffa.",
        b"\x80\4\x95\xff\xff\xff\xff\xff\xff\xff\xff.",
        b"\x80\2\x8b\xff\xff\xff\x7f.",
        b"\x80\2\x8b\xff\xff\xff\xff.",
        b"\x80\2I" + b"9" * 10_000 + b"\n.",
        b"\x80\2(a.",
        b"\x80\2t.",
        b"\x80\2NNs.",
        b"\x80\2}(NNNu.",
        b"\x80\2}]Ns.",
        b"\x80\2NR.",
        b"\x80\2c__builtin__\nset\nNR.",
        b"\x80\2c__builtin__\nbytearray\nI1000000000000\n\x85R.",
        b"\x80\2c__builtin__\neval\nX\1\0\0\x001\x85R.",
        b"\x80\2cos\nsystem\n.",
        b"\x80\2c\xff\n\xff\n.",
        b"\x80\4X\2\0\0\0osX\6\0\0\0system\x93.",
        b"\x80\2ccollections\nOrderedDict\n)Rccollections\nOrderedDict\n)Rb.",
        b"\x80\2ccollections\nOrderedDict\n)R}X\7\0\0\0__class__Nsb" + b"N" + b".",
        b"\x80\2ctorch\nTensor\n)R.",
        b"\x80\2ctorch\nTensor\n)\x81.",
        b"\x80\2NQ.",
        b"\x80\2(iposix\nsystem\n.",
        b"\x80\2Pabc\n.",
        b"\x80\2\x82\1.",
        b"\x80\5\x97.",
        nested_tuple(100_000, wide=False),
        nested_tuple(60, wide=True),
    ],
)
def test_malformed_pickles(pickled: bytes) -> None:
    begun = time.monotonic()
    with pytest.raises(ser.UnpicklingError):
        lucid.load(archive_of(pickled, DATA))
    assert time.monotonic() - begun < 20


def test_deep_values_are_read() -> None:
    depth = 50_000
    value = lucid.load(archive_of(b"\x80\2" + b"]" * depth + b"a" * (depth - 1) + b"."))
    for _ in range(depth - 1):
        value = value[0]
    assert value == []


@pytest.mark.parametrize(
    "what", ["compressed", "overlap", "twice", "encrypted", "no pickle", "torchscript", "not a zip"]
)
def test_hostile_archives(what: str) -> None:
    out = io.BytesIO()
    pickled = tensor_pickle()
    if what == "compressed":
        # A zip bomb: a thousand times its size.
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
            new.writestr("archive/data.pkl", b"\0" * (1 << 24))
    elif what == "torchscript":
        with zipfile.ZipFile(out, "w") as new:
            new.writestr("archive/data.pkl", pickled)
            new.writestr("archive/constants.pkl", pickled)
    elif what == "no pickle":
        with zipfile.ZipFile(out, "w") as new:
            new.writestr("archive/other", pickled)
    elif what == "not a zip":
        out.write(b"PK\3\4" + b"\0" * 1000)
    else:
        out = archive_of(pickled, DATA)
        raw = bytearray(out.getvalue())
        first = raw.index(b"PK\1\2")
        second = raw.index(b"PK\1\2", first + 4)
        if what == "overlap":
            # The second entry says that its header is the first's, under the first's name.
            raw[second + 42 : second + 46] = raw[first + 42 : first + 46]
        elif what == "twice":
            raw = bytearray(raw.replace(b"archive/data/0", b"archive/data.pkl"[:14]))
        else:
            raw[first + 8] |= 1
        out = io.BytesIO(bytes(raw))
    out.seek(0)
    tracemalloc.start()
    with pytest.raises(ser.InvalidFileError, match="not a readable checkpoint"):
        lucid.load(out)
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_every_truncation_is_an_error() -> None:
    file = io.BytesIO()
    lucid.save({"a": lucid.arange(20), "b": [1, "x"]}, file)
    raw = file.getvalue()
    for n in [*range(0, len(raw), 37), len(raw) - 1]:
        with pytest.raises((ser.InvalidFileError, ser.UnpicklingError, EOFError)):
            lucid.load(io.BytesIO(raw[:n]))


@pytest.mark.parametrize("seed", range(2))
def test_mutated_files_raise_or_load_and_nothing_else(seed: int, tmp_path: Path) -> None:
    whole, pickled = fuzz_seeds()
    storages = {"0": lucid.arange(12.0)._bytes(), "1": lucid.ones(2)._bytes()}
    allowed = (ser.InvalidFileError, ser.UnpicklingError, EOFError)
    refused = 0
    path = tmp_path / "x.pt"
    count = int(os.environ.get("LUCID_FUZZ", "400"))
    for data in mutations(whole, seed, count):
        path.write_bytes(data)
        for mmap in (False, True):
            try:
                lucid.load(path, mmap=mmap)
            except allowed:
                refused += 1
            except RuntimeError as e:
                # A file whose first bytes are another's is none that can be mapped.
                assert mmap and "zip format" in str(e)
    assert refused > count // 4
    # A pickle that asks for code never gets it, however it is bent.
    evil = io.BytesIO()
    lucid.save([Calls(), lucid.arange(12.0)], evil)
    asks = zipfile.ZipFile(evil).read("archive/data.pkl")
    RAN.clear()
    for data in [*mutations(pickled, seed + 100, count), *mutations(asks, seed + 200, count)]:
        try:
            lucid.load(archive_of(data, storages))
        except allowed:
            pass
        except lucid.errors.LucidError as e:
            assert "map_location" in str(e) or "device" in str(e)
    assert RAN == []


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("mmap", [True, False])
def test_safetensors(device: str, mmap: bool, tmp_path: Path) -> None:
    tensors = {
        str(d): (lucid.arange(6) % 2 if d is lucid.bool else lucid.arange(6)).to(d).reshape(2, 3).to(device)
        for d in DTYPES
        if d is not lucid.complex128 and (device == "cpu" or d is not lucid.float64)
    }
    tensors["t"] = tensors[str(lucid.float32)].t()
    tensors["empty"] = lucid.ones(0, 3, device=device)
    tensors["scalar"] = lucid.tensor(2.5, device=device)
    path = tmp_path / "x.safetensors"
    lucid.save_safetensors(tensors, path, {"format": "pt", "ü": "%s"})
    back = lucid.load_safetensors(path, device, mmap=mmap)
    assert set(back) == set(tensors)
    assert all(same(back[k].contiguous(), tensors[k].contiguous()) for k in tensors)
    back["scalar"].zero_()
    with ser.safe_open(path, framework="pt", device=device) as file:
        assert file.keys() == sorted(tensors)
        assert file.metadata() == {"format": "pt", "ü": "%s"}
        assert same(file.get_tensor("scalar"), tensors["scalar"])
        part = file.get_slice("t")
        assert part.get_shape() == [3, 2]
        assert part.get_dtype() is lucid.float32
        for index in (
            slice(1, None),
            slice(None),
            slice(0, 3, 2),
            slice(-1, None),
            slice(2, 1),
            (slice(1, None), 0),
            2,
            ...,
        ):
            assert part[index].tolist() == tensors["t"][index].tolist()
        with pytest.raises(ValueError, match="no tensor"):
            file.get_tensor("none")
    assert {p.stat().st_mode & 0o777 for p in tmp_path.iterdir()} == {0o666 & ~umask()}


def test_safetensors_errors(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with pytest.raises(TypeError):
        lucid.save_safetensors({"a": 1}, path)  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="metadata"):
        lucid.save_safetensors({}, path, {"a": 1})  # type: ignore[dict-item]
    with pytest.raises(lucid.errors.DtypeMismatch, match="complex128"):
        lucid.save_safetensors({"a": lucid.ones(1, dtype=lucid.complex128)}, path)
    lucid.save_safetensors({}, path)
    assert lucid.load_safetensors(path) == {}
    lucid.save_safetensors({"a": lucid.arange(100), "b": lucid.ones(3)}, path)
    raw = path.read_bytes()
    for n in [*range(0, len(raw), 11), len(raw) - 1]:
        path.write_bytes(raw[:n])
        for mmap in (True, False):
            with pytest.raises((lucid.errors.FileError, ser.InvalidFileError)):
                lucid.load_safetensors(path, mmap=mmap)
    for seed in range(2):
        for data in mutations(raw[: raw.index(b"}}") + 2], seed, 300):
            path.write_bytes(data + raw[raw.index(b"}}") + 2 :])
            with contextlib.suppress(lucid.errors.FileError, ser.InvalidFileError):
                lucid.load_safetensors(path)
    path.write_bytes(struct.pack("<Q", 2**63) + b"{}")
    with pytest.raises(lucid.errors.FileError, match="header"):
        lucid.load_safetensors(path)


def test_links_and_permissions_stay(tmp_path: Path) -> None:
    real, link = tmp_path / "real.pt", tmp_path / "link.pt"
    lucid.save([1], real)
    real.chmod(0o640)
    link.symlink_to(real)
    lucid.save([2], link)
    assert link.is_symlink()
    assert lucid.load(real) == [2]
    assert real.stat().st_mode & 0o777 == 0o640
    lucid.save([3], "/dev/null")


def test_saving_does_not_double_the_memory(tmp_path: Path) -> None:
    # Of several large tensors, one at a time is copied.
    tensors = [lucid.ones(1 << 20) for _ in range(8)]
    tracemalloc.start()
    lucid.save(tensors, tmp_path / "x.pt")
    assert tracemalloc.get_traced_memory()[1] < 12 << 20
    tracemalloc.stop()


def test_a_file_that_is_shortened_does_not_end_who_has_loaded_it(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    lucid.save_safetensors({"a": lucid.arange(100_000)}, path)
    loaded = lucid.load_safetensors(path)
    with ser.safe_open(path) as file:
        held = file.get_tensor("a")
        os.truncate(path, 300)
        assert loaded["a"].sum().item() == held.sum().item() == 4_999_950_000
        with pytest.raises(lucid.errors.LucidError):
            file.get_tensor("a")
