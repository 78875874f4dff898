"""Fused kernels of compiled functions, in Metal's language and in CUDA's, emulated, against the CPU device."""

from __future__ import annotations

import re
from collections.abc import Callable

import lucid
import lucid.nn.functional as F
import numpy as np
import pytest
from lucid import nn

from tests.python.metal_emulator.engine import LANGUAGES, emulated
from tests.python.parity.compile.test_fused_parity import CURVES
from tests.python.tolerances import TABLE, within
from tools.metal import toolchain

pytestmark = pytest.mark.usefixtures("compiler")

Program = Callable[..., list[lucid.Tensor]]


def numbers(shape: tuple[int, ...], seed: int, special: bool = False) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.uniform(-3, 3, shape).astype(np.float32)
    if special:
        values.reshape(-1)[::7] = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], values.reshape(-1)[::7].shape)
    return values


def compiled(language: str, program: Program, *given: np.ndarray, dtype: lucid.dtype = lucid.float32) -> None:
    """The same on both devices, compiled on the GPU, by one kernel at least."""
    want = [t.detach().float().numpy() for t in program(*[lucid.tensor(a).to(dtype) for a in given])]
    with emulated(language) as seen:
        f = lucid.compile(program, fullgraph=True)
        for _ in range(2):
            made = f(*[lucid.tensor(a, device="gpu").to(dtype) for a in given])
            got = [t.detach().cpu().float().numpy() for t in made]
    assert "fused" in seen, seen
    tolerance = within("near zero") if dtype == lucid.float32 else within(str(dtype).removeprefix("lucid."))
    for w, g in zip(want, got, strict=True):
        np.testing.assert_allclose(g, w, **tolerance)


def functions(x: lucid.Tensor, y: lucid.Tensor) -> list[lucid.Tensor]:
    z = x * y + 0.5
    return [
        z.tanh() - x.sigmoid() * F.silu(y),
        (x.abs() + 1).log() / (y.square() + 1).sqrt() - (x.exp() + 1).reciprocal(),
        F.gelu(z, approximate="tanh") + (-z).relu() + (x.sin() + y.cos()).floor() + z.ceil(),
        lucid.where((x > y) & ~(x < 0) | (z >= 1), lucid.maximum(x, y), lucid.minimum(z, y)) * (y <= 0).float(),
        (1 + x.square()).rsqrt() * y,
    ]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("other", [(4, 6, 10), (6, 1), (1,), (1, 6, 1)], ids=str)
def test_functions_broadcast(language: str, other: tuple[int, ...]) -> None:
    compiled(language, functions, numbers((4, 6, 10), 0), numbers(other, 1))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("dtype", [lucid.float16, lucid.bfloat16], ids=str)
def test_floats_of_16_bits(language: str, dtype: lucid.dtype) -> None:
    def program(x: lucid.Tensor, y: lucid.Tensor) -> list[lucid.Tensor]:
        z = x * y + 0.5
        wide = z.float() - y.float()
        return [z.tanh() - x.sigmoid(), wide, (wide * 2).to(dtype) + x, lucid.where(x > y, z, y) * (y <= 0).to(dtype)]

    compiled(language, program, numbers((4, 6, 10), 0), numbers((6, 1), 1), dtype=dtype)
    compiled(language, program, numbers((70,), 2, True), numbers((70,), 3, True), dtype=dtype)


@pytest.mark.parametrize("language", LANGUAGES)
def test_special_numbers(language: str) -> None:
    def program(x: lucid.Tensor, y: lucid.Tensor) -> list[lucid.Tensor]:
        return [
            lucid.maximum(x, y) + 1,
            lucid.minimum(x, y).relu(),
            lucid.where(x == y, x, y) * lucid.where(x != x, 1.0, 2.0),
            x.tanh() + y.sigmoid(),
        ]

    compiled(language, program, numbers((70,), 2, True), numbers((70,), 3, True))


@pytest.mark.parametrize("language", LANGUAGES)
def test_activations_and_their_gradients(language: str) -> None:
    def program(x: lucid.Tensor, g: lucid.Tensor) -> list[lucid.Tensor]:
        made = []
        for name, *parameters in CURVES:
            if name not in ("elu", "softplus", "logsigmoid", "mish", "nan_to_num"):
                made.append(lucid._C.elementwise(x * 1.0, name, *parameters))
            if name not in ("mish", "nan_to_num"):
                made.append(lucid._C.elementwise_gradient(g * 1.0, x, name, *parameters))
        return made

    for special in (False, True):
        compiled(language, program, numbers((70,), 8, special), numbers((70,), 9))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("dtype", [lucid.float16, lucid.bfloat16], ids=str)
