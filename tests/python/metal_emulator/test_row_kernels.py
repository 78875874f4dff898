"""Kernels over rows, columns, windows and single elements, in both languages and three dtypes, against the CPU."""

from __future__ import annotations

from collections.abc import Callable

import lucid
import lucid.nn.functional as F
import numpy as np
import pytest

from tests.python.metal_emulator.engine import LANGUAGES, emulated, tensor
from tests.python.tolerances import TABLE

pytestmark = pytest.mark.usefixtures("compiler")

DTYPES = ["float32", "bfloat16", "float16"]


def normal(shape: tuple[int, ...], seed: int, device: str, dtype: str, *, grad: bool = True) -> lucid.Tensor:
    """Normal numbers of a dtype."""
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return lucid.tensor(values).to(getattr(lucid, dtype)).to(device).requires_grad_(grad)


def agree(language: str, dtype: str, program: Callable[[str], list[lucid.Tensor]], *names: str) -> None:
    """The program gives the same on both devices, on the GPU by the kernels of these names."""
    bound = TABLE[f"emulated {dtype}"]
    want = [t.detach().float().numpy() for t in program("cpu")]
    with emulated(language) as seen:
        got = [t.detach().cpu().float().numpy() for t in program("gpu")]
    assert set(names) <= set(seen), seen
    assert len(want) == len(got)
    for w, g in zip(want, got, strict=True):
        np.testing.assert_allclose(g, w, rtol=bound.rtol, atol=bound.atol)


FUNCTIONS: dict[str, Callable[[lucid.Tensor], lucid.Tensor]] = {
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "hardswish": F.hardswish,
    "leaky_relu": F.leaky_relu,
}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_an_element(language: str, dtype: str) -> None:
    def program(device: str) -> list[lucid.Tensor]:
        made = []
        for f in FUNCTIONS.values():
            x = normal((5, 7, 31), 1, device, dtype)
            y = f(x)
            y.backward(normal((5, 7, 31), 2, device, dtype, grad=False))
            assert x.grad is not None
            made += [y, x.grad]
        return made

    agree(language, dtype, program, "element")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_places_of_extrema(language: str, dtype: str) -> None:
    """The first of equal ones, zeros of both signs among them, and the first NaN before all else."""
    values = np.random.default_rng(0).standard_normal((8, 2500)).astype(np.float32)
    values[1, [40, 7, 2000]] = 9
    values[2] = -np.abs(values[2])
    values[2, [2100, 300]] = [0.0, -0.0]
    values[3, [900, 2300]] = np.nan
    values[4] = -np.inf
    values[5, 5], values[5, 6] = np.inf, -np.inf
    values[6] = np.nan
    values[7] = 1

    def program(device: str) -> list[lucid.Tensor]:
        x = lucid.tensor(values).to(getattr(lucid, dtype)).to(device)
        rows = x.reshape(2, 4, 2500)
        places = [x.argmax(-1), x.argmin(-1), rows.argmax(2, keepdim=True), (-x).argmin(-1)]
        return [*places, x.abs().argmin(1), x[0].argmax()]

    agree(language, dtype, program, "arg_extremum")


# Rows that threads in step keep in registers, that a group does, and that are read again.
LENGTHS = [33, 196, 1500, 8200]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", LENGTHS)
def test_softmax_and_cross_entropy(language: str, dtype: str, n: int) -> None:
    def program(device: str) -> list[lucid.Tensor]:
        x, z, w = (normal((6, n), seed, device, dtype) for seed in (3, 5, 7))
        soft = F.softmax(x, -1)
        soft.backward(normal((6, n), 4, device, dtype, grad=False))
        logs = F.log_softmax(z, -1)
        logs.backward(normal((6, n), 6, device, dtype, grad=False))
        target = lucid.tensor([0, n - 1, 3, -100, 5, 2]).to(device)
        loss = F.cross_entropy(w, target)
        loss.backward()
        each = F.cross_entropy(w, target, reduction="none")
        each.backward(normal((6,), 8, device, dtype, grad=False))
        assert x.grad is not None and z.grad is not None and w.grad is not None
        return [soft, x.grad, logs, z.grad, loss, each, w.grad]

    names = ["log_sum_exp", "log_softmax_rows", "softmax_rows_back", "log_softmax_rows_back", "cross_entropy_back"]
    agree(language, dtype, program, *(names if n > 128 else []))


@pytest.mark.parametrize("language", LANGUAGES)
def test_rows_of_infinities_and_nan(language: str) -> None:
    """What has no logarithm of softmax is NaN, as on the CPU."""

    def program(device: str) -> list[lucid.Tensor]:
        values = np.random.default_rng(0).standard_normal((4, 150)).astype(np.float32)
        values[0, 7], values[1, 3], values[2, 140] = np.nan, np.inf, -np.inf
        values[3] = -np.inf
        x = lucid.tensor(values, device=device, requires_grad=True)
        logs = F.log_softmax(x, -1)
        loss = F.cross_entropy(x, lucid.tensor([1, 2, 3, 4]).to(device), reduction="none")
        loss.sum().backward()
        assert x.grad is not None
        return [logs, loss, x.grad]

    agree(language, "float32", program, "log_sum_exp", "cross_entropy_back")


