"""Gradients of in-place writes through views of bases in every layout, against PyTorch, on both devices.

`LUCID_TEST_MAX_EXAMPLES` sets the number of random programs; without it they are few and the same in every run.
"""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Callable
from typing import Any

import lucid
import pytest
import torch

DEVICES = ["cpu", "gpu"]
EXAMPLES = int(os.environ.get("LUCID_TEST_MAX_EXAMPLES", "0"))

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


# ---- what a program is made of ---------------------------------------------------------------------------------------


def restrided(y: Any, name: str, *args: Any) -> Any:
    getattr(y, name)(*args)
    return y


def channels_last(m: Any, x: Any) -> Any:
    return x.reshape(2, 3, 2, 2).to(memory_format=m.channels_last) * 1.0


def convolved(m: Any, x: Any) -> Any:
    image = x.reshape(2, 3, 2, 2).to(memory_format=m.channels_last)
    weight = m.ones(3, 3, 1, 1, device=x.device).to(memory_format=m.channels_last)
    return m.nn.functional.conv2d(image, weight)


#: Results of 24 elements or fewer, made of a leaf of shape (4, 6).
BASES: dict[str, Callable[[Any, Any], Any]] = {
    "row-major": lambda m, x: x * 1.0,
    "transposed": lambda m, x: x.t() * 1.0,
    "square of a transposed one": lambda m, x: x[:, :4].t() * 1.0,
    "3-d permuted": lambda m, x: x.reshape(2, 3, 4).permute(2, 0, 1) * 1.0,
    "channels-last": channels_last,
    "channels-last convolution": convolved,
    "after t_": lambda m, x: restrided(x * 1.0, "t_"),
    "after transpose_": lambda m, x: restrided(x.reshape(2, 3, 4) * 1.0, "transpose_", 0, 2),
    "after as_strided_": lambda m, x: restrided(x * 1.0, "as_strided_", (3, 4), (1, 6), 2),
    "after as_strided_ with gaps": lambda m, x: restrided(x * 1.0, "as_strided_", (2, 3), (12, 2)),
    "after unsqueeze_ and t_": lambda m, x: restrided(restrided(x * 1.0, "t_"), "unsqueeze_", 0),
    "after squeeze_": lambda m, x: restrided(x.t().reshape(1, 6, 4) * 1.0, "squeeze_"),
    "sliced with a step": lambda m, x: (x * 1.0)[:, ::2],
    "sliced of a transposed one": lambda m, x: (x.t() * 1.0)[1::2],
    "made of a slice": lambda m, x: x[:, ::2] * 1.0,
    "expanded": lambda m, x: (x[:, :1] * 1.0).expand(4, 3),
    "made of an expanded one": lambda m, x: x[:, :1].expand(4, 3) * 1.0,
    "second half of an unsafe split": lambda m, x: (x * 1.0).unsafe_chunk(2)[1],
    "after t_ of a half": lambda m, x: restrided((x * 1.0).unsafe_chunk(2)[1], "t_"),
}


def strided(size: tuple[int, ...], stride: tuple[int, ...], start: int) -> Callable[[Any], Any]:
    """A strided view of a tensor that has all of its elements. Where the view has others, PyTorch's gradient of them is
    uninitialised memory, or goes past the tensor."""
    last = start + sum((n - 1) * s for n, s in zip(size, stride, strict=True))

    def view(y: Any) -> Any:
        span = 1 + sum((n - 1) * s for n, s in zip(y.shape, y.stride(), strict=True))
        return y.as_strided(size, stride, y.storage_offset() + start) if span == y.numel() > last else y

    return view


