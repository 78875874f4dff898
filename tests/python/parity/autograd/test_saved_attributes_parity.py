"""Saved attributes of graph nodes, against PyTorch: the arguments of the call, the tensors, the result.

PyTorch names what its own formula needs. Here a step knows all arguments of its call that are no tensors, and those
tensors that the tape keeps: a formula of another shape may keep others, and then there is no such attribute.
"""

from __future__ import annotations

import warnings
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.limitations import SAVED_ATTRIBUTES
from tests.python.parity.ops.test_table_parity import run_lucid, run_torch
from tests.python.samples import rows, samples

DEVICES = ["cpu", "gpu"]
ROWS = [r for r in rows() if r["torch"] != "-" and r["differentiable"] and "float32" in r["dtypes"]]
#: How many attributes of the table's samples are the same, at least. More have no counterpart here.
AS_MANY = {"cpu": 1313, "gpu": 1320}


def plain(value: Any) -> Any:
    """Tensors as their sizes and numbers, to float32's digits."""
    if isinstance(value, (torch.Tensor, lucid.Tensor)):
        numbers = np.asarray(value.detach().cpu().tolist()).ravel()
        return tuple(value.shape), [f"{x:.3g}" if np.isfinite(x) else str(x) for x in numbers]
    if isinstance(value, (tuple, list)):
        return tuple(plain(v) for v in value)
    return value


def saved(node: Any, name: str) -> Any:
    try:
        return plain(getattr(node, name))
    except AttributeError:
        return "missing"


def nodes(found: list[Any]) -> list[Any]:
    return [t.grad_fn for t in found if isinstance(t, (torch.Tensor, lucid.Tensor)) and t.grad_fn is not None]


