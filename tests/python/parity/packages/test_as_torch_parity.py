"""What `lucid.as_torch` needs of Lucid, beside PyTorch: pickles, versions, helpers of modules, torchvision's ops."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
import time
import types
from collections import OrderedDict
from pathlib import Path
from typing import Any

import lucid
import numpy as np
import pytest
import torch
from lucid.torch_version import TorchVersion
from torch.torch_version import TorchVersion as TheirVersion

from tests.python.tolerances import within

BOTH = [torch, lucid]
PY = Path(lucid.__file__).resolve().parents[1]


def test_pickles_of_pytorchs_load_under_the_switch(tmp_path: Path) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    given = {
        "transposed": x.T,
        "part": torch.arange(5)[1:],
        "low": torch.ones(2, dtype=torch.bfloat16),
        "parameter": torch.nn.Parameter(x),
        "dtype": torch.float16,
        "size": x.shape,
        "device": x.device,
        "layer": torch.nn.Linear(2, 2),
        "ordered": OrderedDict(a=x),
        "storage": x.untyped_storage()[:8],
    }
    del given["storage"]
    (tmp_path / "x.pkl").write_bytes(pickle.dumps(given))
    code = f"""
import pickle, torch, lucid
got = pickle.load(open({str(tmp_path / "x.pkl")!r}, "rb"))
assert isinstance(got["layer"], lucid.nn.Linear) and isinstance(got["parameter"], lucid.nn.Parameter)
assert got["dtype"] is lucid.float16 and got["device"] == lucid.device("cpu") and got["size"] == (2, 3)
print({{k: v.tolist() for k, v in got.items() if isinstance(v, lucid.Tensor)}}, got["transposed"].stride())
print(got["layer"].weight.tolist(), got["low"].dtype, got["part"].dtype, got["parameter"].requires_grad)
"""
    done = subprocess.run(
        [sys.executable, "-m", "lucid.as_torch", "-c", code],
        env={"PYTHONPATH": str(PY), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    tensors = {k: v.tolist() for k, v in given.items() if isinstance(v, torch.Tensor)}
    layer = given["layer"].weight.tolist()
    assert done.stdout.splitlines() == [
        f"{tensors} {given['transposed'].stride()}",
        f"{layer} lucid.bfloat16 lucid.int64 True",
    ]


@pytest.mark.parametrize("zipped", [True, False])
def test_files_of_one_storage(zipped: bool) -> None:
    file = io.BytesIO()
    torch.save(torch.arange(4.0).storage(), file, _use_new_zipfile_serialization=zipped)
    file.seek(0)
    found = lucid.load(file)
    assert isinstance(found, lucid.TypedStorage)
    assert list(found) == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "other", ["2.15.0", "2.15", "2.9", "2.15.0a0", "2.15.0rc1", "2.15.0.dev2", (2, 15), (2, 14, 9), "x"]
)
def test_versions_as_pytorchs(other: Any) -> None:
    def told(cls: Any) -> list[bool]:
        return [cls("2.15.0") < other, cls("2.15.0") <= other, cls("2.15.0") == other, cls("2.15.0") >= other]

    assert told(TorchVersion) == told(TheirVersion)


def test_decorators_of_contexts() -> None:
    def told(m: Any) -> list[Any]:
        ctx = __import__(f"{m.__name__}.utils._contextlib", fromlist=["x"])
        seen: list[str] = []

        class Block(ctx._DecoratorContextManager):  # type: ignore[misc, name-defined]
            def __enter__(self) -> None:
                seen.append("in")

            def __exit__(self, *exc: object) -> None:
                seen.append("out")

        @Block()
        def steps(n: int) -> Any:
            for i in range(n):
                given = yield i
                seen.append(f"got {given}")
            return "end"

        generator = steps(2)
        seen.append(next(generator))
        seen.append(generator.send("a"))
        with pytest.raises(StopIteration, match="end"):
            generator.send("b")
        seen.append(Block()(lambda x: x + 1)(2))
        with pytest.raises(ValueError, match="why"):
            failing = steps(1)
            next(failing)
            failing.throw(ValueError("why"))
        with pytest.raises(RuntimeError, match="Cannot decorate classes"):
            ctx.context_decorator(lambda: Block(), type("X", (), {}))
        return seen

    assert told(lucid) == told(torch)


def test_helpers_of_trees_and_shapes() -> None:
    def told(m: Any) -> list[Any]:
        tree = __import__(f"{m.__name__}.utils._pytree", fromlist=["x"])
        prims = __import__(f"{m.__name__}._prims_common", fromlist=["x"])
        keys, context = tree._dict_flatten_with_keys({"a": 1, "b": [2]})
        return [
            [(str(k), v) for k, v in keys],
            tree._dict_unflatten([3, 4], context),
            tree.is_structseq_instance(time.localtime()),
            tree.is_structseq_instance((1, 2)),
            tree._get_node_type({}) is dict,
            tuple(prims.make_contiguous_strides_for((2, 0, 3))),
            tuple(prims.make_contiguous_strides_for((2, 4, 3), row_major=False)),
            prims.canonicalize_dim(3, -1),
            prims.is_integer_dtype(m.bool),
            prims.is_integer_dtype(m.int8),
        ]

    assert told(lucid) == told(torch)
    for m in BOTH:
        with pytest.raises(IndexError):
            __import__(f"{m.__name__}._prims_common", fromlist=["x"]).canonicalize_dim(3, 3)


def test_flat_tensors() -> None:
    def told(m: Any) -> list[Any]:
        utils = __import__(f"{m.__name__}._utils", fromlist=["x"])
        given = [m.arange(3.0), m.arange(4.0).reshape(2, 2) + 9]
        flat = utils._flatten_dense_tensors(given)
        return [flat.tolist(), [t.tolist() for t in utils._unflatten_dense_tensors(flat, given)]]

    assert told(lucid) == told(torch)


def test_graph_modules_keep_the_graph_they_are_given() -> None:
    def told(m: Any) -> list[Any]:
        fx = __import__(f"{m.__name__}.fx", fromlist=["x"])
        net = m.nn.Sequential(m.nn.Identity(), m.nn.ReLU())
        graph = fx.Tracer().trace(net)
        made = fx.GraphModule(net, graph)
        graph.erase_node(next(n for n in graph.nodes if n.op == "output"))
        graph.output({"first": list(graph.nodes)[1]})
        made.recompile()
        import copy

        other = copy.deepcopy(made)
        return [made.graph is graph, sorted(made(m.ones(1))), other.graph is graph, sorted(other(m.ones(1)))]

    assert told(lucid) == told(torch)


def test_steps_of_wrapped_optimizers_have_no_hooks() -> None:
    for m in BOTH:

        class Wrapped(m.optim.Optimizer):  # type: ignore[misc, name-defined]
            def __init__(self, inner: Any) -> None:
                self.inner = inner

            def step(self) -> str:
                self.inner.step()
                return "stepped"

        p = m.nn.Parameter(m.ones(1))
        p.grad = m.ones(1)
        assert Wrapped(m.optim.SGD([p], lr=1.0)).step() == "stepped"
        assert p.item() == 0.0


def test_storages_as_tensors(tmp_path: Path) -> None:
    raw = np.array([1.5, 2.5], np.float32).tobytes() + bytes([1, 0, 1, 7])
    (tmp_path / "x").write_bytes(raw)
    for m in BOTH:
        storage = m.UntypedStorage.from_file(str(tmp_path / "x"), False, len(raw))
        assert m.asarray(storage[0:8], dtype=m.uint8).view(m.float32).tolist() == [1.5, 2.5]
        # Bytes beside these are no Booleans, which is nothing to these.
        assert m.asarray(storage[8:11], dtype=m.uint8).view(m.bool).tolist() == [True, False, True]


def test_autocast_kernels_of_libraries() -> None:
    for m in BOTH:
        name = f"as_torch_{m.__name__}"
        library = m.library.Library(name, "DEF")
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")

        def cast(x: Any, m: Any = m, name: str = name) -> Any:
            keys = m._C.DispatchKeySet(m._C.DispatchKey.AutocastCPU)
            with m._C._ExcludeDispatchKeyGuard(keys):
                return getattr(m.ops, name).twice(x.double())

        library.impl("twice", cast, "AutocastCPU")
        assert getattr(m.ops, name).twice(m.ones(1)).dtype is m.float32
        with m.autocast("cpu"):
            assert getattr(m.ops, name).twice(m.ones(1)).dtype is m.float64


# --- torchvision's ops, beside loops that say what they are -----------------------------------------------------------

vision = lucid.ops.torchvision


def slow_nms(boxes: Any, scores: Any, limit: float) -> list[int]:
    kept: list[int] = []
    for i in sorted(range(len(scores)), key=lambda i: -scores[i]):
        a = boxes[i]
        for j in kept:
            b = boxes[j]
            sides = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0)
            both = sides[0] * sides[1]
            if both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both) > limit:
                break
        else:
            kept.append(i)
    return kept


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_nms(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from lucid._vision import _boxes

    rng = np.random.default_rng(0)
    low = rng.random((70, 2)) * 9
    boxes = np.concatenate([low, low + rng.random((70, 2)) * 5 + 0.1], 1).astype(np.float32)
    scores = rng.integers(0, 20, 70).astype(np.float32)
    for block in (4096, 16):
        monkeypatch.setattr(_boxes, "_BLOCK", block)
        for limit in (0.0, 0.2, 0.5, 0.95):
            found = vision.nms(lucid.tensor(boxes, device=device), lucid.tensor(scores, device=device), limit)
            assert found.tolist() == slow_nms(boxes, scores, limit)
    chain = np.array([[0, i * 0.3, 1, i * 0.3 + 1] for i in range(50)], np.float32)
    falling = np.arange(50, 0, -1).astype(np.float32)
    found = vision.nms(lucid.tensor(chain, device=device), lucid.tensor(falling, device=device), 0.3)
    assert found.tolist() == slow_nms(chain, falling, 0.3)
    nan = vision.nms(lucid.full((2, 4), float("nan"), device=device), lucid.ones(2, device=device), 0.5)
    assert nan.tolist() == [0, 1]
    assert vision.nms(lucid.zeros(0, 4), lucid.zeros(0), 0.5).shape == (0,)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_deform_conv_without_offsets_is_a_convolution(device: str) -> None:
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((2, 4, 7, 6)).astype(np.float32), rng.standard_normal((6, 2, 3, 2)).astype(np.float32)
    options = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2}
    expected = torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(w), **options)  # type: ignore[arg-type]
    oh, ow = expected.shape[2:]
    given = [lucid.tensor(v, device=device) for v in (x, w)]
    offset = lucid.zeros(2, 2 * 6, oh, ow, device=device)
    mask, bias = lucid.full((2, 6, oh, ow), 0.5, device=device), lucid.ones(6, device=device)
    found = vision.deform_conv2d(*given, offset, mask, bias, 2, 1, 1, 2, 1, 2, 2, 1, True)
    np.testing.assert_allclose(found.cpu().numpy(), expected.numpy() * 0.5 + 1, **within("deep program"))


def test_gradients_of_regions() -> None:
    """The registered gradients, which torchvision calls, are those of the functions."""
    from lucid._vision import _regions

    rois = lucid.tensor([[0, 0.3, 0.2, 5.1, 4.2], [1, 2.0, 1.0, 3.0, 6.0]], dtype=lucid.float64)
    x = lucid.randn(2, 4, 7, 8, dtype=lucid.float64, requires_grad=True)
    sizes = (2, 4, 7, 8)
    for name, args in (
        ("roi_align", (0.9, 2, 2, 2, True)),
        ("roi_align", (0.9, 2, 2, 0, False)),
        ("ps_roi_align", (0.9, 2, 2, 2)),
        ("roi_pool", (0.9, 2, 2)),
    ):
        function = getattr(_regions, name)
        out = function(x, rois, *args)
        out, second = out if isinstance(out, tuple) else (out, None)
        grad = lucid.rand_like(out)
        (expected,) = lucid.autograd.grad(out, x, grad)
        back = getattr(vision, f"_{name}_backward")
        first = (grad, rois) if second is None else (grad, rois, second)
        rest = (*args[:3], *sizes, *args[3:]) if name == "roi_align" else (*args, *sizes)
        assert lucid.allclose(back(*first, *rest), expected), name
        if name != "roi_pool":
            assert lucid.autograd.gradcheck(lambda x, f=function, a=args: f(x, rois, *a), (x,)), name


def test_refusals_of_vision_ops() -> None:
    x, rois = lucid.ones(1, 4, 5, 5), lucid.tensor([[0.0, 0, 0, 2, 2]])
    wrong: list[tuple[str, tuple[Any, ...], str]] = [
        ("nms", (lucid.ones(2, 3), lucid.ones(2), 0.5), "shape"),
        ("nms", (lucid.ones(2, 4), lucid.ones(3), 0.5), "scores"),
        ("nms", (lucid.ones(2, 4), lucid.ones(2).double(), 0.5), "same type"),
        ("roi_align", (x[0], rois, 1.0, 2, 2, 2, True), "N, C, H, W"),
        ("roi_align", (x, rois[:, :4], 1.0, 2, 2, 2, True), "5"),
        ("roi_align", (x, rois + 3, 1.0, 2, 2, 2, True), "outside"),
        ("roi_align", (x, rois * float("nan"), 1.0, 2, 2, 2, True), "outside"),
        ("roi_align", (x, rois * lucid.tensor([1.0, 1, 1, float("inf"), 1]), 1.0, 2, 2, 0, True), "finite"),
        ("roi_pool", (x, rois, 1.0, 0, 2), "positive"),
        ("ps_roi_align", (x, rois, 1.0, 3, 2, 2), "multiple"),
        ("ps_roi_pool", (x, rois.double(), 1.0, 2, 2), "same type"),
    ]
    for name, args, match in wrong:
        with pytest.raises(RuntimeError, match=match):
            getattr(vision, name)(*args)
    ones = lucid.ones(1)
    for shape, match in (((1, 18, 4, 5), "offset should"), ((1, 17, 5, 5), "offset should")):
        with pytest.raises(RuntimeError, match=match):
            vision.deform_conv2d(
                x, lucid.ones(2, 4, 3, 3), lucid.ones(shape), ones, ones, 1, 1, 1, 1, 1, 1, 1, 1, False
            )
    with pytest.raises(RuntimeError, match="does not fit"):
        vision.deform_conv2d(
            x, lucid.ones(2, 3, 3, 3), lucid.ones(1, 18, 5, 5), ones, ones, 1, 1, 1, 1, 1, 1, 1, 1, False
        )


# --- pictures ---------------------------------------------------------------------------------------------------------


def test_pictures(tmp_path: Path) -> None:
    image = lucid.ops.image
    data = lucid.arange(3 * 5 * 4, dtype=lucid.uint8).reshape(3, 5, 4)
    png = image.encode_png(data, 6)
    assert image.decode_png(png, 0).equal(data)
    assert image.decode_image(png, 3).equal(data)
    assert image.decode_png(png, 4).shape == (4, 5, 4)
    assert image.decode_image(png, 1).shape == (1, 5, 4)
    assert image.decode_png(image.encode_png(data[:1], 0), 0).equal(data[:1])
    image.write_file(str(tmp_path / "x.png"), png)
    assert image.read_file(str(tmp_path / "x.png")).equal(png)
    assert image.decode_jpeg(image.encode_jpeg(data, 95), 0).shape == (3, 5, 4)
    for broken in (png[: len(png) // 2], lucid.zeros(30, dtype=lucid.uint8)):
        with pytest.raises(RuntimeError, match="decode_png"):
            image.decode_png(broken, 0)
    for bad in (data.float(), lucid.zeros(2, 3, 3, dtype=lucid.uint8), lucid.zeros(3, 0, 3, dtype=lucid.uint8)):
        with pytest.raises(RuntimeError, match="encode_png"):
            image.encode_png(bad, 6)
    for call in (
        lambda: image.encode_png(data, 11),
        lambda: image.encode_jpeg(data, 0),
        lambda: image.decode_png(png, 9),
    ):
        with pytest.raises(RuntimeError):
            call()
    with pytest.raises(FileNotFoundError):
        image.read_file(str(tmp_path / "nowhere"))


def test_names_that_packages_import() -> None:
    from lucid.nn.modules.module import _EXTRA_STATE_KEY_SUFFIX
    from lucid.nn.parallel.distributed import DistributedDataParallel
    from lucid.optim.optimizer import _default_to_fused_or_foreach
    from lucid.utils.data._utils.collate import default_collate_fn_map
    from lucid.utils.data._utils.worker import get_worker_info
    from torch.nn.modules.module import _EXTRA_STATE_KEY_SUFFIX as THEIRS

    assert _EXTRA_STATE_KEY_SUFFIX == THEIRS
    assert DistributedDataParallel is lucid.nn.parallel.DistributedDataParallel
    assert get_worker_info() is None
    assert lucid.Tensor in default_collate_fn_map
    assert _default_to_fused_or_foreach([lucid.ones(1)], False, True) == (True, False)
    assert lucid.hub.tqdm is torch.hub.tqdm is lucid.utils.model_zoo.tqdm
    assert lucid.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2", "AVX512")
    parsed = lucid._C._nn._parse_to("cpu", lucid.float16, True)
    assert parsed[:3] == (lucid.device("cpu"), lucid.float16, True)
    assert isinstance(lucid.serialization.MAP_LOCATION, types.UnionType)


def test_models_that_could_be_quantized_run_in_floating_point() -> None:
    def told(m: Any) -> list[Any]:
        ao = __import__(f"{m.__name__}.ao.quantization", fromlist=["x"])
        functional = __import__(f"{m.__name__}.nn.quantized", fromlist=["x"]).FloatFunctional()

        class Net(m.nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.conv, self.norm, self.relu = m.nn.Conv2d(2, 3, 2), m.nn.BatchNorm2d(3), m.nn.ReLU()
                self.rest = m.nn.Sequential(m.nn.Linear(4, 2), m.nn.ReLU())
                for p in self.parameters():
                    p.data.copy_((m.arange(p.numel()) % 5 - 1.5).reshape(p.shape))
                self.norm.running_var.fill_(2.0)

            def forward(self, x: Any) -> Any:
                return self.rest(self.relu(self.norm(self.conv(x))).flatten(2))

        net, x = Net().eval(), m.arange(18.0).reshape(1, 2, 3, 3)
        fused = ao.fuse_modules(net, [["conv", "norm", "relu"], ["rest.0", "rest.1"]])
        wrapped = ao.QuantWrapper(fused)
        with pytest.raises((NotImplementedError, AssertionError)):
            ao.fuse_modules(net, ["relu", "conv"])
        return [
            net(x).round(decimals=3).tolist(),
            [[round(v, 3) for v in row] for row in wrapped(x)[0].tolist()],
            [type(fused.norm).__name__, type(fused.rest[1]).__name__, type(net.norm).__name__],
            functional.add_relu(x, -x - 1).sum().item(),
            functional.cat([x, functional.mul_scalar(x, 2.0)], 1).shape[1],
            m._shape_as_tensor(x).tolist(),
            m._softmax_backward_data(m.arange(3.0), m.tensor([0.2, 0.3, 0.5]), 0, m.float32).round(decimals=5).tolist(),
        ]

    assert told(lucid) == told(torch)
    with pytest.raises(NotImplementedError, match="quantized"):
        lucid.ao.quantization.prepare(lucid.nn.Linear(1, 1))
    with pytest.raises(RuntimeError, match="eval"):
        lucid.ao.quantization.fuse_modules(lucid.nn.Sequential(lucid.nn.Linear(1, 1), lucid.nn.ReLU()), ["0", "1"])
