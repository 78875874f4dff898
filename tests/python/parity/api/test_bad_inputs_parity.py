"""Bad arguments raise what PyTorch raises, on both devices, and say what was called and what was wrong with it."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from typing import Any

import lucid
import lucid.nn.utils.prune
import lucid.utils.data.distributed
import pytest
import torch
import torch.nn.utils.parametrize
import torch.nn.utils.prune
import torch.utils.data.distributed

from tests.python.limitations import OTHER_KINDS, UNSEEN_ON_GPU
from tests.python.parity.api.bad_inputs import BAD

KINDS = (
    IndexError,
    KeyError,
    TypeError,
    NotImplementedError,
    AttributeError,
    AssertionError,
    FileNotFoundError,
    EOFError,
    ZeroDivisionError,
    ValueError,
    RuntimeError,
)


def leaf(f: Any) -> list[Any]:
    return [f.nn.Parameter(f.ones(2))]


def sgd(f: Any) -> Any:
    return f.optim.SGD(leaf(f), lr=0.1)


def grads(f: Any, value: float) -> list[Any]:
    (p,) = leaf(f)
    p.grad = f.full((2,), value)
    return [p]


def refused(f: Any, call: str) -> Exception | None:
    """What the call raises."""
    names = {
        "f": f,
        "nn": f.nn,
        "F": f.nn.functional,
        "optim": f.optim,
        "sched": f.optim.lr_scheduler,
        "data": f.utils.data,
        "io": io,
        "leaf": leaf,
        "sgd": sgd,
        "grads": grads,
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            eval(call, names)
    except Exception as error:
        return error
    return None


@pytest.fixture(params=["cpu", "gpu"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    lucid.set_default_device(request.param)
    yield request.param
    lucid.set_default_device("cpu")


@pytest.mark.parametrize(("name", "call", "offence"), BAD, ids=[b[1] for b in BAD])
def test_bad_arguments(name: str, call: str, offence: str, device: str) -> None:
    wanted, got = refused(torch, call), refused(lucid, call)
    assert wanted is not None, "PyTorch takes this"
    if device == "gpu" and call in UNSEEN_ON_GPU:
        assert got is None
        return
    assert got is not None, f"PyTorch: {type(wanted).__name__}: {wanted}"
    if call in OTHER_KINDS:
        kind, _ = OTHER_KINDS[call]
        assert not isinstance(wanted, kind), "the kinds agree by now"
    else:
        kind = next((k for k in KINDS if isinstance(wanted, k)), Exception)
    assert isinstance(got, kind), f"{type(got).__name__}: {got}; PyTorch: {type(wanted).__name__}: {wanted}"
    assert not isinstance(got, lucid.errors.InternalError)
    text = str(got)

    def plain(x: str) -> str:
        return x.lower().replace("_", "")

    assert plain(name) in plain(text), f"{text!r} does not name {name}"
    pattern = offence[2:] if offence.startswith("r:") else re.escape(offence)
    if not ("pack_padded_sequence" in call and device == "gpu"):
        # There the lengths' device is refused first.
        assert re.search(pattern, text), f"{text!r} does not show {offence}"


def test_calls_are_listed_once() -> None:
    calls = [b[1] for b in BAD]
    assert len(calls) == len(set(calls))
    assert set(OTHER_KINDS) <= set(calls)
    assert set(UNSEEN_ON_GPU) <= set(calls)
