"""Fused kernels of compiled functions, in Metal's language and in CUDA's, emulated, against the CPU device."""

from __future__ import annotations

from collections.abc import Callable

import lucid
import lucid.nn.functional as F
import numpy as np
import pytest
from lucid import nn

from tests.python.metal_emulator.test_engine_kernels import LANGUAGES, emulated
from tests.python.parity.compile.test_fused_parity import CURVES
from tests.python.tolerances import TABLE, within

pytestmark = pytest.mark.usefixtures("compiler")

Program = Callable[..., list[lucid.Tensor]]


def numbers(shape: tuple[int, ...], seed: int, special: bool = False) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.uniform(-3, 3, shape).astype(np.float32)
    if special:
        values.reshape(-1)[::7] = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], values.reshape(-1)[::7].shape)
    return values


def compiled(language: str, program: Program, *given: np.ndarray) -> None:
    """The same on both devices, compiled on the GPU, by one kernel at least."""
    want = [t.detach().numpy() for t in program(*[lucid.tensor(a) for a in given])]
    with emulated(language) as seen:
        f = lucid.compile(program, fullgraph=True)
        for _ in range(2):
            got = [t.detach().cpu().numpy() for t in f(*[lucid.tensor(a, device="gpu") for a in given])]
    assert "fused" in seen, seen
    for w, g in zip(want, got, strict=True):
        np.testing.assert_allclose(g, w, **within("near zero"))


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
    """A graph holds their steps, and runs the kernels that eager mode runs."""

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
    # The call that is recorded runs the steps; on CUDA attention itself is by the same kernel in all three.
    names = {"row_norm_sums": 2, "softmax_rows_back": 2, "attention_weights": 5 if language == "cuda" else 2}
    assert {name: seen.count(name) for name in names} == names, seen
    for w, g in zip(want, got, strict=True):
        np.testing.assert_allclose(g, w, **within("emulated float32"))
