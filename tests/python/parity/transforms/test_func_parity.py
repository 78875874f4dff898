"""`lucid.func` against `torch.func`: values, structure, what requires gradients, nesting, messages."""

from __future__ import annotations

import threading
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import within

DEVICES = ["cpu", "gpu"]
RNG = np.random.default_rng(5)
A, B = (RNG.standard_normal((5, 3)).astype(np.float32) for _ in range(2))
V = RNG.standard_normal(3).astype(np.float32)
W = RNG.standard_normal((4, 3)).astype(np.float32)
Pair = namedtuple("Pair", ["first", "second"])


def agree(ours: Any, theirs: Any, where: str = "") -> None:
    if isinstance(theirs, (tuple, list)):
        assert isinstance(ours, type(theirs)) and len(ours) == len(theirs), where
        for a, b in zip(ours, theirs, strict=True):
            agree(a, b, where)
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs), where
        for k, v in theirs.items():
            agree(ours[k], v, where)
    elif isinstance(theirs, torch.Tensor):
        assert tuple(ours.shape) == tuple(theirs.shape), where
        assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1], where
        assert ours.requires_grad == theirs.requires_grad, where
        got = np.asarray(ours.detach().cpu().tolist())
        np.testing.assert_allclose(got, theirs.detach().numpy(), **within("function transforms"), err_msg=where)
    else:
        assert ours == theirs, where


def wave(m: Any) -> Callable[..., Any]:
    return lambda x: m.sin(x) * x.sum()


def energy(m: Any) -> Callable[..., Any]:
    return lambda x: (m.sin(x) * x).sum() ** 2


def loss(m: Any) -> Callable[..., Any]:
    return lambda w, x: m.tanh(m.nn.functional.linear(x, w)).square().sum()


def no_grad_inside(m: Any) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        with m.no_grad():
            c = x.sin()
        return (x * c).sum()

    return f


def writes(m: Any) -> Callable[..., Any]:
    def f(x: Any) -> Any:
        y = x.clone()
        y.mul_(2)
        y[0] = x[1] * 3
        y[1:].add_(x[0])
        return y

    return f


def dicts(m: Any) -> Callable[..., Any]:
    return lambda p: {"sum": (p["a"] * p["b"][0]).sum(), "all": [p["b"][0].cos(), p["a"]]}


def derivative(F: Any, m: Any, f: Callable[..., Any]) -> Callable[..., Any]:
    """The derivative of a function of each element, in forward mode."""
    return lambda x: F.jvp(f, (x,), (m.ones_like(x),))[1]


def piecewise(m: Any) -> Callable[..., Any]:
    return lambda x: x.sin() if x.sum() > 0 else x.cos()


def assembled(m: Any) -> Callable[..., Any]:
    """Writes what carries a tangent into what carries none."""

    def f(x: Any) -> Any:
        y = m.zeros(2, 3, device=x.device)
        y[0] = x.sin()
        y.t()[1] = x[:2] * x.prod()
        return y.t() * x[:, None]

    return f


def scaled(m: Any) -> Callable[..., Any]:
    """A function whose tangent is three times the right one, so that it shows whether its `jvp` was used."""

    class Scaled(m.autograd.Function):  # type: ignore[misc]
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any) -> Any:
            return x.sin()

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_forward(*inputs)
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.saved_tensors[0].cos()

        @staticmethod
        def jvp(ctx: Any, v: Any) -> Any:
            return 3 * v * ctx.saved_tensors[0].cos()

    return Scaled.apply  # type: ignore[no-any-return]


