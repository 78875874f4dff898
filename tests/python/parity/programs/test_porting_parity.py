"""Idioms of ported programs: each runs with PyTorch and with Lucid on both devices, and must give the same.

A program takes the module (`torch` or `lucid`) and a device, and gives numbers, strings, lists and tensors. What
`caught` tells of an exception is the builtin class that it derives from.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

import lucid
import pytest
import torch

PROGRAMS: dict[str, Callable[[Any, str], Any]] = {}


def program(f: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    PROGRAMS[f.__name__] = f
    return f


def caught(f: Callable[[], Any]) -> Any:
    """The builtin class of the exception that `f` raises; what it gives if it raises none."""
    try:
        return f()
    except Exception as e:
        return next(c.__name__ for c in type(e).__mro__ if c.__module__ == "builtins")


def plain(x: Any) -> Any:
    """Tensors by dtype, shape and elements."""
    if isinstance(x, (torch.Tensor, lucid.Tensor)):
        return [str(x.dtype).split(".")[-1], tuple(x.shape), x.detach().cpu().tolist()]
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    return [plain(v) for v in x] if isinstance(x, (list, tuple)) else x


@program
def device_as_a_context(L: Any, device: str) -> Any:
    dev, cpu = L.device(device), L.device("cpu")
    former = L.get_default_device()
    with dev:
        inside = L.ones(1).device == L.eye(1).device == dev
        with cpu, dev, dev:
            nested = L.zeros(1).device == dev
        after = L.get_default_device() == dev
    caught(lambda: with_error(dev))
    return [inside, nested, after, L.get_default_device() == former]


def with_error(device: Any) -> None:
    with device:
        raise KeyError


@program
def lists_of_sequences_as_indices(L: Any, device: str) -> Any:
    x = L.arange(60.0, device=device).reshape(3, 4, 5)
    i, j = L.tensor([0, 2], device=device), L.tensor([1, 3], device=device)
    y = x.clone()
    y[[i, j]] = 0.0
    y[[[0, 1], [2, 2]]] = -1.0
    sliced, one = x[[[0], slice(1, 3)]], x[[None, 1]]
    return [x[[i, j]], x[[[0, 1], [1, 2]]], sliced, x[[..., 0]], one, x[[0, 1]], y]


@program
def indices_of_wrong_kinds(L: Any, device: str) -> Any:
    x = L.arange(6.0, device=device)
    half = L.tensor([0.5], device=device)
    return [
        caught(lambda: x[half]),
        caught(lambda: x.__setitem__(half, 1.0)),
        caught(lambda: x[["a"]]),
        caught(lambda: x[1.5]),
        caught(lambda: x.index_select(0, half)),
    ]


@program
def numbers_of_complex_tensors(L: Any, device: str) -> Any:
    real, both = L.tensor(2 + 0j, device=device), L.tensor(2 + 1j, device=device)
    return [float(real), int(real), complex(both), caught(lambda: float(both)), caught(lambda: int(both))]


@program
def kinds_of_refusals(L: Any, device: str) -> Any:
    x = L.ones(2, device=device, requires_grad=True)
    z = (x * 1j).sum()
    return [
        caught(lambda: setattr(x, "requires_grad", 1)),
        caught(lambda: z.backward(L.tensor(1.0, device=device))),
        caught(lambda: x.sum().backward(L.tensor(1j, device=device))),
        caught(lambda: L.clamp(x)),
    ]


@program
def arguments_of_grad(L: Any, device: str) -> Any:
    x = L.ones(2, device=device, requires_grad=True)
    other = L.ones(1, device=device, requires_grad=True)
    # By position: retain_graph, create_graph, only_inputs, allow_unused.
    return list(L.autograd.grad((x * x).sum(), (x, other), None, False, False, True, True))


@program
def old_names(L: Any, device: str) -> Any:
    variable = L.autograd.Variable
    x = L.ones(2, device=device)
    v = variable(x, requires_grad=True)
    v.detach()[0] = 5.0
    with import_module(f"{L.__name__}.autograd.profiler").record_function("named"):
        y = variable(v * 2)
    return [
        x,
        [v.is_leaf, v.requires_grad, y.requires_grad, isinstance(x, variable), isinstance(3, variable)],
        caught(lambda: variable([1.0])),
        L.is_anomaly_enabled(),
        L.is_anomaly_check_nan_enabled(),
        L.GradScaler is L.amp.GradScaler,
    ]


@program
def threads_that_add_to_one_leaf(L: Any, device: str) -> Any:
    w = L.ones(4, 4, device=device, requires_grad=True)
    errors: list[Exception] = []

    def work(i: int, create: bool) -> None:
        try:
            for _ in range(20):
                (w * i).sum().backward(create_graph=create)
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(i, i % 4 == 3)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    found = w.grad.detach().clone()
    w.grad = None
    return [errors, found]


@program
def numbers_on_the_cpu(L: Any, device: str) -> Any:
    x = L.arange(6.0, device=device).reshape(2, 3).requires_grad_()
    two, half = L.tensor(2.0, requires_grad=True), L.tensor(0.5, dtype=L.float64)
    parts = [x * two, two - x, x**two, x > half, x.clamp(half), L.where(x > 1, x, two), L.maximum(x, two)]
    parts.append(x.lerp(x, two))
    sum(p.sum() for p in parts if p.requires_grad).backward()
    y = x.detach().clone()
    y.mul_(two.detach()).masked_fill_(y > 4, half)
    y[0, 1] = half
    gone = [x.grad.device == x.device, two.grad.device == two.device]
    gone += [p.device == x.device for p in parts]
    return [[p.detach() for p in parts], x.grad, round(two.grad.item(), 3), y, gone]


@program
def indices_on_the_cpu(L: Any, device: str) -> Any:
    x = L.arange(12.0, device=device).reshape(3, 4).requires_grad_()
    rows, mask = L.tensor([2, 0, 2]), L.tensor([True, False, True])
    y = x.detach().clone()
    y[mask] = -1.0
    y[rows, L.tensor([1, 1, 3], device=device)] = L.tensor(7.0)
    z = x.index_put((rows,), L.tensor(1.0), accumulate=True)
    (x[rows] * x[L.triu_indices(3, 3).unbind()].sum()).sum().backward()
    return [x[rows], x[mask], x[:, rows], x[mask, 1:], y, z, x.grad, x[rows].device == x.device]


@program
def what_is_copied_of_a_parameter(L: Any, device: str) -> Any:
    layer = L.nn.Linear(2, 1).to(device)
    tensor = L.ones(2, device=device, requires_grad=True)
    (layer(tensor).sum() + tensor.sum()).backward()
    twin = copy.deepcopy(layer)
    return [twin.weight.grad, twin.weight.requires_grad, copy.deepcopy(tensor).grad is None, layer.weight.grad is None]


@program
def printed_groups(L: Any, device: str) -> Any:
    p, q = (L.ones(1, device=device, requires_grad=True) for _ in range(2))
    return repr(L.optim.SGD([{"params": [p], "lr": 0.5}, {"params": [q]}], lr=0.1))


@program
def indices_of_each_sample(L: Any, device: str) -> Any:
    x, at = L.arange(6.0, device=device).reshape(2, 3), L.tensor([2, 1], device=device)
    truths = L.tensor([True, False], device=device)
    return [
        L.vmap(lambda v, i: v[i])(x, at),
        caught(lambda: L.vmap(lambda v, i: v[i])(x, truths)),
    ]


@program
def indices_that_read_nothing(L: Any, device: str) -> Any:
    x = L.ones(2, 0, 3, device=device)
    x[[5]] = 7.0
    x[L.tensor([9], device=device)] = L.ones(1, device=device)
    return [x[[5]], x, caught(lambda: x[:, [0]]), caught(lambda: L.ones(2, 1, device=device)[[5]])]


@program
def gradients_of_what_has_no_slope(L: Any, device: str) -> Any:
    image, grid = (L.ones(*s, device=device, requires_grad=True) for s in ((1, 1, 3, 3), (1, 2, 2, 2)))
    out = L.nn.functional.grid_sample(image, grid, mode="nearest", align_corners=True)
    empty = [L.zeros(0, device=device, requires_grad=True) for _ in range(2)]
    joined = L.cat(empty, 1)
    return [
        out,
        L.autograd.grad(out.sum(), (image, grid)),
        L.autograd.grad(joined.sum(), empty),
        L.cat([empty[0]]) is empty[0],
        L.native_group_norm(L.zeros(0, 2, 1, device=device), None, None, 0, 2, 1, 1, 1e-5),
    ]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_pytorch(name: str, device: str) -> None:
    want = plain(PROGRAMS[name](torch, "cpu"))
    assert plain(PROGRAMS[name](lucid, device)) == want