@pytest.mark.parametrize("device", DEVICES)
def test_attributes_of_the_table(device: str) -> None:
    same, other, excepted = 0, [], set()
    for row in ROWS:
        for sample in (s for s in samples(row, device) if s.fits(device)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    wanted = nodes(run_torch(row, sample, "float32", "contiguous", True)[0])
                    got = nodes(run_lucid(row, sample, "float32", "contiguous", True, device)[0])
                except (RuntimeError, TypeError, NotImplementedError):
                    continue  # What either refuses is compared elsewhere.
            if not wanted or not got or wanted[0].name() != got[0].name():
                continue
            listed = set(dir(got[0]))
            for name in dir(wanted[0]):
                if not name.startswith("_saved_"):
                    continue
                a, b = saved(wanted[0], name), saved(got[0], name)
                if a == b:
                    same += 1
                elif b != "missing" and (row["name"], name[7:]) in SAVED_ATTRIBUTES:
                    excepted.add((row["name"], name[7:]))
                elif b != "missing":
                    other.append((row["name"], sample.text, name, a, b))
            for name in listed:
                if name.startswith("_saved_"):
                    assert saved(got[0], name) != "missing", (row["name"], name)
    assert other == [], "\n".join(map(str, other))
    assert device == "gpu" or excepted == SAVED_ATTRIBUTES.keys(), "needs no exception"
    assert same >= AS_MANY[device], same


def part(x: Any, n: int) -> Any:
    """A tensor of `n` elements that lives on with `x`."""
    m = torch if isinstance(x, torch.Tensor) else lucid
    x.part = m.ones(n, device=x.device, requires_grad=True)
    return x.part


CALLS = {
    "sum": lambda m, x: x.sum(),
    "sum of rows": lambda m, x: x.sum(-1),
    "mean": lambda m, x: x.mean(),
    "mean of columns": lambda m, x: x.mean(0, keepdim=True),
    "softmax": lambda m, x: x.softmax(-1),
    "log_softmax": lambda m, x: x.log_softmax(1),
    "mul": lambda m, x: x * x,
    "mul by a number": lambda m, x: x * 2,
    "div": lambda m, x: x / x,
    "div by a number": lambda m, x: x / 2,
    "square": lambda m, x: x**2,
    "cube": lambda m, x: x**3,
    "root": lambda m, x: x**0.5,
    "pow": lambda m, x: x**x,
    "power of a number": lambda m, x: 2**x,
    "exp": lambda m, x: x.exp(),
    "sqrt": lambda m, x: x.sqrt(),
    "sigmoid": lambda m, x: x.sigmoid(),
    "mm": lambda m, x: x @ x.T,
    "bmm": lambda m, x: m.bmm(x[None], x.T[None]),
    "mv": lambda m, x: m.mv(x, part(x, 4)),
    "dot": lambda m, x: part(x, 4).dot(x.part),
    "addmm": lambda m, x: m.addmm(x, x @ x.T, x, beta=0.5, alpha=2),
    "add": lambda m, x: x + x,
    "add a number": lambda m, x: x + 1,
    "add a multiple": lambda m, x: x.add(x, alpha=3),
    "sub": lambda m, x: x.sub(x, alpha=0.5),
    "view": lambda m, x: x.view(-1),
    "reshape": lambda m, x: x.reshape(4, 3),
    "transpose": lambda m, x: x.transpose(0, -1),
    "permute": lambda m, x: x.permute(1, 0),
    "T": lambda m, x: x.T,
    "unsqueeze": lambda m, x: x.unsqueeze(-1),
    "squeeze": lambda m, x: x.squeeze(),
    "squeeze one": lambda m, x: x[:1].squeeze(0),
    "expand": lambda m, x: x.expand(2, 3, 4),
    "repeat": lambda m, x: x.repeat(2, 2),
    "cat": lambda m, x: m.cat([x, x], -1),
    "stack": lambda m, x: m.stack([x, x], 1),
    "split": lambda m, x: x.split(2)[1],
    "split by sizes": lambda m, x: x.split([1, 2])[1],
    "unbind": lambda m, x: x.unbind(1)[0],
    "index_select": lambda m, x: x.index_select(1, m.tensor([0, 2], device=x.device)),
    "gather": lambda m, x: x.gather(1, m.tensor([[0], [1]], device=x.device)),
    "where": lambda m, x: m.where(x > 1, x, x),
    "tril": lambda m, x: x.tril(-1),
    "cumsum": lambda m, x: x.cumsum(1),
    "prod": lambda m, x: x.prod(),
    "leaky relu": lambda m, x: m.nn.functional.leaky_relu(x, 0.2),
    "gelu": lambda m, x: m.nn.functional.gelu(x, approximate="tanh"),
    "mse": lambda m, x: m.nn.functional.mse_loss(x, x.detach(), reduction="sum"),
    "conv2d": lambda m, x: m.nn.functional.conv2d(x[None, None], x[None, None, :2, :2], part(x, 1), padding=1),
    "strided conv": lambda m, x: m.nn.functional.conv2d(
        x[None, None], x[None, None, :2, :2], part(x, 1), stride=(2, 1)
    ),
    "in place": lambda m, x: x.clone().add_(x, alpha=3),
}
#: What the tape here has no need of, or has in another step.
LACKS = {
    "gather": {"self", "sparse_grad"},
    "power of a number": {"self"},
    "leaky relu": {"self"},
    "mse": {"self", "target"},
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CALLS)
def test_attributes_of_common_ops(name: str, device: str) -> None:
    found = []
    wanted: list[str] = []
    for m, on in ((torch, "cpu"), (lucid, device)):
        x = (m.arange(12.0, device=on).reshape(3, 4) + 1).requires_grad_()
        y = CALLS[name](m, x)
        if m is torch:
            wanted = [n for n in dir(y.grad_fn) if n.startswith("_saved_") and n[7:] not in LACKS.get(name, ())]
        found.append({n: saved(y.grad_fn, n) for n in wanted})
    assert found[0] == found[1]


@pytest.mark.parametrize("device", DEVICES)
def test_attributes_of_layer_norm(device: str) -> None:
    found = []
    for m, on in ((torch, "cpu"), (lucid, device)):
        x = (m.arange(12.0, device=on).reshape(3, 4)).requires_grad_()
        y = m.nn.functional.layer_norm(x, (4,), x[0], x[1])
        found.append([saved(y.grad_fn, f"_saved_{n}") for n in ("input", "weight", "normalized_shape")])
    assert found[0] == found[1]


@pytest.mark.parametrize("device", DEVICES)
def test_arguments_are_those_of_the_users_call(device: str) -> None:
    """The steps that an op is made of know nothing of its arguments, nor does a result that was given back."""
    x = lucid.ones(3, 4, device=device, requires_grad=True)
    y = x.add(x, alpha=3)
    inner = [n for n, _ in y.grad_fn.next_functions if n.name() == "AddBackward0"]
    assert y.grad_fn._saved_alpha == 3
    assert not any(hasattr(n, "_saved_alpha") for n in inner)
    with lucid.no_grad():
        assert x.sum(1).grad_fn is None
    # Tensors are not kept alive by it.
    w = lucid.ones(3, 4, device=device)
    z = lucid.where(x > 2, x, w)
    del w
    z.sum().backward()


@pytest.mark.parametrize("device", DEVICES)
def test_attributes_once_freed(device: str) -> None:
    for m, on in ((torch, "cpu"), (lucid, device)):
        x = m.ones(1, 1, 3, 3, device=on, requires_grad=True)
        y = m.nn.functional.conv2d(x, m.ones(1, 1, 2, 2, device=on))
        y.sum().backward()
        assert y.grad_fn._saved_stride == (1, 1)
        with pytest.raises(RuntimeError, match="already been freed"):
            _ = y.grad_fn._saved_weight
