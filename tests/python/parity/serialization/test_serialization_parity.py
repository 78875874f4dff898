"""Files that PyTorch wrote are read here, and files written here are read by PyTorch, safely on both sides."""

from __future__ import annotations

import io
from collections import OrderedDict
from pathlib import Path
from typing import Any

import lucid
import lucid.nn as nn
import numpy as np
import pytest
import torch
from lucid import serialization as ser

from tests.python.samples import lucid_dtypes
from tests.python.tolerances import within

NAMES = lucid_dtypes()


def equal(ours: lucid.Tensor, theirs: torch.Tensor) -> None:
    assert repr(ours.dtype).removeprefix("lucid.") == repr(theirs.dtype).removeprefix("torch.")
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert tuple(ours.stride()) == tuple(theirs.stride())
    assert ours.storage_offset() == theirs.storage_offset()
    assert ours.requires_grad == theirs.requires_grad
    assert ours.detach().tolist() == theirs.detach().tolist()


def base(name: str) -> torch.Tensor:
    return (torch.arange(24) % 2 if name == "bool" else torch.arange(24)).to(getattr(torch, name)).reshape(2, 3, 4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("legacy", [False, True])
def test_torch_files_are_read(name: str, legacy: bool, tmp_path: Path) -> None:
    t = base(name)
    views = [t, t.transpose(0, 2), t[1:, ::2], t[0, 0, 0], t[:0], t.reshape(-1)[:1].expand(5), t.clone()]
    path = tmp_path / "x.pt"
    torch.save(views, path, _use_new_zipfile_serialization=not legacy)
    for kwargs in ({}, {"weights_only": False}) if legacy else ({}, {"mmap": True}, {"weights_only": False}):
        with pytest.warns(UserWarning) if "weights_only" in kwargs else _nothing():
            back = lucid.load(path, **kwargs)
        for ours, theirs in zip(back, views, strict=True):
            equal(ours, theirs)
        assert [b._shares_storage(back[0]) for b in back] == [True] * 6 + [False]


class _nothing:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *details: Any) -> None:
        pass


@pytest.mark.parametrize("name", NAMES)
def test_torch_reads_ours(name: str, tmp_path: Path) -> None:
    t = base(name)
    ours = lucid.tensor(t.tolist(), dtype=getattr(lucid, name))
    views = [ours, ours.transpose(0, 2), ours[1:, ::2], ours[0, 0, 0], ours[:0], ours.reshape(-1)[:1].expand(5)]
    path = tmp_path / "x.pt"
    lucid.save(views, path)
    for mmap in (False, True):
        back = torch.load(path, weights_only=True, mmap=mmap)
        for a, b in zip(views, back, strict=True):
            equal(a, b)
        assert back[1].untyped_storage().data_ptr() == back[0].untyped_storage().data_ptr()


def test_other_objects_both_ways() -> None:
    def make(lib: Any, net: Any) -> dict[str, Any]:
        tensor = lib.ones(2)
        tensor.note = "kept"
        parameter = net.Parameter(lib.ones(2), requires_grad=False)
        parameter.note = 3
        return {
            "scalars": [None, True, -(2**70), 1.5, 2j, "ü", b"\xff\0", bytearray(b"a")],
            "set": {1, "b"},
            "ordered": OrderedDict(b=1, a=[(2,)]),
            "size": lib.Size([2, 3]),
            "dtype": lib.bfloat16,
            "device": lib.device("cpu"),
            "parameter": net.Parameter(lib.ones(2)),
            "noted": parameter,
            "buffer": net.Buffer(lib.ones(1), persistent=False),
            "tensor": tensor,
            "grad": lib.ones(3, requires_grad=True),
        }

    theirs, ours = make(torch, torch.nn), make(lucid, nn)
    file = io.BytesIO()
    torch.save(theirs, file)
    file.seek(0)
    read = lucid.load(file)
    out = io.BytesIO()
    lucid.save(ours, out)
    out.seek(0)
    back = torch.load(out, weights_only=True)
    for key in ("scalars", "set", "ordered"):
        assert read[key] == back[key] == ours[key]
    assert read["size"] == ours["size"] == tuple(back["size"])
    assert (read["dtype"], back["dtype"]) == (lucid.bfloat16, torch.bfloat16)
    assert (read["device"], back["device"]) == (lucid.device("cpu"), torch.device("cpu"))
    for made, net in ((read, nn), (back, torch.nn)):
        assert type(made["parameter"]) is net.Parameter  # type: ignore[attr-defined]
        assert made["noted"].note == 3
        assert not made["noted"].requires_grad
        assert isinstance(made["buffer"], net.Buffer)  # type: ignore[attr-defined]
        assert made["tensor"].note == "kept"
        assert made["grad"].requires_grad


