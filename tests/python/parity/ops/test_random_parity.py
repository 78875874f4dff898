"""Random functions and methods against PyTorch's: results' dtypes and shapes, gradients' names, and kinds of errors.

The numbers differ; their distributions are tested in `unit/test_random.py`.
"""

from __future__ import annotations

import warnings
from typing import Any

import lucid
import pytest
import torch

INF, NAN = float("inf"), float("nan")
DEVICES = ["cpu", "gpu"]

# `m` is the framework, `k` is `device=` for ours, `g` a generator; `x` has 3 elements within 0 and 1, `w` is 2 by 3,
# `i` is int64, `b` bool, `c` complex64, `r` requires gradients, `y` is computed from such; `z` makes zeros of a dtype.
CALLS = """
m.normal(x, x); m.normal(x); m.normal(x, 2); m.normal(x, std=2.0); m.normal(1.0, x); m.normal(1, x)
m.normal(1.0, 2.0, (2, 3)); m.normal(0, 1, (2,)); m.normal(mean=0.0, std=1.0, size=(2,), dtype=m.float16)
m.normal(0.0, 1.0); m.normal(x, i); m.normal(x, -1.0); m.normal(x, -x); m.normal(c, 1.0); m.normal(x, c)
m.normal(i, 1.0); m.normal(1.0, i); m.normal(0.0, 1.0, (2,), dtype=m.int64)
m.normal(0.0, 1.0, (2,), dtype=m.complex64); m.normal(x, x[:2]); m.normal(w, x); m.normal(x.half(), x)
m.normal(0.0, x.half()); m.normal(x, x, out=m.empty(3, **k)); m.normal(r, 1.0); m.normal(0.0, r); m.normal(r, r)
m.normal(0.0, -1.0, (2,)); m.normal(0.0, 1.0, (2,), requires_grad=True); m.normal(x, 1.0, generator=g)
m.normal(x, 1.0, generator=3); m.normal(x, NAN); m.normal(0.0, 1.0, (-2,)); m.normal(x, x, (2,)); m.normal(x, x, x)
m.normal(x, 1.0, (2,)); m.poisson(x * 10); m.poisson(i); m.poisson(-x); m.poisson(x * NAN); m.poisson(x.half())
m.poisson(r); m.poisson(c); m.poisson(x, g); m.poisson(x, generator=g); m.poisson(x[0]); m.poisson(x[:0])
m.binomial(x * 9, x); m.binomial(w * 9, x); m.binomial(x, w); m.binomial(i, x); m.binomial(x, i)
m.binomial(x.half(), x); m.binomial(x, x, g); m.binomial(x, x, generator=g); m.binomial(10, x); m.binomial(x[:2], x)
m.multinomial(x, 2); m.multinomial(x, 4); m.multinomial(x, 4, True); m.multinomial(x, num_samples=4, replacement=True)
m.multinomial(w, 2); m.multinomial(w[None], 2); m.multinomial(x[0], 1); m.multinomial(i, 2)
m.multinomial(x.half(), 2); m.multinomial(x, 0); m.multinomial(x, -1); m.multinomial(x, 2.0); m.multinomial(-x, 2)
m.multinomial(x * NAN, 1); m.multinomial(x * INF, 1); m.multinomial(x * 0, 1); m.multinomial(x * 0, 2, True)
m.multinomial(w[:0], 1); m.multinomial(w[:, :0], 1); m.multinomial(x[:0], 1); m.multinomial(x[:0], 1, True)
m.multinomial(r, 1); m.multinomial(x, 2, generator=g); m.multinomial(c, 1); x.multinomial(2)
m.multinomial(x, 2, out=m.empty(2, dtype=m.int64, **k)); m.randint_like(x, 5); m.randint_like(x, 2, 5)
m.randint_like(x, high=5); m.randint_like(x, low=2, high=5); m.randint_like(x, 5, 2)
m.randint_like(x, 5, dtype=m.int32); m.randint_like(x, 5, requires_grad=True)
m.randint_like(i, 5, requires_grad=True); m.randint_like(b, 2); m.randint_like(b, 3); m.randint_like(x, 2.5)
m.randint_like(i.to(m.uint8), 300); m.randint_like(x, 5, generator=g); m.randint_like(c, 5); m.randint(5, (2,), **k)
m.randint(2, 5, (2,), **k); m.randint(high=5, size=(2,), **k); m.randint(low=2, high=5, size=(2,), **k)
m.randint(300, (2,), dtype=m.uint8, **k); m.randint(5, 2, **k); m.randint(256, (2,), dtype=m.uint8, **k)
m.randint(-3, 3, (2,), dtype=m.uint8, **k); m.randint(5, (2,), dtype=m.float16, **k)
m.randint(10, (2,), dtype=m.complex64, **k); m.randint(3, (2,), dtype=m.bool, **k)
m.randint(2, (2,), dtype=m.bool, **k); m.randint(0, 2**63 - 1, (2,), **k); m.randint(-(2**63), 2**63 - 1, (2,), **k)
m.randint(5, 5, (2,), **k); m.randint(2.5, (2,), **k); m.randint(3, **k); m.randint(**k)
m.randint(3, (2,), requires_grad=True, **k); m.randint(3, (2,), out=m.empty(2, **k), **k); m.rand_like(i)
m.randn_like(i); m.rand_like(i, dtype=m.float32); m.randn_like(c); m.rand_like(c); m.rand(2, dtype=m.complex64, **k)
m.randn(2, dtype=m.int64, **k); m.rand_like(x, generator=g); m.randperm(4, dtype=m.uint8, **k)
m.randperm(300, dtype=m.uint8, **k); m.randperm(3000, dtype=m.float16, **k); m.randperm(-1, **k)
m.randperm(4, dtype=m.bool, **k); m.randperm(4.0, **k); m.bernoulli(x); m.bernoulli(x, 0.5); m.bernoulli(x, p=0.5)
m.bernoulli(i, 0.5); m.bernoulli(i); m.bernoulli(b); m.bernoulli(x, 1.5); m.bernoulli(x, x)
m.bernoulli(x, out=m.empty(3, **k)); m.bernoulli(r); m.bernoulli(c); m.bernoulli(x * NAN); m.bernoulli(x + 1)
m.bernoulli(x[0]); r.bernoulli(); x.bernoulli(0.5); x.bernoulli(p=0.5); x.bernoulli(generator=g); z().bernoulli_()
z().bernoulli_(p=1); z().bernoulli_(x[0]); z().bernoulli_(x); z().bernoulli_(x[:2]); z().bernoulli_(w)
w.clone().bernoulli_(x); z(m.int64).bernoulli_(x); z(m.bool).bernoulli_(0.5); z(m.uint8).bernoulli_(0.5)
z(m.complex64).bernoulli_(0.5); z().bernoulli_(i); z().bernoulli_(2.0); z().bernoulli_(x + 1); z().bernoulli_(NAN)
r.bernoulli_(); r[0].bernoulli_(); y().bernoulli_(); y().bernoulli_(x); z().bernoulli_(r); z().exponential_()
z().exponential_(2); z().exponential_(lambd=2.0); z().exponential_(0.0); z().exponential_(-1); z().exponential_(NAN)
z().exponential_(INF); z(m.int64).exponential_(); z(m.float16).exponential_(); z(m.complex64).exponential_()
y().exponential_(); r.exponential_(); z().geometric_(0.5); z().geometric_(p=0.5); z().geometric_()
z().geometric_(0.0); z().geometric_(1.0); z().geometric_(NAN); z(m.int64).geometric_(0.5); z(m.bool).geometric_(0.5)
z(m.complex64).geometric_(0.5); y().geometric_(0.5); z().cauchy_(); z().cauchy_(1, 2); z().cauchy_(median=1, sigma=2)
z().cauchy_(0, 0); z().cauchy_(0, -1); z(m.int64).cauchy_(); y().cauchy_(); z().log_normal_(); z().log_normal_(1, 2)
z().log_normal_(mean=1, std=2); z().log_normal_(0, 0); z(m.int64).log_normal_(); y().log_normal_(); z().random_()
z().random_(5); z().random_(2, 5); z().random_(to=5); z().random_(2, None); z().random_(-2, None)
z(m.int64).random_(); z(m.int64).random_(-(2**63), None); z(m.uint8).random_(300); z(m.uint8).random_(-1, 5)
z(m.bool).random_(); z(m.bool).random_(3); z().random_(0); z().random_(5, 5); z().random_(2.5)
z(m.complex64).random_(3); z().random_(2, 5, generator=g); y().random_(5); r.random_(); z().uniform_(1, 0)
z().uniform_(1, 1); z().uniform_(0, INF); z().uniform_(-3e38, 3e38); z().uniform_(NAN, 1)
z(m.float16).uniform_(0, 7e4); z(m.int64).uniform_(); z(m.complex64).uniform_(); z().uniform_(to=4); y().uniform_()
r.uniform_(); y().normal_(); z().normal_(0, -1); z().normal_(NAN, 1); z().normal_(0, NAN); z(m.int64).normal_()
z(m.complex64).normal_(1, 2); m.zeros(1, **k).expand(3).normal_(); m.zeros(0, **k).normal_()
m.zeros(0, **k).normal_(0, -1)
"""


