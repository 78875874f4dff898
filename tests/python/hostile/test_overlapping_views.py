"""Views whose elements share memory: reductions on the GPU device against the CPU, writes, and `vmap` against a loop.

`LUCID_TEST_MAX_EXAMPLES` sets the number of random views; without it they are few and the same in every run.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import lucid
import pytest

from tests.python.tolerances import within

DEVICES = ["cpu", "gpu"]
EXAMPLES = int(os.environ.get("LUCID_TEST_MAX_EXAMPLES", "0"))

#: Ops that look at a whole axis, each of a tensor and one of its axes.
REDUCTIONS: dict[str, Callable[[Any, int], Any]] = {
    "sum": lambda x, d: x.sum(d),
    "sum of all": lambda x, d: x.sum(),
    "sum of all but one": lambda x, d: x.sum([i for i in range(x.ndim) if i != d % x.ndim]) if x.ndim > 1 else x.sum(),
    "mean": lambda x, d: x.mean(d),
    "prod": lambda x, d: (x % 3 - 1).prod(d),
    "amax": lambda x, d: x.amax(d),
    "amin": lambda x, d: x.amin(d),
    "max": lambda x, d: x.max(d)[0],
    "argmax": lambda x, d: x.argmax(d),
    "argmin": lambda x, d: x.argmin(d),
    "argmax of all": lambda x, d: x.argmax(),
    "all": lambda x, d: (x > 3).all(d),
    "any": lambda x, d: (x > 30).any(d),
    "bool": lambda x, d: x.bool().sum(d),
    "count_nonzero": lambda x, d: x.count_nonzero(d),
    "var": lambda x, d: x.var(d, correction=0),
    "std of all": lambda x, d: x.std(correction=0),
    "norm": lambda x, d: x.norm(dim=d),
    "logsumexp": lambda x, d: x.logsumexp(d),
    "softmax": lambda x, d: x.softmax(d),
    "cumsum": lambda x, d: x.cumsum(d),
    "cummax": lambda x, d: x.cummax(d)[0],
    "sort": lambda x, d: x.sort(d)[0],
    "median": lambda x, d: x.median(d)[0],
    "topk": lambda x, d: x.topk(1, d)[0],
    "matmul": lambda x, d: x.transpose(d, -1) @ lucid.ones(x.shape[d], 2, device=x.device),
    "matmul with itself": lambda x, d: x.reshape(-1, x.shape[-1]) @ x.reshape(-1, x.shape[-1]).t(),
    "flatten": lambda x, d: x.reshape(-1),
    "clone": lambda x, d: x.clone(),
    "plus itself": lambda x, d: x + x.flip(d),
    "cat": lambda x, d: lucid.cat([x, x * 2], d),
    "gather": lambda x, d: x.gather(d, lucid.zeros(*x.shape, dtype=lucid.int64, device=x.device)),
    "where": lambda x, d: lucid.where(x > 20, x, -x),
}


def layout_of(draw: random.Random, numel: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Sizes, strides and an offset that stay inside of `numel` elements; more often than not elements overlap."""
    while True:
        ndim = draw.randint(1, 4)
        size = tuple(draw.choice([1, 2, 3, 4, 5]) for _ in range(ndim))
        stride = tuple(draw.choice([0, 1, 1, 2, 3, 4, 5, 6, 8, 12]) for _ in range(ndim))
        span = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
        if span <= numel:
            return size, stride, draw.randint(0, numel - span)


def chain(draw: random.Random, shape: tuple[int, ...]) -> list[tuple[str, tuple[Any, ...]]]:
    """A view method with arguments after another, of a tensor of this shape."""
    numel, steps = 1, []
    for n in shape:
        numel *= n
    if draw.random() < 0.6:
        steps.append(("as_strided", layout_of(draw, numel)))
        ndim = len(steps[0][1][0])
    else:
        axis = draw.randrange(len(shape))
        size = draw.randint(1, shape[axis])
        steps.append(("unfold", (axis, size, draw.randint(1, 3))))
        ndim = len(shape) + 1
    for _ in range(draw.randint(0, 3)):
        kind = draw.choice(["permute", "permute", "flip", "step", "unsqueeze", "first"])
        if kind == "permute":
            steps.append(("permute", (tuple(draw.sample(range(ndim), ndim)),)))
        elif kind == "step":
            steps.append(("step", (draw.randrange(ndim), draw.randint(1, 2))))
        elif kind == "unsqueeze" and ndim < 5:
            steps.append(("unsqueeze", (draw.randint(0, ndim),)))
            ndim += 1
        elif kind == "first" and ndim > 1:
            steps.append(("select", (draw.randrange(ndim), 0)))
            ndim -= 1
    return steps