# Each runs with (func module, framework, maker of tensors), on both.
CASES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "vmap": lambda F, m, t: F.vmap(m.dot)(t(A), t(B)),
    "vmap, dims": lambda F, m, t: F.vmap(lambda x, y: x * y.sum(), in_dims=(1, 0), out_dims=1)(t(A), t(V)),
    "vmap, negative dims": lambda F, m, t: F.vmap(lambda x: x * 2, in_dims=-1, out_dims=-1)(t(A)),
    "vmap, shared": lambda F, m, t: F.vmap(lambda x, y: x @ y, in_dims=(0, None))(t(A), t(V)),
    "vmap, number": lambda F, m, t: F.vmap(lambda x, n: x * n, in_dims=(0, None))(t(A), 3.0),
    "vmap, tree": lambda F, m, t: F.vmap(dicts(m), in_dims=({"a": 0, "b": [None]},))({"a": t(A), "b": [t(V)]}),
    "vmap, tree by one number": lambda F, m, t: F.vmap(dicts(m))({"a": t(A), "b": [t(B)]}),
    "vmap, named tuple": lambda F, m, t: F.vmap(lambda p: Pair(p.first * p.second, p.first))(Pair(t(A), t(B))),
    "vmap, several out_dims": lambda F, m, t: F.vmap(lambda x: (x, x.sum(), x * 2), out_dims=(1, 0, -1))(t(A)),
    "vmap, out_dims None": lambda F, m, t: F.vmap(lambda x: (x, 3), out_dims=(0, None))(t(A)),
    "vmap, constant result": lambda F, m, t: F.vmap(lambda x: t(V))(t(A)),
    "vmap, keyword": lambda F, m, t: F.vmap(lambda x, k: x * k)(t(A), k=t(V)),
    "vmap, chunks": lambda F, m, t: F.vmap(lambda x: (x.sin(), x.sum()), out_dims=(1, 0), chunk_size=2)(t(A)),
    "vmap of vmap": lambda F, m, t: F.vmap(F.vmap(m.mul, in_dims=(0, None)), in_dims=(None, 0))(t(A), t(B)),
    "vmap, in place": lambda F, m, t: F.vmap(writes(m))(t(A)),
    "vmap, in place on the last": lambda F, m, t: F.vmap(writes(m), in_dims=1, out_dims=1)(t(A)),
    "vmap, promotion": lambda F, m, t: F.vmap(lambda x, y: x * y)(t(A).to(m.int32), t(V).to(m.float16).repeat(2)[:5]),
    "vmap, indexing": lambda F, m, t: F.vmap(lambda x, i: x[i], in_dims=(0, 0))(t(A), t(A).argsort(-1)),
    "vmap, indexing what is shared": lambda F, m, t: F.vmap(lambda i: t(V)[i])(t(A).argsort(-1)),
    "vmap, where": lambda F, m, t: F.vmap(lambda x: m.where(x > 0, x, -x.exp()))(t(A)),
    "vmap, factories": lambda F, m, t: F.vmap(lambda x: m.zeros_like(x) + x.new_ones(3))(t(A)),
    "grad": lambda F, m, t: F.grad(energy(m))(t(V)),
    "grad, argnums": lambda F, m, t: F.grad(loss(m), argnums=1)(t(W), t(V)),
    "grad, both": lambda F, m, t: F.grad(loss(m), argnums=(1, 0))(t(W), t(V)),
    "grad, negative": lambda F, m, t: F.grad(loss(m), argnums=-1)(t(W), t(V)),
    "grad, aux": lambda F, m, t: F.grad(lambda x: (x.sum() ** 2, {"x": x * 2, "n": x.sum()}), has_aux=True)(t(V)),
    "grad and value": lambda F, m, t: F.grad_and_value(energy(m))(t(V)),
    "grad and value, aux": lambda F, m, t: F.grad_and_value(lambda x: (x.sum(), x), has_aux=True)(t(V)),
    "grad of grad": lambda F, m, t: F.grad(lambda x: F.grad(lambda y: (y**3).sum())(x).sum())(t(V)),
    "third derivative": lambda F, m, t: F.grad(F.grad(F.grad(lambda x: x**5)))(t(V)[0]),
    "grad of a constant": lambda F, m, t: F.grad(lambda x: t(V).sum())(t(V)),
    "grad of a tree": lambda F, m, t: F.grad(lambda p: dicts(m)(p)["sum"])({"a": t(V), "b": [t(V) + 1]}),
    "grad, no_grad inside": lambda F, m, t: F.grad(no_grad_inside(m))(t(V)),
    "grad of what requires gradients": lambda F, m, t: F.grad(energy(m))(t(V).requires_grad_()),
    "perturbations": lambda F, m, t: F.grad(lambda x: x * F.grad(lambda y: x + y)(m.ones_like(x)))(t(V)[0]),
    "vmap of grad": lambda F, m, t: F.vmap(F.grad(energy(m)))(t(A)),
    "vmap of grad, shared": lambda F, m, t: F.vmap(F.grad(loss(m)), in_dims=(None, 0))(t(W), t(A)),
    "vmap of grad of grad": lambda F, m, t: F.vmap(lambda x: F.grad(lambda y: F.grad(energy(m))(y).sum())(x))(t(A)),
    "grad of vmap": lambda F, m, t: F.grad(lambda x: F.vmap(energy(m))(x).sum())(t(A)),
    "grad of vmap by what is shared": lambda F, m, t: F.grad(lambda w: F.vmap(lambda x: loss(m)(w, x))(t(A)).sum())(
        t(W)
    ),
    "grad of vmap of grad": lambda F, m, t: F.grad(lambda w: F.vmap(lambda x: F.grad(loss(m), 1)(w, x))(t(A)).sum())(
        t(W)
    ),
    "vmap of vmap of grad": lambda F, m, t: F.vmap(F.vmap(F.grad(loss(m)), (None, 0)), (0, None))(t(W)[None] * 2, t(A)),
    "vjp": lambda F, m, t: (F.vjp(wave(m), t(V))[0], F.vjp(wave(m), t(V))[1](t(V))),
    "vjp of two": lambda F, m, t: F.vjp(lambda x, y: (x @ y, x.sum()), t(A), t(V))[1]((t(A)[:, 0], t(V)[0])),
    "vjp, aux": lambda F, m, t: F.vjp(lambda x: (x.sin(), x * 2), t(V), has_aux=True)[2],
    "vjp of a dict": lambda F, m, t: F.vjp(lambda x: {"a": x.sin(), "b": x.sum()}, t(V))[1]({"a": t(V), "b": t(V)[0]}),
    "vmap of vjp": lambda F, m, t: F.vmap(lambda x, v: F.vjp(wave(m), x)[1](v)[0])(t(A), t(B)),
    "vmap over vjp": lambda F, m, t: F.vmap(F.vjp(wave(m), t(V))[1])(t(A)),
    "jvp": lambda F, m, t: F.jvp(wave(m), (t(V),), (t(V) + 1,)),
    "jvp of two": lambda F, m, t: F.jvp(lambda x, y: (x @ y, x.sum()), (t(A), t(V)), (t(B), t(V))),
    "jvp, aux": lambda F, m, t: F.jvp(lambda x: (x.sin(), x * 2), (t(V),), (t(V),), has_aux=True),
    "jvp, independent": lambda F, m, t: F.jvp(lambda x: t(A), (t(V),), (t(V),)),
    "jvp of jvp": lambda F, m, t: F.jvp(lambda x: F.jvp(wave(m), (x,), (t(V),))[1], (t(V),), (t(V) + 1,)),
    "vmap of jvp": lambda F, m, t: F.vmap(lambda x, v: F.jvp(wave(m), (x,), (v,)))(t(A), t(B)),
    "grad of jvp": lambda F, m, t: F.grad(lambda x: F.jvp(energy(m), (x,), (t(V),))[1])(t(V)),
    "jvp of grad": lambda F, m, t: F.jvp(F.grad(energy(m)), (t(V),), (t(V) + 1,)),
    "third derivative by jvp": lambda F, m, t: [
        derivative(F, m, derivative(F, m, derivative(F, m, lambda x: x**4)))(t(V)),
        F.grad(lambda x: derivative(F, m, derivative(F, m, lambda y: y**4))(x).sum())(t(V)),
        derivative(F, m, F.grad(lambda x: derivative(F, m, lambda y: y**4)(x).sum()))(t(V)),
    ],
    "perturbations by jvp": lambda F, m, t: derivative(
        F, m, lambda x: x * derivative(F, m, lambda y: x + y)(m.ones_like(x))
    )(t(V)),
    "jvp of grad and value": lambda F, m, t: F.jvp(F.grad_and_value(energy(m)), (t(V),), (t(V) + 1,)),
    "jvp of vjp": lambda F, m, t: F.jvp(lambda x: F.vjp(wave(m), x)[1](x)[0], (t(V),), (t(V) + 1,)),
    "vjp of jvp by the vector": lambda F, m, t: F.vjp(lambda v: F.jvp(wave(m), (t(V),), (v,))[1], t(V))[1](t(V)),
    "grad of jvp of grad by the vector": lambda F, m, t: F.grad(
        lambda v: F.jvp(F.grad(energy(m)), (t(V),), (v,))[1].sum()
    )(t(V)),
    "jvp of what requires gradients": lambda F, m, t: F.jvp(
        wave(m), (t(V).requires_grad_(),), (t(V).requires_grad_(),)
    ),
    "jvp of a pair, of integers too": lambda F, m, t: F.jvp(lambda x: (x.argsort(), x * 2), (t(V),), (t(V),)),
    "jvp, detached": lambda F, m, t: F.jvp(lambda x: x.detach() * x, (t(V),), (t(V),)),
    "jvp, no_grad inside": lambda F, m, t: F.jvp(no_grad_inside(m), (t(V),), (t(V),)),
    "jvp, in place": lambda F, m, t: F.jvp(assembled(m), (t(V),), (t(V) + 1,)),
    "vmap over jvp": lambda F, m, t: F.vmap(lambda v: F.jvp(wave(m), (t(V),), (v,)))(t(A)),
    "vmap over jvp, in place": lambda F, m, t: F.vmap(lambda v: F.jvp(assembled(m), (t(V),), (v,)))(t(A)),
    "vmap over jvp, by a shared and a mapped": lambda F, m, t: F.vmap(
        lambda x, v: F.jvp(lambda w, y: m.tanh(w @ y) * y.sum(), (t(W), x), (t(W), v)), in_dims=(None, 0)
    )(t(V), t(A)),
    "vmap over jvp, branching": lambda F, m, t: F.vmap(lambda v: F.jvp(piecewise(m), (t(V),), (v,)))(t(A)),
    "vmap over jvp of vmap": lambda F, m, t: F.vmap(
        lambda v: F.jvp(lambda x: F.vmap(lambda a: m.tanh(a * x).sum())(t(A)), (t(V),), (v,))
    )(t(B)),
    "vmap over jvp of grad": lambda F, m, t: F.vmap(lambda v: F.jvp(F.grad(energy(m)), (t(V),), (v,)))(t(A)),
    "vmap of vmap over jvp": lambda F, m, t: F.vmap(lambda x: F.vmap(lambda v: F.jvp(wave(m), (x,), (v,))[1])(t(B)))(
        t(A)
    ),
    "jacfwd, branching": lambda F, m, t: F.jacfwd(piecewise(m))(t(V)),
    "jacfwd, in place": lambda F, m, t: F.jacfwd(assembled(m))(t(V)),
    "jacfwd of jacfwd of jacfwd": lambda F, m, t: F.jacfwd(F.jacfwd(F.jacfwd(lambda x: x.prod())))(t(V)),
    "jvp of a function of one's own": lambda F, m, t: F.jvp(scaled(m), (t(V),), (t(V) + 1,)),
    "jacfwd of a function of one's own": lambda F, m, t: F.jacfwd(scaled(m))(t(V)),
    "vmap of jvp of a function of one's own": lambda F, m, t: F.vmap(lambda x, v: F.jvp(scaled(m), (x,), (v,)))(
        t(A), t(B)
    ),
    "vmap over jvp of a function of one's own": lambda F, m, t: F.vmap(lambda v: F.jvp(scaled(m), (t(V),), (v,)))(t(A)),
    "vmap of jacfwd of a function of one's own": lambda F, m, t: F.vmap(F.jacfwd(scaled(m)))(t(A)),
    "jvp of vmap of a function of one's own": lambda F, m, t: F.jvp(F.vmap(scaled(m)), (t(A),), (t(B),)),
    "grad of jvp of a function of one's own": lambda F, m, t: F.grad(
        lambda v: F.jvp(scaled(m), (t(V),), (v,))[1].sum()
    )(t(V)),
    "linearize": lambda F, m, t: (F.linearize(wave(m), t(V))[0], F.linearize(wave(m), t(V))[1](t(V) + 1)),
    "vmap over linearize": lambda F, m, t: F.vmap(F.linearize(wave(m), t(V))[1])(t(A)),
    "jacrev": lambda F, m, t: F.jacrev(wave(m))(t(V)),
    "jacrev, chunks": lambda F, m, t: F.jacrev(wave(m), chunk_size=2)(t(V)),
    "jacrev, argnums": lambda F, m, t: F.jacrev(lambda x, y: x @ y, argnums=(0, 1))(t(A), t(V)),
    "jacrev of a dict": lambda F, m, t: F.jacrev(dicts(m))({"a": t(V), "b": [t(V) + 1]}),
    "jacrev, aux": lambda F, m, t: F.jacrev(lambda x: (x.sin(), x * 2), has_aux=True)(t(V)),
    "jacrev of a number": lambda F, m, t: F.jacrev(lambda x: x.sum())(t(A)),
    "jacfwd": lambda F, m, t: F.jacfwd(wave(m))(t(V)),
    "jacfwd, argnums": lambda F, m, t: F.jacfwd(lambda x, y: x @ y, argnums=(0, 1))(t(A), t(V)),
    "jacfwd of a dict": lambda F, m, t: F.jacfwd(dicts(m))({"a": t(V), "b": [t(V) + 1]}),
    "jacfwd, aux": lambda F, m, t: F.jacfwd(lambda x: (x.sin(), x * 2), has_aux=True)(t(V)),
    "jacfwd of jacrev": lambda F, m, t: F.jacfwd(F.jacrev(wave(m)))(t(V)),
    "jacrev of jacfwd": lambda F, m, t: F.jacrev(F.jacfwd(wave(m)))(t(V)),
    "jacrev of jacrev": lambda F, m, t: F.jacrev(F.jacrev(wave(m)))(t(V)),
    "jacfwd of jacfwd": lambda F, m, t: F.jacfwd(F.jacfwd(wave(m)))(t(V)),
    "vmap of jacrev": lambda F, m, t: F.vmap(F.jacrev(wave(m)))(t(A)),
    "vmap of jacfwd": lambda F, m, t: F.vmap(F.jacfwd(wave(m)), in_dims=1)(t(A)),
    "hessian": lambda F, m, t: F.hessian(energy(m))(t(V)),
    "hessian by two": lambda F, m, t: F.hessian(loss(m), argnums=(0, 1))(t(W), t(V)),
    "vmap of hessian": lambda F, m, t: F.vmap(F.hessian(energy(m)))(t(A)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("device", DEVICES)
def test_values(case: str, device: str) -> None:
    ours = CASES[case](lucid.func, lucid, lambda a: lucid.tensor(a, device=device))
    agree(ours, CASES[case](torch.func, torch, torch.tensor), f"{case} on {device}")


def raising(F: Any, m: Any, t: Any, f: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return F.vmap(f, **options)(*(args or (t(A),)))


REFUSED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "randomness": lambda F, m, t: F.vmap(lambda x: x, randomness="some")(t(A)),
    "chunk_size": lambda F, m, t: F.vmap(lambda x: x, chunk_size=0),
    "in_dims of another kind": lambda F, m, t: raising(F, m, t, lambda x: x, in_dims=[0]),
    "no inputs": lambda F, m, t: F.vmap(lambda: t(V))(),
    "in_dims of another structure": lambda F, m, t: raising(F, m, t, lambda x: x, in_dims=(0, 0)),
    "in_dim no number": lambda F, m, t: raising(F, m, t, lambda x: x, in_dims=("x",)),
    "in_dim for a number": lambda F, m, t: F.vmap(lambda x, y: x)(t(A), 3.0),
    "in_dim out of range": lambda F, m, t: raising(F, m, t, lambda x: x, in_dims=2),
    "nothing to map": lambda F, m, t: raising(F, m, t, lambda x: x, in_dims=(None,)),
    "sizes differ": lambda F, m, t: F.vmap(lambda x, y: x)(t(A), t(V)),
    "out_dims no numbers": lambda F, m, t: raising(F, m, t, lambda x: x, out_dims="x"),
    "out_dims of another structure": lambda F, m, t: raising(F, m, t, lambda x: (x, x), out_dims=(0, 0, 0)),
    "out_dims None": lambda F, m, t: raising(F, m, t, lambda x: x, out_dims=None),
    "no tensor": lambda F, m, t: raising(F, m, t, lambda x: 3),
    "None": lambda F, m, t: raising(F, m, t, lambda x: None),
    "item": lambda F, m, t: raising(F, m, t, lambda x: x.sum().item()),
    "if": lambda F, m, t: raising(F, m, t, lambda x: x if x.sum() > 0 else -x),
    "nonzero": lambda F, m, t: raising(F, m, t, lambda x: x.nonzero()),
    "random": lambda F, m, t: raising(F, m, t, lambda x: x + m.rand(3)),
    "write to what is shared": lambda F, m, t: F.vmap(lambda x, y: x.add_(y), in_dims=(None, 0))(t(V), t(A)),
    "grad of a vector": lambda F, m, t: F.grad(wave(m))(t(V)),
    "grad of a number": lambda F, m, t: F.grad(lambda x: 3.0)(t(V)),
    "grad by a number": lambda F, m, t: F.grad(lambda x: x)(3.0),
    "grad by an integer": lambda F, m, t: F.grad(lambda x: x.sum())(t(V).to(m.int64)),
    "argnums out of range": lambda F, m, t: F.grad(energy(m), argnums=1)(t(V)),
    "argnums twice": lambda F, m, t: F.grad(loss(m), argnums=(0, 0))(t(W), t(V)),
    "argnums none": lambda F, m, t: F.grad(loss(m), argnums=())(t(W), t(V)),
    "argnums no number": lambda F, m, t: F.grad(loss(m), argnums="x")(t(W), t(V)),
    "no aux": lambda F, m, t: F.grad(energy(m), has_aux=True)(t(V)),
    "vjp of integers": lambda F, m, t: F.vjp(lambda x: x.to(m.int64), t(V)),
    "vjp of a number": lambda F, m, t: F.vjp(lambda x: 3, t(V)),
    "vjp, other structure": lambda F, m, t: F.vjp(wave(m), t(V))[1]((t(V), t(V))),
    "jvp by no tuple": lambda F, m, t: F.jvp(wave(m), t(V), t(V)),
    "jvp, other structure": lambda F, m, t: F.jvp(wave(m), (t(V),), (t(V), t(V))),
    "jvp, strict": lambda F, m, t: F.jvp(lambda x: t(A), (t(V),), (t(V),), strict=True),
    "jvp by integers": lambda F, m, t: F.jvp(lambda x: x * 2.0, (t(V).to(m.int64),), (t(V),)),
    "jvp, other shape": lambda F, m, t: F.jvp(lambda x: x * 2.0, (t(V),), (t(A),)),
    "jvp of a function of one's own without one": lambda F, m, t: F.jvp(
        type("F", (m.autograd.Function,), {"forward": staticmethod(lambda x: x), "setup_context": print}).apply,
        (t(V),),
        (t(V),),
    ),
    "jvp by numbers": lambda F, m, t: F.jvp(lambda x: x, (3.0,), (1.0,)),
    "jacrev, chunks of none": lambda F, m, t: F.jacrev(wave(m), chunk_size=0),
    "jacrev of complex": lambda F, m, t: F.jacrev(wave(m))(t(V).to(m.complex64)),
    "backward inside": lambda F, m, t: raising(F, m, t, lambda x: x.requires_grad_().sum().backward()),
}


def test_levels_end_with_their_calls() -> None:
    def fails(x: Any) -> Any:
        raise ZeroDivisionError

    x = lucid.tensor(V)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            lucid.func.jvp(lambda y: lucid.func.jvp(fails, (y,), (y,)), (x,), (x,))
        assert not lucid._C._forward_active()
    with lucid.inference_mode():
        agree(lucid.func.jvp(lucid.sin, (x,), (x,))[1].clone(), (torch.tensor(V) * torch.tensor(V).cos()))
    assert lucid._C._is_fwd_grad_enabled()


def test_threads_have_levels_of_their_own() -> None:
    found: list[Any] = [None] * 4
    ready = threading.Barrier(len(found))

    def run(i: int) -> None:
        x = lucid.tensor(V) + i

        def f(y: Any) -> Any:
            ready.wait(60)
            return y**2

        found[i] = lucid.func.jvp(f, (x,), (lucid.ones_like(x),))[1]

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(found))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i, slope in enumerate(found):
        agree(slope, 2 * (torch.tensor(V) + i))


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    kinds = (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError)
    with pytest.raises(kinds) as theirs:
        REFUSED[case](torch.func, torch, torch.tensor)
    for device in DEVICES:
        with pytest.raises(theirs.type) as ours:
            REFUSED[case](lucid.func, lucid, lambda a, d=device: lucid.tensor(a, device=d))
        assert lucid._C._vmap_active() == [], case
        if str(theirs.value).startswith("vmap") and "requires_grad" not in str(theirs.value):
            # The engine puts the op's name before a message.
            start = str(theirs.value).split("<lambda>")[0][:30]
            assert start.replace("torch.", "lucid.") in str(ours.value), case


