"""`skip_data`, files that are mapped to be written, and files that are read to fake tensors, beside PyTorch."""

from __future__ import annotations

import importlib
import io
import mmap
from pathlib import Path
from typing import Any

import lucid
import pytest
import torch

FRAMEWORKS = (lucid, torch)


def fakes(f: Any) -> Any:
    return importlib.import_module(f"{f.__name__}._subclasses.fake_tensor")


def objects(f: Any) -> dict[str, Any]:
    x = f.arange(1.0, 7.0).view(2, 3)
    return {"x": x, "view": x[1], "n": f.ones(3, dtype=f.int64), "p": f.nn.Parameter(f.ones(2)), "other": [1, "two"]}


def described(values: Any) -> str:
    told = {k: (tuple(v.shape), tuple(v.stride()), v.dtype, v.requires_grad) for k, v in values.items() if k != "other"}
    return str((told, values["other"])).replace("lucid.", "torch.")


@pytest.mark.parametrize("fake", [False, True])
def test_room_is_left_for_elements(tmp_path: Path, fake: bool) -> None:
    for f in FRAMEWORKS:
        path = tmp_path / f"{f.__name__}.pt"
        values = objects(f)
        if fake:
            mode = fakes(f).FakeTensorMode()
            values = {k: mode.from_tensor(v) if isinstance(v, f.Tensor) else v for k, v in values.items()}
        with f.serialization.skip_data(materialize_fake_tensors=fake):
            f.save(values, path)
        for g in FRAMEWORKS:
            # PyTorch writes no checksum of what it leaves out, which Lucid asks for unless the file is mapped.
            made = g.load(path, mmap=f is torch and g is lucid)
            assert all(not v.any() for k, v in made.items() if k != "other") and made["other"] == [1, "two"]
            assert described(made) == described(objects(g))
            # PyTorch writes a fake parameter as a tensor that requires gradients.
            assert isinstance(made["p"], g.nn.Parameter) is (f is lucid or not fake) and type(made["x"]) is g.Tensor


def test_elements_are_not_read(tmp_path: Path) -> None:
    for f in FRAMEWORKS:
        path = tmp_path / f"{f.__name__}.pt"
        f.save(objects(f), path)
        with f.serialization.skip_data():
            assert described(f.load(path)) == described(objects(f))
        assert f.load(path)["x"].sum() == 21
    with lucid.serialization.skip_data():
        assert not lucid.load(path)["x"].any()


def test_files_are_read_to_fake_tensors(tmp_path: Path) -> None:
    texts = []
    for f in FRAMEWORKS:
        path = tmp_path / f"{f.__name__}.pt"
        f.save(objects(f), path)
        with fakes(f).FakeTensorMode():
            made = f.load(path)
        assert all(isinstance(v, fakes(f).FakeTensor) for k, v in made.items() if k != "other")
        assert isinstance(made["p"], f.nn.Parameter)
        texts.append(str(made).replace("lucid.", "torch."))
    assert texts[0] == texts[1]


def test_files_are_mapped_to_be_written(tmp_path: Path) -> None:
    for f in FRAMEWORKS:
        path = tmp_path / f"{f.__name__}.pt"
        f.save({"x": f.zeros(1000)}, path)
        before = path.read_bytes()
        f.load(path, mmap=True)["x"].fill_(1.0)
        assert path.read_bytes() == before
        assert f.serialization.get_default_mmap_options() == mmap.MAP_PRIVATE
        with f.serialization.set_default_mmap_options(mmap.MAP_SHARED):
            x = f.load(path, mmap=True)["x"]
            assert f.serialization.get_default_mmap_options() == mmap.MAP_SHARED
        assert f.serialization.get_default_mmap_options() == mmap.MAP_PRIVATE
        x.copy_(f.full((1000,), 2.0))
        assert f.load(path, mmap=True)["x"].eq(2.0).all()
        with pytest.raises(ValueError, match="Invalid argument"):
            f.serialization.set_default_mmap_options(77)


def test_what_is_refused() -> None:
    fake = fakes(lucid).FakeTensorMode().from_tensor(lucid.ones(2))
    with pytest.raises(fakes(lucid).UnsupportedFakeTensorException, match="skip_data"):
        lucid.save(fake, io.BytesIO())
    old = io.BytesIO()
    torch.save({"x": torch.ones(2)}, old, _use_new_zipfile_serialization=False)
    for block in (lucid.serialization.skip_data(), fakes(lucid).FakeTensorMode()):
        old.seek(0)
        with block, pytest.raises(lucid.errors.NotImplementedError, match="read whole"):
            lucid.load(old)
    file = io.BytesIO()
    lucid.save(lucid.ones(1), file)
    file.seek(0)
    with fakes(lucid).FakeTensorMode(), pytest.raises(lucid.errors.NotImplementedError, match="map_location"):
        lucid.load(file, map_location=lambda storage, place: storage)
