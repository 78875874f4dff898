"""Every kernel that the engine writes, in Metal's language and in CUDA's, emulated, against the CPU device."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import lucid
import lucid.nn.functional as F
import numpy as np
import pytest

from tests.python.metal_emulator.engine import LANGUAGES, RAN, emulated, tensor
from tests.python.tolerances import TABLE
from tools.metal import toolchain

pytestmark = pytest.mark.usefixtures("compiler")


def both(
    language: str,
    program: Callable[[str], list[lucid.Tensor]],
    *names: str,
    rtol: float = TABLE["near zero"].rtol,
) -> None:
    """The program gives the same on both devices, on the GPU by the kernels of these names."""
    want = [t.detach().numpy() for t in program("cpu")]
    with emulated(language) as seen:
        got = [t.detach().cpu().numpy() for t in program("gpu")]
    assert set(names) <= set(seen), seen
    assert len(want) == len(got)
    for w, g in zip(want, got, strict=True):
        np.testing.assert_allclose(g, w, rtol=rtol, atol=rtol)


# Batch, channels, rows, columns, window.
POOLS = [
    (2, 3, 6, 4, (3, 2)),
    (1, 1, 2, 2, 2),
    (3, 8, 8, 8, 2),
    (2, 5, 3, 9, (1, 3)),
    (1, 33, 4, 4, 4),
    (4, 16, 12, 12, 2),
]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("case", POOLS, ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("relu", [True, False])
def test_max_pools_of_convolutions(language: str, case: tuple, bias: bool, relu: bool) -> None:
    n, c, rows, columns, window = case

    def program(device: str) -> list[lucid.Tensor]:
        x = tensor((n, 2, rows + 2, columns + 2), 1, device)
        w = tensor((c, 2, 3, 3), 2, device, grad=True)
        b = tensor((c,), 3, device, grad=True) if bias else None
        y = F.conv2d(x, w, b)
        y = F.max_pool2d(F.relu(y) if relu else y, window)
        flat = y.flatten(1)
        flat.backward(tensor(tuple(flat.shape), 4, device))
        return [y, w.grad] + ([b.grad] if bias else [])

    both(language, program, "max_pool", "max_pool_back")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("special", [False, True])
def test_max_pools_of_single_channels(language: str, special: bool) -> None:
    """A convolution that changes nothing lets infinities and NaN through."""

    def program(device: str) -> list[lucid.Tensor]:
        x = tensor((2, 3, 6, 8), 5, device, grad=True, special=special)
        y = F.max_pool2d(F.conv2d(x, lucid.ones(3, 1, 1, 1, device=device), groups=3), 2)
        y.backward(tensor(tuple(y.shape), 6, device))
        return [y, x.grad]

    both(language, program, "max_pool", "max_pool_back")


ROWS = [(6, 5), (1, 2), (300, 10), (7, 128), (2, 3, 4)]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("shape", ROWS, ids=str)
@pytest.mark.parametrize("special", [False, True])
def test_softmax_and_its_logarithm(language: str, shape: tuple[int, ...], special: bool) -> None:
    def program(device: str) -> list[lucid.Tensor]:
        x = tensor(shape, 7, device, grad=True, special=special)
        logs = F.log_softmax(x, -1)
        logs.backward(tensor(shape, 8, device))
        z = tensor(shape, 9, device, grad=True)
        soft = F.softmax(z, -1)
        soft.backward(tensor(shape, 10, device))
        return [logs, x.grad, soft, z.grad]

    both(language, program, "log_softmax", "log_softmax_back", "softmax_back")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("shape", [(1,), (7,), (300,), (4, 5, 6)], ids=str)
def test_relu(language: str, shape: tuple[int, ...]) -> None:
    def program(device: str) -> list[lucid.Tensor]:
        x = tensor(shape, 11, device, grad=True)
        y = F.relu(x)
        y.backward(tensor(shape, 12, device))
        return [y, x.grad]

    both(language, program, "relu_back")


# Rows and classes: one row, more than a group's threads, more rows than threads.
BATCHES = [(6, 5), (1, 3), (40, 10), (300, 7), (600, 2)]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("ignore", [-100, 1])
def test_losses(language: str, batch: tuple[int, int], reduction: str, ignore: int) -> None:
    n, classes = batch
    target = np.random.default_rng(13).integers(0, classes, n)
    target[0] = 0

    def program(device: str) -> list[lucid.Tensor]:
        x = tensor(batch, 14, device, grad=True)
        t = lucid.tensor(target, device=device)
        loss = F.cross_entropy(x, t, reduction=reduction, ignore_index=ignore)
        loss.backward(tensor(tuple(loss.shape), 15, device) + 1)
        return [loss, x.grad]

    kind = "rows" if reduction == "none" else reduction
    both(language, program, "log_softmax", f"nll_{kind}", f"nll_{kind}_back")


# Rows, features before and after each layer.
CHAINS = [
    (3, [7, 12, 5, 4]),
    (1, [1, 1, 1]),
    (2, [784, 300, 10]),
    (5, [64, 1024, 3]),
    (1, [9, 33, 1000]),
    (17, [4, 8, 8, 8, 2]),
]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("case", CHAINS, ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("relu", [True, False])
def test_fused_linear_layers(language: str, case: tuple[int, list[int]], bias: bool, relu: bool) -> None:
    rows, sizes = case

    def program(device: str) -> list[lucid.Tensor]:
        with lucid.no_grad():
            y = tensor((rows, sizes[0]), 16, device)
            layers = []
            for k, (m, n) in enumerate(itertools.pairwise(sizes)):
                layers.append((tensor((n, m), 17 + k, device), tensor((n,), 27 + k, device) if bias else None))
            lucid._C._eval([w for w, _ in layers])
            for k, (w, b) in enumerate(layers):
                y = F.linear(y, w, b)
                y = F.relu(y) if relu and k + 1 < len(layers) else y
            return [y]

    both(language, program, "linear")


OPTIMIZERS = [
    ("SGD", {}),
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9, "dampening": 0.5, "maximize": True}),
    ("Adam", {"weight_decay": 0.1}),
    ("Adam", {"amsgrad": True}),
    ("AdamW", {}),
    ("AdamW", {"amsgrad": True, "maximize": True}),
    ("Adagrad", {"lr_decay": 0.1}),
    ("Adadelta", {}),
    ("Adamax", {}),
    ("NAdam", {}),
    ("RAdam", {}),
    ("RMSprop", {}),
    ("RMSprop", {"centered": True, "momentum": 0.9}),
    ("Rprop", {}),
    ("ASGD", {}),
]
# So many parameters of these shapes: bunches of one launch and of several, numbers that Metal hands over as constants.
SHAPES = [[(300,), (), (3, 5)], [(7,)], [(8,), (1,), (2, 2)] + [(5, 3)] * 14 + [(1030,)]]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("case", OPTIMIZERS, ids=lambda c: f"{c[0]} {c[1]}")
@pytest.mark.parametrize("shapes", SHAPES, ids=["three", "one", "many"])
def test_optimizers(language: str, case: tuple[str, dict], shapes: list[tuple[int, ...]]) -> None:
    name, options = case

    def program(device: str) -> list[lucid.Tensor]:
        parameters = [tensor(s, 30 + k, device).clone().requires_grad_() for k, s in enumerate(shapes)]
        optimizer = getattr(lucid.optim, name)(parameters, lr=0.05, **options)
        for step in range(2):
            for k, p in enumerate(parameters):
                p.grad = tensor(shapes[k], 50 + 20 * step + k, device)
            optimizer.step()
        return parameters

    both(language, program, "step")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_optimizers_of_16_bit_floats(language: str, dtype: str) -> None:
    def program(device: str) -> list[lucid.Tensor]:
        p = tensor((40,), 60, device).to(getattr(lucid, dtype)).requires_grad_()
        optimizer = lucid.optim.Adam([p], lr=0.05)
        for step in range(3):
            p.grad = tensor((40,), 61 + step, device).to(p.dtype)
            optimizer.step()
        return [p.detach().float()]

    both(language, program, "step", rtol=TABLE["float16"].rtol)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_network_learns(language: str) -> None:
    def program(device: str) -> list[lucid.Tensor]:
        w = [
            tensor(s, 70 + k, device).mul(0.25).requires_grad_()
            for k, s in enumerate([(4, 1, 3, 3), (4,), (10, 36), (10,)])
        ]
        optimizer = lucid.optim.SGD(w, lr=0.05, momentum=0.9)
        target = lucid.tensor(np.arange(8) % 10, device=device)
        losses = []
        for step in range(3):
            x = tensor((8, 1, 8, 8), 80 + step, device)
            y = F.max_pool2d(F.relu(F.conv2d(x, w[0], w[1])), 2).flatten(1)
            loss = F.cross_entropy(F.linear(y, w[2], w[3]), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss)
        return [*losses, *w]

    names = ("max_pool", "max_pool_back", "log_softmax", "nll_mean", "nll_mean_back", "step")
    both(language, program, *names, rtol=TABLE["program"].rtol)


def test_kernels_of_users() -> None:
    source = """
