"""The seeds' own programs, verbatim (`snippets/`), and the spellings that their pages and name lists use."""

from __future__ import annotations

import contextlib
import struct
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lucid
import numpy as np
import pytest
from lucid import _C, nn, optim
from lucid.nn import functional as F

from tests.python.tolerances import within

HERE = Path(__file__).resolve().parent / "snippets"
# Each program, and those whose names it goes on with.
NEEDS = {
    "setup": [],
    "autograd": [],
    "training": [],
    "mixed_precision": ["training"],
    "checkpoints": ["training", "mixed_precision"],
    "metal_kernel": ["setup"],
}


@contextlib.contextmanager
def doubling(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A stand-in for Metal's compiler that knows one kernel, where there is no Metal."""
    seen: list[str] = []

    def run(name: str, header: str, body: str, inputs: Any, outputs: Any, grid: Any, group: Any) -> list[bytes]:
        seen.append(header)
        assert (name, len(inputs), len(outputs)) == ("scale", 1, 1)
        assert "scale(in0, out0, uint(thread_position_in_grid.x));" in body
        count = len(outputs[0][2]) and int(np.prod(outputs[0][2]))
        assert grid[0] == count
        values = struct.unpack(f"<{len(inputs[0][3]) // 4}f", inputs[0][3])[:count]
        return [struct.pack(f"<{count}f", *(2 * v for v in values))]

    if lucid.metal.is_available():
        yield seen
        return
    monkeypatch.setattr("lucid._gpu.kind", lambda: "metal")
    _C._emulate_kernels("metal", run)
    try:
        yield seen
    finally:
        _C._emulate_kernels(None, None)


@pytest.mark.parametrize("name", NEEDS)
def test_the_snippets_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert {p.stem for p in HERE.glob("*.txt")} == set(NEEDS)
    lucid.manual_seed(0)
    names: dict[str, Any] = {}
    with warnings.catch_warnings(), doubling(monkeypatch) if name == "metal_kernel" else contextlib.nullcontext():
        # "metal" is another device here, which is warned of once.
        warnings.simplefilter("ignore")
        for part in (*NEEDS[name], name):
            exec((HERE / f"{part}.txt").read_text(encoding="utf-8"), names)
        check(name, names)


def check(name: str, names: dict[str, Any]) -> None:
    """That the program did what its comments say."""
    if name == "setup":
        assert names["x"].shape == (4, 4) and names["x"].device == lucid.device("gpu")
    elif name == "autograd":
        assert lucid.allclose(names["x"].grad, 2 * names["x"].detach())
    elif name == "training":
        assert names["loss"].item() < 1.0 and names["loss"].device == lucid.device("gpu")
    elif name == "mixed_precision":
        assert names["output"].dtype in (lucid.float16, lucid.bfloat16)
        assert names["model"].weight.grad.dtype == lucid.float32
    elif name == "checkpoints":
        assert lucid.equal(names["new_model"].weight.detach(), names["model"].weight.detach().cpu())
    else:
        assert lucid.equal(names["result"], names["x"] * 2) and names["result"].shape == (4, 4)


def test_pillars() -> None:
    assert lucid.memory_stats("cpu")["current"] >= 0
    lucid.set_deterministic(True)
    try:
        assert lucid.backends.metal.deterministic and lucid.are_deterministic_algorithms_enabled()
        lucid.backends.accelerate.deterministic = False
        assert not lucid.are_deterministic_algorithms_enabled()
    finally:
        lucid.set_deterministic(False)
    lucid.backends.metal.benchmark = True
    assert lucid.backends.metal.benchmark and not lucid.backends.accelerate.benchmark
    lucid.backends.metal.benchmark = False
    with pytest.raises(TypeError, match="bool"):
        lucid.backends.metal.benchmark = 3
    assert lucid.backends.metal.is_available() == lucid.metal.is_available()


def test_profiler_is_a_callable_module() -> None:
    x = lucid.ones(64, 64)
    with lucid.profiler() as p:
        kept = x @ x
    event = next(e for e in p.events() if e.flops)
    assert event.flops == 2 * 64**3 and event.shape == [64, 64]
    assert event.time_us == event.duration_ns / 1000
    assert event.memory_delta_bytes == event.memory >= kept.nbytes
    summary = p.key_averages()
    assert summary.total_flops == event.flops and summary.op_count == len(p.events())
    assert summary.total_time_us == summary.total_ns / 1000
    cpu = next(m for m in summary.memory_stats if m.device == "cpu")
    assert cpu.alloc_count >= 1 and cpu.peak_bytes >= cpu.current_bytes > 0


def test_autocast_without_arguments() -> None:
    x = lucid.ones(2, 2)
    with lucid.autocast():
        assert (x @ x).dtype == lucid.get_autocast_dtype("cpu")
        assert (x.to("gpu") @ x.to("gpu")).dtype == lucid.get_autocast_dtype("gpu")
    with lucid.amp.autocast(dtype=lucid.float16):
        assert (x @ x).dtype == (x.to("gpu") @ x.to("gpu")).dtype == lucid.float16
    assert not lucid.is_autocast_enabled("cpu") and not lucid.is_autocast_enabled("gpu")
    assert (x @ x).dtype == lucid.float32


def test_rotary_and_timestep_embeddings() -> None:
    rope = nn.RotaryEmbedding(8, 32)
    q, k = lucid.randn(2, 3, 5, 8), lucid.randn(2, 3, 5, 8)
    cos, sin = rope.cos_sin(lucid.arange(32))
    ids = lucid.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 10, 11]])
    rotated = F.apply_rotary_emb(q, k, cos, sin, ids)
    for made, x in zip(rotated, (q, k), strict=True):
        expected = lucid.stack([F.apply_rotary_emb(x[i], cos[ids[i]], sin[ids[i]]) for i in range(2)])
        assert lucid.equal(made, expected)
    assert lucid.allclose(rope(q, k, ids)[1], rotated[1], **within("few ops"))
    assert lucid.allclose(rope(q[1], offset=7), rotated[0][1], **within("few ops"))
    assert lucid.equal(F.apply_rotary_emb(q, cos[:5], sin[:5]), F.apply_rotary_emb(q, k, cos[:5], sin[:5])[0])
    # Products depend on the distance alone.
    a, b = F.apply_rotary_emb(q[:1, :1], q[:1, :1], cos, sin, lucid.arange(5) + 3)
    c, d = F.apply_rotary_emb(q[:1, :1], q[:1, :1], cos, sin, lucid.arange(5))
    assert lucid.allclose(a @ b.mT, c @ d.mT, **within("near zero"))
    with pytest.raises(ValueError, match="tables"):
        F.apply_rotary_emb(q, k, cos[None], sin[None], ids)
    with pytest.raises(IndexError):
        F.apply_rotary_emb(q, k, cos, sin, ids + 100)
    with pytest.raises(TypeError, match="head_dim"):
        nn.RotaryEmbedding()
    made = F.timestep_embedding(lucid.tensor([0.0, 2.0]), 5)
    freqs = np.exp(-np.log(10000.0) * np.arange(2) / 2)
    want = [[*np.cos(t * freqs), *np.sin(t * freqs), 0] for t in (0.0, 2.0)]
    np.testing.assert_allclose(made.numpy(), want, **within("rounding"))
    assert nn.TimestepEmbedding(8, 16)(lucid.arange(3)).shape == (3, 16)