def test_gradients_of_closures_and_through_transforms() -> None:
    found = []
    for F, m, t in ((lucid.func, lucid, lucid.tensor), (torch.func, torch, torch.tensor)):
        w, x = t(W).requires_grad_(), t(A).requires_grad_()
        g = F.vmap(F.grad(lambda s, w=w, m=m: loss(m)(w, s)))(x)
        j = F.jacrev(lambda s, w=w, m=m: m.tanh(m.nn.functional.linear(s, w)))(x[0])
        f = F.jacfwd(lambda s, w=w, m=m: m.tanh(m.nn.functional.linear(s, w)))(x[1])
        (g.square().sum() + j.square().sum() + f.square().sum()).backward()
        with m.no_grad():
            off = F.grad(energy(m))(w)
        found.append((w.grad, x.grad, off, g, j))
    agree(*found)


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_per_sample_of_a_network(device: str) -> None:
    """An MLP and a small convolutional network with buffers, by `functional_call`, against a loop and PyTorch."""
    x = RNG.standard_normal((4, 1, 8, 8)).astype(np.float32)
    y = RNG.integers(0, 3, 4)

    def build(m: Any, kind: str) -> Any:
        nn = m.nn
        if kind == "mlp":
            return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 3))
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1, stride=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 2, groups=2),
            nn.GELU(), nn.BatchNorm2d(6).eval(), nn.Flatten(), nn.Linear(6, 3),
        )  # fmt: skip

    for kind in ("mlp", "conv"):
        theirs = build(torch, kind).eval()
        ours = build(lucid, kind).eval()
        ours.load_state_dict({k: lucid.tensor(v.numpy()) for k, v in theirs.state_dict().items()})
        ours.to(device)
        found = []
        for m, model, make in (
            (lucid, ours, lambda a: lucid.tensor(a, device=device)),
            (torch, theirs, torch.tensor),
        ):
            params = {k: v.detach() for k, v in model.named_parameters()}
            buffers = dict(model.named_buffers())

            def sample_loss(p: Any, b: Any, xi: Any, yi: Any, m: Any = m, model: Any = model) -> Any:
                out = m.func.functional_call(model, (p, b), (xi.unsqueeze(0),))
                return m.nn.functional.cross_entropy(out, yi.unsqueeze(0))

            gradient = m.func.grad(sample_loss)
            grads = m.func.vmap(gradient, in_dims=(None, None, 0, 0))(params, buffers, make(x), make(y))
            loop = [gradient(params, buffers, make(x)[i], make(y)[i]) for i in range(len(y))]
            agree_all = {k: m.stack([g[k] for g in loop]) for k in grads}
            for k, g in grads.items():
                assert m.allclose(g, agree_all[k], **within("near zero")), (kind, k)
            found.append(grads)
        agree(*found, kind)


