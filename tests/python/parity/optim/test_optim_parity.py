"""Optimizers against PyTorch's: trajectories over 50 steps, state dicts both ways, argument checks."""

from __future__ import annotations

import inspect
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import TABLE, near, within

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
    ("AdamW", {"lr": 0.05, "maximize": True}),
    ("Adagrad", {}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5, "eps": 1e-6}),
    ("Adagrad", {"lr": 0.01, "maximize": True}),
    ("Adadelta", {}),
    ("Adadelta", {"lr": 0.5, "rho": 0.8, "eps": 1e-4, "weight_decay": 0.1}),
    ("Adadelta", {"lr": 0.5, "maximize": True}),
    ("Adamax", {"lr": 0.05}),
    ("Adamax", {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.1}),
    ("Adamax", {"lr": 0.02, "maximize": True}),
    ("NAdam", {"lr": 0.02}),
    ("NAdam", {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.1, "momentum_decay": 0.1}),
    ("NAdam", {"lr": 0.02, "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    ("RAdam", {"lr": 0.05}),
    ("RAdam", {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.1}),
    ("RAdam", {"lr": 0.02, "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    ("RMSprop", {}),
    ("RMSprop", {"lr": 0.02, "alpha": 0.9, "eps": 1e-4, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.8}),
    ("RMSprop", {"lr": 0.01, "centered": True, "eps": 1e-3}),
    ("RMSprop", {"lr": 0.005, "centered": True, "momentum": 0.5, "eps": 1e-2, "maximize": True}),
    ("Rprop", {}),
    ("Rprop", {"lr": 0.05, "etas": (0.4, 1.3), "step_sizes": (1e-3, 0.5)}),
    ("Rprop", {"lr": 0.01, "step_sizes": (1e-6, 0.1), "maximize": True}),
    ("ASGD", {}),
    ("ASGD", {"lr": 0.05, "lambd": 0.1, "alpha": 0.5, "t0": 10, "weight_decay": 0.1}),
    ("ASGD", {"lr": 0.01, "t0": 5, "maximize": True}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.2, "amsgrad": True}),
]
IDS = [f"{name} {options}" for name, options in OPTIMIZERS]
# All options on the CPU; on the GPU device, whose steps cost more, one of each optimizer where all are not needed.
FIRST = [
    next(i for i, (n, _) in enumerate(OPTIMIZERS) if n == name) for name in dict.fromkeys(n for n, _ in OPTIMIZERS)
]
ON_DEVICES = [
    pytest.param(*case, device, id=f"{device} {case[0]} {case[1]}")
    for device in ("cpu", "gpu")
    for i, case in enumerate(OPTIMIZERS)
    if device == "cpu" or i in FIRST
]


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


def compare(ours: Problem, theirs: Problem, tolerance: float = TABLE["few ops"].rtol) -> None:
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
        if step < 3 or step % 10 == 9:
            compare(ours, theirs)
    assert not np.allclose(ours.numbers()[0], Problem(lucid, "cpu").numbers()[0], **within("training"))


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=IDS)
def test_trajectories_in_float64(name: str, options: dict[str, Any]) -> None:
    ours, theirs = Problem(lucid, "cpu", "float64"), Problem(torch, "cpu", "float64")
    ours.train(make(lucid, name, ours.params, options), range(STEPS))
    theirs.train(make(torch, name, theirs.params, options), range(STEPS))
    compare(ours, theirs, 1e-10)


@pytest.mark.parametrize(("name", "options", "device"), ON_DEVICES)
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


@pytest.mark.parametrize(("name", "options", "device"), ON_DEVICES)
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
                np.testing.assert_allclose(np.asarray(got[field].cpu().tolist()), value.numpy(), **within("few ops"))
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
    ("Adam", lambda f, p: {"params": [p], "betas": (0, 0.9)}),
    ("Adam", lambda f, p: {"params": [p], "fused": True, "differentiable": True}),
    ("SGD", lambda f, p: {"params": [p], "fused": True, "foreach": True}),
    ("SGD", lambda f, p: {"params": [p], "lr": f.ones(2)}),
    ("Adagrad", lambda f, p: {"params": [p], "lr": -1.0}),
    ("Adagrad", lambda f, p: {"params": [p], "lr_decay": -1}),
    ("Adagrad", lambda f, p: {"params": [p], "initial_accumulator_value": -1}),
    ("Adagrad", lambda f, p: {"params": [p], "eps": -1}),
    ("Adadelta", lambda f, p: {"params": [p], "rho": 1.5}),
    ("Adadelta", lambda f, p: {"params": [p], "eps": -1}),
    ("Adamax", lambda f, p: {"params": [p], "betas": (0.5, 1.0)}),
    ("NAdam", lambda f, p: {"params": [p], "momentum_decay": -1.0}),
    ("RAdam", lambda f, p: {"params": [p], "eps": float("nan")}),
    ("RMSprop", lambda f, p: {"params": [p], "alpha": -0.1}),
    ("RMSprop", lambda f, p: {"params": [p], "momentum": -0.1}),
    ("Rprop", lambda f, p: {"params": [p], "etas": (1.1, 1.2)}),
    ("ASGD", lambda f, p: {"params": [p], "weight_decay": -0.1}),
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
        with pytest.raises((TypeError, ValueError, RuntimeError)) as caught:
            make(
                framework,
                name,
                **{
                    "params": (a := arguments(framework, framework.zeros(3, requires_grad=True))).pop("params"),
                    "options": a,
                },
            )
        kinds = (TypeError, ValueError, RuntimeError)
        return next(kind for kind in kinds if isinstance(caught.value, kind)), str(caught.value)

    (kind, said), (wanted, theirs) = error(lucid), error(torch)
    assert kind is wanted
    # Here the class's name stands before, and sometimes the value after.
    assert theirs.rstrip(".!") in said


def test_signatures_and_reprs() -> None:
    for name in (*dict.fromkeys(name for name, _ in OPTIMIZERS), "LBFGS", "Adafactor", "Muon"):
        ours, theirs = (
            [
                (p.name, p.kind, p.default)
                for p in inspect.signature(getattr(f.optim, name).__init__).parameters.values()
            ]
            for f in (lucid, torch)
        )
        assert ours == theirs
        made = [repr(getattr(f.optim, name)([f.zeros(2, 2, requires_grad=True)], lr=0.1)) for f in (lucid, torch)]
        assert made[0] == made[1]


def test_named_parameters() -> None:
    dicts = []
    for framework in (lucid, torch):
        model = framework.nn.Linear(2, 3)
        optimizer = framework.optim.SGD(model.named_parameters(), lr=0.1)
        dicts.append(optimizer.state_dict()["param_groups"])
    assert dicts[0] == dicts[1]


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=IDS)
def test_gradients_through_steps(name: str, options: dict[str, Any]) -> None:
    """Against finite differences: PyTorch loses them at SGD's first buffer, and refuses several steps elsewhere."""

    def run(values: list[float], factor: float) -> tuple[Any, ...]:
        start = lucid.tensor(values, dtype=lucid.float64, requires_grad=True)
        scale = lucid.tensor(factor, dtype=lucid.float64, requires_grad=True)
        param = start * 1.0
        optimizer = make(lucid, name, [param], {**options, "differentiable": True})
        for step in (1.0, -2.0, 3.0):
            param.grad = (lucid.tensor([1.0, -2.0, 0.5], dtype=lucid.float64) * step * scale).sin()
            optimizer.step()
        return start, scale, (param * param).sum()

    values, factor, h = [0.5, -1.5, 2.0], 1.5, 1e-6
    start, scale, loss = run(values, factor)
    loss.backward()
    for i in range(3):
        ends = [run([v + d * (i == j) for j, v in enumerate(values)], factor)[2].item() for d in (h, -h)]
        assert start.grad[i].item() == pytest.approx((ends[0] - ends[1]) / (2 * h), **near("differences"))
    ends = [run(values, factor + d)[2].item() for d in (h, -h)]
    got = 0.0 if scale.grad is None else scale.grad.item()
    assert got == pytest.approx((ends[0] - ends[1]) / (2 * h), **near("differences"))


