"""Gradients of gradients, of every row of the op table: which there are, by what, and their values. Against PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.parity.ops.test_table_parity import GRADIENT_FAULTS, name_of, run_lucid, run_torch, to_numpy
from tests.python.samples import BY_HAND, UP_TO_SIGN, Sample, rows, samples
from tests.python.tolerances import within

DEVICES = ("cpu", "gpu")
#: What PyTorch says where it has no such gradient, or where its own steps write what they need; ours may have one.
ABSENT = ("is not implemented", "modified by an inplace operation", "Expected index")
#: Rows whose gradient PyTorch does not have.
OURS = ("polynomial", "scaled_modified_bessel")
#: Zeros that PyTorch leaves out where there are no elements, or one alone, or gives for want of knowing better.
UNSAID = {
    "logcumsumexp": "of one element and of none it has no gradient by the element",
    "det": "of empty matrices its gradient is not followed",
    "linalg_det": "of empty matrices its gradient is not followed",
    "linalg_householder_product": "of no reflections it has no gradient",
    "linalg_lstsq": "residuals that are not computed count as differentiable",
    "group_norm": "with a group for each channel it has zeros by what its gradient does not depend on",
}
ROWS = [
    r
    for r in rows()
    if "float32" in r["dtypes"]
    and r["torch"] != "-"
    and r["name"] not in {*BY_HAND, *UP_TO_SIGN, *GRADIENT_FAULTS, *UNSAID}
    and not any(part in r["name"] for part in OURS)
]


def drawn(m: Any, like: Any, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    numbers = rng.standard_normal(tuple(like.shape)).astype(np.float32)
    return m.tensor(numbers, device=like.device).to(like.dtype)


def derivatives(m: Any, call: Callable[[], tuple[list[Any], list[Any]]]) -> dict[str, Any]:
    """Gradients of each result by each input, and theirs by what went in and the inputs: tensors, None, errors."""
    outs, leaves = call()
    found: dict[str, Any] = {}
    for k, y in enumerate(y for y in outs if isinstance(y, (torch.Tensor, lucid.Tensor))):
        found[f"{k} is followed"] = y.requires_grad
        if not y.requires_grad:
            continue
        v = drawn(m, y, k).requires_grad_()
        try:
            grads = m.autograd.grad(y, leaves, v, create_graph=True, allow_unused=True)
        except RuntimeError as error:
            found[f"{k}"] = error
            continue
        for i, g in enumerate(grads):
            found[f"{k} by {i}"] = None if g is None else g.detach()
            if g is None or g.dtype not in (m.float32, m.complex64):
                continue
            found[f"{k} by {i} is followed"] = g.requires_grad
            for j, t in enumerate([v, *leaves] if g.requires_grad else []):
                try:
                    (h,) = m.autograd.grad(g, t, drawn(m, g, 7 + i), retain_graph=True, allow_unused=True)
                    found[f"{k} by {i} by {j}"] = None if h is None else h.detach()
                except RuntimeError as error:
                    found[f"{k} by {i} by {j}"] = error
    return found


def is_absent(value: Any) -> bool:
    return isinstance(value, RuntimeError) and any(part in str(value) for part in ABSENT)


def compare(wanted: dict[str, Any], given: dict[str, Any]) -> None:
    absent = [key for key, value in wanted.items() if is_absent(value)]
    for key in {**wanted, **given}:
        if any(key.startswith(start) for start in absent):
            continue
        a, b = wanted.get(key, "nothing"), given.get(key, "nothing")
        if isinstance(a, torch.Tensor) and isinstance(b, lucid.Tensor):
            x, y = to_numpy(a), to_numpy(b)
            size = np.abs(x[np.isfinite(x)]).max(initial=1)
            np.testing.assert_allclose(y, x, **within("second gradients", size), err_msg=key)
        elif isinstance(a, RuntimeError):
            assert isinstance(b, RuntimeError), key
        else:
            assert type(a) is type(b) and a == b, (key, a, b)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_of_every_row(row: Any, device: str) -> None:
    for sample in samples(row, device):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compare(*both(row, sample, device))


def both(row: Any, sample: Sample, device: str) -> tuple[dict[str, Any], dict[str, Any]]:
    wanted = derivatives(torch, lambda: run_torch(row, sample, "float32", "contiguous", True))
    given = derivatives(lucid, lambda: run_lucid(row, sample, "float32", "contiguous", True, device))
    return wanted, given


#: Functions with zeros for the gradient of their gradient, beyond the rows' samples.
FLAT: dict[str, Callable[[Any, Any], Any]] = {
    **{
        f"{mode} of {d} dimensions": lambda m, x, mode=mode, d=d: m.nn.functional.pad(
            x.reshape(1, 4, *{1: (16,), 2: (4, 4), 3: (2, 2, 4)}[d]), (1, 1) * d, mode=mode
        )
        for mode in ("reflect", "replicate", "circular")
        for d in (1, 2, 3)
    },
    "ReflectionPad2d": lambda m, x: m.nn.ReflectionPad2d((1, 0, 2, 1))(x.reshape(1, 4, 4, 4)),
    "ReplicationPad1d": lambda m, x: m.nn.ReplicationPad1d((-1, 2))(x.reshape(4, 16)),
    "leaky_relu": lambda m, x: m.nn.functional.leaky_relu(x),
    "hardtanh": lambda m, x: m.nn.functional.hardtanh(x),
    "relu6": lambda m, x: m.nn.functional.relu6(x),
    "max_pool2d": lambda m, x: m.nn.functional.max_pool2d(x.reshape(1, 4, 4, 4), 2),
    "nll_loss": lambda m, x: m.nn.functional.nll_loss(x.reshape(16, 4), m.zeros(16, dtype=m.int64, device=x.device)),
    "div": lambda m, x: m.div(x, x.detach() + 9.0, rounding_mode="floor"),
    "trunc": lambda m, x: m.div(x, 0.25, rounding_mode="trunc"),
    "x ** 0": lambda m, x: x**0,
    "angle": lambda m, x: m.angle(m.where(x > 1, m.full_like(x, float("nan")), x)),
    "copysign": lambda m, x: m.copysign(x, x.flip(0)),
    "norm of order 0": lambda m, x: m.linalg.vector_norm(x, 0),
    "sign of a determinant": lambda m, x: m.linalg.slogdet(x.reshape(8, 8))[0],
    "histogram": lambda m, x: m.histogram(x.cpu(), 4)[0],
    "histogramdd": lambda m, x: m.histogramdd(x.reshape(32, 2).cpu(), [2, 2])[1][0],
    "bincount": lambda m, x: m.bincount(m.zeros(64, dtype=m.int64, device=x.device), x),
}


def seen(m: Any, name: str, device: str) -> list[Any]:
    """What is followed, and the second gradient, of a function alone and by its square."""
    numbers = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    made: list[Any] = []
    for twice in (False, True):
        x = m.tensor(numbers, device=device).requires_grad_()
        y = FLAT[name](m, x)
        made.append(y.requires_grad)
        try:
            (g,) = m.autograd.grad((y * y.detach() if twice else y).sum(), x, create_graph=True, allow_unused=True)
        except RuntimeError as error:
            made.append(str(error).partition("derivative")[2])
            continue
        made += [g is None or g.requires_grad, None if g is None else g.detach().tolist()]
        if g is not None and g.requires_grad:
            (h,) = m.autograd.grad(g.sum(), x, allow_unused=True)
            made.append(None if h is None else (h * 1).tolist())
    return made


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", FLAT)
def test_zeros(name: str, device: str) -> None:
    wanted, given = seen(torch, name, "cpu"), seen(lucid, name, device)
    assert len(wanted) == len(given)
    for a, b in zip(wanted, given, strict=True):
        if isinstance(a, list):
            np.testing.assert_allclose(b, a, **within("deep program"))
        else:
            assert a == b, (wanted, given)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["leaky_relu", "hardtanh", "max_pool2d", "reflect of 1 dimensions", "x ** 0"])
def test_under_vmap(name: str, device: str) -> None:
    """Inside of `vmap` a gradient is as much made of its inputs as outside."""

    def followed(m: Any, device: str) -> list[bool]:
        found = []

        def one(x: Any) -> Any:
            g = m.func.grad(lambda x: (FLAT[name](m, x) * 2).sum())(x)
            h = m.func.grad(lambda x: m.func.grad(lambda x: (FLAT[name](m, x) * 2).sum())(x).sum())(x)
            return g + h

        x = m.arange(128.0, device=device).reshape(2, 64).sub(60.5).requires_grad_()
        y = m.func.vmap(one)(x)
        found.append(y.requires_grad)
        if y.requires_grad:
            (g,) = m.autograd.grad(y.sum(), x, allow_unused=True)
            found += [g is None, None if g is None else bool((g == 0).all())]
        return found

    assert followed(lucid, device) == followed(torch, "cpu")
