"""`lucid.onnx.export`: what ONNX's own reference evaluator computes is what the model does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lucid
import lucid.nn.functional as F
import pytest
from lucid import nn

onnx = pytest.importorskip("onnx")
from onnx.reference import ReferenceEvaluator  # noqa: E402

from tests.python.tolerances import TABLE, within  # noqa: E402


def check(model: Any, *inputs: lucid.Tensor, tol: float = TABLE["program"].rtol, **how: Any) -> Any:
    """Exports with an example, and compares on another input of the same shape."""
    program = lucid.onnx.export(model, inputs, **how)
    g = lucid.Generator().manual_seed(3)
    others = [lucid.randn(t.shape, generator=g).to(t.device) if t.is_floating_point() else t for t in inputs]
    if isinstance(model, nn.Module):
        model.eval()
    with lucid.no_grad():
        expected = model(*others)
    found = program(*others)
    for a, b in zip([expected] if isinstance(expected, lucid.Tensor) else expected, found, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        assert lucid.allclose(a.cpu(), b, rtol=tol, atol=tol), (a, b)
    return program


class Block(nn.Module):
    """A transformer's block of its own making: slices, broadcasting, masks, rotations."""

    def __init__(self) -> None:
        super().__init__()
        self.emb, self.qkv, self.out = nn.Embedding(11, 8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.norm, self.scale = nn.RMSNorm(8), nn.Parameter(lucid.tensor(0.5))

    def forward(self, ids: lucid.Tensor) -> Any:
        x = self.emb(ids) + lucid.arange(ids.shape[1]).unsqueeze(-1) / 7
        q, k, v = self.qkv(self.norm(x)).view(ids.shape[0], ids.shape[1], 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        q = lucid.cat([-q[..., 2:], q[..., :2]], -1) * self.scale + q
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + F.silu(self.out(y))
        top, at = x.topk(2, dim=-1)
        return x.mean(dim=1), top, at, lucid.where(x > 0, x, x.exp() - 1).amax(-1), x[:, -1].argmax(-1)


LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "conv": (
        lambda: nn.Sequential(
            *(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True)),
            *(nn.MaxPool2d(3, 2, padding=1), nn.Conv2d(4, 8, 3, stride=2, padding="valid", groups=2), nn.Hardswish()),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(), nn.Linear(8, 5), nn.LogSoftmax(-1)),
        ),
        (2, 3, 12, 12),
    ),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(3, 4, 3, dilation=2), nn.GELU(), nn.AvgPool1d(2)), (2, 3, 12)),
    "up": (
        lambda: nn.Sequential(
            *(nn.ConvTranspose2d(3, 2, 3, stride=2, output_padding=1, padding=1), nn.GroupNorm(2, 2), nn.ELU()),
            *(nn.Upsample(scale_factor=2, mode="nearest"), nn.ReflectionPad2d(1), nn.InstanceNorm2d(2), nn.SiLU()),
        ),
        (1, 3, 4, 4),
    ),
    "activations": (
        lambda: nn.Sequential(
            *(nn.LeakyReLU(0.2), nn.Softplus(), nn.Tanh(), nn.PReLU(), nn.Hardtanh(-0.5, 0.7), nn.Hardsigmoid()),
            *(nn.GELU(approximate="tanh"), nn.Softsign(), nn.ReLU6(), nn.Sigmoid(), nn.GLU(), nn.Softmax(-1)),
        ),
        (3, 8),
    ),
    "transformer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str) -> None:
    make, shape = LAYERS[name]
    lucid.manual_seed(0)
    check(make(), lucid.randn(shape))


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_model_with_weights_by_name(device: str, tmp_path: Path) -> None:
    lucid.manual_seed(1)
    model = Block().to(device)
    ids = lucid.tensor([[1, 5, 10, 0], [2, 2, 3, 4]], device=device)
    if device == "gpu":
        model.forward = lambda ids: model.qkv(model.norm(model.emb(ids)))  # type: ignore[method-assign]
    program = check(model, ids, input_names=["ids"], f=tmp_path / "block.onnx")
    names = {i.name for i in program.model_proto.graph.initializer}
    assert {"emb.weight", "qkv.weight", "qkv.bias"} <= names
    read = onnx.load(tmp_path / "block.onnx")
    assert [i.name for i in read.graph.input] == ["ids"]
    assert ReferenceEvaluator(read).run(None, {"ids": ids.cpu().numpy()})[0].shape[0] == 2


def test_operators_and_writes() -> None:
    def arithmetic(x: lucid.Tensor) -> Any:
        y = 1 - x / 4
        y = 2 / (y * y + 3) + 2**x
        z = x.relu() + 1
        z += y
        z.mul_(0.5)
        w = (x > 0) & ~(x > 1)
        z = (z @ x.T).data
        return y, z, w.float(), x - y.max(dim=-1)[0].unsqueeze(-1), x.sum().reshape(1), lucid.clamp(x, max=0.5)

    lucid.manual_seed(4)
    check(arithmetic, lucid.randn(3, 4))

    def aliased(x: lucid.Tensor) -> lucid.Tensor:
        z = x + 1
        rows = z.view(-1)
        z.mul_(2.0)
        return rows

    def partly(x: lucid.Tensor) -> lucid.Tensor:
        z = x + 1
        z[0] = 0.0
        return z

    for program in (aliased, partly):
        with pytest.raises(lucid.onnx.OnnxExporterError, match="part of a tensor"):
            lucid.onnx.export(program, lucid.ones(2, 2))


def test_sizes_that_vary() -> None:
    lucid.manual_seed(2)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 5))
    how = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": {"x": {0: "batch"}, "y": {0: "batch"}}}
    program = check(net, lucid.randn(2, 3, 6, 6), **how)
    assert program.model_proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    (more,) = program(lucid.ones(5, 3, 6, 6))
    assert lucid.allclose(more, net(lucid.ones(5, 3, 6, 6)), **within("near zero"))

    def positions(x: lucid.Tensor) -> lucid.Tensor:
        return x + lucid.arange(x.shape[1])

    with pytest.raises(lucid.onnx.OnnxExporterError, match="depends on a size that varies"):
        lucid.onnx.export(positions, lucid.ones(2, 3), input_names=["x"], dynamic_axes={"x": [1]})


def test_what_cannot_be_written_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    error = lucid.onnx.OnnxExporterError
    with pytest.raises(error, match="lstm_sequence has no rule"):
        lucid.onnx.export(nn.LSTM(3, 4), lucid.ones(2, 1, 3))
    with pytest.raises(error, match="mask"):
        lucid.onnx.export(lambda x: x[x > 0], lucid.ones(3))
    with pytest.raises(error, match="opset_version 9"):
        lucid.onnx.export(nn.ReLU(), lucid.ones(3), opset_version=9)
    with pytest.raises(error, match="no input or output"):
        lucid.onnx.export(nn.ReLU(), lucid.ones(3), dynamic_axes={"z": [0]})
    net = nn.Dropout()
    assert not lucid.onnx.is_in_onnx_export()
    lucid.onnx.export(net, lucid.ones(3))
    assert net.training and not lucid.onnx.is_in_onnx_export()
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match="pip install onnx"):
        lucid.onnx.export(nn.ReLU(), lucid.ones(3))