def test_load_recognises_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    lucid.save_safetensors({"a": lucid.arange(4.0), "b": lucid.ones(2, dtype=lucid.bfloat16)}, path)
    for kwargs in ({}, {"mmap": True}, {"map_location": "cpu", "weights_only": True}):
        found = lucid.load(path, **kwargs)
        assert lucid.equal(found["a"], lucid.arange(4.0)) and found["b"].dtype == lucid.bfloat16
    assert lucid.load(path, map_location="gpu")["a"].device == lucid.device("gpu")
    assert lucid.load(path, map_location=lambda t, where: t)["a"].tolist() == [0, 1, 2, 3]
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(lucid.errors.FileError, match=r"x\.safetensors: not a safetensors file"):
        lucid.load(path)


@pytest.mark.parametrize("name", ["float8_e4m3fnuz", "float8_e8m0fnu", "complex32"])
def test_files_of_unknown_dtypes_say_so(name: str) -> None:
    import io

    import torch

    file = io.BytesIO()
    torch.save({"w": torch.zeros(2, dtype=getattr(torch, name))}, file)
    file.seek(0)
    with pytest.raises(
        lucid.serialization.UnpicklingError, match=rf"tensors of dtype {name}, which Lucid does not have"
    ):
        lucid.load(file)


def test_sharded_checkpoints_of_anything(tmp_path: Path) -> None:
    state = {f"w{i}": lucid.full((1000,), float(i)) for i in range(5)}
    files = lucid.save_sharded(state, tmp_path / "flat", 0.009)
    assert len(files) == 3 and lucid.equal(lucid.load_sharded(tmp_path / "flat")["w4"], state["w4"])
    nested = {"model": state, "step": 7, "rates": [0.1, lucid.tensor(3)], "none": None}
    for _ in range(2):
        files = lucid.save_sharded(nested, tmp_path / "nested", shard_size_mb=0.009)
    assert files[0] == "checkpoint.lucid" and set(files) < {p.name for p in (tmp_path / "nested").iterdir()}
    # The former shards are gone: shards, their index, and the rest.
    assert len(list((tmp_path / "nested").iterdir())) == len(files) + 1
    found = lucid.load_sharded(tmp_path / "nested", map_location="cpu", weights_only=True)
    assert (found["step"], found["none"], found["rates"][0]) == (7, None, 0.1)
    assert found["rates"][1].item() == 3 and lucid.equal(found["model"]["w3"], state["w3"])
    assert lucid.load_sharded(tmp_path / "nested", "gpu")["model"]["w1"].device == lucid.device("gpu")
    lucid.save_sharded({"step": 1}, tmp_path / "plain")
    assert lucid.load_sharded(tmp_path / "plain") == {"step": 1}
    for bad in (0, -1, "x", True, float("nan")):
        with pytest.raises(ValueError, match="shard_size_mb"):
            lucid.save_sharded(state, tmp_path, bad)  # type: ignore[arg-type]
    lucid.save({"tensors": "../evil", "places": [0], "rest": [None]}, tmp_path / "plain" / "checkpoint.lucid")
    with pytest.raises(RuntimeError, match="no checkpoint beside it"):
        lucid.load_sharded(tmp_path / "plain")


