"""The CPU device against PyTorch: products, convolutions, elementwise, reductions, layers, training steps.

    python bench/cpu_vs_torch.py [--threads 1] [--only PATTERN] [--seconds 120] [--least 7] [--json] [--list]

Each row is one piece of work, declared once over the names that both libraries share, and run by both on the same
numbers, which must agree first. Each library has two identical sides; PyTorch's second is the control. The sides take
turns; each turn calls the work once untimed and then as often as fills some hundred microseconds. How to read the
table: `bench/README.md`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import lucid
import numpy as np
import torch
from nets import block, lenet, mlp
from timing import Case, Clock, Turn, Work, calls_of, measure, table

# What a row is: given a library (`lucid` or `torch`), the work to be timed, which gives what it computed.
Maker = Callable[[Any], Work]

# An OpenMP thread keeps a core busy for a while after its work: with more threads than one, let it fall asleep first.
PAUSE = 0.004

rows: dict[str, Maker] = {}


def numbers(*shape: int, seed: int = 0, low: float | None = None) -> np.ndarray:
    """Standard normal float32, or uniform from `low` to 2."""
    draw = np.random.default_rng(seed + math.prod(shape))
    if low is not None:
        return draw.uniform(low, 2, shape).astype(np.float32)
    return draw.standard_normal(shape).astype(np.float32)


def labels(count: int, classes: int, seed: int = 0) -> np.ndarray:
    """Class numbers, int64."""
    return np.random.default_rng(seed).integers(0, classes, count)


def plain(name: str, work: Callable[..., Any], *inputs: np.ndarray, view: Callable[[Any], Any] = lambda x: x) -> None:
    """A row: `work(library, *tensors)`, nothing recorded. `view` makes another layout of the first input."""

    def make(lib: Any) -> Work:
        first, *rest = (lib.tensor(x) for x in inputs)
        first = view(first)
        return lambda: work(lib, first, *rest)

    rows[name] = make


def graded(name: str, work: Callable[..., Any], *inputs: np.ndarray, fixed: tuple[np.ndarray, ...] = ()) -> None:
    """Two rows: the work alone, and the gradients of `inputs` by going backward through it. `fixed` has none."""
    plain(f"{name}, forward", work, *inputs, *fixed)

    def make(lib: Any) -> Work:
        wanted = [lib.tensor(x).requires_grad_() for x in inputs]
        y = work(lib, *wanted, *(lib.tensor(x) for x in fixed))
        g = lib.tensor(numbers(*y.shape, seed=1)) if y.shape else lib.ones(())
        return lambda: lib.autograd.grad(y, wanted, g, retain_graph=True)

    rows[f"{name}, backward"] = make


# ---- the rows --------------------------------------------------------------------------------------------------------


def products() -> None:
    """GEMM: squares, the shapes of LeNet and an MLP, batches, and 16-bit floats."""

    def matmul(lib: Any, a: Any, b: Any) -> Any:
        return lib.matmul(a, b)

    for n in (64, 128, 256, 512, 1024, 2048):
        plain(f"matmul {n}", matmul, numbers(n, n), numbers(n, n, seed=1))
    for m, k, n in ((64, 400, 120), (64, 120, 84), (64, 84, 10), (64, 784, 256), (64, 256, 10)):
        inputs = (numbers(m, k), numbers(n, k), numbers(n))
        plain(f"linear {m}x{k}x{n}", lambda lib, *t: lib.nn.functional.linear(*t), *inputs)
    plain("matmul 64 of 64", matmul, numbers(64, 64, 64), numbers(64, 64, 64, seed=1))
    plain("matmul 8 of 256", matmul, numbers(8, 256, 256), numbers(8, 256, 256, seed=1))
    # Larger float16 products take PyTorch seconds on processors without that type.
    for dtype, sizes in (("bfloat16", (128, 512, 1024)), ("float16", (128, 256))):
        for n in sizes:

            def make(lib: Any, dtype: str = dtype, n: int = n) -> Work:
                a, b = (lib.tensor(numbers(n, n, seed=s)).to(getattr(lib, dtype)) for s in (0, 1))
                return lambda: lib.matmul(a, b)

            rows[f"matmul {n} {dtype}"] = make


def convolutions() -> None:
    """conv2d: forward, and backward to input, weight and bias."""
    # name: input, outputs, window, and the rest of the call
    cases: dict[str, tuple[tuple[int, ...], int, int, dict[str, int]]] = {
        "LeNet 1": ((64, 1, 28, 28), 6, 5, {"padding": 2}),
        "LeNet 2": ((64, 6, 14, 14), 16, 5, {}),
        "16x16x32² 3x3": ((16, 16, 32, 32), 16, 3, {"padding": 1}),
        "8x64x56² 3x3": ((8, 64, 56, 56), 64, 3, {"padding": 1}),
        "8x64x56² depthwise 3x3": ((8, 64, 56, 56), 64, 3, {"padding": 1, "groups": 64}),
        "8x64x56² 1x1": ((8, 64, 56, 56), 128, 1, {}),
        "8x64x56² 3x3 stride 2": ((8, 64, 56, 56), 128, 3, {"padding": 1, "stride": 2}),
        "8x3x112² 7x7 stride 2": ((8, 3, 112, 112), 64, 7, {"padding": 3, "stride": 2}),
    }
    for name, (shape, outputs, window, options) in cases.items():
        inputs = shape[1] // options.get("groups", 1)
        weight = numbers(outputs, inputs, window, window) / math.sqrt(inputs * window * window)

        def work(lib: Any, *tensors: Any, options: dict[str, int] = options) -> Any:
            return lib.nn.functional.conv2d(*tensors, **options)

        graded(f"conv2d {name}", work, numbers(*shape), weight, numbers(outputs))


def pools() -> None:
    """Pooling of images."""
    lenet, wide = numbers(64, 6, 28, 28), numbers(8, 64, 56, 56)
    graded("max_pool2d 2 of 64x6x28²", lambda lib, x: lib.nn.functional.max_pool2d(x, 2), lenet)
    graded("max_pool2d 3 stride 2 of 8x64x56²", lambda lib, x: lib.nn.functional.max_pool2d(x, 3, 2, 1), wide)
    graded("avg_pool2d 2 of 8x64x56²", lambda lib, x: lib.nn.functional.avg_pool2d(x, 2), wide)
    plain("adaptive_avg_pool2d 1 of 8x64x56²", lambda lib, x: lib.nn.functional.adaptive_avg_pool2d(x, 1), wide)


def elementwise() -> None:
    """A million elements, contiguous, transposed and broadcast."""
    n = 1024
    functions: dict[str, Callable[..., Any]] = {
        "exp": lambda lib, x: lib.exp(x),
        "log": lambda lib, x: lib.log(x),
        "tanh": lambda lib, x: lib.tanh(x),
        "sigmoid": lambda lib, x: lib.sigmoid(x),
        "gelu": lambda lib, x: lib.nn.functional.gelu(x),
        "erf": lambda lib, x: lib.erf(x),
        "sin": lambda lib, x: lib.sin(x),
        "relu": lambda lib, x: lib.relu(x),
    }
    x = numbers(n, n, low=0.1)
    for name, function in functions.items():
        plain(f"{name} 1M", function, x)
        plain(f"{name} 1M transposed", function, x, view=lambda t: t.t())
    binary: dict[str, Callable[..., Any]] = {
        "add": lambda lib, a, b: lib.add(a, b),
        "mul": lambda lib, a, b: lib.mul(a, b),
        "pow": lambda lib, a, b: lib.pow(a, b),
    }
    for name, function in binary.items():
        plain(f"{name} 1M", function, x, numbers(n, n, low=0.2))
        plain(f"{name} 1M transposed", function, x, numbers(n, n, low=0.2), view=lambda t: t.t())
        plain(f"{name} 1M + row", function, x, numbers(n, low=0.2))
        plain(f"{name} 1M + column", function, x, numbers(n, 1, low=0.2))
        for width in (64, 256):
            short = numbers(n * n // width, width, low=0.1)
            plain(f"{name} 1M + row of {width}", function, short, numbers(width, low=0.2))
            plain(f"{name} 1M + column, rows of {width}", function, short, numbers(len(short), 1, low=0.2))
        plain(f"{name} 4k", function, numbers(4096, low=0.1), numbers(4096, low=0.2))


def reductions() -> None:
    """Over the first, the middle and the last of three dimensions, and over all."""
    x = numbers(64, 128, 128)
    functions: dict[str, Callable[..., Any]] = {
        "sum": lambda lib, x, dim: x.sum(dim),
        "mean": lambda lib, x, dim: x.mean(dim),
        "amax": lambda lib, x, dim: x.amax(dim),
        "argmax": lambda lib, x, dim: x.argmax(dim),
    }
    for name, function in functions.items():
        for where, dim in (("first", 0), ("middle", 1), ("last", 2)):
            plain(f"{name} over the {where}", lambda lib, x, f=function, dim=dim: f(lib, x, dim), x)
    plain("sum over all", lambda lib, x: x.sum(), x)


def layers() -> None:
    """Softmax, norms, losses, look-ups."""
    x = numbers(512, 1024)
    graded("softmax 512x1024", lambda lib, x: lib.softmax(x, -1), x)
    graded("log_softmax 512x1024", lambda lib, x: lib.log_softmax(x, -1), x)
    plain("softmax 512x1024 over the first", lambda lib, x: lib.softmax(x, 0), x)
    graded(
        "layer_norm 512x1024",
        lambda lib, x, w, b: lib.nn.functional.layer_norm(x, (1024,), w, b),
        x,
        numbers(1024),
        numbers(1024, seed=1),
    )

    def batch_norm(lib: Any, x: Any, w: Any, b: Any) -> Any:
        return lib.nn.functional.batch_norm(x, None, None, w, b, training=True)

    graded("batch_norm 8x64x56²", batch_norm, numbers(8, 64, 56, 56), numbers(64), numbers(64, seed=1))
    graded(
        "cross_entropy 512x1000",
        lambda lib, x, y: lib.nn.functional.cross_entropy(x, y),
        numbers(512, 1000),
        fixed=(labels(512, 1000),),
    )
    graded(
        "embedding 2048 of 10000x256",
        lambda lib, w, i: lib.nn.functional.embedding(i, w),
        numbers(10000, 256),
        fixed=(labels(2048, 10000),),
    )


def movement() -> None:
    """Work that mostly moves elements, and sorting."""
    x = numbers(1024, 1024)
    places = labels(1024 * 256, 1024).reshape(1024, 256)
    plain("gather 1024x256 of 1024²", lambda lib, x, i: lib.gather(x, 1, i), x, places)
    plain("cat of two 1024x512, dim 0", lambda lib, a, b: lib.cat([a, b], 0), numbers(1024, 512), numbers(1024, 512))
    plain("cat of two 1024x512, dim 1", lambda lib, a, b: lib.cat([a, b], 1), numbers(1024, 512), numbers(1024, 512))
    plain("copy of 1024² transposed", lambda lib, x: x.t().contiguous(), x)
    plain("copy of 64x128x128 permuted", lambda lib, x: x.permute(0, 2, 1).contiguous(), numbers(64, 128, 128))
    # No two numbers alike: which of them comes first is PyTorch's secret.
    distinct = np.random.default_rng(0).permutation(1 << 20).astype(np.float32)
    plain("sort 1024 rows of 1024", lambda lib, x: lib.sort(x, -1), distinct.reshape(1024, 1024))
    plain("sort 1M", lambda lib, x: lib.sort(x), distinct)
    plain("topk 10 of 1024 rows of 1024", lambda lib, x: lib.topk(x, 10), distinct.reshape(1024, 1024))
    plain("cumsum over the last of 1024²", lambda lib, x: lib.cumsum(x, 1), x)
    plain("cumsum over the first of 1024²", lambda lib, x: lib.cumsum(x, 0), x)


def steps() -> None:
    """Whole training steps: zero_grad, forward, loss, backward, optimizer."""

    def step(name: str, model: Callable[[Any], Any], x: np.ndarray, y: np.ndarray | None, optimizer: Any) -> None:
        def make(lib: Any) -> Work:
            torch.manual_seed(0)
            given = {key: value.numpy() for key, value in model(torch).state_dict().items()}
            net = model(lib)
            net.load_state_dict({key: lib.tensor(value) for key, value in given.items()})
            chosen = optimizer(lib, net.parameters())
            images, wanted = lib.tensor(x), None if y is None else lib.tensor(y)

            def work() -> Any:
                chosen.zero_grad()
                out = net(images)
                loss = (out * out).mean() if wanted is None else lib.nn.functional.cross_entropy(out, wanted)
                loss.backward()
                chosen.step()
                return loss.detach()

            return work

        rows[name] = make

    def adam(lib: Any, params: Any) -> Any:
        return lib.optim.Adam(params, lr=1e-3)

    def fused(lib: Any, params: Any) -> Any:
        return lib.optim.Adam(params, lr=1e-3, **({"fused": True} if lib is torch else {}))

    def sgd(lib: Any, params: Any) -> Any:
        return lib.optim.SGD(params, lr=1e-2, momentum=0.9)

    images, flat = numbers(64, 1, 28, 28), numbers(64, 784)
    step("step of LeNet, Adam", lenet, images, labels(64, 10), adam)
    step("step of LeNet, Adam fused there", lenet, images, labels(64, 10), fused)
    step("step of MLP, Adam", mlp, flat, labels(64, 10), adam)
    step("step of MLP, SGD", mlp, flat, labels(64, 10), sgd)
    step("step of a transformer block, Adam", block, numbers(16, 64, 128), None, adam)


for family in (products, convolutions, pools, elementwise, reductions, layers, movement, steps):
    family()

# ---- measuring -------------------------------------------------------------------------------------------------------


def arrays(result: Any) -> Iterator[np.ndarray]:
    """The tensors of a result, as float64."""
    if isinstance(result, tuple | list):
        for part in result:
            yield from arrays(part)
    else:
        yield np.asarray(result.to(torch.float64 if isinstance(result, torch.Tensor) else lucid.float64).numpy())


def check(name: str, ours: Work, theirs: Work) -> None:
    """Both must compute the same, before either is timed."""
    # 16-bit floats round sums of n products; float32 kernels differ in the order of their sums.
    rtol = 0.02 if "16" in name.split()[-1] and "float" in name else 1e-3
    for got, wanted in zip(arrays(ours()), arrays(theirs()), strict=True):
        scale = max(float(np.abs(wanted).max(initial=0)), 1e-6)
        if got.shape != wanted.shape or not np.allclose(got, wanted, rtol=rtol, atol=rtol * scale):
            raise SystemExit(f"{name}: the sides disagree")


def compare(name: str, pause: float, clock: Clock, seconds: float, least: int) -> dict[str, Any]:
    """One row of the result."""
    make = rows[name]
    check(name, make(lucid), make(torch))
    # Ours comes twice, too: a library's sides use the same memory for what they return, warmer the more there are.
    sides = {"ours": make(lucid), "again": make(lucid), "peer": make(torch), "control": make(torch)}
    calls = calls_of(sides["peer"], clock)
    case = Case(name, {side: Turn(work, calls, pause, clock) for side, work in sides.items()})
    rounds = measure([case], seconds, least=least, most=200)
    ours, peer, control = (case.variants[side] for side in ("ours", "peer", "control"))
    return {
        "name": name,
        "ours_us": ours.median,
        "peer_us": peer.median,
        "ratio": ours.median / peer.median,
        "control": control.median / peer.median,
        "ours_iqr_us": ours.quartiles,
        "peer_iqr_us": peer.quartiles,
        "rounds": rounds,
    }


def cpu_name() -> str:
    """The processor's name, where the system tells."""
    try:
        with open("/proc/cpuinfo") as file:
            return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "")
    except OSError:
        return platform.processor()


