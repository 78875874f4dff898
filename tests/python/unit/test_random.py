"""Random tensors: their distributions against exact ones, the same numbers on both devices, generators and threads."""

from __future__ import annotations

import math
import pickle
import threading
from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest

from tests.python.tolerances import within

DEVICES = ["cpu", "gpu"]
FLOATS = [
    (d, t) for d in DEVICES for t in ("float32", "float64", "float16", "bfloat16") if (d, t) != ("gpu", "float64")
]
N = 12_000


def drawn(sample: Callable[[], lucid.Tensor], seed: int = 5) -> np.ndarray:
    lucid.manual_seed(seed)
    return np.asarray(sample().tolist(), np.float64)


def normal_cdf(x: np.ndarray) -> np.ndarray:
    return np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x])


CONTINUOUS: dict[str, tuple[Callable[[Any], Any], Callable[[np.ndarray], np.ndarray]]] = {
    "uniform_": (lambda x: x.uniform_(-1, 3), lambda v: (v + 1) / 4),
    "normal_": (lambda x: x.normal_(1, 2), lambda v: normal_cdf((v - 1) / 2)),
    "exponential_": (lambda x: x.exponential_(0.5), lambda v: 1 - np.exp(-0.5 * v)),
    "cauchy_": (lambda x: x.cauchy_(1, 2), lambda v: 0.5 + np.arctan((v - 1) / 2) / np.pi),
    "log_normal_": (lambda x: x.log_normal_(0.5, 0.75), lambda v: normal_cdf((np.log(v) - 0.5) / 0.75)),
    "rand": (lambda x: lucid.rand(N, dtype=x.dtype, device=x.device), lambda v: v),
    "randn": (lambda x: lucid.randn_like(x), normal_cdf),
    "normal": (lambda x: lucid.normal(x, x + 1), normal_cdf),
}


@pytest.mark.parametrize(("device", "dtype"), FLOATS)
@pytest.mark.parametrize("name", CONTINUOUS)
def test_floats_follow_their_distribution(name: str, device: str, dtype: str) -> None:
    sample, cdf = CONTINUOUS[name]
    x = lucid.zeros(N, dtype=getattr(lucid, dtype), device=device)
    values = np.sort(drawn(lambda: sample(x)))
    steps = np.arange(N + 1) / N
    expected = np.clip(cdf(np.clip(values, 1e-300 if name == "log_normal_" else None, None)), 0, 1)
    distance = max(np.abs(expected - steps[1:]).max(), np.abs(expected - steps[:-1]).max())
    # Kolmogorov's bound at 1e-6, and half a step of the dtype's numbers, 2^-8 of their size at the widest.
    coarse = {"float16": 2e-3, "bfloat16": 1.5e-2}.get(dtype, 0)
    assert distance < 2.7 / math.sqrt(N) + coarse, (name, distance)


def chi_square(counts: np.ndarray, expected: np.ndarray) -> None:
    """The counts' distance from what is expected, cells of few joined: at most six deviations above its mean."""
    order = np.argsort(-expected)
    counts, expected = counts[order], expected[order]
    big = expected >= 10
    joined = [counts[~big].sum()], [expected[~big].sum()]
    counts, expected = np.append(counts[big], joined[0]), np.append(expected[big], joined[1])
    counts, expected = counts[expected > 0], expected[expected > 0]
    distance = ((counts - expected) ** 2 / expected).sum()
    freedom = len(counts) - 1
    assert distance <= freedom + 6 * math.sqrt(2 * max(freedom, 1)) + 10, (distance, freedom)


def log_factorials(n: int) -> np.ndarray:
    return np.append(0.0, np.cumsum(np.log(np.arange(1, n + 1))))