LBFGS: list[dict[str, Any]] = [
    {},
    {"lr": 0.5, "max_iter": 5, "history_size": 3},
    {"line_search_fn": "strong_wolfe"},
    {"line_search_fn": "strong_wolfe", "lr": 3.0, "max_iter": 4, "history_size": 2},
    {"line_search_fn": "strong_wolfe", "maximize": True},
]


@pytest.mark.parametrize("options", LBFGS, ids=str)
def test_lbfgs(options: dict[str, Any], device: str) -> None:
    dtype = "float64" if device == "cpu" else "float32"
    sides, states = [], []
    for framework, place in ((lucid, device), (torch, "cpu")):
        problem = Problem(framework, place, dtype)
        optimizer = make(framework, "LBFGS", problem.params, options)

        def closure(problem: Problem = problem, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = problem.loss(1) + 0.1 * sum((p**4).sum() for p in problem.params)
            loss = -loss if options.get("maximize") else loss
            loss.backward()
            return loss

        losses = [float(optimizer.step(closure)) for _ in range(3)]
        if framework is lucid:
            saved = optimizer.state_dict()
            again = make(lucid, "LBFGS", problem.params, options)
            again.load_state_dict(saved)
            optimizer = again
            losses.append(float(optimizer.step(lambda c=closure, o=again: (o.zero_grad(), c())[1])))
        else:
            losses.append(float(optimizer.step(closure)))
        sides.append((problem, losses))
        states.append(set(optimizer.state_dict()["state"][0]))
    assert states[0] == states[1]
    compare(sides[0][0], sides[1][0], 1e-7 if dtype == "float64" else 2e-3)
    assert sides[0][1] == pytest.approx(sides[1][1], rel=TABLE["rounding" if dtype == "float64" else "float16"].rtol)


@pytest.mark.parametrize("options", [{}, {"line_search_fn": "strong_wolfe"}], ids=str)
def test_lbfgs_waits_a_few_times_an_iteration(options: dict[str, Any]) -> None:
    params = [lucid.full((n,), 2.0, device="gpu", requires_grad=True) for n in (3, 5, 7)]
    optimizer = lucid.optim.LBFGS(params, max_iter=6, **options)
    calls = 0

    def closure() -> Any:
        nonlocal calls
        calls += 1
        optimizer.zero_grad()
        loss = sum((p**4 + (p - 1) ** 2).sum() for p in params)
        loss.backward()
        return loss

    with lucid.profile() as profile:
        optimizer.step(closure)
    iterations = optimizer.state[params[0]]["n_iter"]
    # One for each loss and its gradient, and two (the curvature, the direction) for each iteration.
    assert iterations > 2 and profile.total["evaluations"] <= 2 * calls + 2 * iterations


def test_lbfgs_refuses_as_pytorch() -> None:
    for f in (lucid, torch):
        p, q = f.zeros(2, requires_grad=True), f.zeros(2, requires_grad=True)
        with pytest.raises(ValueError, match="doesn't support per-parameter options"):
            f.optim.LBFGS([{"params": [p]}, {"params": [q]}])
        with pytest.raises(TypeError, match="closure"):
            f.optim.LBFGS([p]).step()
        with pytest.raises(RuntimeError, match="only 'strong_wolfe' is supported"):
            search = f.optim.LBFGS([p], line_search_fn="armijo")
            search.step(lambda p=p, s=search: (s.zero_grad(), (x := ((p - 1) ** 2).sum()).backward(), x)[2])


MATRIX: list[tuple[str, dict[str, Any], float]] = [
    ("Adafactor", {}, 1e-5),
    ("Adafactor", {"lr": 0.1, "beta2_decay": -0.5, "eps": (1e-4, 1e-2), "d": 2.0, "weight_decay": 0.1}, 1e-5),
    ("Adafactor", {"maximize": True}, 1e-5),
    ("Muon", {"lr": 0.02}, 2e-2),
    ("Muon", {"lr": 0.02, "nesterov": False, "momentum": 0.8, "adjust_lr_fn": "match_rms_adamw"}, 2e-2),
    ("Muon", {"lr": 0.02, "weight_decay": 0.0, "adjust_lr_fn": "spectral_unclamped", "ns_steps": 3}, 2e-2),
]


@pytest.mark.parametrize(("name", "options", "tolerance"), MATRIX, ids=[f"{n} {o}" for n, o, _ in MATRIX])
def test_optimizers_of_matrices(name: str, options: dict[str, Any], tolerance: float, device: str) -> None:
    sides = []
    for framework, place in ((lucid, device), (torch, "cpu")):
        problem = Problem(framework, place)
        params = [p for p in problem.params if name != "Muon" or p.ndim == 2]
        optimizer = make(framework, name, params, options)
        problem.train(optimizer, range(20))
        if framework is lucid:
            state = optimizer.state_dict()
            optimizer = make(framework, name, params, {})
            optimizer.load_state_dict(state)
        problem.train(optimizer, range(20, 30))
        sides.append((problem, optimizer))
    compare(sides[0][0], sides[1][0], tolerance)
    mine, other = sides[0][1].state_dict(), sides[1][1].state_dict()
    assert mine["param_groups"] == other["param_groups"]
    assert {k: set(v) for k, v in mine["state"].items()} == {k: set(v) for k, v in other["state"].items()}
