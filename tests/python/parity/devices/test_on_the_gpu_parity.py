"""What makes tensors of its own on the way, where the tensors are on the GPU or it is the default device."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import lucid
import pytest
import torch

from tests.python.tolerances import within

CHECKS: dict[str, Callable[..., Any]] = {
    "one input": lambda m, x, z, **how: m.autograd.gradcheck(lambda x: x * x, x, **how),
    "two inputs": lambda m, x, z, **how: m.autograd.gradcheck(
        lambda a, b: (a * b).sum(), (x, x.detach().clone().requires_grad_()), **how
    ),
    "tangents": lambda m, x, z, **how: m.autograd.gradcheck(lambda x: x * x, x, check_forward_ad=True, **how),
    "batched": lambda m, x, z, **how: m.autograd.gradcheck(lambda x: x * x, x, check_batched_grad=True, **how),
    "second": lambda m, x, z, **how: m.autograd.gradgradcheck(lambda x: x**3, x, rtol=0.1, **how),
    "complex": lambda m, x, z, **how: m.autograd.gradcheck(lambda z: z * z, z, **how),
    "wrong": lambda m, x, z, **how: m.autograd.gradcheck(
        lambda x: x * 2 + x.detach() ** 2, x, raise_exception=False, **how
    ),
}


@pytest.fixture(params=[None, "gpu"])
def default_device(request: pytest.FixtureRequest) -> Iterator[None]:
    before = lucid.get_default_device()
    if request.param:
        lucid.set_default_device(request.param)
    try:
        yield
    finally:
        lucid.set_default_device(before)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.usefixtures("default_device")
def test_gradcheck(name: str, fast: bool, device: str) -> None:
    found = []
    for m, on in ((lucid, device), (torch, "cpu")):
        x = m.tensor([1.0, 2.0, 0.5], device=on, requires_grad=True)
        z = m.tensor([1 + 1j, 2.0], device=on, requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of inputs that are not float64.
            found.append(CHECKS[name](m, x, z, eps=1e-2, atol=0.3, fast_mode=fast))
    assert found[0] == found[1] == (name != "wrong")


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (5, 2), (4, 2, 2)])
@pytest.mark.usefixtures("default_device")
def test_orthogonal_beginnings(shape: tuple[int, ...], device: str) -> None:
    w = lucid.nn.init.orthogonal_(lucid.empty(shape, device=device), gain=2.0)
    flat = w.reshape(shape[0], -1).cpu()
    small = flat @ flat.t() if flat.shape[0] <= flat.shape[1] else flat.t() @ flat
    assert w.device.type == lucid.device(device).type and w.shape == shape
    assert lucid.allclose(small, 4 * lucid.eye(small.shape[0], device="cpu"), **within("near zero"))


def test_set_state_gives_the_generator() -> None:
    for m in (lucid, torch):
        g = m.Generator()
        assert g.set_state(g.get_state()) is g


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.usefixtures("default_device")
def test_bags_of_nothing(device: str) -> None:
    found = []
    for m, on in ((lucid, device), (torch, "cpu")):
        none = m.zeros(0, dtype=m.int64, device=on)
        parts = m.embedding_bag(m.ones(3, 2, device=on), none, none, mode=2)
        assert all(p.device == none.device for p in parts)
        found.append([(list(p.shape), str(p.dtype).rpartition(".")[2]) for p in parts])
    assert found[0] == found[1]