def seen_through(x: Any, steps: list[tuple[str, tuple[Any, ...]]]) -> Any:
    for name, args in steps:
        every = (slice(None),) * args[0] if name == "step" else ()
        x = x[(*every, slice(None, None, args[1]))] if name == "step" else getattr(x, name)(*args)
    return x


def numbers(shape: tuple[int, ...], device: str) -> Any:
    numel = 1
    for n in shape:
        numel *= n
    return (lucid.arange(float(numel)) * 7 % 53).reshape(shape).to(device)


def assert_same(got: Any, want: Any, *about: Any) -> None:
    assert got.shape == want.shape and got.dtype == want.dtype, about
    lucid.testing.assert_close(got.cpu(), want, **within("deep program"), msg=str(about))


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_are_those_of_the_cpu(name: str) -> None:
    reduce = REDUCTIONS[name]
    for seed in range(EXAMPLES or 40):
        draw = random.Random(seed)
        shape = draw.choice([(60,), (5, 12), (3, 4, 5)])
        steps = chain(draw, shape)
        # A view of a view's result, and of one in another order of dimensions.
        ours, want = (seen_through(numbers(shape, d), steps) for d in ("gpu", "cpu"))
        axis = draw.randrange(want.ndim) if want.ndim else 0
        if want.ndim == 0:
            continue
        assert_same(reduce(ours, axis), reduce(want, axis), seed, shape, steps, axis)


@pytest.mark.parametrize("name", ["sum", "amax", "argmax", "cumsum", "softmax", "sort"])
def test_reductions_of_views_of_lazy_results(name: str) -> None:
    reduce = REDUCTIONS[name]
    for seed in range(EXAMPLES or 40):
        draw = random.Random(1000 + seed)
        steps = chain(draw, (5, 12))
        ours, want = (seen_through((numbers((12, 5), d) * 2).t() + 1, steps) for d in ("gpu", "cpu"))
        if want.ndim:
            axis = draw.randrange(want.ndim)
            assert_same(reduce(ours, axis), reduce(want, axis), seed, steps, axis)


def test_windows_in_another_order() -> None:
    x = lucid.arange(25.0).reshape(5, 5)
    want = x.unfold(1, 3, 2).permute(0, 2, 1).sum(-1)
    assert_same(x.to("gpu").unfold(1, 3, 2).permute(0, 2, 1).sum(-1), want)


def test_reductions_write_no_memory_but_their_own() -> None:
    x = lucid.arange(400.0).to("gpu")
    want = x.cpu().as_strided((3, 4, 4, 1), (3, 6, 1, 6), 0).permute(3, 1, 2, 0).amax(-1)
    for _ in range(2000 if EXAMPLES else 100):
        got = x.as_strided((3, 4, 4, 1), (3, 6, 1, 6), 0).permute(3, 1, 2, 0).amax(-1)
        got.eval()
    assert_same(got, want)


def test_expanded_giants_take_no_memory() -> None:
    x = lucid.ones(4, device="gpu")
    giant = x.as_strided((1 << 20, 1 << 10, 4), (0, 0, 1))
    assert giant[5, 7].tolist() == [1.0] * 4
    assert giant[::65536, 0].sum().item() == 64


@pytest.mark.parametrize("dtype", ["int64", "int8", "bool", "float16", "complex64"])
def test_reductions_of_other_dtypes(dtype: str) -> None:
    for seed in range(EXAMPLES or 60):
        draw = random.Random(2000 + seed)
        steps = chain(draw, (5, 12))
        x = (numbers((5, 12), "cpu") % 5).to(getattr(lucid, dtype))
        ours, want = seen_through(x.to("gpu"), steps), seen_through(x, steps)
        if want.ndim:
            axis = draw.randrange(want.ndim)
            assert_same(ours.sum(axis), want.sum(axis), seed, steps, axis)


# ---- writes through them ---------------------------------------------------------------------------------------------