#define K 2.0f
kernel void scale(device const float* x [[buffer(0)]], constant float& by, device float* y,
                  uint gid [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  y[gid] = simd_sum(x[gid]) * by + K + float(lane);
}
"""
    x = np.arange(64, dtype=np.float32)
    with emulated("metal"):
        by = lucid.tensor([3.0], device="gpu")
        y = lucid._C._metal_run_kernel(
            source, "scale", [lucid.tensor(x, device="gpu"), by], [64], lucid.float32, None, None
        )
        want = x.reshape(2, 32).sum(1).repeat(32) * 3 + 2 + np.arange(64) % 32
        np.testing.assert_array_equal(y.cpu().numpy(), want)
        wrong = source.replace("x[gid]", "x[gid + 1]")
        with pytest.raises(lucid.BackendError, match="out of bounds"):
            lucid._C._metal_run_kernel(
                wrong, "scale", [lucid.tensor(x, device="gpu"), by], [64], lucid.float32, None, None
            )


def test_every_kernel_has_a_name_of_its_own() -> None:
    """Kernels have names that only one place builds a text of, so that `test_every_kernel_ran` misses none."""
    texts = [f.read_text() for f in sorted((toolchain.ROOT / "engine" / "mlx").glob("*.rs"))]
    built = re.findall(r"KernelName::([A-Z]\w+)", "\n".join(texts))
    names = ["".join(word.capitalize() for word in name.split("_")) for name in lucid._C._kernel_names()]
    assert sorted(built) == sorted(names)


# On Metal MLX's own copy is taken, and a launch for each part of a decoder's layer: groups cannot wait for one another.
OF_CUDA_ALONE = {"row_major", "decoder_layer"}
OF_USERS = {"scale"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_kernel_ran(request: pytest.FixtureRequest, language: str) -> None:
    """The last of this folder's tests (conftest.py): of all kernels that the engine can write none was left out."""
    names = set(lucid._C._kernel_names()) - (OF_CUDA_ALONE if language == "metal" else set())
    assert RAN[language] - OF_USERS <= names
    texts = [file.read_text() for file in Path(__file__).parent.glob("test_*.py")]
    tests = {name for text in texts for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}
    if tests <= {getattr(item, "originalname", "") for item in request.session.items}:
        assert names <= RAN[language], "kernels that no test runs"


# How many sequences there are, and their elements: few are one launch, many a launch for each step.
SEQUENCES = {"layer": (3, 5), "step": (260, 2)}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("launch", SEQUENCES)
def test_recurrent_layers(language: str, kind: str, packed: bool, launch: str) -> None:
    """A layer is one launch, or each step one after its product; forward and backward, in both directions."""
    batch, hidden = SEQUENCES[launch]
    rng = np.random.default_rng(16)
    layer = getattr(lucid.nn, kind)(3, hidden, bidirectional=True)
    state = {name: rng.standard_normal(tuple(p.shape), dtype=np.float32) / 2 for name, p in layer.named_parameters()}
    steps = 4 if launch == "layer" else 2
    lengths = [steps, 2, *[1] * (batch - 2)]

    def program(device: str) -> list[lucid.Tensor]:
        layer = getattr(lucid.nn, kind)(3, hidden, bidirectional=True).to(device)
        layer.load_state_dict({name: lucid.tensor(value, device=device) for name, value in state.items()})
        x = tensor((steps, batch, 3), 17, device, grad=True)
        given = lucid.nn.utils.rnn.pack_padded_sequence(x, lengths) if packed else x
        first = tensor((2, batch, hidden), 18, device, grad=True)
        out, last_states = layer(given, (first, first * 0.5) if kind == "LSTM" else first)
        states = [out.data if packed else out, *(last_states if isinstance(last_states, tuple) else (last_states,))]
        sum((t * t).sum() for t in states).backward()
        with lucid.no_grad():
            unsaved = layer(given)[0]
        last = unsaved.data if packed else unsaved
        return [*states, last, x.grad, first.grad, *(p.grad for p in layer.parameters())]

    name = f"{kind.lower()}_{launch}"
    both(language, program, name, f"{name}_saved", f"{name}_back", rtol=TABLE["program"].rtol)