def test_op_versions_and_migrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lucid.serialization import _migrations, register_op_migration, unregister_op_migration

    path = tmp_path / "old.lucid"
    lucid.save({"w": lucid.ones(2)}, path)
    order: list[str] = []

    @register_op_migration("gelu", from_version=1)
    def first(state: Any) -> Any:
        order.append("first")
        return {"w": state["w"] * 2}

    @register_op_migration("gelu", from_version=2)
    def second(state: Any) -> Any:
        order.append("second")
        return {"w": state["w"] + 1}

    own = dict(_migrations._all())
    try:
        assert lucid.load(path)["w"].tolist() == [1, 1]
        monkeypatch.setattr(_migrations, "_all", lambda: {**own, "gelu": 3})
        assert lucid.load(path)["w"].tolist() == [3, 3] and order == ["first", "second"]
        newer = tmp_path / "new.lucid"
        lucid.save({"w": lucid.ones(2)}, newer)
        assert lucid.load(newer)["w"].tolist() == [1, 1]
        monkeypatch.setattr(_migrations, "_all", lambda: own)
        with pytest.warns(UserWarning, match=r"newer versions of ops.*gelu 3 \(here 1\)"):
            lucid.load(newer)
        with pytest.raises(ValueError, match="has a migration"):
            register_op_migration("gelu", 1)
        with pytest.raises(ValueError, match="no op 'gelu2'"):
            register_op_migration("gelu2", 1)
    finally:
        unregister_op_migration("gelu", 1)
        unregister_op_migration("gelu", 2)


def test_keywords_of_lucid() -> None:
    a, b = lucid.Generator(seed=3), lucid.Generator().manual_seed(3)
    assert lucid.equal(lucid.rand(4, generator=a), lucid.rand(4, generator=b))
    assert a.initial_seed() == 3
    drawn = lucid.bernoulli(0.25, size=(2000,))
    assert drawn.shape == (2000,) and 0.15 < drawn.mean().item() < 0.35 and set(drawn.unique().tolist()) == {0, 1}
    assert lucid.bernoulli(0.5, (2, 3), dtype=lucid.float64, device="cpu").dtype == lucid.float64
    assert lucid.bernoulli(lucid.ones(3)).tolist() == [1, 1, 1] and lucid.bernoulli(lucid.ones(3), 0.0).sum() == 0
    for wrong in ((2.0, (3,)), (-0.1, (3,))):
        with pytest.raises(RuntimeError, match=r"in \[0, 1\]"):
            lucid.bernoulli(*wrong)
    assert lucid.vander(lucid.arange(3.0), increasing=True)[2].tolist() == [1, 2, 4]
    assert len(lucid.dtypes) == len(set(lucid.dtypes)) and lucid.dtypes.bfloat16 in lucid.dtypes
    assert lucid.dtypes.float is lucid.float32 and "float32" not in lucid.dtypes
    before = lucid.set_zero_copy_threshold(1 << 20)
    try:
        assert lucid.get_zero_copy_threshold() == 1 << 20
        x = lucid.rand(1000, device="gpu")
        assert lucid.equal(x.cpu().to("gpu"), x)
        lucid.set_zero_copy_threshold(0)
        assert lucid.equal(x.cpu().to("gpu"), x) and x.cpu().add_(1).sub_(1).shape == (1000,)
    finally:
        assert lucid.set_zero_copy_threshold(before) == 0
    with pytest.raises(ValueError, match="at least 0"):
        lucid.set_zero_copy_threshold(-1)
    shown = lucid.arange(3.0, device="gpu")
    array = shown.numpy()
    array[0] = 9
    assert shown.tolist() == [0, 1, 2] and array.tolist() == [9, 1, 2]


