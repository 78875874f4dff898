"""Exported programs: values against the module, sizes that vary, and files that are broken, foreign or made up."""

from __future__ import annotations

import io
import json
import random
import struct
from pathlib import Path
from typing import Any

import lucid
import lucid.nn.functional as F
import pytest
from lucid import nn

from tests.python.tolerances import within

DEVICES = ("cpu", "gpu")


class Block(nn.Module):
    """Attention, layer norm and a two-layer network, as in a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        q, k, v = (z.view(b, t, 2, 8).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(x)


class Images(nn.Module):
    """Convolution, batch norm, pooling and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8 * 4 * 4, 5)

    def forward(self, x: Any) -> dict[str, Any]:
        y = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return {"logits": self.fc(y.flatten(1)), "features": y, "name": "images"}


class Words(nn.Module):
    """An embedding and an LSTM's relative without loops in Python: a mean of words."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 12)
        self.fc = nn.Linear(12, 4)

    def forward(self, ids: Any, scale: float = 1.0) -> Any:
        return F.log_softmax(self.fc(self.embedding(ids).mean(1)) * scale, dim=-1)


class Factors(nn.Module):
    """Steps of a graph that have several results, of several dtypes."""

    def forward(self, x: Any) -> dict[str, Any]:
        a = x @ x.mT + lucid.eye(4, device=x.device)
        (q, r), (w, _), (_, s, _) = lucid.linalg.qr(x), lucid.linalg.eigh(a), lucid.linalg.svd(x, full_matrices=False)
        factors, pivots, _ = lucid.linalg.lu_factor_ex(x)
        lower, info = lucid.linalg.cholesky_ex(a)
        return {"q": q @ r, "w": w * s, "factors": factors, "pivots": pivots, "lower": lower, "info": info}


CASES: dict[str, Any] = {
    "factors": (Factors, lambda: (lucid.randn(3, 4, 4),), lambda: (lucid.randn(5, 4, 4),), {"x": {0: "b"}}),
    "block": (Block, lambda: (lucid.randn(3, 5, 16),), lambda: (lucid.randn(7, 9, 16),), {"x": {0: "b", 1: "t"}}),
    "images": (Images, lambda: (lucid.randn(3, 3, 8, 8),), lambda: (lucid.randn(9, 3, 8, 8),), {"x": {0: "b"}}),
    "words": (
        Words,
        lambda: (lucid.randint(0, 20, (4, 6)), 2.0),
        lambda: (lucid.randint(0, 20, (11, 3)), 2.0),
        {"ids": {0: "b", 1: "t"}},
    ),
}


def same(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, lucid.Tensor):
        assert a.shape == b.shape and a.dtype == b.dtype and a.device == b.device
        lucid.testing.assert_close(a, b.detach())
    else:
        assert a == b


def on(device: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a.to(device) if isinstance(a, lucid.Tensor) else a for a in args)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES)
def test_programs_compute_what_their_modules_do(case: str, device: str, tmp_path: Path) -> None:
    make, first, other, varying = CASES[case]
    lucid.manual_seed(0)
    model, args = make().eval().to(device), on(device, first())
    path = tmp_path / "program.lucid"
    lucid.export.save(lucid.export.export(model, args), path)
    found = lucid.export.load(path, device=device).module()
    with lucid.no_grad():
        same(found(*args), model(*args))
    assert set(found.state_dict()) == set(model.state_dict()) - {"norm.num_batches_tracked"}
    with pytest.raises(lucid.errors.LucidError):
        found(*on(device, other()))

    dims: dict[str, Any] = {}
    shapes = {
        name: {d: dims.setdefault(n, lucid.export.Dim(n, max=16)) for d, n in of.items()}
        for name, of in varying.items()
    }
    lucid.export.save(lucid.export.export(model, args, dynamic_shapes=shapes), path)
    found = lucid.export.load(path, device=device).module()
    with lucid.no_grad():
        for given in (args, on(device, other())):
            same(found(*given), model(*given))


def test_a_program_runs_on_the_other_device(tmp_path: Path) -> None:
    model, args = Block().eval(), (lucid.randn(2, 4, 16),)
    path = tmp_path / "program.lucid"
    lucid.export.save(lucid.export.export(model, args), path)
    found = lucid.export.load(path, device="gpu").module()
    with lucid.no_grad():
        lucid.testing.assert_close(found(args[0].to("gpu")).cpu(), model(*args), **within("program"))
    with pytest.raises(lucid.errors.LucidError, match="device"):
        found(*args)


def test_weights_are_the_program_s_own_and_written_through_the_module(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    program = lucid.export.export(model, (lucid.ones(1, 3),))
    file = io.BytesIO()
    lucid.export.save(program, file, extra_files={"note": "text"})
    file.seek(0)
    extra = {"note": ""}
    found = lucid.export.load(file, extra_files=extra)
    assert extra == {"note": "text"} and [n for n, _ in found.named_parameters()] == ["weight", "bias"]
    module = found.module()
    module.load_state_dict({"weight": lucid.ones(2, 3), "bias": lucid.zeros(2)})
    assert module(lucid.ones(1, 3)).tolist() == [[3.0, 3.0]]
    assert model.weight.tolist() != [[1.0] * 3] * 2


def test_what_is_no_graph_names_the_line() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        return y if y.sum().item() > 0 else x

    with pytest.raises(RuntimeError, match=r"item.*test_export\.py:\d+, in f"):
        lucid.export.export(f, (lucid.ones(2),))


def test_sizes_that_decide_what_is_done_are_errors() -> None:
    def f(x: Any) -> Any:
        return x * 2 if x.shape[0] > 8 else x + 1

    n = lucid.export.Dim("n", max=32)
    with pytest.raises(RuntimeError, match="size"):
        lucid.export.export(f, (lucid.ones(4),), dynamic_shapes={"x": {0: n}})
    with pytest.raises(RuntimeError, match="sizes"):
        lucid.export.export(nn.Linear(3, 2), (lucid.ones(4, 3),), dynamic_shapes={"input": {1: n}})
    # Cut off at 8 elements: no formula holds for short and for long rows.
    with pytest.raises(RuntimeError, match=r"formula|size"):
        lucid.export.export(lambda x: x[:8] * 2, (lucid.ones(4),), dynamic_shapes={"x": {0: n}})


def test_compiled_functions_and_traces_are_saved(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    x = lucid.randn(3, 4)
    lucid.compiler.save_compiled(lucid.compile(net), tmp_path / "a", x)
    lucid.jit.save(lucid.jit.trace(net, x), tmp_path / "b")
    for found in (lucid.compiler.load_compiled(tmp_path / "a"), lucid.jit.load(tmp_path / "b")):
        assert lucid.equal(found(x), net(x))
    with pytest.raises(NotImplementedError, match="trace"):
        lucid.jit.save(nn.Linear(1, 1), tmp_path / "c")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    lucid.manual_seed(0)
    path = tmp_path_factory.mktemp("export") / "program"
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 3))
    n = lucid.export.Dim("n", max=8)
    shapes = {"input": {0: n}}
    lucid.export.save(lucid.export.export(model, (lucid.randn(2, 1, 8, 8),), dynamic_shapes=shapes), path)
    return path.read_bytes()


def attempt(data: bytes, tmp_path: Path) -> str | None:
    """What is said of a file; `None` where it is taken and runs."""
    path = tmp_path / "file"
    path.write_bytes(data)
    try:
        lucid.export.load(path).module()(lucid.ones(2, 1, 8, 8))
    except lucid.errors.LucidError as error:
        return str(error)
    return None


def test_damaged_files_are_refused(written: bytes, tmp_path: Path) -> None:
    assert attempt(written, tmp_path) is None
    draw = random.Random(7)
    for cut in (0, 4, 8, 100, len(written) // 2, len(written) - 1):
        assert attempt(written[:cut], tmp_path), cut
    for _ in range(60):
        data = bytearray(written)
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        assert attempt(bytes(data), tmp_path), "one bit is another, and nobody saw it"
    lucid.save_safetensors({"w": lucid.ones(2)}, tmp_path / "other")
    assert "format" in str(attempt((tmp_path / "other").read_bytes(), tmp_path))
    assert "not a safetensors file" in str(attempt(b"PK\x03\x04 something else altogether", tmp_path))


def resealed(written: bytes, change: Any) -> bytes:
    """The file with another graph, and the checksum that such a file has."""
    size = struct.unpack("<Q", written[:8])[0]
    header = json.loads(written[8 : 8 + size])
    meta = header["__metadata__"]
    change(meta)
    names = sorted(name for name in header if name != "__metadata__")
    sum_ = 0xCBF29CE484222325

    def word(w: int) -> None:
        nonlocal sum_
        sum_ = ((sum_ ^ w) * 0x100000001B3) & (2**64 - 1)
        sum_ = ((sum_ << 23) | (sum_ >> 41)) & (2**64 - 1)

    def add(data: bytes) -> None:
        word(len(data))
        whole = len(data) // 8 * 8
        for i in range(0, whole, 8):
            word(int.from_bytes(data[i : i + 8], "little"))
        for b in data[whole:]:
            word(b)

    for key in sorted(k for k in meta if k != "checksum"):
        add(key.encode())
        add(meta[key].encode())
    for name in names:
        add(name.encode())
        begin, end = header[name]["data_offsets"]
        add(written[8 + size + begin : 8 + size + end])
    meta["checksum"] = f"{sum_:016x}"
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + written[8 + size :]


def test_graphs_that_somebody_made_up_never_crash(written: bytes, tmp_path: Path) -> None:
    """Numbers, names and lists of the graph are replaced, with a checksum that is right: an answer or an error."""
    assert attempt(resealed(written, lambda meta: None), tmp_path) is None
    assert "version" in str(attempt(resealed(written, lambda meta: meta.update(version="99")), tmp_path))
    draw = random.Random(3)
    numbers = (-1, 0, 1, 2, 7, 64, 1 << 20, 1 << 40, (1 << 63) - 1, -(1 << 63))

    def places(tree: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        rows = enumerate(tree) if isinstance(tree, list) else tree.items() if isinstance(tree, dict) else ()
        for key, value in list(rows):
            found.append((tree, key))
            places(value, found)
        return found

    def change(meta: Any) -> None:
        part = draw.choice(["graph", "graph", "graph", "signature", "python"])
        tree = json.loads(meta[part])
        found = places(tree, [])
        for _ in range(draw.choice([1, 1, 2, 4])):
            holder, key = draw.choice(found)
            now = holder[key] if isinstance(holder, dict) or (isinstance(key, int) and key < len(holder)) else None
            if isinstance(now, int) and not isinstance(now, bool):
                new: Any = draw.choice([*numbers, now + 1, max(now - 1, 0)])
            elif isinstance(now, str):
                new = draw.choice(["add", "matmul", "float64", "int64", "gpu", "cumsum", "sum", "", "gather"])
            elif isinstance(now, list):
                new = draw.choice([[], now[::-1], now + now, now[:-1], 0, None, [now]])
            else:
                new = draw.choice([None, True, 0, [], "x"])
            if isinstance(holder, dict) or key < len(holder):
                holder[key] = new
        meta[part] = json.dumps(tree)

    refused = sum(attempt(resealed(written, change), tmp_path) is not None for _ in range(300))
    assert refused > 200
