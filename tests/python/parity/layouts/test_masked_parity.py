"""`lucid.masked` beside `torch.masked`."""

from __future__ import annotations

import warnings
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import within

DATA = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
MASK = np.array([[1, 0, 1, 1], [0, 0, 0, 1], [1, 1, 1, 1]], dtype=bool)


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, torch.masked.MaskedTensor):
        assert isinstance(ours, lucid.masked.MaskedTensor)
        np.testing.assert_array_equal(ours.get_mask().cpu().numpy(), theirs.get_mask().numpy())
        ours, theirs = ours.to_tensor(0), theirs.to_tensor(0)
    np.testing.assert_allclose(
        ours.detach().cpu().numpy(), theirs.detach().numpy(), **within("near zero"), equal_nan=True
    )


PROGRAMS: dict[str, Any] = {
    "unary": lambda t, x: x.abs().sqrt().exp().neg(),
    "numbers": lambda t, x: (2 * x + 1) / 3,
    "binary": lambda t, x: x * x - x,
    "compare": lambda t, x: x > 0,
    "sum": lambda t, x: x.sum(),
    "sum dim": lambda t, x: x.sum(1),
    "mean": lambda t, x: x.mean(),
    "mean dim": lambda t, x: x.mean(0),
    "prod": lambda t, x: x.prod(),
    "amax": lambda t, x: x.amax(1),
    "amin": lambda t, x: x.amin(0),
    "softmax": lambda t, x: t.softmax(x, 1),
    # PyTorch's class has none; its function has.
    "log_softmax": lambda t, x: (
        t.log_softmax(x, 0)
        if t is lucid
        else t.masked.masked_tensor(t.masked.log_softmax(x.get_data(), 0, mask=x.get_mask()), x.get_mask())
    ),
    "transpose": lambda t, x: x.t() if t is lucid else x.transpose(0, 1),
    "row": lambda t, x: x[0] if t is lucid else t.masked.masked_tensor(x.get_data()[0], x.get_mask()[0]),
}


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_agree(name: str, device: str) -> None:
    ours = lucid.masked.masked_tensor(lucid.tensor(DATA, device=device), lucid.tensor(MASK, device=device))
    theirs = torch.masked.masked_tensor(torch.tensor(DATA), torch.tensor(MASK))
    if name == "transpose":
        assert PROGRAMS[name](lucid, ours).get_mask().tolist() == MASK.T.tolist()
        return
    same(PROGRAMS[name](lucid, ours), PROGRAMS[name](torch, theirs))


REDUCTIONS = (
    "sum prod mean amax amin var std logsumexp argmax argmin median norm softmax log_softmax softmin cumsum cumprod"
)


@pytest.mark.parametrize("name", REDUCTIONS.split())
def test_functions_of_plain_tensors_agree(name: str) -> None:
    extra = (2.0,) if name == "norm" else ()
    for dim in (0, 1):
        made, expected = (
            getattr(t.masked, name)(t.tensor(DATA), *extra, dim, mask=t.tensor(MASK)) for t in (lucid, torch)
        )
        if name in ("softmax", "log_softmax", "softmin"):
            made, expected = (t.where(t.tensor(MASK), x, t.tensor(0.0)) for t, x in ((lucid, made), (torch, expected)))
        same(made, expected)
    same(
        lucid.masked.normalize(lucid.tensor(DATA), 2.0, 1, mask=lucid.tensor(MASK)) * lucid.tensor(MASK),
        torch.masked.normalize(torch.tensor(DATA), 2.0, 1, mask=torch.tensor(MASK)) * torch.tensor(MASK),
    )


@pytest.mark.parametrize("program", [lambda x: x.sum(), lambda x: (x * x).mean(), lambda x: x.exp().sum(1).sum()])
def test_gradients_are_masked(program: Any) -> None:
    grads = []
    for t in (lucid, torch):
        data = t.tensor(DATA).requires_grad_()
        mt = t.masked.as_masked_tensor(data, t.tensor(MASK))
        program(mt).backward()
        found = data.grad
        grads.append(found.to_tensor(0) if t.masked.is_masked_tensor(found) else found)
    same(*grads)
    leaf = lucid.masked.masked_tensor(lucid.tensor(DATA), lucid.tensor(MASK), requires_grad=True)
    program(leaf).backward()
    same(leaf.grad.to_tensor(0), grads[1])


def test_printing_and_errors() -> None:
    mt = lucid.masked.masked_tensor(lucid.tensor([1.0, 2.0]), lucid.tensor([True, False]))
    theirs = torch.masked.masked_tensor(torch.tensor([1.0, 2.0]), torch.tensor([True, False]))
    assert repr(mt).split() == repr(theirs).split() and repr(mt.sum()) == repr(theirs.sum())
    assert not lucid.masked.is_masked_tensor(mt.get_data()) and mt.get_mask().tolist() == [True, False]
    m = lucid.masked.masked_tensor
    cases = [
        (TypeError, "dtype bool", lambda: m(lucid.ones(2), lucid.ones(2))),
        (ValueError, "size", lambda: m(lucid.ones(2), lucid.ones(3).bool())),
        (TypeError, "must be a Tensor", lambda: m([1.0], lucid.ones(1).bool())),
        (TypeError, "plain", lambda: m(mt, lucid.ones(2).bool())),
        (ValueError, "masks must match", lambda: mt + m(lucid.ones(2), lucid.tensor([True, True]))),
        (NotImplementedError, "cholesky", lambda: lucid.linalg.cholesky(mt)),
        (RuntimeError, "does not count", lambda: mt.tolist()),
        (TypeError, "bool mask", lambda: lucid.masked.sum(lucid.ones(2), mask=lucid.ones(2))),
    ]
    for error, words, call in cases:
        with pytest.raises(error, match=words):
            call()
