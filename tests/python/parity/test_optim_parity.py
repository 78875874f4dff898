"""Optimizers against PyTorch's: trajectories over 50 steps, state dicts both ways, argument checks."""

from __future__ import annotations

import inspect
from typing import Any

import lucid
import numpy as np
import pytest
import torch

STEPS = 50
OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.05, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.05, "momentum": 0.9}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    ("SGD", {"lr": 0.002, "momentum": 0.5, "maximize": True}),
    ("Adam", {}),
    ("Adam", {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-6}),
    ("Adam", {"lr": 0.05, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.05, "amsgrad": True}),
    ("Adam", {"lr": 0.01, "maximize": True}),
    ("Adam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("AdamW", {"lr": 0.05}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.2, "amsgrad": True}),
]
IDS = [f"{name} {options}" for name, options in OPTIMIZERS]


@pytest.fixture(params=["cpu", "gpu"])
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Problem:
    """A small regression with one parameter that only some steps touch, in either framework."""

    def __init__(self, framework: Any, device: str, dtype: str = "float32") -> None:
        draw = np.random.default_rng(0)
        self.framework = framework
        kind = getattr(framework, dtype)

        def tensor(*shape: int) -> Any:
            return framework.tensor(draw.standard_normal(shape), dtype=kind, device=device)

        self.x, self.y = tensor(20, 4), tensor(20, 3)
        self.params = [tensor(3, 4), tensor(3), tensor()]
        for p in self.params:
            p.requires_grad_()
        self.seldom = self.params[2]

    def loss(self, step: int) -> Any:
        w, b, c = self.params
        out = self.x @ w.T + b
        if step % 3 == 1:
            out = out * c
        return ((out - self.y) ** 2).mean()

    def train(self, optimizer: Any, steps: range) -> None:
        for step in steps:
            loss = self.loss(step)
            if self.framework is lucid:
                loss.eval()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def numbers(self) -> list[np.ndarray]:
        return [np.asarray(p.detach().cpu().tolist()) for p in self.params]


def compare(ours: Problem, theirs: Problem, tolerance: float = 1e-5) -> None:
    for a, b in zip(ours.numbers(), theirs.numbers(), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def make(framework: Any, name: str, params: Any, options: dict[str, Any]) -> Any:
    return getattr(framework.optim, name)(params, **options)


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=IDS)
def test_trajectories(name: str, options: dict[str, Any], device: str) -> None:
    ours, theirs = Problem(lucid, device), Problem(torch, "cpu")
    a, b = make(lucid, name, ours.params, options), make(torch, name, theirs.params, options)
    for step in range(STEPS):
        ours.train(a, range(step, step + 1))
        theirs.train(b, range(step, step + 1))
        compare(ours, theirs)
    assert not np.allclose(ours.numbers()[0], Problem(lucid, "cpu").numbers()[0], atol=1e-3)


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=IDS)
def test_trajectories_in_float64(name: str, options: dict[str, Any]) -> None:
    ours, theirs = Problem(lucid, "cpu", "float64"), Problem(torch, "cpu", "float64")
    ours.train(make(lucid, name, ours.params, options), range(STEPS))
    theirs.train(make(torch, name, theirs.params, options), range(STEPS))
    compare(ours, theirs, 1e-10)


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=IDS)
def test_groups_and_a_changing_rate(name: str, options: dict[str, Any], device: str) -> None:
    sides = []
    for framework, place in ((lucid, device), (torch, "cpu")):
        problem = Problem(framework, place)
        w, b, c = problem.params
        optimizer = make(framework, name, [{"params": [w], "lr": 0.02, "weight_decay": 0.05}, {"params": [b]}], options)
        optimizer.add_param_group({"params": c, "lr": 0.001})
        for step in range(20):
            optimizer.param_groups[0]["lr"] *= 0.9
            problem.train(optimizer, range(step, step + 1))
        sides.append(problem)
    compare(*sides)


