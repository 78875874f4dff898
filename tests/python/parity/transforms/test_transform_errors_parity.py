"""What function transforms refuse inside of the function, against PyTorch's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import lucid
import pytest
import torch

DEVICES = ["cpu", "gpu"]


def plain(x: Any) -> Any:
    if isinstance(x, (lucid.Tensor, torch.Tensor)):
        return x.detach().cpu().tolist()
    return type(x)(map(plain, x)) if type(x) in (tuple, list) else x


def outcome(f: Callable[[], Any]) -> Any:
    """What it gives, or the kind of error that it raises."""
    try:
        return plain(f())
    except Exception as e:
        return "refused: " + next(c.__name__ for c in type(e).__mro__ if c.__module__ == "builtins")


def ones(m: Any, device: str, *size: int) -> Any:
    return m.ones(*size, device=device)


TRANSFORMS: dict[str, Callable[..., Any]] = {
    "grad": lambda m, d, f: m.func.grad(f)(ones(m, d, 3)),
    "vjp": lambda m, d, f: m.func.vjp(f, ones(m, d, 3))[0],
    "jvp": lambda m, d, f: m.func.jvp(f, (ones(m, d, 3),), (ones(m, d, 3),)),
    "vmap": lambda m, d, f: m.func.vmap(f)(ones(m, d, 2, 3)),
    "jacrev": lambda m, d, f: m.func.jacrev(f)(ones(m, d, 3)),
    "jacfwd": lambda m, d, f: m.func.jacfwd(f)(ones(m, d, 3)),
    "hessian": lambda m, d, f: m.func.hessian(f)(ones(m, d, 3)),
    "vmap of grad": lambda m, d, f: m.func.vmap(m.func.grad(f))(ones(m, d, 2, 3)),
    "grad of vmap": lambda m, d, f: m.func.grad(lambda x: m.func.vmap(f)(x).sum())(ones(m, d, 2, 3)),
}


def put(x: Any, place: Any, value: Any) -> None:
    x[place] = value


def hooked(m: Any, x: Any) -> Any:
    with m.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        return (x * x).sum()


def added(c: Any) -> None:
    c += 1


# Of a module, the argument and a tensor from outside: what is done before the sum of the argument is given.
STEPS: dict[str, Callable[..., Any]] = {
    "write": lambda m, x, c: c.add_(1),
    "write of the argument": lambda m, x, c: c.add_(x),
    "product": lambda m, x, c: c.mul_(2),
    "number": lambda m, x, c: c.fill_(1),
    "zeros": lambda m, x, c: c.zero_(),
    "copy": lambda m, x, c: c.copy_(c.clone()),
    "operator": lambda m, x, c: added(c),
    "element": lambda m, x, c: put(c, 0, 1.0),
    "elements": lambda m, x, c: put(c, slice(0, 1), 1.0),
    "mask": lambda m, x, c: put(c, c > 0, 1.0),
    "view": lambda m, x, c: c.view(-1).add_(1),
    "piece": lambda m, x, c: c[0].add_(1),
    "cut off": lambda m, x, c: c.detach().add_(1),
    "shape": lambda m, x, c: c.unsqueeze_(0),
    "clone": lambda m, x, c: c.clone().add_(1),
    "own": lambda m, x, c: m.zeros(3, device=x.device).add_(1),
    "own of the argument": lambda m, x, c: (x * 2).add_(1),
    "piece of own": lambda m, x, c: put(x * 2, 0, 3.0),
    "out": lambda m, x, c: m.add(c, 1, out=c),
    "backward": lambda m, x, c: (x * x).sum().backward(),
    "backward to a leaf": lambda m, x, c: (m.ones(3, device=x.device, requires_grad=True) * x).sum().backward(),
    "autograd.backward": lambda m, x, c: m.autograd.backward((x * x).sum()),
    "requires_grad_": lambda m, x, c: c.detach().requires_grad_(),
    "requires_grad_(False)": lambda m, x, c: c.detach().requires_grad_(False),
    "made to require": lambda m, x, c: m.ones(3, requires_grad=True) * 2,
    "a tensor made to require": lambda m, x, c: m.tensor([1.0], requires_grad=True) * 2,
    "a layer": lambda m, x, c: m.nn.Linear(2, 2),
    "retain_grad": lambda m, x, c: (x * 2).retain_grad(),
    "data": lambda m, x, c: setattr(x, "data", m.zeros(3, device=x.device)),
    "data of another": lambda m, x, c: setattr(x * 1, "data", m.zeros(3, device=x.device)),
    "item": lambda m, x, c: x.sum().item(),
    "truth": lambda m, x, c: bool(x.sum() > 0),
    "list": lambda m, x, c: x.tolist(),
    "nonzero": lambda m, x, c: x.nonzero(),
    "random": lambda m, x, c: m.rand(3, device=x.device),
    "dropout": lambda m, x, c: m.nn.functional.dropout(x),
    "hooks": lambda m, x, c: hooked(m, x),
    "jacobian": lambda m, x, c: m.autograd.functional.jacobian(lambda y: y * 2, c),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_what_a_transform_refuses(transform: str, step: str, device: str) -> None:
    found = []
    for m, on in ((lucid, device), (torch, "cpu")):
        captured = ones(m, on, 3)

        def f(x: Any, m: Any = m, captured: Any = captured) -> Any:
            STEPS[step](m, x, captured)
            return x.sum()

        found.append([outcome(lambda m=m, on=on, f=f: TRANSFORMS[transform](m, on, f)), captured.tolist()])
    assert found[0] == found[1]


OUTPUTS: dict[str, Callable[..., Any]] = {
    "number": lambda m, x: 3,
    "none": lambda m, x: None,
    "tuple": lambda m, x: (x.sum(), x.sum()),
    "mixed": lambda m, x: (x.sum(), 3),
    "nothing": lambda m, x: (),
    "whole numbers": lambda m, x: x.sum().long(),
    "constant": lambda m, x: m.ones((), device=x.device),
    "text": lambda m, x: "sum",
}


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_what_a_function_may_give(transform: str, output: str) -> None:
    found = [
        outcome(lambda m=m: TRANSFORMS[transform](m, "cpu", lambda x: OUTPUTS[output](m, x))) for m in (lucid, torch)
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("device", DEVICES)
def test_a_function_may_write_what_the_outer_one_made_only_outside(device: str) -> None:
    def f(m: Any, on: str) -> Any:
        def outer(x: Any) -> Any:
            made = x * 2
            made.add_(1)

            def inner(y: Any) -> Any:
                made.add_(1)
                return y.sum()

            return m.func.grad(inner)(x).sum() + made.sum()

        return m.func.grad(outer)(ones(m, on, 3))

    assert outcome(lambda: f(lucid, device)) == outcome(lambda: f(torch, "cpu")) == "refused: RuntimeError"


@pytest.mark.parametrize("device", DEVICES)
def test_a_dual_input_may_be_written(device: str) -> None:
    def f(m: Any, on: str) -> Any:
        return m.func.jvp(lambda x: (x.mul_(2), x.sum())[1], (ones(m, on, 3),), (ones(m, on, 3),))

    assert outcome(lambda: f(lucid, device)) == outcome(lambda: f(torch, "cpu"))


def test_transforms_end_with_their_calls() -> None:
    x = lucid.ones(3)
    with pytest.raises(ZeroDivisionError):
        lucid.func.grad(lambda x: 1 / 0)(x)
    with pytest.raises(ZeroDivisionError):
        lucid.func.jvp(lambda x: 1 / 0, (x,), (x,))
    assert x.add_(1).tolist() == [2.0] * 3
    y = lucid.ones(3).requires_grad_()
    with lucid.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        (y * y).sum().backward()


def test_hooks_that_are_there_already() -> None:
    for m in (lucid, torch):
        with m.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t), pytest.raises(RuntimeError, match="hooks"):
            m.func.grad(lambda x: x.sum())(m.ones(3))


# ---- what functions do to their arguments, and with recording off ----------------------------------------------------


def written(m: Any, x: Any) -> Any:
    y = x * x
    x.mul_(2)
    return y * x


def within(m: Any, x: Any, *modes: str) -> Any:
    with contextlib.ExitStack() as stack:
        for mode in modes:
            stack.enter_context(getattr(m, mode)())
        y = x * x
    return y * x


def filled(m: Any, x: Any) -> Any:
    o = m.zeros(2, device=x.device)
    o[0] = x[1]
    o.mul_(x)
    return o


BODIES: dict[str, Callable[[Any, Any], Any]] = {
    "written": written,
    "written in part": lambda m, x: (y := x.clone(), put(y, 0, x[1]), y.mul_(x), y * x)[-1],
    "written over": lambda m, x: m.mul(x, x, out=m.zeros(2, device=x.device)),
    "filled": filled,
    "no_grad": lambda m, x: within(m, x, "no_grad"),
    "no_grad, enable_grad": lambda m, x: within(m, x, "no_grad", "enable_grad"),
    "inference_mode": lambda m, x: within(m, x, "inference_mode"),
    "detach": lambda m, x: x.detach() * x * x,
    "a number of it": lambda m, x: x * x * (x[0].item() if x.dim() else 1.0),
    "a part written": lambda m, x: (y := x * x, y[1:].mul_(x[0]), y)[-1],
    "exp": lambda m, x: x.exp() * x,
}
DERIVATIVES: dict[str, Callable[..., Any]] = {
    "jacfwd": lambda m, f, x: m.func.jacfwd(f)(x),
    "jacrev": lambda m, f, x: m.func.jacrev(f)(x),
    "hessian": lambda m, f, x: m.func.hessian(lambda x: f(x).sum())(x),
    "jacfwd of jacfwd": lambda m, f, x: m.func.jacfwd(m.func.jacfwd(f))(x),
    "jacrev of jacfwd": lambda m, f, x: m.func.jacrev(m.func.jacfwd(f))(x),
    "vmap of jacfwd": lambda m, f, x: m.func.vmap(m.func.jacfwd(f))(m.stack([x, x * 2])),
    "jvp": lambda m, f, x: m.func.jvp(f, (x,), (x + 1,)),
    "grad of grad": lambda m, f, x: m.func.grad(lambda x: m.func.grad(lambda x: f(x).sum())(x).sum())(x),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("derivative", DERIVATIVES)
def test_derivatives_of_bodies(derivative: str, body: str, device: str) -> None:
    def run(m: Any, d: str) -> Any:
        x = m.tensor([1.5, 2.5], device=d)
        found = outcome(lambda: DERIVATIVES[derivative](m, lambda v: BODIES[body](m, v), x))
        return found, plain(x)

    theirs, ours = run(torch, "cpu"), run(lucid, device)
    if isinstance(theirs[0], str) and isinstance(ours[0], str):
        return  # Which error it is, is compared above.
    if isinstance(theirs[0], str):
        # The zeros that PyTorch does not make: what it refuses is to read them.
        flat = [v for rows in ours[0] for row in rows for v in row]
        assert derivative in ("jacfwd of jacfwd", "jacrev of jacfwd") and not any(flat), (theirs, ours)
        return
    assert rounded(ours) == rounded(theirs)


def rounded(x: Any) -> Any:
    return f"{x:.5g}" if isinstance(x, float) else [rounded(v) for v in x]


@pytest.mark.parametrize("device", DEVICES)
def test_jacfwd_runs_the_function_once(device: str) -> None:
    """On values that are no batch, so that they can be read, and gives what it gives beside, whatever that is."""
    calls = []

    def f(x: Any) -> Any:
        calls.append(float(x.sum().item()))
        return {"y": x * x}, (x.sum(), "text", lucid.ones(2, device=device))

    x = lucid.tensor([1.0, 2.0, 3.0], device=device)
    jacobian, aux = lucid.func.jacfwd(f, has_aux=True)(x)
    assert plain(jacobian["y"]) == [[2.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 6.0]]
    assert (plain(aux[0]), aux[1], plain(aux[2])) == (6.0, "text", [1.0, 1.0])
    assert calls == [6.0]
    hessian = lucid.func.hessian(lambda x: f(x)[0]["y"].sum())(x)
    assert plain(hessian) == [[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0]]
    assert calls == [6.0, 6.0]