@pytest.mark.parametrize(("device", "dtype"), FLOATS)
@pytest.mark.parametrize("mean", [0.25, 3.0, 9.5, 12.0, 150.0])
def test_poisson(mean: float, device: str, dtype: str) -> None:
    x = lucid.full((N,), mean, dtype=getattr(lucid, dtype), device=device)
    values = drawn(lambda: lucid.poisson(x))
    most = int(mean + 12 * math.sqrt(mean) + 20)
    k = np.arange(most + 1)
    assert values.min() >= 0 and values.max() <= most and (values == np.floor(values)).all()
    chi_square(
        np.bincount(values.astype(int), minlength=most + 1),
        N * np.exp(k * math.log(mean) - mean - log_factorials(most)),
    )


@pytest.mark.parametrize(("device", "dtype"), FLOATS)
@pytest.mark.parametrize(("n", "p"), [(1, 0.3), (12, 0.75), (40, 0.1), (100, 0.5), (200, 0.875)])
def test_binomial(n: int, p: float, device: str, dtype: str) -> None:
    make = {"dtype": getattr(lucid, dtype), "device": device}
    values = drawn(lambda: lucid.binomial(lucid.full((N,), float(n), **make), lucid.full((N,), p, **make)))
    assert values.min() >= 0 and values.max() <= n
    # The probability as the dtype holds it.
    p = float(lucid.tensor(p, **make).item())
    k, logs = np.arange(n + 1), log_factorials(n)
    exact = np.exp(logs[n] - logs - logs[::-1] + k * math.log(p) + (n - k) * math.log1p(-p))
    chi_square(np.bincount(values.astype(int), minlength=n + 1), N * exact)


@pytest.mark.parametrize("device", DEVICES)
def test_large_counts_have_the_right_moments(device: str) -> None:
    for mean in (1e4, 1e6, 1e9):
        rate = lucid.full((N,), mean, device=device)
        z = (drawn(lambda rate=rate: lucid.poisson(rate), int(mean) % 97) - mean) / math.sqrt(mean)
        assert abs(z.mean()) < 5 / math.sqrt(N) and abs(z.var() - 1) < 0.05 and abs((z**3).mean()) < 0.1, mean
    n, p = 3e5, 0.6
    z = drawn(lambda: lucid.binomial(lucid.full((N,), n, device=device), lucid.full((N,), p, device=device))) - n * p
    assert abs(z.mean() / math.sqrt(n * p * (1 - p) / N)) < 5 and abs(z.var() / (n * p * (1 - p)) - 1) < 0.05


@pytest.mark.parametrize("device", DEVICES)
def test_counts_at_the_edges(device: str) -> None:
    inf, nan = float("inf"), float("nan")
    rates = lucid.tensor([0.0, 1e-30, inf, 1e25], device=device)
    assert lucid.poisson(rates).tolist() == [0.0, 0.0, inf, rates[3].item()]
    n = lucid.tensor([10.0, 10, 10, 0, -3, nan, 5, 1e9, inf, 1.75], device=device)
    p = lucid.tensor([0.0, 1, 1.5, 0.5, 0.5, 0.5, nan, 1, 0.25, 1], device=device)
    np.testing.assert_array_equal(lucid.binomial(n, p).tolist(), [0, 10, 10, 0, 0, nan, nan, 1e9, inf, 1])
    for empty in (lucid.poisson(rates[:0]), lucid.binomial(n[:0], p[:0])):
        assert empty.shape == (0,)
    assert lucid.poisson(lucid.tensor(3.0, device=device)).shape == ()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "float16"])
def test_geometric(device: str, dtype: str) -> None:
    p = 0.2
    values = drawn(lambda: lucid.zeros(N, dtype=getattr(lucid, dtype), device=device).geometric_(p)).astype(int)
    k = np.arange(1, 120)
    assert values.min() == 1
    chi_square(np.bincount(values, minlength=120)[1:120], N * p * (1 - p) ** (k - 1))


WEIGHTS = [0.5, 0.0, 3.0, 1.0, 2.5, 1e-3, 4.0]