def test_casts_of_many_arrays(language: str, dtype: lucid.dtype) -> None:
    """Weights that are cast before all else, and results after all else, each by one launch; the same bits."""
    shapes = [(64, 300), (5,), (3000,), (2, 3, 4), (1, 1), (2048,), (2049,)]
    given = [numbers(shape, seed, seed % 2 == 0) for seed, shape in enumerate(shapes)]

    def program(*weights: lucid.Tensor) -> list[lucid.Tensor]:
        low = [w.to(dtype) for w in weights]
        kept = [w.flip(0) for w in low]
        return [*low, *[k.float() for k in kept]]

    want = [t.float().numpy() for t in program(*[lucid.tensor(a) for a in given])]
    with emulated(language) as seen:
        f = lucid.compile(program, fullgraph=True)
        for _ in range(2):
            got = f(*[lucid.tensor(a, device="gpu") for a in given])
    assert seen.count("casts") == 2, seen
    for w, g in zip(want, got, strict=True):
        np.testing.assert_array_equal(g.cpu().float().numpy(), w)


# Instructions of two numbers, by the names that the engine has for them.
INSTRUCTIONS: dict[str, Callable[[lucid.Tensor, lucid.Tensor], lucid.Tensor]] = {
    "U::Neg": lambda x, _: -x,
    "U::Square": lambda x, _: x.square(),
    "U::Abs": lambda x, _: x.abs(),
    "U::Reciprocal": lambda x, _: x.reciprocal(),
    "U::Exp": lambda x, _: x.exp(),
    "U::Log": lambda x, _: x.log(),
    "U::Sqrt": lambda x, _: x.sqrt(),
    "U::Rsqrt": lambda x, _: x.rsqrt(),
    "U::Sin": lambda x, _: x.nan_to_num(0, 0, 0).sin(),
    "U::Cos": lambda x, _: x.nan_to_num(0, 0, 0).cos(),
    "U::Tanh": lambda x, _: x.tanh(),
    "U::Floor": lambda x, _: x.floor(),
    "U::Ceil": lambda x, _: x.ceil(),
    "U::Sigmoid": lambda x, _: x.sigmoid(),
    "U::Silu": lambda x, _: F.silu(x),
    "U::Relu": lambda x, _: x.relu(),
    "B::Add": lambda x, y: x + y,
    "B::Sub": lambda x, y: x - y,
    "B::Mul": lambda x, y: x * y,
    "B::Div": lambda x, y: x / y,
    "B::Maximum": lucid.maximum,
    "B::Minimum": lucid.minimum,
    "CompareOp::Eq": lambda x, y: (x == y).float(),
    "CompareOp::Ne": lambda x, y: (x != y).float(),
    "CompareOp::Lt": lambda x, y: (x < y).float(),
    "CompareOp::Le": lambda x, y: (x <= y).float(),
    "CompareOp::Gt": lambda x, y: (x > y).float(),
    "CompareOp::Ge": lambda x, y: (x >= y).float(),
    "CompareOp::And": lambda x, y: ((x > 0) & (y > 0)).float(),
    "CompareOp::Or": lambda x, y: ((x > 0) | (y > 0)).float(),
    "CompareOp::Xor": lambda x, y: ((x > 0) ^ (y > 0)).float(),
    "UnaryOp::LogicalNot": lambda x, _: (~(x > 0)).float(),
    "ElementOp::Where": lambda x, y: lucid.where(x > 0, x, y),
    "ElementOp::Cast": lambda x, _: (x > 0).float(),
    "ElementOp::Gelu": lambda x, _: F.gelu(x, approximate="tanh"),
}


def test_every_instruction_is_one_of_these() -> None:
    """What `fused_kernel.rs` has a text for is in the table above, and each function of an element in `CURVES`."""
    engine = toolchain.ROOT / "engine" / "mlx"
    text = (engine / "fused_kernel.rs").read_text()
    found = set(re.findall(r"(?<!\w)([UB]::\w+|CompareOp::\w+) => (?:format!|\"|\{)", text))
    found |= {f"{m[0]}::{m[1]}" for m in re.findall(r"\((ElementOp)::(\w+)(?: \{[^}]*\})?,", text)}
    found |= set(re.findall(r"ElementOp::Unary\((UnaryOp::\w+)\)", text))
    of_gradients = {"ElementOp::GeluGradient", "B::ReluGradient"}
    assert found - of_gradients == set(INSTRUCTIONS)
    functions = set(re.findall(r"ElementFn::(\w+)", (engine / "element_fn.rs").read_text()))
    assert {name.lower() for name in functions} <= {name.replace("_", "") for name, *_ in CURVES}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("special", [False, True])
