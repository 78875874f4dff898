"""`gradcheck` and `gradgradcheck` with their options, and the arguments of `backward` and `grad`, against PyTorch's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import lucid
import pytest
import torch


def leaf(m: Any, *size: int) -> Any:
    return m.full(size or (3,), 0.7, dtype=m.float64, requires_grad=True)


def function(m: Any, forward: Callable[..., Any], backward: Callable[..., Any]) -> Any:
    class Own(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return backward(ctx.saved_tensors[0], *grads)

    return Own.apply


def wrong(m: Any) -> Any:
    return function(m, lambda x: x * x, lambda x, g: g * 3 * x)


def unsteady(m: Any) -> Any:
    calls = [0]

    def backward(x: Any, g: Any) -> Any:
        calls[0] += 1
        return g * (2 + 1e-7 * calls[0])

    return function(m, lambda x: x * 2, backward)


def unscaled(m: Any) -> Any:
    return function(m, lambda x: x * 2, lambda x, g: x * 0 + 2)


def made_up(m: Any) -> Any:
    return function(m, lambda x: x * 2, lambda x, g: x if g is None else g * 2)


def wrong_in_one(m: Any) -> Any:
    """Only in one element of nine."""
    return function(m, lambda x: x * x, lambda x, g: g * 2 * x * (m.arange(9, dtype=x.dtype) != 4))


def whirl(m: Any) -> Any:
    return m.tensor([0.5 + 0.25j, -1 + 1.5j], dtype=m.complex64, requires_grad=True)


def turned(m: Any) -> Any:
    """By a right angle, and the gradient by one in the same sense."""
    return function(m, lambda x: x * 1j, lambda x, g: None if g is None else g * 1j)


def careful(m: Any) -> Any:
    return function(m, lambda x: x * 2, lambda x, g: None if g is None else g * 2)


CHECKS: dict[str, Callable[..., Any]] = {
    "right": lambda m, f: f(lambda a: a.sin(), (leaf(m),)),
    "one tensor": lambda m, f: f(lambda a: a.sin(), leaf(m)),
    "wrong": lambda m, f: f(wrong(m), (leaf(m),)),
    "wrong, fast": lambda m, f: f(wrong(m), (leaf(m),), fast_mode=True),
    "wrong, said": lambda m, f: f(wrong(m), (leaf(m),), raise_exception=False),
    "wrong forward": lambda m, f: f(wrong(m), (leaf(m),), check_forward_ad=True),
    "unsteady": lambda m, f: f(unsteady(m), (leaf(m),)),
    "a little unsteady": lambda m, f: f(unsteady(m), (leaf(m),), nondet_tol=1e-3),
    "unscaled": lambda m, f: f(unscaled(m), (leaf(m, 1),)),
    "made up": lambda m, f: f(made_up(m), (leaf(m),)),
    "made up, unchecked": lambda m, f: f(made_up(m), (leaf(m),), check_undefined_grad=False),
    "careful": lambda m, f: f(careful(m), (leaf(m),)),
    "nothing to check": lambda m, f: f(lambda a: a.sin(), (m.ones(3, dtype=m.float64),)),
    "no tensor": lambda m, f: f(lambda a: a, (3,)),
    "float32": lambda m, f: f(lambda a: a * 2, (m.ones(3, requires_grad=True),)),
    "float32, roughly": lambda m, f: f(
        lambda a: a * 2, (m.ones(3, requires_grad=True),), eps=1e-2, atol=1e-2, rtol=1e-2
    ),
    "cut off": lambda m, f: f(lambda a: a.detach(), (leaf(m),)),
    "cut off beside": lambda m, f: f(lambda a: (a * 2, a.detach()), (leaf(m),)),
    "a number": lambda m, f: f(lambda a: 3, (leaf(m),)),
    "expanded": lambda m, f: f(lambda a: a * 2, (m.ones(1, dtype=m.float64).expand(3).requires_grad_(),)),
    "forward": lambda m, f: f(lambda a: a.sin(), (leaf(m),), check_forward_ad=True),
    "forward alone": lambda m, f: f(lambda a: a.sin(), (leaf(m),), check_forward_ad=True, check_backward_ad=False),
    "neither": lambda m, f: f(lambda a: a.sin(), (leaf(m),), check_backward_ad=False),
    "batches": lambda m, f: f(lambda a: a.sin(), (leaf(m),), check_batched_grad=True),
    "batches alone": lambda m, f: f(
        lambda a: a.sin(), (leaf(m),), check_batched_grad=True, check_backward_ad=False, check_forward_ad=True
    ),
    "batches of tangents": lambda m, f: f(
        lambda a, b: (a.sin() * b, b), (leaf(m), leaf(m)), check_forward_ad=True, check_batched_forward_grad=True
    ),
    "batches of no tangents": lambda m, f: f(lambda a: a.sin(), (leaf(m),), check_batched_forward_grad=True),
    "masked": lambda m, f: f(lambda a: a.sin(), (leaf(m),), masked=True),
    "dtypes": lambda m, f: f(lambda a: a.sin(), (leaf(m),), check_grad_dtypes=True),
    "unused": lambda m, f: f(lambda a, b: a * 2, (leaf(m), leaf(m))),
    "empty": lambda m, f: f(lambda a: a * 2, (leaf(m, 0),)),
    "a view": lambda m, f: f(lambda a: a.view(-1), (leaf(m, 2, 3),)),
    "the input": lambda m, f: f(lambda a: a, (leaf(m),)),
    "not a number": lambda m, f: f(lambda a: a * float("nan"), (leaf(m),)),
    "fast": lambda m, f: f(lambda a: a.sin(), (leaf(m),), fast_mode=True),
    "fast, two": lambda m, f: f(lambda a, b: (a * b.sin(), a.sum()), (leaf(m, 2, 3), leaf(m, 3)), fast_mode=True),
    "fast, one element wrong": lambda m, f: f(wrong_in_one(m), (leaf(m, 9),), fast_mode=True),
    "fast, unsteady": lambda m, f: f(unsteady(m), (leaf(m),), fast_mode=True),
    "fast, unscaled": lambda m, f: f(unscaled(m), (leaf(m, 1),), fast_mode=True),
    "fast, made up": lambda m, f: f(made_up(m), (leaf(m),), fast_mode=True),
    "fast, cut off": lambda m, f: f(lambda a: a.detach(), (leaf(m),), fast_mode=True),
    "fast, forward": lambda m, f: f(lambda a: a.sin(), (leaf(m),), fast_mode=True, check_forward_ad=True),
    "fast, wrong forward": lambda m, f: f(wrong(m), (leaf(m),), fast_mode=True, check_forward_ad=True),
    "fast, batches": lambda m, f: f(lambda a: a.sin(), (leaf(m),), fast_mode=True, check_batched_grad=True),
    "fast, empty": lambda m, f: f(lambda a: a * 2, (leaf(m, 0),), fast_mode=True),
    "fast, not a number": lambda m, f: f(lambda a: a * float("nan"), (leaf(m),), fast_mode=True),
    "fast, one number": lambda m, f: f(
        lambda a: a * a, (m.ones((), dtype=m.float64, requires_grad=True),), fast_mode=True
    ),
    "fast, said": lambda m, f: f(wrong(m), (leaf(m),), fast_mode=True, raise_exception=False),
    **{
        f"{name}{', fast' if fast else ''}": lambda m, f, g=g, fast=fast: f(
            lambda *a: g(m, *a), (whirl(m),), eps=1e-2, atol=1e-2, rtol=1e-2, fast_mode=fast
        )
        for fast in (False, True)
        for name, g in {
            "complex": lambda m, z: z * z,
            "complex to real": lambda m, z: z.abs(),
            "complex conjugate": lambda m, z: z.conj() * (1 + 2j),
            "complex parts": lambda m, z: (z.real * z.imag, z.exp()),
            "complex, wrong": lambda m, z: wrong(m)(z),
            "complex, turned the wrong way": lambda m, z: turned(m)(z),
            "complex, cut off": lambda m, z: z.detach(),
            "complex matrix": lambda m, z: z.reshape(1, 2) @ z.reshape(2, 1),
        }.items()
    },
    "real to complex": lambda m, f: f(
        lambda a: m.complex(a, 2 * a), (m.ones(2, requires_grad=True),), eps=1e-2, atol=1e-2, rtol=1e-2
    ),
    "complex, too fine": lambda m, f: f(lambda z: z * z, (whirl(m),)),
    "complex, forward": lambda m, f: f(
        lambda z: z * z, (whirl(m),), eps=1e-2, atol=1e-2, rtol=1e-2, check_forward_ad=True, check_batched_grad=True
    ),
}
TWICE: dict[str, Callable[..., Any]] = {
    "right": lambda m, f: f(lambda a: a.sin(), (leaf(m),)),
    "wrong": lambda m, f: f(wrong(m), (leaf(m),)),
    "linear": lambda m, f: f(lambda a: a * 2, (leaf(m),)),
    "weights": lambda m, f: f(lambda a: a.sin(), (leaf(m),), (leaf(m),)),
    "options": lambda m, f: f(
        lambda a: a.sin(), (leaf(m),), check_undefined_grad=False, check_grad_dtypes=True, masked=False
    ),
    "forward": lambda m, f: f(lambda a: a.sin(), (leaf(m),), check_fwd_over_rev=True),
    "neither": lambda m, f: f(lambda a: a.sin(), (leaf(m),), check_rev_over_rev=False),
    "fast": lambda m, f: f(lambda a: a.sin() * a, (leaf(m),), fast_mode=True),
    "fast, wrong": lambda m, f: f(wrong(m), (leaf(m),), fast_mode=True),
    "fast, forward": lambda m, f: f(lambda a: a.sin(), (leaf(m),), check_fwd_over_rev=True, fast_mode=True),
    "complex": lambda m, f: f(lambda z: z * z, (whirl(m),), eps=1e-2, atol=1e-2, rtol=1e-2),
    "complex, fast": lambda m, f: f(lambda z: z * z, (whirl(m),), eps=1e-2, atol=1e-2, rtol=1e-2, fast_mode=True),
    "complex, wrong": lambda m, f: f(wrong(m), (whirl(m),), eps=1e-2, atol=1e-2, rtol=1e-2),
}


def outcome(f: Callable[[], Any]) -> Any:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            found = f()
        except Exception as e:
            kind = type(e).__name__ if "Grad" in type(e).__name__ else ""
            return "refused", next(c.__name__ for c in type(e).__mro__ if c.__module__ == "builtins"), kind
    return found, [w.category for w in seen if "jit" not in str(w.message)]


@pytest.mark.parametrize("name", CHECKS)
def test_gradcheck(name: str) -> None:
    theirs = outcome(lambda: CHECKS[name](torch, torch.autograd.gradcheck))
    assert outcome(lambda: CHECKS[name](lucid, lucid.autograd.gradcheck)) == theirs


@pytest.mark.parametrize("name", TWICE)
def test_gradgradcheck(name: str) -> None:
    theirs = outcome(lambda: TWICE[name](torch, torch.autograd.gradgradcheck))
    assert outcome(lambda: TWICE[name](lucid, lucid.autograd.gradgradcheck)) == theirs


def test_what_gradcheck_says() -> None:
    for m in (lucid, torch):
        with pytest.raises(RuntimeError, match="Jacobian mismatch for output 0 with respect to input 0,") as e:
            m.autograd.gradcheck(wrong(m), (leaf(m),))
        assert "numerical:" in str(e.value) and "analytical:" in str(e.value)
        with pytest.raises(RuntimeError, match="Backward is not reentrant"):
            m.autograd.gradcheck(unsteady(m), (leaf(m),))


def one(m: Any) -> Any:
    return m.ones((), dtype=m.float64)


CALLS: dict[str, Callable[..., Any]] = {
    "old name": lambda m, x: m.autograd.backward(x.sum(), grad_variables=one(m)),
    "old name by place": lambda m, x: m.autograd.backward(x.sum(), None, None, False, one(m)),
    "inputs by place": lambda m, x: m.autograd.backward(x.sum(), None, None, False, None, [x]),
    "both names": lambda m, x: m.autograd.backward(x.sum(), one(m), grad_variables=one(m)),
    "no scalar": lambda m, x: m.autograd.backward(x * 2),
    "other shape": lambda m, x: m.autograd.backward([x * 2], [m.ones(2, dtype=m.float64)]),
    "other kind": lambda m, x: m.autograd.backward([x * 2], [3]),
    "no history": lambda m, x: m.autograd.backward(m.ones(())),
    "no inputs": lambda m, x: m.autograd.backward(x.sum(), inputs=[]),
    "inputs without gradient": lambda m, x: m.autograd.backward(x.sum(), inputs=[m.ones(3)]),
    "the same twice": lambda m, x: m.autograd.backward([x.sum(), x.sum()]),
    "weights": lambda m, x: m.autograd.backward(x * 2, m.ones(3, dtype=m.float64)),
    "weights of float32": lambda m, x: m.autograd.backward(x * 2, m.ones(3)),
    "complex weights": lambda m, x: m.autograd.backward(x * 2, m.ones(3).to(m.complex64)),
    "method, old name": lambda m, x: x.sum().backward(grad_variables=1),
    "method, edges": lambda m, x: x.sum().backward(inputs=[m.autograd.graph.get_gradient_edge(x)]),
    "unused": lambda m, x: m.autograd.grad(x.sum(), leaf(m)),
    "zeros and errors": lambda m, x: m.autograd.grad(x.sum(), leaf(m), allow_unused=False, materialize_grads=True),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    found = []
    for m in (lucid, torch):
        x = leaf(m)
        found.append([outcome(lambda m=m, x=x: CALLS[name](m, x)), None if x.grad is None else x.grad.tolist()])
    assert found[0] == found[1]


@pytest.mark.parametrize("size", [1, 7, 300])
def test_fast_mode_takes_two_calls_and_one_pass_for_each_pair(size: int) -> None:
    for m in (lucid, torch):
        calls, passes = [0], [0]

        def count(x: Any, m: Any = m, calls: list[int] = calls, passes: list[int] = passes) -> Any:
            calls[0] += 1

            def backward(x: Any, g: Any) -> Any:
                passes[0] += 1
                return None if g is None else g * 2 * x

            return function(m, lambda x: x * x, backward)(x)

        assert m.autograd.gradcheck(count, (leaf(m, size),), fast_mode=True)
        assert calls[0] <= 8 and passes[0] <= 8, m.__name__