VIEWS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda y: y,
    "diagonal": lambda y: y.diagonal(),
    "diagonal above": lambda y: y.diagonal(1, -2, -1),
    "diagonal of exchanged dimensions": lambda y: y.diagonal(-1, 1, 0),
    "select": lambda y: y.select(0, 1),
    "select the last": lambda y: y.select(-1, -1),
    "slice": lambda y: y[1:],
    "slice with a step": lambda y: y[..., ::2],
    "narrow": lambda y: y.narrow(-1, 1, 1),
    "unfold": lambda y: y.unfold(0, 2, 2),
    "unfold the last": lambda y: y.unfold(-1, 2, 2),
    "as_strided": strided((2, 2), (3, 1), 0),
    "as_strided from further on": strided((2, 2), (1, 3), 1),
    "transpose": lambda y: y.transpose(0, -1),
    "permute": lambda y: y.permute(*range(1, y.ndim), 0),
    "movedim": lambda y: y.movedim(-1, 0),
    "unsqueeze": lambda y: y.unsqueeze(1),
    "expand by nothing": lambda y: y.expand(1, *y.shape),
    "view": lambda y: y.view(*y.shape[:1], -1) if y.is_contiguous() else y,
    "diagonal of a slice": lambda y: y[1:].diagonal(0, -2, -1),
    "slice of a transpose": lambda y: y.transpose(0, -1)[1:],
    "select of unfolded": lambda y: y.unfold(0, 2, 1).select(-1, 1),
}


def even(m: Any, v: Any) -> Any:
    return m.arange(v.numel(), device=v.device).reshape(v.shape) % 2 == 0


def numbers(m: Any, v: Any) -> Any:
    return m.arange(1.0, v.numel() + 1, device=v.device).reshape(v.shape)


#: Each takes the module, the view and a leaf of one element.
WRITES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "zero_": lambda m, v, c: v.zero_(),
    "fill_": lambda m, v, c: v.fill_(c.detach().item()),
    "fill_ of a tensor": lambda m, v, c: v.fill_(c),
    "fill_diagonal_": lambda m, v, c: v.fill_diagonal_(5.0),
    # Of tensors that are not row-major PyTorch's wraps go to places outside of the view.
    "fill_diagonal_ wrapped": lambda m, v, c: v.fill_diagonal_(5.0, wrap=v.is_contiguous()),
    "mul_": lambda m, v, c: v.mul_(2.0),
    "mul_ of a tensor": lambda m, v, c: v.mul_(c * numbers(m, v)),
    "add_ of a tensor": lambda m, v, c: v.add_(c * numbers(m, v)),
    "copy_": lambda m, v, c: v.copy_(c * numbers(m, v)),
    "copy_ of one": lambda m, v, c: v.copy_(c),
    "masked_fill_": lambda m, v, c: v.masked_fill_(even(m, v), 3.0),
    "masked_fill_ of a tensor": lambda m, v, c: v.masked_fill_(even(m, v), c),
    "masked_scatter_": lambda m, v, c: v.masked_scatter_(even(m, v), c * numbers(m, v)),
    "index_put_": lambda m, v, c: v.index_put_((m.tensor([0], device=v.device),), c),
    "index_put_ accumulated": lambda m, v, c: v.index_put_((m.tensor([0, 0], device=v.device),), c, accumulate=True),
    "x[0] = c": lambda m, v, c: v.__setitem__(0, c),
    "x[mask] = c": lambda m, v, c: v.__setitem__(even(m, v), c),
    "index_fill_": lambda m, v, c: v.index_fill_(0, m.tensor([0], device=v.device), 3.0),
    "exp_": lambda m, v, c: v.mul_(0.1).exp_(),
    "clamp_": lambda m, v, c: v.clamp_(3.0, 9.0),
    "tril_": lambda m, v, c: v.tril_(),
    "cumsum_": lambda m, v, c: v.cumsum_(0),
    "diagonal written twice": lambda m, v, c: (v.select(0, 0).mul_(c), v.select(0, 0).add_(v.select(0, 0))),
    "copied to itself": lambda m, v, c: v.copy_(v.clone().flip(0) * c),
}