def test_vmap_strategies() -> None:
    x, y = lucid.randn(4, 3), lucid.randn(3, 4)
    fast, slow = (lucid.vmap(lucid.dot, in_dims=(0, 1), strategy=s)(x, y) for s in ("vectorize", "loop"))
    assert lucid.allclose(fast, slow)

    def branches(v: Any) -> Any:
        return v.sum() if v[0] > 0 else -v

    assert lucid.vmap(lambda v: (v if v[0] > 0 else -v, v.sum()), out_dims=(1, 0), strategy="loop")(x)[0].shape == (
        3,
        4,
    )
    w = x.clone().requires_grad_()
    lucid.vmap(lambda v: v.square().sum(), strategy="loop")(w).sum().backward()
    assert lucid.allclose(w.grad, 2 * x)
    with pytest.raises(RuntimeError, match="randomness"):
        lucid.vmap(lambda v: v + lucid.rand(3), strategy="loop")(x)
    same = lucid.vmap(lambda v: v * 0 + lucid.rand(3), strategy="loop", randomness="same")(x)
    assert lucid.equal(same[0], same[3])
    with pytest.raises(ValueError, match="strategy"):
        lucid.vmap(branches, strategy="fast")


def test_schedulers_of_lucid(capsys: pytest.CaptureFixture[str]) -> None:
    def rates(make: Any, steps: int = 5) -> list[float]:
        opt = optim.SGD([nn.Parameter(lucid.ones(1))], lr=1.0)
        schedule, out = make(opt), []
        for _ in range(steps):
            out.append(opt.param_groups[0]["lr"])
            opt.step()
            schedule.step()
        return out

    lr = optim.lr_scheduler
    made = rates(lambda o: lr.PolynomialLR(o, total_iters=4, power=2.0, eta_min=0.2))
    np.testing.assert_allclose(made, [0.2 + 0.8 * (1 - t / 4) ** 2 for t in range(5)])
    assert rates(lambda o: lr.NoamScheduler(o, d_model=4, warmup_steps=2)) == rates(lambda o: lr.NoamScheduler(o, 4, 2))
    with pytest.raises(TypeError, match="d_model"):
        rates(lambda o: lr.NoamScheduler(o, d_model=4, model_size=4))
    capsys.readouterr()
    makers = [
        lambda o, **k: lr.StepLR(o, 1, **k),
        lambda o, **k: lr.CosineAnnealingLR(o, 5, **k),
        lambda o, **k: lr.LambdaLR(o, lambda e: 0.5**e, **k),
        lambda o, **k: lr.OneCycleLR(o, 0.1, total_steps=10, **k),
    ]
    for make in makers:
        assert rates(lambda o, make=make: make(o, verbose=True)) == rates(lambda o, make=make: make(o))
        told = capsys.readouterr().out.splitlines()
        assert len(told) == 6 and "adjusting learning rate of group 0 to" in told[0]
    opt = optim.SGD([nn.Parameter(lucid.ones(1))], lr=1.0)
    plateau = lr.ReduceLROnPlateau(opt, patience=0, verbose=True)
    for _ in range(3):
        plateau.step(1.0)
    assert "reducing learning rate of group 0 to 1.0000e-01" in capsys.readouterr().out


def test_cuda_run_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
    extern "C" __global__ void axpy(const float* x, const float* y, float a, float* out) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < 6) out[i] = a * x[i] + y[i];
    }"""
    x = lucid.arange(6.0, device="gpu").reshape(2, 3)
    if not lucid.cuda.is_available():
        with pytest.raises(lucid.GpuNotAvailable, match="CUDA"):
            lucid.cuda.run_kernel(source, "axpy", [x, x, x[0, 2:]], x.shape)

        def run(name: str, header: str, body: str, inputs: Any, outputs: Any, *launch: Any) -> list[bytes]:
            assert "__device__ void axpy(" in header and "__global__" not in header
            assert body.strip() == "axpy(in0, in1, in2[0], out0);" and launch == ([6, 1, 1], [6, 1, 1])
            a, b, c = (np.frombuffer(i[3], np.float32) for i in inputs)
            return [(c[0] * a[:6] + b[:6]).astype(np.float32).tobytes()]

        monkeypatch.setattr("lucid._gpu.kind", lambda: "cuda")
        _C._emulate_kernels("cuda", run)
    try:
        made = lucid.cuda.run_kernel(source, "axpy", [x, x, x[0, 2:]], x.shape)
        assert made.tolist() == (x * 3).tolist()
        with pytest.raises(ValueError, match="takes 3 inputs"):
            lucid.cuda.run_kernel(source, "axpy", [x], x.shape)
        with pytest.raises(ValueError, match="__global__ void other"):
            lucid.cuda.run_kernel(source, "other", [x], x.shape)
    finally:
        _C._emulate_kernels(None, None)