def names(m: Any, device: str) -> dict[str, Any]:
    k = {"device": device} if m is lucid else {}
    x = m.tensor([0.25, 0.5, 0.75], **k)
    r = x.clone().requires_grad_()
    return {
        "m": m, "k": k, "x": x, "r": r, "w": m.stack([x, 1 - x]), "i": m.tensor([1, 2, 3], **k),
        "b": m.tensor([True, False], **k), "c": m.zeros(3, dtype=m.complex64, **k), "g": m.Generator(),
        "y": lambda: r * 1, "z": lambda dtype=None: m.zeros(3, dtype=dtype, **k), "INF": INF, "NAN": NAN,
    }  # fmt: skip


def outcome(m: Any, call: str, device: str) -> tuple[Any, ...]:
    """What a call gives, but for its numbers; or its error, by the builtin classes that PyTorch raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            t = eval(call, names(m, device))
    except Exception as e:
        # A DtypeMismatch is a TypeError too; here it stands for what PyTorch mostly raises.
        kinds = (RuntimeError, TypeError, ValueError)
        return ("error", next((k.__name__ for k in kinds if isinstance(e, k)), repr(e)))
    node = t.grad_fn and t.grad_fn.name()
    return str(t.dtype).split(".")[-1], tuple(t.shape), t.requires_grad, node


@pytest.mark.parametrize("device", DEVICES)
def test_calls_give_what_pytorchs_give(device: str) -> None:
    wrong = []
    for call in (c.strip() for c in CALLS.replace("\n", ";").split(";")):
        if not call:
            continue
        ours, theirs = outcome(lucid, call, device), outcome(torch, call, device)
        if ours != theirs:
            wrong.append(f"{call}: {ours}, PyTorch {theirs}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("device", DEVICES)
def test_samples_pass_gradients_of_zero(device: str) -> None:
    for m, kind in ((lucid, {"device": device}), (torch, {})):
        for draw in (
            lambda x, m=m: m.bernoulli(x),
            lambda x, m=m: m.poisson(x),
            lambda x, m=m: m.normal(x, 1.0),
            lambda x, m=m: m.normal(x, x),
            lambda x: (x * 2).uniform_(),
            lambda x: (x * 2).exponential_(),
            lambda x, m=m: m.zeros_like(x).bernoulli_(x),
        ):
            x = m.full((3,), 0.5, requires_grad=True, **kind)
            (draw(x).sum() + x.sum()).backward()
            assert x.grad.tolist() == [1.0, 1.0, 1.0]
            with m.no_grad():
                assert not draw(x).requires_grad
                x.uniform_()


def test_generators_refuse_what_pytorchs_refuse() -> None:
    for m in (lucid, torch):
        g = m.Generator()
        assert g.initial_seed() == 67280421310721 and g.device.type == "cpu"
        assert g.manual_seed(-1).initial_seed() == 2**64 - 1
        for bad in (2**64, -(2**63) - 1):
            with pytest.raises(ValueError, match="Overflow"):
                g.manual_seed(bad)
        with pytest.raises(TypeError):
            g.set_state(3)
        with pytest.raises(TypeError):
            g.set_state(m.zeros(3))
        with pytest.raises(RuntimeError):
            g.set_state(m.zeros(3, dtype=m.uint8))
        with pytest.raises(RuntimeError):
            m.Generator("foo")
        first = g.clone_state()
        assert m.rand(3, generator=g).tolist() == m.rand(3, generator=first).tolist()
    for name in torch.random.__all__:
        assert name == "thread_safe_generator" or hasattr(lucid.random, name), name
