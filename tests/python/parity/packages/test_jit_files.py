"""`lucid.jit.save` and `load`: the ops of a traced call, as data."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import lucid
import lucid.nn.functional as F
import pytest
import torch
from lucid import nn


class Net(nn.Module):
    """Layers, a buffer, writes, slices, and a dict as the result."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.rnn, self.attention = nn.GRU(4, 6, batch_first=True), nn.MultiheadAttention(6, 2, batch_first=True)
        self.register_buffer("shift", lucid.arange(6.0))

    def forward(self, x: Any, scale: Any = None) -> Any:
        y = self.body(x).flatten(2).transpose(1, 2)
        y = 1 - self.rnn(y)[0] / 3
        y, _ = self.attention(y, y, y)
        y = (y + self.shift[None, :])[..., 1:]
        y = y * scale if scale is not None else y
        return {"y": y, "p": F.softmax(y, dim=-1).to(lucid.float64 if y.is_cpu else lucid.float32)}


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_module(device: str, tmp_path: Path) -> None:
    lucid.manual_seed(0)
    net = Net().to(device).eval()
    x, scale = lucid.randn(2, 3, 8, 8, device=device), lucid.tensor(2.0, device=device)
    traced = lucid.jit.trace(net, (x, scale))
    traced.save(tmp_path / "net.pt")
    read = lucid.jit.load(tmp_path / "net.pt", map_location=device)
    other = lucid.randn(2, 3, 8, 8, device=device)
    expected, found = net(other, scale), read(other, scale)
    for key in ("y", "p"):
        assert lucid.equal(expected[key], found[key])
    assert set(read.state_dict()) == {k for k in net.state_dict() if "num_batches" not in k}
    assert not read.training and read.original_name == "Net" and "conv2d" in read.code
    # Gradients flow, and a program that was read is saved again.
    expected["y"].sum().backward()
    found["y"].sum().backward()
    for (name, p), q in zip(read.named_parameters(), net.parameters(), strict=False):
        assert lucid.equal(p.grad, dict(net.named_parameters())[name].grad), name
        del q
    file = io.BytesIO()
    lucid.jit.save(read, file)
    file.seek(0)
    on_cpu = lucid.jit.load(file, map_location="cpu")(other.cpu(), scale.cpu())
    assert lucid.allclose(on_cpu["y"], found["y"].cpu(), atol=1e-4)
    with pytest.raises(TypeError, match="2 tensors were traced"):
        read(other)


def test_functions_and_what_cannot_be_saved(tmp_path: Path) -> None:
    def f(x: Any, n: int) -> Any:
        top, at = (x * n).topk(2)
        return [top, at], x.new_zeros(2), x.to(lucid.complex64) * (1 + 2j)

    traced = lucid.jit.trace(f, (lucid.randn(4), 3))
    lucid.jit.save(traced, tmp_path / "f.pt")
    x = lucid.randn(4)
    read = lucid.jit.load(str(tmp_path / "f.pt"))
    assert lucid.equal(read(x, 3)[0][0], f(x, 3)[0][0]) and lucid.equal(read(x)[2], f(x, 3)[2])
    with pytest.raises(NotImplementedError, match=r"jit\.trace"):
        lucid.jit.save(nn.Linear(1, 1), tmp_path / "g.pt")

    def writes(x: Any) -> Any:
        y = x + 1
        y[0] = 0.0
        return y

    lucid.jit.trace(writes, lucid.ones(2))
    with pytest.raises(RuntimeError, match="part of a tensor"):
        lucid.jit.save(writes, tmp_path / "g.pt")
    assert not (tmp_path / "g.pt").exists()


def test_files_that_are_none(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), tmp_path / "torch.pt")
    lucid.save({"a": lucid.ones(1)}, tmp_path / "state.pt")
    for name in ("torch.pt", "state.pt"):
        with pytest.raises(RuntimeError, match=r"jit\.load"):
            lucid.jit.load(tmp_path / name)
    # Only ops of Lucid's are called, by names that are public.
    for place, name in (
        *(("os", "system"), ("lucid", "_load"), ("Tensor", "__class__"), ("lucid", "load"), ("lucid", "save")),
        *(("functional", "warn"), ("_C", "_from_bytes"), ("Tensor", "map_"), ("linalg", "lucid")),
    ):
        program = {"version": 1, "name": "x", "training": False, "args": {"tuple": []}, "kwargs": {"dict": {}}}
        program |= {"calls": [[place, name, {"tuple": []}, {"dict": {}}, []]], "result": None}
        program |= {"parameters": [], "trained": []}
        lucid.save({"lucid.jit": json.dumps(program), "tensors": {}}, tmp_path / "bad.pt")
        with pytest.raises(RuntimeError, match="is not there"):
            lucid.jit.load(tmp_path / "bad.pt")
    lucid.save({"lucid.jit": json.dumps({"version": 1}), "tensors": {}}, tmp_path / "bad.pt")
    with pytest.raises(RuntimeError, match="damaged"):
        lucid.jit.load(tmp_path / "bad.pt")