@pytest.mark.parametrize(("device", "dtype"), FLOATS)
def test_multinomial(device: str, dtype: str) -> None:
    w = lucid.tensor(WEIGHTS, device=device, dtype=getattr(lucid, dtype))
    p = np.asarray(w.tolist())
    p = p / p.sum()
    with_replacement = drawn(lambda: w.multinomial(N, True)).astype(int)
    chi_square(np.bincount(with_replacement, minlength=7), N * p)
    assert (with_replacement != 1).all()
    rows = drawn(lambda: lucid.multinomial(w.expand(N, 7), 3)).astype(int)
    assert rows.shape == (N, 3) and (np.sort(rows, 1)[:, 1:] > np.sort(rows, 1)[:, :-1]).all() and (rows != 1).all()
    chi_square(np.bincount(rows[:, 0], minlength=7), N * p)
    # The second follows the rest of the weights.
    second = sum(p[i] * np.where(np.arange(7) == i, 0, p) / (1 - p[i]) for i in range(7))
    chi_square(np.bincount(rows[:, 1], minlength=7), N * second)
    every = drawn(lambda: lucid.multinomial(w, 7)).astype(int)
    assert sorted(every.tolist()) == list(range(7)) and every[-1] == 1


def test_multinomial_of_many_categories() -> None:
    n = 300_000
    w = lucid.arange(n, dtype=lucid.float32)
    values = drawn(lambda: w.multinomial(N, True))
    u = np.sort((values + 0.5) / n) ** 2
    assert np.abs(u - (np.arange(N) + 0.5) / N).max() < 2.7 / math.sqrt(N)
    assert (np.bincount(drawn(lambda: lucid.ones(2, n).multinomial(n))[0].astype(int), minlength=n) == 1).all()