WRITES: dict[str, Callable[[Any], Any]] = {
    "zero_": lambda v: v.zero_(),
    "fill_": lambda v: v.fill_(99.0),
    "copy_ of one": lambda v: v.copy_(lucid.tensor(5.0, device=v.device)),
    "masked_fill_": lambda v: v.masked_fill_(v > 20, -1.0),
    "clamp_": lambda v: v.clamp_(10.0, 20.0),
    "x[0] = 8": lambda v: v.__setitem__(0, 8.0),
}


def outcome(call: Callable[[], Any]) -> Any:
    try:
        call()
    except RuntimeError:
        return "refused"
    return "written"


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", WRITES)
def test_writes_through_overlapping_views_are_those_of_the_cpu(name: str) -> None:
    for seed in range(EXAMPLES or 60):
        draw = random.Random(3000 + seed)
        steps = chain(draw, (5, 12))
        bases = [numbers((5, 12), d) for d in ("gpu", "cpu")]
        views = [seen_through(x.t().contiguous().t() if seed % 2 else x, steps) for x in bases]
        if views[1].ndim == 0 or any(step[0] == "flip" for step in steps):
            continue
        ours, want = (outcome(lambda v=v: WRITES[name](v)) for v in views)
        assert ours == want, (seed, steps)
        # What else shows the memory sees the write.
        assert_same(bases[0], bases[1], seed, steps)
        assert_same(views[0], views[1], seed, steps)


@pytest.mark.parametrize("device", DEVICES)
def test_a_part_of_windows_over_the_parts_of_complex_numbers(device: str) -> None:
    x = lucid.complex(lucid.arange(6.0), lucid.arange(6.0, 12.0)).to(device)
    windows = lucid.view_as_real(x).as_strided((5, 4), (2, 1))
    windows[1].mul_(10)
    windows[2:4, 1].add_(100)
    want = [complex(i, i + 6) for i in range(6)]
    want[1:3] = [10 * v for v in want[1:3]]
    want[2:4] = [v + 100j for v in want[2:4]]
    assert x.tolist() == want


@pytest.mark.parametrize("device", DEVICES)
def test_a_part_of_windows_over_bytes(device: str) -> None:
    x = lucid.arange(8, dtype=lucid.int32).to(device)
    halves = x.view(lucid.int16)
    windows = halves.unfold(0, 4, 2)
    windows[2].fill_(1)
    windows[:, 0][6].fill_(7)
    want = lucid.arange(8, dtype=lucid.int32)
    want.view(lucid.int16)[4:8] = 1
    want.view(lucid.int16)[12] = 7
    assert x.tolist() == want.tolist()


# ---- vmap against a loop ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", [n for n in REDUCTIONS if n not in ("sum of all but one", "matmul with itself")])
def test_vmap_over_views_is_a_loop(name: str, device: str) -> None:
    reduce = REDUCTIONS[name]
    for seed in range(EXAMPLES or 12):
        draw = random.Random(4000 + seed)
        in_dim = draw.randrange(3)
        whole = numbers((3, 5, 6), device).movedim(0, in_dim)
        steps = [step for step in chain(draw, (5, 6)) if step[0] != "as_strided"]
        if not steps:
            continue
        try:
            want = seen_through(whole.movedim(in_dim, 0)[0], steps)
        except (RuntimeError, IndexError):
            continue
        if want.ndim == 0:
            continue
        axis = draw.randrange(want.ndim)

        def f(x: Any, steps: Any = steps, axis: int = axis) -> Any:
            return reduce(seen_through(x, steps), axis)

        loop = lucid.stack([f(x) for x in whole.movedim(in_dim, 0).cpu()])
        assert_same(lucid.func.vmap(f, in_dims=in_dim)(whole), loop, seed, steps, axis)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["sum", "amax", "cumsum", "softmax", "argmin"])
def test_vmap_over_the_storage_is_a_loop(name: str, device: str) -> None:
    reduce = REDUCTIONS[name]
    for seed in range(EXAMPLES or 30):
        draw = random.Random(5000 + seed)
        size, stride, offset = layout_of(draw, 30)
        axis = draw.randrange(len(size))
        whole = numbers((3, 5, 6), device)

        def f(x: Any, size: Any = size, stride: Any = stride, start: int = offset, axis: int = axis) -> Any:
            return reduce(x.as_strided(size, stride, x.storage_offset() + start), axis)

        loop = lucid.stack([f(x.clone()) for x in whole.cpu()])
        assert_same(lucid.func.vmap(f)(whole), loop, seed, size, stride, offset, axis)
