"""`autograd.functional` against PyTorch: values, structure, graphs, strictness, messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import TABLE, within

DEVICES = ["cpu", "gpu"]
RNG = np.random.default_rng(3)
X, Y = RNG.standard_normal((2, 3)).astype(np.float32), RNG.standard_normal(3).astype(np.float32)


def agree(ours: Any, theirs: Any, where: str = "") -> None:
    if isinstance(theirs, (tuple, list)):
        # In forward mode PyTorch gives lists of lists; here they are tuples always, as documented.
        assert isinstance(ours, tuple) and len(ours) == len(theirs), where
        for a, b in zip(ours, theirs, strict=True):
            agree(a, b, where)
        return
    assert tuple(ours.shape) == tuple(theirs.shape), where
    # PyTorch's Hessian leaks the outer history in forward mode.
    assert ours.requires_grad == (theirs.requires_grad and "forward" not in where), where
    np.testing.assert_allclose(
        np.asarray(ours.detach().cpu().tolist()),
        theirs.detach().numpy(),
        **within("function transforms"),
        err_msg=where,
    )


def one(m: Any) -> Callable[..., Any]:
    return lambda x: m.sin(x) * x.sum()


def two(m: Any) -> Callable[..., Any]:
    return lambda x, y: (m.tanh(x @ y), (x * y).sum(0) ** 2)


def scalar(m: Any) -> Callable[..., Any]:
    return lambda x: (m.sin(x) * x).sum() ** 2


def scalar2(m: Any) -> Callable[..., Any]:
    return lambda x, y: (m.sin(x) * y).sum() ** 3


CASES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "jacobian": lambda f, m, t: f.jacobian(one(m), t(X)),
    "jacobian of a tuple": lambda f, m, t: f.jacobian(two(m), (t(X), t(Y))),
    "jacobian, vectorized": lambda f, m, t: f.jacobian(two(m), (t(X), t(Y)), vectorize=True),
    "jacobian, forward": lambda f, m, t: f.jacobian(two(m), (t(X), t(Y)), vectorize=True, strategy="forward-mode"),
    "jacobian, create_graph": lambda f, m, t: f.jacobian(one(m), t(X).requires_grad_(), create_graph=True),
    "jacobian, strict": lambda f, m, t: f.jacobian(one(m), t(X), strict=True),
    "jacobian of a list's tuple": lambda f, m, t: f.jacobian(lambda x: (x * 2, x.sum()), t(Y)),
    "hessian": lambda f, m, t: f.hessian(scalar(m), t(X)),
    "hessian of two": lambda f, m, t: f.hessian(scalar2(m), (t(Y), t(Y) + 1)),
    "hessian, vectorized": lambda f, m, t: f.hessian(scalar2(m), (t(Y), t(Y) + 1), vectorize=True),
    "hessian, forward": lambda f, m, t: f.hessian(
        scalar2(m), (t(Y), t(Y) + 1), vectorize=True, outer_jacobian_strategy="forward-mode"
    ),
    "hessian, create_graph": lambda f, m, t: f.hessian(scalar(m), t(X).requires_grad_(), create_graph=True),
    "vjp": lambda f, m, t: f.vjp(one(m), t(X), t(X) + 1),
    "vjp of two": lambda f, m, t: f.vjp(two(m), (t(X), t(Y)), (t(Y[:2]), t(Y))),
    "vjp of a number": lambda f, m, t: f.vjp(scalar(m), t(X)),
    "vjp, create_graph": lambda f, m, t: f.vjp(one(m), t(X).requires_grad_(), t(X) + 1, create_graph=True),
    "vjp, unused": lambda f, m, t: f.vjp(lambda x, y: x * 2, (t(X), t(Y)), t(X)),
    "jvp": lambda f, m, t: f.jvp(one(m), t(X), t(X) + 1),
    "jvp of two": lambda f, m, t: f.jvp(two(m), (t(X), t(Y)), (t(X), t(Y))),
    "jvp, create_graph": lambda f, m, t: f.jvp(one(m), t(X).requires_grad_(), t(X) + 1, create_graph=True),
    "jvp, unused": lambda f, m, t: f.jvp(lambda x: (x * 2, m.ones(2)), t(X), t(X)),
    "hvp": lambda f, m, t: f.hvp(scalar(m), t(X), t(X) + 1),
    "hvp of two": lambda f, m, t: f.hvp(scalar2(m), (t(Y), t(Y) + 1), (t(Y), t(Y) * 2)),
    "vhp": lambda f, m, t: f.vhp(scalar(m), t(X), t(X) + 1),
    "vhp of two": lambda f, m, t: f.vhp(scalar2(m), (t(Y), t(Y) + 1), (t(Y), t(Y) * 2)),
    "vhp, create_graph": lambda f, m, t: f.vhp(scalar(m), t(X).requires_grad_(), t(X) + 1, create_graph=True),
    "hvp of a linear function": lambda f, m, t: f.hvp(lambda x: x.sum(), t(X), t(X)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("device", DEVICES)
def test_values(case: str, device: str) -> None:
    if device == "gpu" and case == "jvp, unused":
        device = "cpu"  # It makes a tensor of its own.
    ours = CASES[case](lucid.autograd.functional, lucid, lambda a: lucid.tensor(a, device=device))
    theirs = CASES[case](torch.autograd.functional, torch, torch.tensor)
    agree(ours, theirs, case)


def test_graphs_go_on() -> None:
    x, t = lucid.tensor(X, requires_grad=True), torch.tensor(X, requires_grad=True)
    lucid.autograd.functional.jacobian(one(lucid), x, create_graph=True).square().sum().backward()
    torch.autograd.functional.jacobian(one(torch), t, create_graph=True).square().sum().backward()
    np.testing.assert_allclose(np.asarray(x.grad.tolist()), t.grad.numpy(), rtol=TABLE["training"].rtol)


REFUSED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "no tensor": lambda f, m, t: f.vjp(one(m), 3),
    "no tensor in a tuple": lambda f, m, t: f.jacobian(one(m), (t(X), 3)),
    "no v": lambda f, m, t: f.vjp(one(m), t(X)),
    "no v forward": lambda f, m, t: f.jvp(one(m), t(X)),
    "v of another size": lambda f, m, t: f.jvp(one(m), t(X), t(Y)),
    "too many": lambda f, m, t: f.vjp(two(m), (t(X), t(Y)), (t(Y),)),
    "not scalar": lambda f, m, t: f.hessian(one(m), t(X)),
    "not single": lambda f, m, t: f.vhp(two(m), (t(X), t(Y)), (t(X), t(Y))),
    "strict and independent": lambda f, m, t: f.jacobian(lambda x, y: x * 2, (t(X), t(Y)), strict=True),
    "strict and constant": lambda f, m, t: f.vjp(lambda x: m.ones(2), t(X), t(Y[:2]), strict=True),
    "strict and linear": lambda f, m, t: f.hessian(lambda x: x.sum(), t(X), strict=True),
    "strict vectorized": lambda f, m, t: f.jacobian(one(m), t(X), strict=True, vectorize=True),
    "forward alone": lambda f, m, t: f.jacobian(one(m), t(X), strategy="forward-mode"),
    "strategy": lambda f, m, t: f.jacobian(one(m), t(X), strategy="sideways"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    with pytest.raises((RuntimeError, TypeError, AssertionError, NotImplementedError)) as theirs:
        REFUSED[case](torch.autograd.functional, torch, torch.tensor)
    with pytest.raises(theirs.type) as ours:
        REFUSED[case](lucid.autograd.functional, lucid, lucid.tensor)
    assert str(ours.value)[:40].replace("lucid.", "torch.") == str(theirs.value)[:40]


def test_names() -> None:
    for name in lucid.autograd.functional.__all__:
        assert getattr(lucid.autograd, name) is getattr(lucid.autograd.functional, name)