SAME: dict[str, Callable[[str], Any]] = {
    "bernoulli": lambda d: lucid.full((N,), 0.3, device=d).bernoulli(),
    "bernoulli_": lambda d: lucid.zeros(N, device=d, dtype=lucid.int64).bernoulli_(0.7),
    "binomial few": lambda d: lucid.binomial(lucid.full((N,), 9.0, device=d), lucid.linspace(0, 1, N, device=d)),
    "binomial many": lambda d: lucid.binomial(lucid.full((N,), 900.0, device=d), lucid.linspace(0, 1, N, device=d)),
    "geometric_": lambda d: lucid.zeros(N, device=d).geometric_(0.01),
    "multinomial": lambda d: (lucid.arange(N, device=d) + 0.3).multinomial(N, True),
    "multinomial, each once": lambda d: (lucid.arange(N, device=d) + 0.3).multinomial(N // 2),
    "poisson": lambda d: lucid.poisson((lucid.arange(N, device=d) / 100) ** 1.5),
    "rand": lambda d: lucid.rand(N, device=d),
    "rand float16": lambda d: lucid.rand(N, device=d, dtype=lucid.float16),
    "randint": lambda d: lucid.randint(-(2**40), 2**41, (N,), device=d),
    "randint_like": lambda d: lucid.randint_like(lucid.zeros(N, device=d), 1000),
    "random_": lambda d: lucid.zeros(N, device=d, dtype=lucid.int64).random_(-(2**63), None),
    "randperm": lambda d: lucid.randperm(N, device=d),
    "uniform_": lambda d: lucid.zeros(N, device=d).uniform_(-2, 5),
}


@pytest.mark.parametrize("name", SAME)
def test_both_devices_draw_exactly_the_same(name: str) -> None:
    for seed in range(3):
        np.testing.assert_array_equal(drawn(lambda: SAME[name]("cpu"), seed), drawn(lambda: SAME[name]("gpu"), seed))


@pytest.mark.parametrize("name", CONTINUOUS)
def test_both_devices_draw_the_same_up_to_rounding(name: str) -> None:
    sample, _ = CONTINUOUS[name]
    cpu, gpu = (drawn(lambda d=d: sample(lucid.zeros(N, device=d))) for d in DEVICES)
    np.testing.assert_allclose(cpu, gpu, **within("random numbers"))


@pytest.mark.parametrize(("device", "dtype"), FLOATS)
def test_uniform_numbers_are_below_one(device: str, dtype: str) -> None:
    kind: dict[str, Any] = {"dtype": getattr(lucid, dtype), "device": device}
    lucid.manual_seed(0)
    for x in (lucid.rand(200_000, **kind), lucid.empty(200_000, **kind).uniform_()):
        assert x.max().item() < 1 and x.min().item() >= 0
    assert lucid.empty(200_000, **kind).exponential_().cpu().double().min().item() >= 0


@pytest.mark.parametrize("device", DEVICES)
def test_whole_ranges(device: str) -> None:
    def bounds(dtype: str, *args: Any) -> tuple[float, float]:
        values = drawn(lambda: lucid.zeros(N, dtype=getattr(lucid, dtype), device=device).random_(*args))
        return float(values.min()), float(values.max())

    assert bounds("bool") == (0, 1) and bounds("uint8") == (0, 255) and bounds("int8") == (0, 127)
    assert bounds("float16") == (0, 2048) and bounds("bfloat16") == (0, 256)
    low, high = bounds("int64")
    assert low >= 0 and high > 2**62
    low, high = bounds("int64", -(2**63), None)
    assert low < -(2**62) and high > 2**62
    assert bounds("int32", 3) == (0, 2) and bounds("float32", -3, 2) == (-3, 1)
    values = drawn(lambda: lucid.zeros(N, device=device, dtype=lucid.uint8).random_()).astype(int)
    chi_square(np.bincount(values, minlength=256), np.full(256, N / 256))


@pytest.mark.parametrize("device", DEVICES)
def test_writes_are_seen_through_views(device: str) -> None:
    fills: list[Callable[[Any], Any]] = [
        lambda x: x.uniform_(1, 2),
        lambda x: x.normal_(10, 1),
        lambda x: x.bernoulli_(1),
        lambda x: x.bernoulli_(lucid.ones(3, device=device)),
        lambda x: x.exponential_(),
        lambda x: x.geometric_(0.5),
        lambda x: x.cauchy_(1e6, 1),
        lambda x: x.log_normal_(),
        lambda x: x.random_(1, 9),
    ]
    for fill in fills:
        base = lucid.zeros(4, 6, device=device)
        version = base._version
        part = base[1:3, ::2]
        assert fill(part) is part and base._version > version
        assert (base[1:3, ::2] == part).all().item() and (part != 0).all().item()
        assert (base != 0).sum().item() == 6
        turned = lucid.zeros(3, 2, device=device).t()
        fill(turned.expand(2, 3))
        assert (turned != 0).all().item()
        with pytest.raises(RuntimeError, match="clone"):
            fill(lucid.zeros(1, device=device).expand(3))


@pytest.mark.parametrize("device", DEVICES)
def test_generators(device: str) -> None:
    g = lucid.Generator(device=device)
    assert g.device.type == lucid.zeros(1, device=device).device.type
    assert g.manual_seed(3) is g and g.initial_seed() == 3
    first = lucid.rand(3, generator=g, device=device)
    state, copy = g.get_state(), g.clone_state()
    assert copy.device == g.device
    second = lucid.poisson(first * 30, generator=g)
    assert lucid.equal(lucid.poisson(first * 30, generator=copy), second)
    g.set_state(state)
    assert lucid.equal(lucid.poisson(first * 30, generator=g), second)
    again = pickle.loads(pickle.dumps(g))
    assert again.device == g.device and lucid.equal(again.get_state(), g.get_state())
    other = DEVICES[1 - DEVICES.index(device)]
    x = lucid.full((3,), 0.5, device=other)
    calls: list[Callable[[], Any]] = [
        lambda: lucid.rand(2, generator=g, device=other),
        lambda: lucid.randperm(2, generator=g, device=other),
        lambda: x.multinomial(2, generator=g),
        lambda: x.normal_(generator=g),
        lambda: x.bernoulli_(0.5, generator=g),
        lambda: lucid.poisson(x, g),
        lambda: x.exponential_(generator=g),
        lambda: lucid.nn.init.uniform_(x, generator=g),
    ]
    state = g.get_state()
    for call in calls:
        with pytest.raises(RuntimeError, match="device type for generator"):
            call()
    assert lucid.equal(g.get_state(), state) and x.tolist() == [0.5] * 3
    # One that was made for no device in particular serves both.
    g, h = (lucid.Generator().manual_seed(4) for _ in range(2))
    assert lucid.rand(3, generator=g, device=device).tolist() == lucid.rand(3, generator=h, device="cpu").tolist()


def test_fork_rng() -> None:
    lucid.manual_seed(1)
    want = lucid.rand(3).tolist()
    lucid.manual_seed(1)
    with lucid.random.fork_rng():
        assert lucid.rand(3).tolist() == want
    with pytest.raises(ZeroDivisionError), lucid.random.fork_rng(devices=[0], device_type="gpu"):
        lucid.random.manual_seed(9)
        raise ZeroDivisionError
    with lucid.random.fork_rng(enabled=False):
        assert lucid.rand(3).tolist() == want
    assert lucid.rand(3).tolist() != want
    assert lucid.random.initial_seed() == 1
    lucid.random.set_rng_state(lucid.random.get_rng_state())


@pytest.mark.parametrize("device", DEVICES)
def test_threads_draw_whole_samples_of_their_own(device: str) -> None:
    each, threads = 40, 4

    def draw(g: lucid.Generator) -> tuple[float, ...]:
        return tuple(lucid.poisson(lucid.full((5,), 1e5, device=device), g).tolist())

    g = lucid.Generator().manual_seed(8)
    want = [draw(g) for _ in range(each * threads)]
    end = g.get_state()
    assert len(set(want)) == len(want)
    g.manual_seed(8)
    got: list[tuple[float, ...]] = []
    barrier = threading.Barrier(threads)

    def work() -> None:
        barrier.wait()
        for _ in range(each):
            got.append(draw(g))

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    # The same samples, each once, whoever drew which.
    assert sorted(got) == sorted(want) and lucid.equal(g.get_state(), end)


@pytest.mark.parametrize("device", DEVICES)
def test_samples_under_vmap(device: str) -> None:
    x = lucid.full((4, 30), 20.0, device=device)
    draws: dict[str, Callable[[Any], Any]] = {
        "poisson": lucid.poisson,
        "binomial": lambda x: lucid.binomial(x, x / 40),
        "multinomial": lambda x: lucid.multinomial(x, 20),
        "multinomial again": lambda x: lucid.multinomial(x, 20, True),
        "normal": lambda x: lucid.normal(x, 1.0),
        "bernoulli": lambda x: lucid.bernoulli(x / 40),
        "bernoulli p": lambda x: lucid.bernoulli(x, 0.5),
        "randint_like": lambda x: lucid.randint_like(x, 1000),
        "exponential_": lambda x: x.clone().exponential_(),
        "geometric_": lambda x: x.clone().geometric_(0.05),
        "random_": lambda x: x.clone().random_(),
        "cauchy_": lambda x: x.clone().cauchy_(),
        "log_normal_": lambda x: x.clone().log_normal_(),
        "bernoulli_": lambda x: x.clone().bernoulli_(x / 40),
        "rrelu": lambda x: lucid.nn.functional.rrelu(-x, training=True),
        "gumbel_softmax": lucid.nn.functional.gumbel_softmax,
    }
    # Of samples that differ the numbers cannot be the same: as in PyTorch.
    refused = {"poisson", "binomial", "multinomial", "multinomial again", "normal", "bernoulli", "bernoulli p"}
    for name, draw in draws.items():
        with pytest.raises(RuntimeError, match="randomness"):
            lucid.vmap(draw)(x)
        rows = lucid.vmap(draw, randomness="different")(x)
        assert len({tuple(r) for r in rows.tolist()}) == 4, name
        if name in refused:
            with pytest.raises(RuntimeError, match="batched tensor input"):
                lucid.vmap(draw, randomness="same")(x)
            continue
        rows = lucid.vmap(draw, randomness="same")(x)
        assert len({tuple(r) for r in rows.tolist()}) == 1, name
    y = x[0].clone()
    with pytest.raises(RuntimeError):
        lucid.vmap(lambda _: y.exponential_(), randomness="different")(x)