def test_instructions(language: str, special: bool) -> None:
    def program(x: lucid.Tensor, y: lucid.Tensor) -> list[lucid.Tensor]:
        # More than one op, so that there is something to fuse.
        return [f(x, y) * 0.5 + 1 for f in INSTRUCTIONS.values()]

    compiled(language, program, numbers((70,), 13, special), numbers((70,), 14, special))


@pytest.mark.parametrize("language", LANGUAGES)
def test_gradients_of_activations(language: str) -> None:
    def gradients(device: str) -> np.ndarray:
        x = lucid.tensor(numbers((70,), 15), device=device, requires_grad=True)

        def step(x: lucid.Tensor) -> lucid.Tensor:
            y = x * 1.5
            loss = (F.gelu(y, approximate="tanh") * y.relu()).sum()
            loss.backward()
            return loss

        f = lucid.compile(step, fullgraph=True) if device == "gpu" else step
        for _ in range(2):
            x.grad = None
            f(x)
        return x.grad.cpu().numpy()

    want = gradients("cpu")
    with emulated(language) as seen:
        got = gradients("gpu")
    assert "fused" in seen, seen
    np.testing.assert_allclose(got, want, **within("near zero"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_layouts(language: str) -> None:
    def program(x: lucid.Tensor, y: lucid.Tensor) -> list[lucid.Tensor]:
        return [
            (x.permute(0, 3, 1, 2) * y + 1).tanh(),
            (x[:, ::2, 1:] * 2 + 1).sin(),
            (x.transpose(1, 2) * 2 + 1).cos(),
        ]

    compiled(language, program, numbers((2, 4, 5, 3), 4), numbers((3, 1, 1), 5))


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_training_step(language: str) -> None:
    def losses(device: str) -> list[float]:
        lucid.manual_seed(0)
        # Cells, whose steps are element-wise ops; a layer's are one kernel, which Python emulates while it is recorded.
        cells, head = nn.ModuleList([nn.LSTMCell(5, 6), nn.LSTMCell(6, 6)]), nn.Linear(6, 3)
        model = nn.ModuleList([cells, head]).to(device)
        optimizer = lucid.optim.AdamW(model.parameters(), lr=0.05)
        x = lucid.tensor(numbers((3, 4, 5), 6), device=device)

        def loss_of(x: lucid.Tensor) -> lucid.Tensor:
            y, states = x, [None, None]
            for t in range(4):
                y = x[:, t]
                for i, cell in enumerate(cells):
                    states[i] = cell(y, states[i])
                    y = states[i][0]
            return head(y).square().mean()

        # The optimizer's kernel is emulated by Python, which no graph records.
        f = lucid.compile(loss_of, fullgraph=True) if device == "gpu" else loss_of
        found = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = f(x)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    want = losses("cpu")
    with emulated(language) as seen:
        got = losses("gpu")
    assert seen.count("fused") > 20
    np.testing.assert_allclose(got, want, rtol=TABLE["program"].rtol)


@pytest.mark.parametrize("language", LANGUAGES)
def test_gradients_that_are_one_pass(language: str) -> None:
    """A graph holds attention's steps, and runs the kernels that eager mode runs."""

    def gradients(device: str) -> list[np.ndarray]:
        x = lucid.tensor(numbers((2, 3, 17, 8), 10), device=device, requires_grad=True)
        w, b = (lucid.tensor(numbers((8,), seed), device=device, requires_grad=True) for seed in (11, 12))

        def step(x: lucid.Tensor) -> lucid.Tensor:
            y = F.layer_norm(x, (8,), w, b)
            y = F.scaled_dot_product_attention(y, y * 0.5, y + 1, is_causal=True)
            loss = y.square().sum()
            loss.backward()
            return loss

        f = lucid.compile(step, fullgraph=True) if device == "gpu" else step
        for _ in range(3):
            for p in (x, w, b):
                p.grad = None
            f(x)
        return [p.grad.cpu().numpy() for p in (x, w, b)]

    want = gradients("cpu")
    with emulated(language) as seen:
        got = gradients("gpu")
    # The call that is recorded runs the steps of attention, which CUDA has one kernel for in all three. The gradient
    # of a norm is a primitive.
    names = {"row_norm_sums": 3, "softmax_rows_back": 2, "attention_weights": 5 if language == "cuda" else 2}
    assert {name: seen.count(name) for name in names} == names, seen
    for w, g in zip(want, got, strict=True):
        np.testing.assert_allclose(g, w, **within("emulated float32"))