def test_models_and_optimizers_move_over(tmp_path: Path) -> None:
    def make(lib: Any) -> Any:
        return lib.Sequential(lib.Conv2d(1, 2, 3), lib.BatchNorm2d(2), lib.Flatten(), lib.Linear(8, 3))

    theirs, ours = make(torch.nn), make(nn)
    x = np.random.default_rng(0).standard_normal((5, 1, 4, 4)).astype("float32")
    optimizer = torch.optim.Adam(theirs.parameters(), lr=0.1)
    theirs(torch.tensor(x)).sum().backward()
    optimizer.step()
    path = tmp_path / "x.pth"
    torch.save({"model": theirs.state_dict(), "optimizer": optimizer.state_dict()}, path)
    read = lucid.load(path)
    ours.load_state_dict(read["model"])
    theirs.eval()
    ours.eval()
    np.testing.assert_allclose(ours(lucid.tensor(x)).tolist(), theirs(torch.tensor(x)).tolist(), **within("program"))
    mine = lucid.optim.Adam(ours.parameters(), lr=0.1)
    mine.load_state_dict(read["optimizer"])
    lucid.save(ours.state_dict(), path)
    again = torch.load(path, weights_only=True)
    assert again._metadata == theirs.state_dict()._metadata
    make(torch.nn).load_state_dict(again)


def test_what_torch_has_and_this_has_not() -> None:
    for theirs, words in (
        (torch.ones(2, dtype=torch.float8_e8m0fnu), "float8_e8m0fnu"),
        (torch.eye(2).to_sparse_bsc((1, 1)), "sparse"),
        (torch.nn.Linear(1, 1), "Linear"),
    ):
        file = io.BytesIO()
        torch.save(theirs, file)
        file.seek(0)
        with pytest.raises(ser.UnpicklingError, match=words):
            lucid.load(file)


def test_numpy_scalars() -> None:
    values = [
        np.float64(2.5),
        np.int8(-3),
        np.bool_(True),
        np.complex64(1 + 2j),
        np.complex128(1 + 2j),
        np.float16(0.5),
    ]
    file = io.BytesIO()
    torch.save(values, file)
    file.seek(0)
    back = lucid.load(file)
    assert back == values
    assert [type(b) for b in back] == [type(v) for v in values]
    for bad in (np.str_("a"), np.datetime64("2020-01-01")):
        file = io.BytesIO()
        torch.save(bad, file)
        file.seek(0)
        with pytest.raises(ser.UnpicklingError, match="NumPy"):
            lucid.load(file)


def test_lazy_conjugates() -> None:
    t = torch.tensor([1 + 2j], dtype=torch.complex64)
    file = io.BytesIO()
    torch.save([t, t.conj()], file)
    file.seek(0)
    assert [v.tolist() for v in lucid.load(file)] == [[1 + 2j], [1 - 2j]]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_parts_of_complex_tensors(device: str) -> None:
    z = lucid.tensor([1 + 2j, 3 - 4j], device=device)
    for ours in (z.real, z.imag, z.conj(), lucid.view_as_real(z)):
        file = io.BytesIO()
        lucid.save(ours, file)
        for load in (lucid.load, torch.load):
            file.seek(0)
            assert load(file).tolist() == ours.tolist()  # type: ignore[operator]
    with pytest.raises(RuntimeError, match="different types"):
        lucid.save([z, z.real], io.BytesIO())


def test_gpu_tensors_are_read_by_torch_on_its_cpu() -> None:
    file = io.BytesIO()
    lucid.save({"g": lucid.arange(4, device="gpu").reshape(2, 2).t()}, file)
    file.seek(0)
    back = torch.load(file, weights_only=True)
    assert back["g"].device.type == "cpu"
    assert back["g"].tolist() == [[0, 2], [1, 3]]


def test_cuda_tags_go_to_the_gpu_device() -> None:
    file = io.BytesIO()
    torch.save(torch.ones(2), file)
    data = file.getvalue().replace(b"X\3\0\0\0cpu", b"X\3\0\0\0mps")
    import zipfile

    with zipfile.ZipFile(io.BytesIO(data)) as old:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as new:
            for info in old.infolist():
                start = info.header_offset + 30 + sum(data[info.header_offset + i] for i in (26, 28))
                new.writestr(info.filename, data[start : start + info.file_size])
    out.seek(0)
    # Given once in a process, and other tests may have had it.
    lucid.set_warn_always(True)
    try:
        with pytest.warns(UserWarning, match="metal") if lucid.device("gpu").type != "metal" else _nothing():
            assert lucid.load(out).device == lucid.device("gpu")
    finally:
        lucid.set_warn_always(False)
    out.seek(0)
    assert lucid.load(out, map_location={"mps": "cpu"}).is_cpu


class OfTorch(torch.Tensor):
    """A subclass that only a file that is trusted may name."""


class OfLucid(lucid.Tensor):
    """The same."""


@pytest.mark.filterwarnings("ignore:lucid.load with weights_only=False")
def test_subclasses_in_trusted_files() -> None:
    def run(m: Any, kind: type) -> list[Any]:
        file = io.BytesIO()
        m.save({"x": m.ones(2, 3).as_subclass(kind), "y": m.ones(2)}, file)
        file.seek(0)
        with pytest.raises(Exception, match=r"weights_only|add_safe_globals"):
            m.load(file, weights_only=True)
        file.seek(0)
        read = m.load(file, weights_only=False)
        return [type(read["x"]) is kind, type(read["y"]) is m.Tensor, read["x"].tolist()]

    assert run(lucid, OfLucid) == run(torch, OfTorch)