def weighed(m: Any, y: Any) -> Any:
    """A weight for each element, so that no two have the same gradient."""
    return (y * (numbers(m, y) % 11 + 1)).sum()


def joined(m: Any, y: Any) -> Any:
    """The gradient that comes back is a part of a larger tensor's, and does not begin with its storage."""
    return weighed(m, m.cat([m.ones_like(y), y]))


def transposed(m: Any, y: Any) -> Any:
    """The gradient that comes back is not row-major."""
    return weighed(m, y.transpose(0, -1).contiguous()) if y.ndim else weighed(m, y)


def summed(m: Any, y: Any) -> Any:
    """The gradient that comes back is expanded."""
    return y.sum() * 3.0


ENDS = [weighed, joined, transposed, summed]


def leaves(m: Any, device: str) -> tuple[Any, Any]:
    x = m.arange(1.0, 25.0, device=device).reshape(4, 6).requires_grad_()
    return x, m.tensor(2.0, device=device).requires_grad_()


def seen(t: Any) -> Any:
    return None if t is None else t.detach().tolist()


def outcome(call: Callable[[], Any]) -> Any:
    """What a program gives, or that it was refused."""
    try:
        return call()
    except (RuntimeError, IndexError) as e:
        return "written over" if "modified by an inplace operation" in str(e) else "refused"


def agree(got: Any, want: Any) -> bool:
    """Is it PyTorch's result? Where PyTorch's `exp_` keeps what is written over later, Lucid's keeps the numbers."""
    return close(got, want) or (want == "written over" and got != "refused")


def written(m: Any, device: str, base: str, view: str, write: str, end: Callable[[Any, Any], Any]) -> Any:
    x, c = leaves(m, device)
    y = BASES[base](m, x)
    WRITES[write](m, VIEWS[view](y), c)
    end(m, y).backward()
    return seen(y), seen(x.grad), seen(c.grad)


@functools.cache
def wanted(base: str, view: str, write: str, end: Callable[[Any, Any], Any]) -> Any:
    return outcome(lambda: written(torch, "cpu", base, view, write, end))


def close(a: Any, b: Any) -> bool:
    """Do nested lists of numbers agree?"""
    if isinstance(a, (list, tuple)):
        return isinstance(b, (list, tuple)) and len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or abs(a - b) <= 1e-4 * max(1.0, abs(a), abs(b)) or (a != a and b != b)
    return bool(a == b)


# ---- the sweep -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("base", BASES)
def test_writes_through_every_view_of_every_base(base: str, device: str) -> None:
    wrong = []
    first = list(BASES).index(base)
    for i, view in enumerate(VIEWS):
        for j, write in enumerate(WRITES):
            # The quick form takes one program of seven, other ones for each base, which ends in one way.
            if not EXAMPLES and (i * len(WRITES) + j + first) % 7 != 0:
                continue
            for end in ENDS if EXAMPLES else [ENDS[(i + j) % len(ENDS)]]:
                want = wanted(base, view, write, end)
                got = outcome(lambda view=view, write=write, end=end: written(lucid, device, base, view, write, end))
                if not agree(got, want):
                    wrong.append((view, write, end.__name__, got, want))
    assert not wrong, (len(wrong), wrong[:3])


def program(draw: random.Random) -> list[tuple[int, str | None, str | None]]:
    """Steps, each of which makes a view of the tensor of a number, or writes through it."""
    steps: list[tuple[int, str | None, str | None]] = []
    made = 1
    for _ in range(draw.randint(2, 7)):
        at = draw.randrange(made)
        if draw.random() < 0.55:
            steps.append((at, draw.choice([v for v in VIEWS if v != "itself"]), None))
            made += 1
        else:
            steps.append((at, None, draw.choice(list(WRITES))))
    return steps


