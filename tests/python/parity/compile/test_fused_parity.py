"""Fused element-wise kernels against the steps that they stand for: the same bits on the CPU device."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import lucid
import lucid.nn.functional as F
import pytest
from lucid import nn

from tests.python.tolerances import near


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    lucid.compiler.reset()
    yield
    lucid.compiler.reset()


@contextlib.contextmanager
def fusing(on: bool) -> Iterator[None]:
    """What is compiled inside has fused kernels, or has none."""
    was = lucid._C._set_graph_fusing(on)
    try:
        yield
    finally:
        lucid._C._set_graph_fusing(was)


def kernels(f: Any) -> list[list[int]]:
    """The groups of steps that a compiled function runs as kernels."""
    found = [entry for entry in f._compiled.entries.values() if hasattr(entry, "program")]
    return [group for entry in found for group in entry.program.fused()]


def bits(t: lucid.Tensor) -> tuple[Any, ...]:
    """All that there is of a tensor; any NaN is as good as another."""
    values = [str(v) if v != v else (v, math.copysign(1, v)) for v in t.detach().flatten().tolist()]
    return (tuple(t.shape), t.stride(), t.dtype, values)


def compare(
    program: Callable[..., list[lucid.Tensor]], *args: Any, groups: int = 1, zeros: bool = True
) -> list[lucid.Tensor]:
    """The results eager, replayed step by step, and replayed with kernels, of which there are at least `groups`.

    Without `zeros` any zero is as good as another.
    """
    want = program(*args)
    seen = [want]
    for on in (False, True):
        with fusing(on):
            f = lucid.compile(program, fullgraph=True)
            for _ in range(3):
                seen.append(f(*args))
        assert len(kernels(f)) >= groups if on else not kernels(f)
    for got in seen[1:]:
        for g, w in zip(got, want, strict=True):
            assert bits(g if zeros else g + 0.0) == bits(w if zeros else w + 0.0)
    return want


SPECIAL = [0.0, -0.0, math.nan, math.inf, -math.inf, 1e-45, -1e-40, 3e38, -3e38, 1.0, -2.5, 0.5]


def numbers(*shape: int, seed: int = 0) -> lucid.Tensor:
    """Numbers with special ones among them."""
    draw = random.Random(seed)
    count = math.prod(shape)
    return lucid.tensor([draw.choice([draw.uniform(-3, 3), draw.choice(SPECIAL)]) for _ in range(count)]).reshape(shape)


UNARY: dict[str, Callable[[lucid.Tensor], lucid.Tensor]] = {
    f.__name__: f
    for f in (
        lucid.neg,
        lucid.square,
        lucid.abs,
        lucid.sign,
        lucid.reciprocal,
        lucid.floor,
        lucid.ceil,
        lucid.trunc,
        lucid.round,
        lucid.relu,
        lucid.exp,
        lucid.exp2,
        lucid.expm1,
        lucid.log,
        lucid.log2,
        lucid.log10,
        lucid.log1p,
        lucid.sqrt,
        lucid.rsqrt,
        lucid.sin,
        lucid.cos,
        lucid.tan,
        lucid.asin,
        lucid.acos,
        lucid.atan,
        lucid.sinh,
        lucid.cosh,
        lucid.tanh,
        lucid.asinh,
        lucid.acosh,
        lucid.atanh,
        lucid.erf,
        lucid.erfc,
        lucid.erfinv,
        lucid.sigmoid,
    )
} | {"silu": F.silu, "gelu": F.gelu, "gelu tanh": lambda x: F.gelu(x, approximate="tanh")}
BINARY: dict[str, Callable[[lucid.Tensor, lucid.Tensor], lucid.Tensor]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "pow": lucid.pow,
    "atan2": lucid.atan2,
    "maximum": lucid.maximum,
    "minimum": lucid.minimum,
    **{
        f"where {name}": (lambda op: lambda a, b: lucid.where(op(a, b), a, b * 2))(getattr(lucid, name))
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
    },
    "logic": lambda a, b: lucid.where((a > 0) & ~(b > 0) | (a < -1) ^ (b < 0), a, -b),
    "truths": lambda a, b: (a > b).float() + b,
}


DTYPES = pytest.mark.parametrize("dtype", [lucid.float32, lucid.float16, lucid.bfloat16], ids=str)


@DTYPES
@pytest.mark.parametrize("name", UNARY)
def test_unary_instructions(name: str, dtype: lucid.dtype) -> None:
    def program(x: lucid.Tensor) -> list[lucid.Tensor]:
        return [UNARY[name](x * 1.0) + 1]

    compare(program, numbers(37).to(dtype))


@DTYPES
@pytest.mark.parametrize("name", BINARY)
def test_binary_instructions_broadcast(name: str, dtype: lucid.dtype) -> None:
    def program(a: lucid.Tensor, b: lucid.Tensor) -> list[lucid.Tensor]:
        return [BINARY[name](a, b) * 3, BINARY[name](b, a) - a]

    # Which of 0 and -0 is the larger is not said.
    zeros = name not in ("maximum", "minimum")
    a, b = numbers(5, 7, 13), numbers(7, 1, seed=1)
    for x, y in ((a, b), (b, a), (a, numbers(13, seed=2)), (a, lucid.tensor(-0.5)), (a, numbers(5, 7, 13, seed=3))):
        compare(program, x.to(dtype), y.to(dtype), zeros=zeros)


@pytest.mark.parametrize("dtype", [lucid.float16, lucid.bfloat16], ids=str)
def test_casts_between_floats(dtype: lucid.dtype) -> None:
    other = lucid.bfloat16 if dtype == lucid.float16 else lucid.float16

    def program(x: lucid.Tensor, y: lucid.Tensor) -> list[lucid.Tensor]:
        low = (x * 1.5).to(dtype)
        high = (low + y).float() - x
        # Outputs that are read by others, rounded on the way, and truths of rounded numbers.
        return [low, high, (high * 2).to(other).to(dtype) + low, (low > y) | (y < 0), (x > 0).to(dtype) * y]

    for shape in ((37,), (5, 600), (3, 1)):
        compare(program, numbers(*shape), numbers(shape[-1], seed=1).to(dtype))
    compare(program, numbers(5, 7).t(), lucid.tensor(0.3, dtype=dtype))


def test_layouts() -> None:
    def program(x: lucid.Tensor, y: lucid.Tensor) -> list[lucid.Tensor]:
        z = (x * y).tanh()
        return [z + x, z.sigmoid() * 2]

    dense = numbers(4, 6, 5, 8)
    last = dense.to(memory_format=lucid.channels_last)
    turned = numbers(8, 5, 6, 4, seed=1).permute(3, 2, 1, 0)
    part = numbers(4, 6, 10, 9, seed=2)[:, :, ::2, 1:]
    wide = numbers(6, 1, 1, seed=3)
    for x in (dense, last, turned, part):
        for y in (dense, last, part, wide, wide.expand(4, 6, 5, 8)):
            compare(program, x, y)
    for x in (lucid.tensor(0.5), numbers(1), numbers(1, 1, 1, seed=4)):
        compare(program, x, x)
    for empty in (lucid.zeros(0), lucid.zeros(3, 0, 2)):
        compare(program, empty, empty, groups=0)


def test_sizes_around_blocks_and_threads() -> None:
    def program(x: lucid.Tensor) -> list[lucid.Tensor]:
        return [x.exp() * 2 - x, (x > 0) | (x < -1)]

    threads = lucid.get_num_threads()
    try:
        for count in (1, 2):
            lucid.set_num_threads(count)
            for n in (1, 511, 512, 513, 1024, 1025, 40_000):
                x = numbers(64, seed=n).repeat(n // 64 + 1)[:n]
                compare(program, x)
    finally:
        lucid.set_num_threads(threads)


def random_program(seed: int) -> Callable[..., list[lucid.Tensor]]:
    """Element-wise ops, views, writes in place, reductions and draws in a random order."""
    draw = random.Random(seed)
    binary = [f for name, f in BINARY.items() if name not in ("maximum", "minimum")]
    others: list[Callable[[lucid.Tensor, lucid.Tensor], lucid.Tensor]] = [
        lambda x, y: (x * 1).mul_(y),
        _written_in_part,
        lambda x, y: x.t().contiguous().t(),
        lambda x, y: x.flip(1),
        lambda x, y: x.sum(0, keepdim=True) + y,
        lambda x, y: x.sum(1, keepdim=True) + y,
        lambda x, y: lucid.rand_like(x) + y,
    ]
    unary = [_of_first(f) for f in UNARY.values()]
    plan = [
        (draw.choice(draw.choice([unary, binary, binary, others])), draw.randrange(i + 3), draw.randrange(i + 3))
        for i in range(draw.randrange(10, 40))
    ]

    def program(*given: lucid.Tensor) -> list[lucid.Tensor]:
        values = list(given)
        for f, i, j in plan:
            values.append(f(values[i], values[j]))
        return [v * 1 for v in values[-6:]]

    return program


def _of_first(f: Callable[[lucid.Tensor], lucid.Tensor]) -> Callable[[lucid.Tensor, lucid.Tensor], lucid.Tensor]:
    return lambda x, _: f(x)


def _written_in_part(x: lucid.Tensor, y: lucid.Tensor) -> lucid.Tensor:
    own = x * 1
    part = own[:, 1:3]
    before = own + y
    part.add_(1)
    return own * before


@DTYPES
@pytest.mark.parametrize("seed", range(24))
def test_random_programs(seed: int, dtype: lucid.dtype) -> None:
    given = [numbers(6, 6, seed=seed).to(dtype), numbers(6, 6, seed=seed + 1), lucid.rand(6, 6).to(dtype)]
    want: list[Any] = []
    for on in (None, False, True):
        with fusing(on is not False):
            program = random_program(seed)
            f = program if on is None else lucid.compile(program, fullgraph=True)
            runs = []
            for _ in range(3):
                lucid.manual_seed(seed)
                runs.append([bits(t) for t in f(*given)])
            assert runs[0] == runs[1] == runs[2]
            want = want or runs[0]
            assert runs[0] == want


def steps(make: Callable[[], nn.Module], shape: tuple[int, ...], on: bool | None) -> tuple[list[Any], int]:
    """Losses, gradients and parameters of a few training steps, and how many kernels there are."""
    lucid.manual_seed(0)
    model = make()
    optimizer = lucid.optim.AdamW(model.parameters(), lr=0.01, eps=1e-2)

    def step(x: lucid.Tensor) -> lucid.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    with fusing(on is not False):
        f = step if on is None else lucid.compile(step, fullgraph=True)
        seen: list[Any] = [bits(f(lucid.randn(*shape))) for _ in range(4)]
    seen += [bits(p) for p in model.parameters()] + [bits(p.grad) for p in model.parameters()]
    seen += [bits(b) for b in model.buffers()]
    return seen, len(kernels(f)) if on else 0


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.rnn, self.head = kind(5, 6, 2, batch_first=True), nn.Linear(6, 3)

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        return self.head(self.rnn(x)[0][:, -1])


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3)

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        return F.silu(x + self.norm(self.conv(x)))


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: Recurrent(nn.LSTM), (3, 4, 5)),
        (lambda: Recurrent(nn.GRU), (3, 4, 5)),
        (Residual, (2, 3, 8, 8)),
        (lambda: nn.Sequential(nn.Linear(6, 9), nn.GELU(), nn.Dropout(0.3), nn.Linear(9, 2), nn.Softplus()), (5, 6)),
    ],
)
def test_training_steps_are_the_same_bits(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    want, _ = steps(make, shape, None)
    fused, groups = steps(make, shape, True)
    if make is Residual:
        # What is recorded of a batch norm is other arithmetic than eager mode's, in the last bit.
        for got, expected in zip(fused, want, strict=True):
            assert got[:3] == expected[:3]
            assert [v for v, _ in got[3]] == pytest.approx([v for v, _ in expected[3]], **near("program"))
        assert fused == steps(make, shape, True)[0]
    else:
        assert fused == want
    assert groups > 0


def test_gradients_are_nobody_elses() -> None:
    # Copies are left out where the gradient is nobody else's, and there only.
    a, b = (numbers(4, seed=s).nan_to_num(0, 1, 1).requires_grad_() for s in (5, 6))

    def step() -> lucid.Tensor:
        y = (a * 2 + b).sum()
        y.backward()
        return y

    f = lucid.compile(step, fullgraph=True)
    for _ in range(3):
        a.grad = b.grad = None
        f()
        assert a.grad.data_ptr() != b.grad.data_ptr()
        a.grad.mul_(7)
        assert bits(b.grad) == bits(lucid.ones(4))
    linear = lucid.compile(nn.Linear(3, 2), fullgraph=True)
    x = lucid.ones(1, 3, requires_grad=True)
    y = linear(x).sum()
    first = lucid.autograd.grad(y, x, retain_graph=True)[0]
    kept = first.clone()
    first.zero_()
    assert lucid.equal(lucid.autograd.grad(y, x)[0], kept)


#: Functions of one element with their numbers, as `elementwise` takes them.
CURVES: list[tuple[str, float, float, float]] = [
    ("leaky_relu", 0.1, 0.0, 0.0),
    ("elu", 0.7, 1.5, 0.8),
    ("softplus", 2.0, 1.5, 0.5),
    ("hardtanh", -0.7, 0.6, 0.0),
    ("clamp", -0.7, 0.6, 0.0),
    ("clamp", math.nan, 0.6, 0.0),
    ("clamp", 0.6, math.nan, 0.0),
    ("hardswish", 0.0, 0.0, 0.0),
    ("hardsigmoid", 0.0, 0.0, 0.0),
    ("logsigmoid", 0.0, 0.0, 0.0),
    ("mish", 0.0, 0.0, 0.0),
    ("silu", 0.0, 0.0, 0.0),
    ("sigmoid_result", 0.0, 0.0, 0.0),
    ("tanh_result", 0.0, 0.0, 0.0),
    ("huber", 0.6, 0.0, 0.0),
    ("smooth_l1", 0.6, 0.0, 0.0),
    ("threshold", 0.2, 3.0, 0.0),
    ("hardshrink", 0.4, 0.0, 0.0),
    ("softshrink", 0.4, 0.0, 0.0),
    ("nan_to_num", 1.0, 2.0, 3.0),
]


def test_activations_and_their_gradients_are_one_kernel() -> None:
    x, g = numbers(3, 500, seed=21), numbers(3, 500, seed=22)
    for name, *parameters in CURVES:

        def program(
            x: lucid.Tensor, g: lucid.Tensor, name: str = name, parameters: list[float] = parameters
        ) -> list[lucid.Tensor]:
            y = lucid._C.elementwise(x * 1.5, name, *parameters)
            return [y + 1.0, lucid._C.elementwise_gradient(g + y, x * 1.5, name, *parameters) * 2.0]

        compare(program, x, g)
        with fusing(True):
            f = lucid.compile(program, fullgraph=True)
            f(x, g)
        assert [len(group) for group in kernels(f)] == [6], name
