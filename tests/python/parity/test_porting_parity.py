"""Idioms of ported programs: each runs with PyTorch and with Lucid on both devices, and must give the same.

A program takes the module (`torch` or `lucid`) and a device, and gives numbers, strings, lists and tensors. What
`caught` tells of an exception is the builtin class that it derives from.
"""

from __future__ import annotations

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
        L.GradScaler is L.amp.GradScaler,
    ]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_pytorch(name: str, device: str) -> None:
    want = plain(PROGRAMS[name](torch, "cpu"))
    assert plain(PROGRAMS[name](lucid, device)) == want
