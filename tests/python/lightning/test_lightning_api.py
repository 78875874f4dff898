"""The integrated API: engines, the pipeline in both modes, layers, blocks, interop."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lucid
import lucid.lightning as lc
import numpy as np
import pytest
import torch
from lucid import errors
from lucid.lightning import coreml, integrated_api, interop

from tests.python.tolerances import TABLE

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)


def rand(*shape: int) -> Array:
    return RNG.random(shape, np.float32)


A, B, Q = rand(5, 7), rand(7, 3), rand(6, 4)
X, W, C = rand(1, 3, 8, 8), rand(16, 3, 3, 3), rand(16)
ENGINES = ["torch", "mlx"]


def close(got: Any, want: Any, atol: float = TABLE["near zero"].atol) -> None:
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=TABLE["program"].rtol, atol=atol)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.filterwarnings("ignore:the engine torch")
def test_engines_agree(engine: str) -> None:
    api = lc.api

    def results() -> list[Any]:
        outs = [np.empty(s, np.float32) for s in ((5, 3), (24,), (1, 16, 8, 8), (5, 4))]
        api.matmul_into(A, B, outs[0], "metal")
        api.attention_into(Q, Q, Q, outs[1], 6, 4, False, "metal")
        api.conv_relu_nchw_into(X, W, C, outs[2], 1, 1, 1, 1, "metal")
        api.conv_attention_torchstrong_nchw_into(X, W, C, outs[3], 5, 4, 1, 1, 1, 1, "cpu")
        return [
            *outs,
            api.matmul(A, B, "cpu"),
            api.attention(Q.ravel(), Q.ravel(), Q.ravel(), 6, 4, True, "cpu"),
            api.conv_relu_nchw(X, W, None, 2, 1, 0, 1, "cpu"),
            api.conv_attention_torchstrong_nchw(X, W, None, 40, 30, device="cpu"),
            api.matmul(A.tolist(), B.tolist(), "cpu"),
        ]

    want = results()
    api.set_backend(engine)
    assert api.get_backend() == api.get_engine() == engine
    got = results()
    for g, w in zip(got, want, strict=True):
        assert type(g) is type(w)
        close(g, w)
    with pytest.raises(errors.NotImplementedError, match="graph"):
        api.conv_attention_torchstrong_nchw(X, W, C, 4, 4, device="cpu", execution_mode="graph")
    with pytest.raises(errors.ValueError):
        api.matmul(A, B, "tpu")
    with pytest.raises(errors.ShapeMismatch):
        api.matmul_into(A, B, np.empty(4, np.float32), "cpu")


def test_choosing_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    lc.api.set_backend("auto")
    assert lc.api.get_backend() == "auto" and lc.api.get_engine() == "lightning"
    lc.api.set_engine("lightning")
    with pytest.raises(errors.ValueError, match="tensorflow"):
        lc.api.set_backend("tensorflow")
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(errors.RuntimeError, match="torch"):
        lc.api.set_backend("torch")
    assert lc.api.get_backend() == "lightning"


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_ab_report(device: str) -> None:
    lc.crossover_policy_set(lc.CrossoverPolicy(mode="off"))
    report = lc.api.conv_attention_torchstrong_nchw_ab_report(
        X, W, C, seq_len=96, head_dim=48, stride_h=1, stride_w=1, pad_h=1, pad_w=1, device=device, warmup=1, iters=3
    )
    assert report["winner"] in ("eager", "graph", "tie") and report["allclose"] and report["max_abs_diff"] <= 1e-4
    assert report["graph_over_eager"] == report["graph_ms"] / report["eager_ms"]
    assert report["fallbacks"] == {"eager": 0, "graph": 0} and not lc.runtime_trace_enabled()
    lc.crossover_policy_set(lc.CrossoverPolicy())
    report = lc.api.conv_attention_torchstrong_nchw_ab_report(X, W, C, 4, 4, device="gpu", warmup=0, iters=1)
    assert report["fallbacks"] == {"eager": 1, "graph": 1}
    for bad in ({"iters": 0}, {"warmup": -1}, {"atol": float("nan")}):
        with pytest.raises(errors.ValueError):
            lc.api.conv_attention_torchstrong_nchw_ab_report(X, W, C, 4, 4, **bad)


# ---- layers ----------------------------------------------------------------------------------------------------------

LAYERS: dict[str, tuple[Callable[[], Any], Callable[[Any], torch.nn.Module], Array]] = {
    "Linear": (lambda: lc.Linear(7, 3), lambda m: torch.nn.Linear(7, 3), A),
    "ReLU": (lambda: lc.ReLU(), lambda m: torch.nn.ReLU(), A - 0.5),
    "GELU": (lambda: lc.GELU(), lambda m: torch.nn.GELU(), A - 0.5),
    "LayerNorm": (lambda: lc.LayerNorm(7), lambda m: torch.nn.LayerNorm(7), A),
    "Conv2d": (lambda: lc.Conv2d(3, 16, 3, padding=1), lambda m: torch.nn.Conv2d(3, 16, 3, padding=1), X),
    "Embedding": (lambda: lc.Embedding(9, 4), lambda m: torch.nn.Embedding(9, 4), np.array([[1, 8], [1, 0]])),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_and_their_gradients(name: str) -> None:
    make, reference, x = LAYERS[name]
    layer = make()
    theirs = reference(layer)
    with torch.no_grad():
        for parameter, p in zip(layer.parameters(), theirs.parameters(), strict=True):
            p.copy_(torch.from_numpy(parameter.data.T.copy() if name == "Linear" else parameter.data.copy()))
    tx = torch.from_numpy(x.copy())
    if tx.is_floating_point():
        tx.requires_grad_(True)
    want = theirs(tx)
    got = layer(x)
    close(got, want.detach())
    grad = rand(*got.shape)
    back = layer.backward(grad)
    want.backward(torch.from_numpy(grad))
    if tx.is_floating_point():
        close(back, tx.grad)
    else:
        assert back is None
    for parameter, p in zip(layer.parameters(), theirs.parameters(), strict=True):
        close(parameter.grad, p.grad.T if name == "Linear" and p.grad.dim() == 2 else p.grad, 1e-4)
    with pytest.raises(errors.ShapeMismatch):
        layer.backward(rand(1, 1, 1))
    with pytest.raises(errors.RuntimeError, match="first"):
        make().backward(grad)


def test_a_model_learns() -> None:
    lucid.manual_seed(0)
    x, y = rand(32, 4), rand(32, 2)
    model = lc.Sequential(lc.Linear(4, 16), lc.GELU(), lc.LayerNorm(16), lc.Linear(16, 2))
    step = lc.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(60):
        step.zero_grad()
        difference = model(x) - y
        losses.append(float((difference**2).mean()))
        model.backward((2 * difference / difference.size).astype(np.float32))
        step.step()
    assert losses[-1] < 0.3 * losses[0]
    model.layers[0].weight.data[...] = 0
    model.layers[0].bias.data.fill(2.0)
    model.layers[3].bias.data = np.float32([1, 2])
    assert (model.layers[0](x) == 2).all() and model.layers[3].bias.data.tolist() == [1, 2]
    assert isinstance(model(lucid.from_numpy(x).to("gpu")), lucid.Tensor)
    for call, error in (
        (lambda: model(rand(3, 5)), errors.ShapeMismatch),
        (lambda: model(x.astype(np.float64)), errors.DtypeMismatch),
        (lambda: lc.Linear(0, 1), errors.ValueError),
        (lambda: lc.SGD(model.parameters(), lr=float("nan")), errors.ValueError),
        (lambda: lc.SGD([1]), errors.TypeError),
        (lambda: lc.Sequential("a"), errors.TypeError),
        (lambda: lc.Embedding(3, 2)(rand(2)), errors.DtypeMismatch),
        (lambda: lc.Embedding(3, 2)(np.array([7])), errors.LucidError),
        (lambda: setattr(model.layers[3].bias, "data", x), errors.ShapeMismatch),
    ):
        with pytest.raises(error):
            call()


# ---- the helper module -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "metal"])
def test_blocks(device: str) -> None:
    block = integrated_api.ConvReLUResidentBlock(W, C, device=device)
    want = torch.nn.functional.conv2d(*map(torch.from_numpy, (X, W, C)), padding=1).relu().numpy()
    for x in (X, X * 2):
        close(
            block(x),
            want if x is X else torch.nn.functional.conv2d(*map(torch.from_numpy, (x, W, C)), padding=1).relu(),
        )
    assert block(rand(2, 3, 4, 4)).shape == (2, 16, 4, 4)
    close(integrated_api.AttentionResidentBlock(6, 4, device=device)(Q, Q, Q), lc.attention2d(Q, Q, Q, False, "cpu"))
    pipeline = integrated_api.ConvAttentionResidentPipeline(W, C, 5, 4, device=device)
    close(pipeline(X), lc.api.conv_attention_torchstrong_nchw(X, W, C, 5, 4, pad_h=1, pad_w=1, device="cpu"))
    with pytest.raises(errors.ShapeMismatch):
        block(rand(3, 4))


@pytest.mark.filterwarnings("ignore:the engine torch")
def test_helpers() -> None:
    assert integrated_api._as_f32_c(A) is A and integrated_api._as_f32_c([1, 2]).dtype == np.float32
    assert integrated_api._as_out_f32_c_no_copy(A) is A
    for bad in (A.T, A.astype(np.float64), [1.0]):
        with pytest.raises(errors.LucidError):
            integrated_api._as_out_f32_c_no_copy(bad)
    assert integrated_api._resolve_engine("auto") == "lightning" and integrated_api._import_torch() is torch
    assert integrated_api._torch_device_for("cpu") == "cpu"
    assert integrated_api._torch_device_for("auto") in ("cpu", "cuda", "mps")
    session = integrated_api._get_or_create_attention_session(6, 4, False, "cpu")
    assert session is integrated_api._get_or_create_attention_session(6, 4, False, "cpu")
    assert integrated_api.clear_attention_session_cache() >= 1
    assert integrated_api.tensor(lucid.ones(2, requires_grad=True)).tolist() == [1.0, 1.0]


# ---- interop and Core ML ---------------------------------------------------------------------------------------------


def test_interop() -> None:
    t = lucid.arange(6, dtype=lucid.float32).reshape(2, 3)
    array, theirs = interop.to_numpy(t), interop.to_torch(t)
    array[0, 0] = 7
    assert t[0, 0].item() == 7 == theirs[0, 0].item(), "one memory"
    assert interop.from_torch(theirs).data_ptr() == t.data_ptr() == interop.from_numpy(array).data_ptr()
    assert interop.from_mlx(interop.to_mlx(t)).tolist() == t.tolist()
    half = t.to(dtype=lucid.bfloat16)
    assert interop.from_mlx(interop.to_mlx(half)).dtype is lucid.bfloat16
    assert interop.to_torch(half).dtype is torch.bfloat16
    on_gpu = t.to("gpu")
    for give in (interop.to_numpy, interop.to_torch, interop.to_mlx):
        assert np.asarray(give(on_gpu)).tolist() == t.tolist()
    assert interop.to_torch(lc.Tensor([[1.0]])).tolist() == [[1.0]]
    rows = interop.capability_table()
    assert {r["package"]: r["version"] is not None for r in rows}["torch"]
    assert interop.capability_table_markdown().count("\n") == len(rows) + 1
    for call in (lambda: interop.to_torch(A), lambda: interop.from_torch(A), lambda: interop.from_mlx(A)):
        with pytest.raises(errors.TypeError):
            call()
    with pytest.raises(errors.DtypeMismatch, match="NumPy"):
        interop.to_numpy(half)
    with pytest.raises(errors.TypeError, match="strided"):
        interop.from_torch(torch.eye(2).to_sparse())


def test_tensorflow_by_dlpack(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("tensorflow") is None:
        with pytest.raises(errors.RuntimeError, match="tensorflow"):
            interop.to_tensorflow(lucid.ones(2))
        with pytest.raises(errors.RuntimeError, match="tensorflow"):
            interop.from_tensorflow(A)
        # DLPack as TensorFlow takes it: a capsule, and a tensor back from one.
        import types

        dlpack = types.SimpleNamespace(
            from_dlpack=torch.utils.dlpack.from_dlpack, to_dlpack=torch.utils.dlpack.to_dlpack
        )
        fake = types.SimpleNamespace(experimental=types.SimpleNamespace(dlpack=dlpack))
        monkeypatch.setattr(interop, "_import", lambda name: fake)
        monkeypatch.setattr(interop, "_foreign", lambda *a: None)
    t = lucid.arange(4, dtype=lucid.float32)
    theirs = interop.to_tensorflow(t)
    assert np.asarray(theirs).tolist() == [0, 1, 2, 3]
    assert interop.from_tensorflow(theirs).data_ptr() == t.data_ptr()


def exported() -> lc.GraphIR:
    g = lc.GraphIR()
    g.add_tensor((1, 3, 8, 8), name="x")
    for name, value in (("w", W), ("b", C), ("m", rand(64, 4)), ("c", rand(4))):
        g.add_tensor(value.shape, name=name, value=value)
    for name, shape in (("y", (1, 16, 8, 8)), ("z", (16, 64)), ("h", (16, 4)), ("a", (16, 4))):
        g.add_tensor(shape, name=name)
    g.add_node("conv2d_act", ["x", "w", "b"], ["y"], {"pad_h": 1, "pad_w": 1})
    g.add_node("reshape", ["y"], ["z"], {"shape": (16, 64)})
    g.add_node("matmul_bias_act", ["z", "m", "c"], ["h"], {"act": "gelu"})
    g.add_node("attention", ["h", "h", "h"], ["a"])
    return g


@pytest.mark.filterwarnings("ignore")
def test_core_ml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import coremltools

    g = exported()
    path = tmp_path / "model.mlpackage"
    written = coreml.export_coreml(g, path)
    assert written["inputs"] == {"x": (1, 3, 8, 8)} and written["outputs"] == {"a": (16, 4)}
    spec = coremltools.utils.load_spec(str(path))
    assert spec.WhichOneof("Type") == "mlProgram"
    assert [i.name for i in spec.description.input] == ["x"] and [o.name for o in spec.description.output] == ["a"]
    assert list(spec.description.output[0].type.multiArrayType.shape) == [16, 4]
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "coremltools", None)
        with pytest.raises(errors.RuntimeError, match="pip install coremltools"):
            coreml.export_coreml(g, tmp_path / "other.mlpackage")
        assert not (tmp_path / "other.mlpackage").exists()
    arrange = lc.GraphIR()
    ids = [arrange.add_tensor((2, 2)) for _ in range(4)]
    arrange.add_node("qkv_arrange", ids[:1], ids[1:], {"seq_len": 2, "head_dim": 2})
    with pytest.raises(errors.NotImplementedError, match="qkv_arrange"):
        coreml.export_coreml(arrange, path)
    with pytest.raises(errors.ValueError, match="mlpackage"):
        coreml.export_coreml(g, tmp_path / "model.onnx")
    for graph, where in (("graph", path), (g, None)):
        with pytest.raises(errors.TypeError):
            coreml.export_coreml(graph, where)
    for graph, where, outputs, says in (
        (g, tmp_path / "none" / "m.mlpackage", None, "folder"),
        (lc.GraphIR(), tmp_path / "m.mlpackage", None, "gives nothing"),
        (g, tmp_path / "m.mlpackage", ["x"], "inputs"),
        (g, tmp_path / "m.mlpackage", ["nobody"], "no tensor"),
    ):
        with pytest.raises(errors.ValueError, match=says):
            coreml.export_coreml(graph, where, outputs=outputs)
    assert not (tmp_path / "none").exists() and not (tmp_path / "m.mlpackage").exists()
    assert set(coreml.supported_operators()) <= {s["name"] for s in lc.graph_registry_schemas()}