def show(result: dict[str, Any]) -> str:
    """The result as a table to read."""

    def time_of(us: float, spread: tuple[float, float]) -> list[str]:
        digits = 1 if us < 100 else 0
        return [f"{us:.{digits}f}", f"({spread[0]:.{digits}f}-{spread[1]:.{digits}f})"]

    lines = [
        [
            r["name"],
            *time_of(r["ours_us"], r["ours_iqr_us"]),
            *time_of(r["peer_us"], r["peer_iqr_us"]),
            f"{r['ratio']:.2f}",
            f"{r['control']:.2f}",
        ]
        for r in result["rows"]
    ]
    head = ["", "ours µs", "(IQR)", "PyTorch µs", "(IQR)", "ours/PyTorch", "control"]
    ratios = [r["ratio"] for r in result["rows"]]
    below = sum(ratio <= 1 for ratio in ratios)
    middle = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return "\n".join(
        [
            f"CPU device against PyTorch {result['versions']['torch']}, {result['cpu']}",
            f"threads: {result['threads']}, {result['clock']} time",
            "",
            table(head, lines),
            "",
            f"{below} of {len(ratios)} rows at or below 1.00; geometric mean {middle:.2f}",
        ]
    )


def main() -> None:
    """Reads the command line, measures, prints."""
    parser = argparse.ArgumentParser(description="The CPU device against PyTorch.")
    parser.add_argument("--threads", type=int, default=1, help="threads of both libraries")
    parser.add_argument("--only", default="", metavar="PATTERN", help="rows whose name this regular expression finds")
    parser.add_argument("--seconds", type=float, default=120, help="how long to measure all of them, about")
    parser.add_argument("--least", type=int, default=7, help="rounds that each row gets at least")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--list", action="store_true", help="print the names of the rows and stop")
    parser.add_argument(
        "--clock", choices=("wall", "cpu"), default="wall", help="cpu: for one thread on a busy machine"
    )
    args = parser.parse_args()
    if args.clock == "cpu" and args.threads > 1:
        parser.error("--clock cpu adds up the threads' times: it is for one thread")
    chosen = [name for name in rows if re.search(args.only, name)]
    if not chosen:
        parser.error(f"no row matches {args.only!r}")
    if args.list:
        print("\n".join(chosen))
        return
    torch.set_num_threads(args.threads)
    lucid.set_num_threads(args.threads)
    # The time that the process had a core: unlike the wall's, hardly longer where other programs share the machine.
    clock = time.process_time_ns if args.clock == "cpu" else time.perf_counter_ns
    pause = PAUSE if args.threads > 1 else 0.0
    result = {
        "benchmark": "cpu_vs_torch",
        "threads": args.threads,
        "clock": args.clock,
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "versions": {"lucid": lucid.__version__, "torch": torch.__version__},
        "rows": [],
    }
    for name in chosen:
        result["rows"].append(compare(name, pause, clock, args.seconds / len(chosen), args.least))
        last = result["rows"][-1]
        print(f"{last['name']}: {last['ours_us']:.1f} / {last['peer_us']:.1f}", file=sys.stderr, flush=True)
    print(show(result))
    if args.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