# Queries, keys, elements of a head, and what hides keys.
ATTENTION = [
    (17, 17, 8, "causal"),
    (18, 9, 4, "causal"),
    (20, 33, 4, ""),
    (16, 1100, 4, ""),
    (20, 33, 4, "shown"),
    (20, 33, 4, "added"),
]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", ATTENTION, ids=str)
def test_attention(language: str, dtype: str, case: tuple[int, int, int, str]) -> None:
    length, keys, width, how = case

    def program(device: str) -> list[lucid.Tensor]:
        q = normal((2, 3, length, width), 9, device, dtype)
        k, v = (normal((2, 3, keys, width), seed, device, dtype) for seed in (10, 11))
        mask = None
        if how in ("shown", "added"):
            shown = lucid.tensor(np.random.default_rng(12).random((2, 1, length, keys)) < 0.7)
            # A query that may look nowhere.
            shown[:, :, 3] = False
            added = lucid.where(shown, lucid.tensor(0.5), lucid.tensor(float("-inf"))).to(q.dtype)
            mask = (shown if how == "shown" else added).to(device)
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=how == "causal")
        y.backward(normal(tuple(y.shape), 13, device, dtype, grad=False))
        assert q.grad is not None and k.grad is not None and v.grad is not None
        return [y, q.grad, k.grad, v.grad]

    agree(language, dtype, program, "attention_weights", "softmax_rows_back")


SHAPES = [(70, 33), (3, 40, 7), (2, 5, 4, 6), (130, 3)]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_norms(language: str, dtype: str, shape: tuple[int, ...]) -> None:
    def program(device: str) -> list[lucid.Tensor]:
        x, channels = normal(shape, 14, device, dtype), shape[1]
        w, b = (normal((channels,), seed, device, "float32") for seed in (15, 16))
        mean, var = lucid.zeros(channels, device=device), lucid.ones(channels, device=device)
        y = F.batch_norm(x, mean, var, w, b, True)
        y.backward(normal(shape, 17, device, dtype, grad=False))
        z = normal((9, *shape), 18, device, dtype)
        u, v = (normal(shape[-1:], seed, device, dtype) for seed in (19, 20))
        rows = F.layer_norm(z, shape[-1:], u, v)
        rows.backward(normal((9, *shape), 21, device, dtype, grad=False))
        plain = normal((9, *shape), 22, device, dtype)
        F.layer_norm(plain, shape[-1:]).backward(normal((9, *shape), 23, device, dtype, grad=False))
        grads = [t.grad for t in (x, w, b, z, u, v, plain)]
        return [y, mean, var, rows, *(g for g in grads if g is not None)]

    names = ["column_norm", "column_moments", "column_moments_joined", "column_norm_sums", "column_norm_back"]
    agree(language, dtype, program, *names, "row_norm_back", "row_norm_sums")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 8, 5, 7), (2, 6, 16, 16), (5, 40), (2, 4, 3, 2, 5)], ids=str)
def test_group_norms(language: str, dtype: str, shape: tuple[int, ...]) -> None:
    def program(device: str) -> list[lucid.Tensor]:
        channels, made = shape[1], []
        for last in (False, True):
            x = normal(shape, 14, device, dtype, grad=False)
            if last and len(shape) == 4:
                x = x.contiguous(memory_format=lucid.channels_last)
            x = x.detach().requires_grad_()
            w, b = (normal((channels,), seed, device, "float32") for seed in (15, 16))
            y = F.group_norm(x, 2, w, b)
            y.backward(normal(shape, 17, device, dtype, grad=False))
            assert x.grad is not None and w.grad is not None and b.grad is not None
            made += [y, x.grad, w.grad, b.grad]
        plain = normal(shape, 18, device, dtype)
        z = F.group_norm(plain, channels)
        z.backward(normal(shape, 19, device, dtype, grad=False))
        assert plain.grad is not None
        return [*made, z, plain.grad]

    agree(language, dtype, program, "group_moments_joined", "group_norm", "group_norm_sums", "group_norm_back")


@pytest.mark.parametrize("language", LANGUAGES)
def test_convolutions_between_norms(language: str) -> None:
    """Channels stay last from layer to layer."""
    lucid.manual_seed(0)
    made = lucid.nn.Sequential(
        lucid.nn.Conv2d(3, 8, 3, padding=1),
        lucid.nn.BatchNorm2d(8),
        lucid.nn.ReLU(),
        lucid.nn.Conv2d(8, 5, 3),
        lucid.nn.BatchNorm2d(5),
    )
    state = {k: v.clone() for k, v in made.state_dict().items()}

    def program(device: str) -> list[lucid.Tensor]:
        made.load_state_dict({k: v.clone() for k, v in state.items()})
        net = made.to(device)
        x = normal((4, 3, 8, 8), 24, device, "float32")
        for p in net.parameters():
            p.grad = None
        y = net(x)
        y.backward(normal(tuple(y.shape), 25, device, "float32", grad=False))
        assert x.grad is not None
        return [y, x.grad, *(p.grad.clone() for p in net.parameters()), *(b.clone() for b in net.buffers())]

    agree(language, "float32", program, "column_norm", "column_norm_back")