def run_program(m: Any, device: str, base: str, steps: Any, end: Callable[[Any, Any], Any]) -> Any:
    x, c = leaves(m, device)
    made = [BASES[base](m, x)]
    for at, view, write in steps:
        if view is not None:
            made.append(VIEWS[view](made[at]))
        else:
            WRITES[write](m, made[at], c)
    sum(end(m, y) for y in made).backward()
    return [seen(y) for y in made], seen(x.grad), seen(c.grad)


@pytest.mark.parametrize("device", DEVICES)
def test_random_programs_of_views_and_writes(device: str) -> None:
    count = EXAMPLES or 300
    for seed in range(count):
        draw = random.Random(seed)
        base, end, steps = draw.choice(list(BASES)), draw.choice(ENDS), program(draw)
        want = outcome(lambda base=base, steps=steps, end=end: run_program(torch, "cpu", base, steps, end))
        got = outcome(lambda base=base, steps=steps, end=end: run_program(lucid, device, base, steps, end))
        assert agree(got, want), (seed, base, steps, end.__name__, got, want)


# ---- other ways to a gradient ----------------------------------------------------------------------------------------

FEW_VIEWS = ["diagonal", "slice with a step", "as_strided", "unfold", "transpose"]
FEW_WRITES = ["mul_ of a tensor", "copy_", "zero_", "masked_fill_ of a tensor"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("base", BASES)
def test_second_gradients(base: str, device: str) -> None:
    def run(m: Any, d: str, view: str, write: str) -> Any:
        x, c = leaves(m, d)
        y = BASES[base](m, x * x)
        WRITES[write](m, VIEWS[view](y), c * c)
        gx, gc = m.autograd.grad(weighed(m, y * y), (x, c), create_graph=True, allow_unused=True)
        (weighed(m, gx) + (0 if gc is None else gc * gc)).backward()
        return seen(gx), seen(x.grad), seen(c.grad)

    for view in FEW_VIEWS:
        for write in FEW_WRITES:
            want = outcome(lambda view=view, write=write: run(torch, "cpu", view, write))
            got = outcome(lambda view=view, write=write: run(lucid, device, view, write))
            assert close(got, want), (view, write, got, want)


@pytest.mark.parametrize("device", DEVICES)
# Writes to expanded tensors that carry a tangent are refused.
@pytest.mark.parametrize("base", [base for base in BASES if base != "expanded"])
def test_forward_mode(base: str, device: str) -> None:
    def run(m: Any, d: str, view: str, write: str) -> Any:
        def f(x: Any, c: Any) -> Any:
            y = BASES[base](m, x)
            WRITES[write](m, VIEWS[view](y), c)
            return y * 1

        x, c = (t.detach() for t in leaves(m, d))
        _, tangent = m.func.jvp(f, (x, c), (numbers(m, x) % 7, m.tensor(3.0, device=d)))
        return seen(tangent)

    for view in FEW_VIEWS:
        for write in FEW_WRITES:
            want = outcome(lambda view=view, write=write: run(torch, "cpu", view, write))
            got = outcome(lambda view=view, write=write: run(lucid, device, view, write))
            assert close(got, want), (view, write, got, want)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("in_dim", [0, 1])
# Under `vmap` the parts of an unsafe split are views, which are not written in place.
@pytest.mark.parametrize("base", [base for base in BASES if "half" not in base])
def test_gradients_of_samples_are_those_of_a_loop(base: str, in_dim: int, device: str) -> None:
    m = lucid
    x = m.arange(1.0, 73.0, device=device).reshape(3, 4, 6)
    c = m.tensor([2.0, 3.0, 4.0], device=device)

    for view in FEW_VIEWS:
        for write in FEW_WRITES:

            def f(x: Any, c: Any, view: str = view, write: str = write) -> Any:
                y = BASES[base](m, x)
                WRITES[write](m, VIEWS[view](y), c)
                return weighed(m, y)

            of_one = m.func.grad(f, argnums=(0, 1))
            one = outcome(lambda of_one=of_one: [of_one(x[i], c[i]) for i in range(3)])
            if one == "refused":
                continue
            want = [m.stack(list(parts)).tolist() for parts in zip(*one, strict=True)]
            got = [t.tolist() for t in m.func.vmap(of_one, in_dims=(in_dim, 0))(x.movedim(0, in_dim), c)]
            assert close(got, want), (view, write, got, want)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("base", ["transposed", "channels-last", "after as_strided_ with gaps", "row-major"])
def test_several_gradients_at_once_are_those_of_a_loop(base: str, device: str) -> None:
    for view in FEW_VIEWS:
        for write in FEW_WRITES:
            x, c = leaves(lucid, device)
            y = BASES[base](lucid, x)
            WRITES[write](lucid, VIEWS[view](y), c)
            g = lucid.arange(1.0, 3 * y.numel() + 1, device=device).reshape(3, *y.shape)

            def grads(weight: Any, batched: bool, y: Any = y, x: Any = x) -> Any:
                (got,) = lucid.autograd.grad(y, x, weight, retain_graph=True, is_grads_batched=batched)
                return got

            want = [grads(g[i], False).tolist() for i in range(3)]
            assert close(grads(g, True).tolist(), want), (view, write)


# ---- programs that were wrong ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_the_diagonal_of_a_product_of_a_transposed_tensor(device: str) -> None:
    x = lucid.arange(15.0, device=device).reshape(3, 5).requires_grad_()
    y = x.t() * 1.0
    y.fill_diagonal_(0)
    y.sum().backward()
    assert x.grad.tolist() == [[0, 1, 1, 1, 1], [1, 0, 1, 1, 1], [1, 1, 0, 1, 1]]


@pytest.mark.parametrize("device", DEVICES)
def test_windows_of_a_base_that_does_not_begin_with_its_storage(device: str) -> None:
    for _ in range(200 if EXAMPLES else 20):
        x = lucid.ones(4, 4, device=device).requires_grad_()
        y = x * 1
        y.as_strided_((2, 2), (1, 4), 1)
        y.unfold(0, 2, 2).zero_()
        (y * lucid.ones(2, 2, device=device)).sum().backward()
        assert x.grad.cpu().tolist() == [[0.0] * 4] * 4


@pytest.mark.parametrize("device", DEVICES)
def test_a_gradient_that_is_a_part_of_a_larger_one(device: str) -> None:
    x = lucid.arange(9.0, device=device).reshape(3, 3).requires_grad_()
    v = lucid.ones(3, device=device).requires_grad_()
    y = x * 1
    y.diagonal().copy_(v)
    (lucid.cat([lucid.ones(2, 3, device=device), y]) * lucid.arange(15.0, device=device).reshape(5, 3)).sum().backward()
    assert v.grad.tolist() == [6.0, 10.0, 14.0]


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_have_the_strides_of_the_base(device: str) -> None:
    def run(m: Any, d: str) -> Any:
        x = m.ones(3, 5, device=d).requires_grad_()
        y = x.t() * 1.0
        y.retain_grad()
        z = y * 1.0
        z.diagonal().zero_()
        z.sum().backward()
        return tuple(y.grad.stride()), y.grad.storage_offset()

    assert run(lucid, device) == run(torch, "cpu")


@pytest.mark.parametrize("device", DEVICES)
def test_elements_that_the_base_does_not_show_take_no_gradient(device: str) -> None:
    x = lucid.ones(4, 4, device=device).requires_grad_()
    v = lucid.ones(16, device=device).requires_grad_()
    y = x * 1
    y.as_strided_((2, 2), (1, 4), 1)
    y.as_strided((16,), (1,), 0).copy_(v)
    (y * lucid.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)).sum().backward()
    wanted = [0.0] * 16
    wanted[1], wanted[5], wanted[2], wanted[6] = 1.0, 2.0, 3.0, 4.0
    assert v.grad.tolist() == wanted
    assert x.grad.tolist() == [[0.0] * 4] * 4