def test_ensembles() -> None:
    x = RNG.standard_normal((4, 3)).astype(np.float32)
    torch.manual_seed(0)
    theirs = [torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2)) for _ in range(3)]
    ours = [lucid.nn.Sequential(lucid.nn.Linear(3, 5), lucid.nn.ReLU(), lucid.nn.Linear(5, 2)) for _ in range(3)]
    for a, b in zip(ours, theirs, strict=True):
        a.load_state_dict({k: lucid.tensor(v.numpy()) for k, v in b.state_dict().items()})
    found = []
    for m, models, make in ((lucid, ours, lucid.tensor), (torch, theirs, torch.tensor)):
        params, buffers = m.func.stack_module_state(models)
        batch = make(x)
        assert all(p.requires_grad and p.is_leaf for p in params.values()) and buffers == {}
        run = m.func.vmap(lambda p, b, m=m, o=models[0], x=batch: m.func.functional_call(o, (p, b), (x,)))
        out = run(params, buffers)
        out.square().sum().backward()
        found.append((out, {k: p.grad for k, p in params.items()}))
    agree(*found)


def test_functional_call() -> None:
    for m in (lucid, torch):
        net = m.nn.Sequential(m.nn.Linear(2, 2), m.nn.Linear(2, 2))
        net[1].weight = net[0].weight
        before = {k: v for k, v in net.named_parameters()}
        call = m.func.functional_call
        x = m.ones(1, 2)
        zero = {"0.weight": m.zeros(2, 2)}
        tied, alone = call(net, zero, x), call(net, zero, (x,), tie_weights=False)
        assert not m.allclose(tied, alone)
        assert all(v is before[k] for k, v in net.named_parameters())
        with pytest.raises(RuntimeError):
            call(net, zero, x, strict=True)
        with pytest.raises(ValueError):
            call(net, (zero, zero), x)
        with pytest.raises(ValueError):
            call(net, 3, x)
        with pytest.raises(AttributeError):
            call(net, {"no.such": m.zeros(1)}, x)
        # A name that a module has not is a plain attribute of it while the call lasts.
        other = m.nn.Linear(2, 2)
        other.scale = m.ones(1)
        other.forward = lambda x, other=other: (x * other.scale, getattr(other, "extra", None))
        scaled, extra = call(other, {"scale": m.full((1,), 3.0), "extra": m.full((1,), 5.0)}, x)
        assert scaled.tolist() == [[3.0, 3.0]] and extra.item() == 5.0
        assert other.scale.item() == 1.0 and not hasattr(other, "extra")
        with pytest.raises(RuntimeError):
            m.func.stack_module_state([])
        with pytest.raises(RuntimeError):
            m.func.stack_module_state([net, net[0]])