# Window, stride, padding, dilation, whether the last windows may be cut off.
WINDOWS = [
    (3, 2, 1, 1, False),
    (2, 2, 0, 1, True),
    (3, 1, 1, 2, False),
    ((2, 3), (1, 2), (1, 0), 1, True),
    (5, 3, 2, 1, True),
]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", WINDOWS, ids=str)
@pytest.mark.parametrize("special", [False, True])
def test_max_pools_of_any_windows(language: str, dtype: str, case: tuple, special: bool) -> None:
    def program(device: str) -> list[lucid.Tensor]:
        made = []
        for last in (False, True):
            x = tensor((2, 3, 9, 11), 5, device, special=special).to(getattr(lucid, dtype))
            if last:
                x = x.contiguous(memory_format=lucid.channels_last)
            x = x.detach().requires_grad_()
            y = F.max_pool2d(x, *case)
            y.backward(tensor(tuple(y.shape), 6, device).to(x.dtype))
            assert x.grad is not None
            made += [y, x.grad, *F.max_pool2d(x.detach(), *case, return_indices=True)]
        return made

    agree(language, dtype, program, "window_max", "window_places", "window_back")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_over_many_rows(language: str, dtype: str) -> None:
    def program(device: str) -> list[lucid.Tensor]:
        x = normal((700, 3, 17), 26, device, "float32", grad=False).to(getattr(lucid, dtype))
        return [x.sum(0), x.sum((0, 1)), x.sum((0, 1), keepdim=True), x.mean(0)]

    agree(language, dtype, program, "column_sum")


@pytest.mark.parametrize("stride", [1, (1, 2)])
def test_convolutions_that_cuda_is_not_given(stride: int | tuple[int, int]) -> None:
    """Planes for which cuDNN asks for more memory than there is go by windows and products."""

    def program(device: str) -> list[lucid.Tensor]:
        x, w = tensor((2, 40, 130, 125), 1, device, grad=True), tensor((60, 40, 3, 2), 2, device, grad=True)
        y = F.conv2d(x, w, padding=1, stride=stride)
        y.backward(tensor(tuple(y.shape), 3, device))
        assert x.grad is not None and w.grad is not None
        return [y, x.grad, w.grad]

    agree("cuda", "float32", program)


@pytest.mark.parametrize("sizes", [(1, 257, 300, 259), (2, 264, 257, 320), (1, 256, 264, 257)])
def test_16_bit_products_of_sizes_that_are_not_aligned(sizes: tuple[int, ...]) -> None:
    """They are filled up with zeros, of which nothing is seen."""
    b, m, k, n = sizes

    def program(device: str) -> list[lucid.Tensor]:
        shape = (b, m, k) if b > 1 else (m, k)
        x, w = normal(shape, 1, device, "bfloat16"), normal((n, k), 2, device, "bfloat16")
        y = F.linear(x, w)
        y.backward(normal(tuple(y.shape), 3, device, "bfloat16", grad=False))
        assert x.grad is not None and w.grad is not None
        return [y, x.grad, w.grad]

    agree("cuda", "bfloat16", program)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cut", ["select", "unbind", "chunk", "overlap", "gap"])
def test_heads_of_one_projection(dtype: str, cut: str) -> None:
    """Queries, keys and values cut from one array: its gradient is put together from theirs, and heads are copied."""

    def program(device: str) -> list[lucid.Tensor]:
        x = normal((2, 80, 3 * 5 * 32), 8, device, dtype)
        if cut in ("chunk", "overlap", "gap"):
            ends = {"chunk": (0, 160, 320), "overlap": (0, 100, 320), "gap": (0, 160, 300)}[cut]
            parts = [x[..., a : a + 160] if a + 160 <= 480 else x[..., 320:] for a in ends]
            q, k, v = (p.reshape(2, 80, 5, 32).transpose(1, 2) for p in parts)
        else:
            heads = x.reshape(2, 80, 3, 5, 32).permute(2, 0, 3, 1, 4)
            q, k, v = heads.unbind(0) if cut == "unbind" else (heads[0], heads[1], heads[2])
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 80, 160)
        y.backward(normal((2, 80, 160), 9, device, dtype, grad=False))
        assert x.grad is not None
        again = (heads * 1).permute(1, 3, 0, 2, 4).reshape(2, 80, 480) if cut == "select" else y
        return [y, x.grad, again]

    agree("cuda", dtype, program)
