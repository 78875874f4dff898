"""Objects that the graph refers to, against PyTorch: leaves, bases of views, what a step saved of its call."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import lucid
import pytest
import torch

DEVICES = ["cpu", "gpu"]


def both(f: Callable[..., Any], device: str) -> None:
    assert f(lucid, device) == f(torch, "cpu")


def added_to(y: Any) -> Any:
    return y.grad_fn.next_functions[0][0]


def asked(x: Any) -> Any:
    x.requires_grad = True
    return x


def given_data(m: Any, device: str) -> Any:
    x = m.ones(3, device=device, requires_grad=True)
    y = x * 2
    x.data = m.zeros(3, device=device)
    return x, y


def moved(m: Any, device: str) -> Any:
    layer = m.nn.Linear(2, 3).to(device)
    layer.weight.data.add_(1)
    return layer.weight


LEAVES: dict[str, Callable[..., Any]] = {
    "made so": lambda m, d: m.ones(3, device=d, requires_grad=True),
    "of data": lambda m, d: m.tensor([1.0, 2.0], device=d, requires_grad=True),
    "asked": lambda m, d: m.ones(3, device=d).requires_grad_(),
    "set": lambda m, d: asked(m.ones(3, device=d)),
    "detached": lambda m, d: (m.ones(3, device=d) * 2).detach().requires_grad_(),
    "parameter": lambda m, d: m.nn.Parameter(m.ones(3, device=d)),
    "of a layer": moved,
    "copied": lambda m, d: copy.deepcopy(m.nn.Parameter(m.ones(3, device=d))),
    "a view": lambda m, d: m.ones(3, device=d)[1:].requires_grad_(),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", LEAVES)
def test_the_node_of_a_leaf_knows_its_object(name: str, device: str) -> None:
    def f(m: Any, device: str) -> Any:
        x = LEAVES[name](m, device)
        y = x * 2
        node = added_to(y)
        found = [node.variable is x, added_to(x.sin()).variable is x, type(node.variable) is type(x)]
        found.append(x.sin().grad_fn._saved_self is x)
        y.sum().backward()
        found.append(node.variable.grad is x.grad)
        return found

    both(f, device)


@pytest.mark.parametrize("device", DEVICES)
def test_the_node_of_a_leaf_with_other_data(device: str) -> None:
    def f(m: Any, device: str) -> Any:
        x, y = given_data(m, device)
        return added_to(y).variable is x, added_to(x * 3).variable is x

    both(f, device)


@pytest.mark.parametrize("device", DEVICES)
def test_the_node_of_a_leaf_whose_object_is_gone(device: str) -> None:
    def f(m: Any, device: str) -> Any:
        x = m.ones(3, device=device, requires_grad=True)
        node = added_to(x * 2)
        del x
        gc.collect()
        a, b = node.variable, node.variable
        return a is b, a.tolist(), a.requires_grad, a.is_leaf

    both(f, device)


VIEWS: dict[str, Callable[..., Any]] = {
    "slice": lambda m, x: x[1:],
    "row": lambda m, x: x[0],
    "whole": lambda m, x: x[...],
    "method": lambda m, x: x.view(-1),
    "function": lambda m, x: m.transpose(x, 0, 1),
    "reshape": lambda m, x: x.reshape(2, 8),
    "T": lambda m, x: x.T,
    "mT": lambda m, x: x.mT,
    "mH": lambda m, x: x.mH,
    "of a view": lambda m, x: x[1:].view(-1)[2:],
    "as another": lambda m, x: x.expand_as(x),
    "of another dtype": lambda m, x: x.detach().view(m.int32),
    "unbound": lambda m, x: x.unbind()[1],
    "split": lambda m, x: m.split(x, 2)[1],
    "chunk": lambda m, x: x.chunk(2)[0],
    "iterated": lambda m, x: next(iter(x)),
    "expanded": lambda m, x: x[None].expand(3, 4, 4),
    "ravelled": lambda m, x: x.ravel(),
    "diagonal": lambda m, x: x.diagonal(),
    "detached": lambda m, x: x.detach(),
    "data": lambda m, x: x.data,
    "none": lambda m, x: x.clone(),
    "not recorded": lambda m, x: m.no_grad()(lambda: x[1:])(),
    "as strided": lambda m, x: x.as_strided((2,), (1,)),
    "of another": lambda m, x: (x * 2)[1:],
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_knows_the_object_of_its_base(name: str, asks: bool, device: str) -> None:
    def f(m: Any, device: str) -> Any:
        x = m.ones(4, 4, device=device).requires_grad_(asks)
        y = VIEWS[name](m, x)
        found = [y._base is x, y._base is y._base, y._base is None]
        if y._base is not None:
            found.append(y.view_as(y)._base is y._base)
            found.append(y._base.tolist())
        return found

    both(f, device)


@pytest.mark.parametrize("device", DEVICES)
def test_complex_parts_know_their_base(device: str) -> None:
    def f(m: Any, device: str) -> Any:
        z = m.tensor([1 + 2j, 3 - 1j], device=device)
        # One of a real tensor is that tensor.
        return z.real._base is z, z.imag._base is z, m.ones(2).real._base is None

    both(f, device)


@pytest.mark.parametrize("device", DEVICES)
def test_a_base_lives_on_with_its_views(device: str) -> None:
    def f(m: Any, device: str) -> Any:
        x = m.ones(4, device=device)
        x.note = "kept"
        y = x[1:]
        del x
        gc.collect()
        found = [y._base.note, y[1:]._base is y._base]
        # Its base is then no longer what it was a view of.
        z = m.ones(2, 3, device=device)
        v = z[0]
        z.t_()
        return [*found, v._base is None, tuple(v._base.shape) in ((2, 3), (3, 2))]

    both(f, device)


def test_a_cycle_through_a_base_is_collected() -> None:
    class Note:
        pass

    x = lucid.ones(4)
    x.part = x[1:]
    x.grad = lucid.ones(4)
    x.grad.of = x
    x.note = Note()
    seen = weakref.ref(x.note)
    del x
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize("device", DEVICES)
def test_the_step_that_made_a_recorded_gradient(device: str) -> None:
    """A copy of what came first, and then a sum."""

    def run(m: Any, d: str) -> Any:
        x = m.ones(2, device=d, requires_grad=True)
        names = []
        for _ in range(2):
            (x**3).sum().backward(create_graph=True)
            names.append(x.grad.grad_fn.name().rpartition("::")[2])
        (second,) = m.autograd.grad(x.grad.sum(), x)
        x.grad = None
        return names, second.tolist()

    both(run, device)