def _doubled(m: Any, x: Any) -> Any:
    x.mul_(2)
    return x * x


def _set(m: Any, x: Any) -> Any:
    x[0] = x[1] * 2
    return x * x


WRITES = {
    "multiplied": _doubled,
    "set": _set,
    "filled": lambda m, x: x.fill_(3.0) * x,
    "zeroed": lambda m, x: x.zero_() * 2,
}


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("name", WRITES)
def test_jacobians_of_functions_that_write_their_argument(name: str, device: str) -> None:
    found = []
    for m, on in ((lucid, device), (torch, "cpu")):
        for jacobian in ("jacfwd", "jacrev"):
            x = m.tensor([1.0, 2.0, 3.0], device=on)
            try:
                made = getattr(m.func, jacobian)(lambda x, m=m: WRITES[name](m, x))(x).tolist()
            except RuntimeError:
                made = "refused"
            found.append([made, x.tolist()])
    assert found[:2] == found[2:]


def _not_recorded(m: Any, x: Any) -> Any:
    with m.no_grad():
        y = x * x
    return y * x


def _copied(m: Any, x: Any) -> Any:
    y = m.zeros_like(x)
    with m.no_grad():
        y.copy_(x)
    return y * x


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("f", [_not_recorded, _copied])
def test_what_is_not_recorded_still_has_tangents(f: Any, device: str) -> None:
    found = []
    for m, on in ((lucid, device), (torch, "cpu")):
        x = m.tensor([1.0, 2.0, 3.0], device=on)
        one = m.func.jacfwd(lambda x, m=m: f(m, x))
        found.append([one(x).tolist(), m.func.hessian(lambda x, m=m: f(m, x).sum())(x).tolist()])
        found.append([m.func.jacfwd(one)(x).tolist(), m.func.jacrev(lambda x, m=m: f(m, x))(x).tolist()])
    assert found[:2] == found[2:]