def to_torch(value: Any) -> Any:
    if isinstance(value, lucid.Tensor):
        return torch.tensor(value.tolist(), dtype=getattr(torch, str(value.dtype).rpartition(".")[2]))
    if isinstance(value, dict):
        return {k: to_torch(v) for k, v in value.items()}
    if isinstance(value, list):
        return [to_torch(v) for v in value]
    return value


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=IDS)
def test_state_dicts_are_interchangeable(name: str, options: dict[str, Any], device: str) -> None:
    ours, theirs = Problem(lucid, device), Problem(torch, "cpu")
    a, b = make(lucid, name, ours.params, options), make(torch, name, theirs.params, options)
    # The last parameter has had no gradient, so it has no state.
    ours.train(a, range(1))
    theirs.train(b, range(1))
    for until in (1, 8):
        ours.train(a, range(1, until))
        theirs.train(b, range(1, until))
        mine, other = a.state_dict(), b.state_dict()
        assert mine["param_groups"] == other["param_groups"]
        assert list(mine["state"]) == list(other["state"])
        for key, wanted in other["state"].items():
            got = mine["state"][key]
            assert set(got) == set(wanted)
            for field, value in wanted.items():
                assert tuple(got[field].shape) == tuple(value.shape)
                assert str(got[field].dtype).rpartition(".")[2] == str(value.dtype).rpartition(".")[2]
                np.testing.assert_allclose(np.asarray(got[field].cpu().tolist()), value.numpy(), rtol=1e-5, atol=1e-6)
    # Each takes the other's state and goes on alike.
    crossed, back = Problem(lucid, device), Problem(torch, "cpu")
    with torch.no_grad():
        for p, q in zip(back.params, theirs.params, strict=True):
            p.copy_(q)
    for p, q in zip(crossed.params, theirs.params, strict=True):
        p.data = lucid.tensor(q.detach().numpy(), device=device)
    c, d = make(lucid, name, crossed.params, {}), make(torch, name, back.params, {})
    c.load_state_dict(b.state_dict())
    d.load_state_dict(to_torch(a.state_dict()))
    crossed.train(c, range(8, 30))
    back.train(d, range(8, 30))
    theirs.train(b, range(8, 30))
    compare(crossed, theirs)
    compare(crossed, back, 2e-5)


def test_state_moves_to_the_parameters_dtype_and_device(device: str) -> None:
    theirs = Problem(torch, "cpu", "float64")
    b = torch.optim.Adam(theirs.params)
    theirs.train(b, range(2))
    ours = Problem(lucid, device)
    a = lucid.optim.Adam(ours.params)
    a.load_state_dict(b.state_dict())
    for p in ours.params:
        state = a.state[p]
        assert state["exp_avg"].dtype == lucid.float32 and state["exp_avg"].device == p.device
        assert state["step"].dtype == lucid.float32 and state["step"].device == lucid.device("cpu")
    ours.train(a, range(2, 4))


WRONG: list[tuple[str, Any]] = [
    ("SGD", lambda f, p: {"params": [p], "lr": -1}),
    ("SGD", lambda f, p: {"params": [p], "momentum": -0.1}),
    ("SGD", lambda f, p: {"params": [p], "weight_decay": -0.1}),
    ("SGD", lambda f, p: {"params": [p], "nesterov": True}),
    ("SGD", lambda f, p: {"params": [p], "nesterov": True, "momentum": 0.9, "dampening": 0.1}),
    ("Adam", lambda f, p: {"params": [p], "lr": -1.0}),
    ("Adam", lambda f, p: {"params": [p], "eps": -1e-8}),
    ("Adam", lambda f, p: {"params": [p], "betas": (1.0, 0.9)}),
    ("Adam", lambda f, p: {"params": [p], "betas": (0.9, -0.1)}),
    ("Adam", lambda f, p: {"params": [p], "weight_decay": -1}),
    ("SGD", lambda f, p: {"params": []}),
    ("SGD", lambda f, p: {"params": [p * 2]}),
    ("SGD", lambda f, p: {"params": [{"params": [p]}, {"params": [p]}]}),
    ("SGD", lambda f, p: {"params": [{"params": {p}}]}),
    ("SGD", lambda f, p: {"params": [3]}),
    ("SGD", lambda f, p: {"params": [("a", p), p]}),
]


@pytest.mark.parametrize(("name", "arguments"), WRONG)
def test_wrong_arguments_raise_as_in_pytorch(name: str, arguments: Any) -> None:
    def error(framework: Any) -> tuple[type, str]:
        with pytest.raises((TypeError, ValueError)) as caught:
            make(
                framework,
                name,
                **{
                    "params": (a := arguments(framework, framework.zeros(3, requires_grad=True))).pop("params"),
                    "options": a,
                },
            )
        builtin = TypeError if isinstance(caught.value, TypeError) else ValueError
        return builtin, str(caught.value)

    assert error(lucid) == error(torch)


def test_signatures_and_reprs() -> None:
    for name in ("SGD", "Adam", "AdamW"):
        ours, theirs = (
            [
                (p.name, p.kind, p.default)
                for p in inspect.signature(getattr(f.optim, name).__init__).parameters.values()
            ]
            for f in (lucid, torch)
        )
        assert ours == theirs
        made = [repr(getattr(f.optim, name)([f.zeros(2, requires_grad=True)], lr=0.1)) for f in (lucid, torch)]
        assert made[0] == made[1]


def test_named_parameters() -> None:
    dicts = []
    for framework in (lucid, torch):
        model = framework.nn.Linear(2, 3)
        optimizer = framework.optim.SGD(model.named_parameters(), lr=0.1)
        dicts.append(optimizer.state_dict()["param_groups"])
    assert dicts[0] == dicts[1]
