"""What cuts a tensor off inside of transforms: `.data` and `detach_` from the innermost one, `detach` from all."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import within

DEVICES = ("cpu", "gpu")
Scalar = Callable[[Any, Any], Any]


def unrecorded(m: Any, f: Callable[[], Any]) -> Any:
    with m.no_grad():
        return f()


def rewritten(m: Any, x: Any) -> Any:
    y = x * 1
    y.data.mul_(2)
    return (y * x).sum()


FUNCTIONS: dict[str, Scalar] = {
    "data": lambda m, x: (x * x.data).sum(),
    "data of a step": lambda m, x: ((x * 2).data * x).sum(),
    "data of a copy": lambda m, x: (x.clone().data * x).sum(),
    "data of a part": lambda m, x: (x.data[0] * x).sum(),
    "data twice": lambda m, x: (x * x.data.data).sum(),
    "data of data's step": lambda m, x: (x * (x.data * x).data).sum(),
    "data alone": lambda m, x: (x.data * x.data).sum(),
    "cube": lambda m, x: (x * x * x.data).sum(),
    "detach": lambda m, x: (x * x.detach()).sum(),
    "detach of a step": lambda m, x: ((x * 2).detach() * x).sum(),
    "detach_": lambda m, x: ((x * 2).detach_() * x).sum(),
    "no_grad": lambda m, x: (x * unrecorded(m, lambda: x * 2)).sum(),
    "no_grad alone": lambda m, x: unrecorded(m, lambda: (x * x).sum()),
    "straight through": lambda m, x: (x + (x.round() - x).detach()).square().sum(),
}


def dual(m: Any, f: Scalar, x: Any) -> Any:
    fw = m.autograd.forward_ad
    with fw.dual_level():
        return tuple(fw.unpack_dual(f(m, fw.make_dual(x, m.ones_like(x)))))


def plain(m: Any, f: Scalar, x: Any) -> Any:
    x = x.clone().requires_grad_()
    y = f(m, x)
    return (y, y.requires_grad, *(m.autograd.grad(y, x, allow_unused=True) if y.requires_grad else ()))


def around(m: Any, f: Scalar, x: Any) -> Any:
    """A derivative that the tape outside of all transforms follows."""
    x = x.clone().requires_grad_()
    g = m.func.grad(lambda x: f(m, x))(x)
    return (g, g.requires_grad, *(m.autograd.grad(g.sum(), x, allow_unused=True) if g.requires_grad else ()))


def linearized(m: Any, f: Scalar, x: Any) -> Any:
    value, push = m.func.linearize(lambda x: f(m, x), x)
    return value, push(m.ones_like(x)), push(x)


TRANSFORMS: dict[str, Callable[[Any, Scalar, Any], Any]] = {
    "plain": plain,
    "around": around,
    "dual": dual,
    "linearize": linearized,
    "grad": lambda m, f, x: m.func.grad(lambda x: f(m, x))(x),
    "grad of grad": lambda m, f, x: m.func.grad(lambda x: m.func.grad(lambda x: f(m, x))(x).sum())(x),
    "jvp": lambda m, f, x: m.func.jvp(lambda x: f(m, x), (x,), (m.ones_like(x),)),
    "vjp": lambda m, f, x: m.func.vjp(lambda x: f(m, x), x)[1](m.ones((), device=x.device)),
    "jacfwd": lambda m, f, x: m.func.jacfwd(lambda x: f(m, x))(x),
    "hessian": lambda m, f, x: m.func.hessian(lambda x: f(m, x))(x),
    "jacfwd twice": lambda m, f, x: m.func.jacfwd(m.func.jacfwd(lambda x: f(m, x)))(x),
    "jacrev twice": lambda m, f, x: m.func.jacrev(m.func.jacrev(lambda x: f(m, x)))(x),
    "jacrev of jacfwd": lambda m, f, x: m.func.jacrev(m.func.jacfwd(lambda x: f(m, x)))(x),
    "vmap": lambda m, f, x: m.func.vmap(lambda x: f(m, x))(m.stack([x, x * 2])),
    "vmap of grad": lambda m, f, x: m.func.vmap(m.func.grad(lambda x: f(m, x)))(m.stack([x, x * 2])),
    "vmap of hessian": lambda m, f, x: m.func.vmap(m.func.hessian(lambda x: f(m, x)))(m.stack([x, x * 2])),
    "jvp of grad": lambda m, f, x: m.func.jvp(m.func.grad(lambda x: f(m, x)), (x,), (m.ones_like(x),)),
    "grad of jvp": lambda m, f, x: m.func.grad(lambda x: m.func.jvp(lambda x: f(m, x), (x,), (m.ones_like(x),))[1])(x),
    "functional.jacobian": lambda m, f, x: m.autograd.functional.jacobian(lambda x: f(m, x), x),
    "functional.jacobian forwards": lambda m, f, x: m.autograd.functional.jacobian(
        lambda x: f(m, x), x, strategy="forward-mode", vectorize=True
    ),
    "functional.hessian": lambda m, f, x: m.autograd.functional.hessian(lambda x: f(m, x), x),
    "functional.hessian forwards": lambda m, f, x: m.autograd.functional.hessian(
        lambda x: f(m, x), x, vectorize=True, outer_jacobian_strategy="forward-mode"
    ),
    "functional.hvp": lambda m, f, x: m.autograd.functional.hvp(lambda x: f(m, x), x, m.ones_like(x)),
}
#: PyTorch takes what `vmap` hides for a view, which cannot be cut off in place.
HIDDEN = {("detach_", "vmap")}


def flat(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [x for v in value for x in flat(v)]
    return [value if isinstance(value, bool) or value is None else np.asarray((value.detach() + 0).tolist())]


def outcome(m: Any, f: Scalar, transform: str, device: str) -> list[Any] | str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return flat(TRANSFORMS[transform](m, f, m.tensor([1.0, 2.0, 3.5], device=device)))
        except RuntimeError as error:
            return str(error).rpartition("accessing")[2]


def compare(f: Scalar, transform: str, device: str) -> None:
    wanted, given = outcome(torch, f, transform, "cpu"), outcome(lucid, f, transform, device)
    assert len(wanted) == len(given), (wanted, given)
    for a, b in zip(wanted, given, strict=True):
        if isinstance(a, np.ndarray):
            np.testing.assert_allclose(b, a, **within("few ops"))
        else:
            assert a == b, (wanted, given)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_cut(name: str, transform: str, device: str) -> None:
    if (name, transform) not in HIDDEN:
        compare(FUNCTIONS[name], transform, device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("transform", ["plain", "grad", "jvp", "jacfwd", "functional.jacobian forwards"])
def test_writes_through_data(transform: str, device: str) -> None:
    compare(rewritten, transform, device)


@pytest.mark.parametrize("device", DEVICES)
def test_data_of_what_is_captured(device: str) -> None:
    """The tape outside of a transform follows on what is cut off inside."""

    def gradients(m: Any, device: str) -> list[Any]:
        w = m.tensor([1.0, 2.0], device=device, requires_grad=True)
        x = m.tensor([3.0, 4.0], device=device, requires_grad=True)
        g = m.func.grad(lambda x: (x * (w * x).data).sum())(x)
        return [t.tolist() for t in (g, *m.autograd.grad(g.sum(), (w, x)))]

    assert gradients(lucid, device) == gradients(torch, "cpu")


@pytest.mark.parametrize("device", DEVICES)
def test_the_forward_mode_of_autograd_is_no_transform(device: str) -> None:
    """There a function may do what it may not in those of `func`."""

    def columns(m: Any, device: str) -> Any:
        def f(x: Any) -> Any:
            y = x * 1
            y.data = x * 3
            return (y.detach() * x).sum()

        x = m.tensor([1.0, 2.0], device=device)
        return m.autograd.functional.jacobian(f, x, strategy="forward-mode", vectorize=True).tolist()

    assert columns(lucid, device) == columns(torch, "cpu")


def test_a_long_loop_of_data_and_of_inner_gradients() -> None:
    """What a transform asks of a history it asks of each step once: a round that walks all of it takes no end."""
    n = 20_000

    def f(x: Any) -> Any:
        y = x
        for _ in range(n):
            y = 0.5 * y + 0.25 * y.data + x
        return y

    assert abs(lucid.func.grad(f)(lucid.tensor(1.0)).item() - 2.0) < 1e-4
    w = lucid.tensor(2.0, requires_grad=True)
    x = w * 1
    for _ in range(n // 20):
        x = x - 0.0001 * lucid.func.grad(lambda x: x * x)(x)
    (slope,) = lucid.autograd.grad(x, w)
    assert abs(slope.item() - (1 - 0.0002) ** (n // 20)) < 1e-4


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("part", [False, True])
def test_inputs_of_a_transform_are_leaves(part: bool, device: str) -> None:
    """They are not written, be they steps on the tape of a transform around; what they were made of may be, later."""

    def inner(m: Any, device: str) -> Any:
        def f(x: Any, y: Any) -> Any:
            (x[:1] if part else x).add_(y[:1] if part else y)
            return (x * y).sum()

        a = m.tensor([1.0, 2.0], device=device)
        return m.func.grad(lambda a: sum(g.sum() for g in m.func.grad(f, argnums=(0, 1))(a * 1, a * 2)))(a)

    def later(m: Any, device: str) -> Any:
        w = m.tensor([1.0, 2.0], device=device, requires_grad=True)
        a = w * 2
        y, back = m.func.vjp(lambda x: x * w, a)
        a.add_(1)
        (g,) = back(m.ones_like(a))
        return [t.tolist() for t in (y, g, *m.autograd.grad(g.sum(), w))]

    for m, on in ((torch, "cpu"), (lucid, device)):
        with pytest.raises(RuntimeError, match="leaf Variable"):
            inner(m, on)
    assert later(lucid, device) == later(torch, "cpu")
