"""Optimizers against PyTorch's: complex parameters, options two by two, variants of a step, wrong arguments."""

from __future__ import annotations

import importlib
import inspect
import itertools
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import TABLE

NAMES = ["SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "ASGD"]
# A value of each option that is not the default.
OTHER: dict[str, Any] = {
    "lr": 0.03,
    "momentum": 0.8,
    "dampening": 0.2,
    "weight_decay": 0.1,
    "nesterov": True,
    "maximize": True,
    "amsgrad": True,
    "betas": (0.7, 0.95),
    "eps": 1e-3,
    "decoupled_weight_decay": True,
    "lr_decay": 0.1,
    "initial_accumulator_value": 0.3,
    "rho": 0.8,
    "momentum_decay": 0.05,
    "alpha": 0.6,
    "centered": True,
    "etas": (0.6, 1.1),
    "step_sizes": (1e-4, 0.05),
    "lambd": 0.05,
    "t0": 3,
    "foreach": True,
    "fused": True,
}


def options_of(name: str) -> list[str]:
    return [option for option in inspect.signature(getattr(torch.optim, name)).parameters if option in OTHER]


PAIRS = [(name, pair) for name in NAMES for pair in itertools.combinations(options_of(name), 2)]


def trajectory(f: Any, name: str, options: dict[str, Any], dtype: str = "float64", device: str = "cpu") -> Any:
    """Where twelve steps along a quadratic's gradient lead; or the exception."""
    draw = np.random.default_rng(3)
    start, target = draw.standard_normal((2, 3, 4)), draw.standard_normal((2, 3, 4))
    kind = getattr(f, dtype)
    if dtype == "complex64":
        start, target = (a[0] + 1j * a[1] for a in (start, target))
    p = f.tensor(start.tolist(), dtype=kind, device=device, requires_grad=True)
    aim = f.tensor(target.tolist(), dtype=kind, device=device)
    try:
        optimizer = getattr(f.optim, name)([p], **options)
        for _ in range(12):

            def closure() -> Any:
                optimizer.zero_grad()
                loss = (p - aim).abs().square().sum()
                loss.backward()
                return loss

            if name == "LBFGS":
                optimizer.step(closure)
            else:
                closure()
                optimizer.step()
    except Exception as e:
        return type(e)
    state = {k: v for k, v in optimizer.state[p].items() if hasattr(v, "dtype") and name != "LBFGS"}
    dtypes = {k: str(v.dtype).split(".")[1] for k, v in state.items()}
    return np.asarray(p.detach().cpu().tolist()), dtypes


def compare(ours: Any, theirs: Any, tolerance: float) -> None:
    if isinstance(theirs, type):
        kinds = (AssertionError, ValueError, TypeError, RuntimeError)
        assert isinstance(ours, type) and issubclass(ours, next(k for k in kinds if issubclass(theirs, k))), ours
        return
    assert not isinstance(ours, type), ours
    np.testing.assert_allclose(ours[0], theirs[0], rtol=tolerance, atol=tolerance)
    assert ours[1] == theirs[1]


@pytest.mark.parametrize(("name", "pair"), PAIRS, ids=[f"{n} {a} {b}" for n, (a, b) in PAIRS])
def test_two_options_at_once(name: str, pair: tuple[str, str]) -> None:
    options = {option: OTHER[option] for option in pair}
    # Nesterov's momentum needs a momentum.
    if name == "SGD" and "nesterov" in pair:
        options.setdefault("momentum", 0.8)
    # PyTorch's foreach form of ASGD rounds its rates to float32.
    tolerance = TABLE["rounding" if name == "ASGD" and "foreach" in pair else "float64"].rtol
    compare(trajectory(lucid, name, options), trajectory(torch, name, options), tolerance)


COMPLEX: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in NAMES),
    ("SGD", {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
    ("Adagrad", {"initial_accumulator_value": 0.4}),
    ("RMSprop", {"centered": True, "momentum": 0.5}),
    ("Rprop", {"lr": 0.05}),
    ("NAdam", {"maximize": True}),
    ("LBFGS", {"lr": 0.3}),
    ("LBFGS", {"line_search_fn": "strong_wolfe"}),
    ("Adafactor", {}),
]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize(("name", "options"), COMPLEX, ids=[f"{n} {o}" for n, o in COMPLEX])
def test_complex_parameters(name: str, options: dict[str, Any], device: str) -> None:
    ours = trajectory(lucid, name, options, "complex64", device)
    compare(ours, trajectory(torch, name, options, "complex64"), 1e-4)


def test_complex_matrices_of_muon() -> None:
    for f in (lucid, torch):
        p = f.zeros(2, 2, dtype=f.complex64, requires_grad=True)
        optimizer = f.optim.Muon([p])
        p.grad = f.ones_like(p)
        with pytest.raises(RuntimeError, match="Muon does not support complex parameters"):
            optimizer.step()


FLAGS = ("foreach", "fused", "capturable", "differentiable")


def variant(f: Any, name: str, flags: tuple[str, ...]) -> str:
    """Where the flags are refused, and with which kind of exception."""
    p = f.ones(2, requires_grad=True)
    used = p * 1 if "differentiable" in flags else p
    try:
        optimizer = getattr(f.optim, name)([used], **dict.fromkeys(flags, True))
    except (RuntimeError, ValueError, AssertionError) as e:
        # Ours may say first which optimizer it is.
        return "made: " + str(e).removeprefix(f"{name}: ")
    used.grad = f.ones(2)
    try:
        optimizer.step()
    except AssertionError as e:
        return f"stepped: {str(e)[:15]}"
    return "accepted"


@pytest.mark.parametrize("name", [*NAMES, "Adafactor"])
def test_variants_are_accepted_or_refused(name: str) -> None:
    own = [flag for flag in FLAGS if flag in inspect.signature(getattr(torch.optim, name)).parameters]
    for flags in (*itertools.combinations(own, 1), *itertools.combinations(own, 2)):
        assert variant(lucid, name, flags) == variant(torch, name, flags), flags


@pytest.mark.parametrize("name", ["Adam", "AdamW", "NAdam"])
def test_capturable_steps_on_the_gpu(name: str) -> None:
    p = lucid.ones(2, device="gpu", requires_grad=True)
    optimizer = getattr(lucid.optim, name)([p], capturable=True)
    p.grad = lucid.ones(2, device="gpu")
    optimizer.step()
    assert p.tolist() != [1.0, 1.0]


def one(f: Any, *values: float) -> Any:
    return f.tensor(list(values) or 0.1)


WRONG: list[tuple[str, Any]] = [
    ("Adam", lambda f: {"lr": one(f), "foreach": True}),
    ("Adam", lambda f: {"lr": one(f, 0.1, 0.2)}),
    ("Adam", lambda f: {"betas": (one(f), 0.9)}),
    ("Adam", lambda f: {"betas": (1, 0.9)}),
    ("Adam", lambda f: {"betas": (0.5, 1)}),
    ("Adam", lambda f: {"betas": (0.5,)}),
    ("Adam", lambda f: {"lr": float("nan")}),
    ("Adam", lambda f: {"eps": "x"}),
    ("Adamax", lambda f: {"lr": one(f, 0.1, 0.2)}),
    ("SGD", lambda f: {"lr": one(f, 0.1, 0.2)}),
    ("SGD", lambda f: {"nesterov": True}),
    ("SGD", lambda f: {"lr": -0.1}),
    ("SGD", lambda f: {"lr": None}),
    ("Rprop", lambda f: {"etas": (1.5, 1.2)}),
    ("Rprop", lambda f: {"etas": (0.5, 0.9)}),
    ("ASGD", lambda f: {"lambd": -1}),
    ("RMSprop", lambda f: {"alpha": -1}),
    ("Adadelta", lambda f: {"rho": 1.5}),
    ("Adagrad", lambda f: {"initial_accumulator_value": -1}),
    ("NAdam", lambda f: {"momentum_decay": -1}),
    ("Muon", lambda f: {"adjust_lr_fn": "x"}),
    ("Adafactor", lambda f: {"eps": (-1, 0.1)}),
    ("Adafactor", lambda f: {"d": 0.5}),
    ("LBFGS", lambda f: {"lr": -1}),
]


@pytest.mark.parametrize(("name", "options"), WRONG)
def test_options_that_make_no_sense(name: str, options: Any) -> None:
    raised = []
    for f in (lucid, torch):
        with pytest.raises(Exception) as caught:
            getattr(f.optim, name)([f.ones(2, 2, requires_grad=True)], **options(f))
        raised.append(caught.value)
    assert isinstance(raised[0], type(raised[1])), raised
    # Ours may say first which optimizer it is.
    assert not isinstance(raised[1], ValueError) or str(raised[0]).endswith(str(raised[1]))


def leaf(f: Any) -> Any:
    return f.ones(2, requires_grad=True)


PARAMS: list[Any] = [
    lambda f, p: [1, 2],
    lambda f, p: [],
    lambda f, p: "x",
    lambda f, p: [p, 1],
    lambda f, p: {"params": [p]},
    lambda f, p: [{"params": p}, {"params": [p]}],
    lambda f, p: [{"params": {p}}],
    lambda f, p: [{"lr": 1}],
    lambda f, p: p,
    lambda f, p: [("a", p), f.ones(2)],
    lambda f, p: [("a", p), ("a", f.ones(2))],
    lambda f, p: [p * 1],
    lambda f, p: [{"params": [p, leaf(f)]}, {"params": [leaf(f), p], "lr": 1.0}],
    lambda f, p: [{"params": []}],
    lambda f, p: (q for q in (p, leaf(f))),
]


@pytest.mark.parametrize("params", PARAMS)
def test_parameters_that_make_no_sense(params: Any) -> None:
    raised: list[Any] = []
    for f in (lucid, torch):
        try:
            f.optim.SGD(params(f, leaf(f)), lr=0.1)
            raised.append(None)
        except Exception as e:
            raised.append(e)
    ours, theirs = raised
    assert (ours is None) == (theirs is None)
    assert ours is None or isinstance(ours, type(theirs)), (ours, theirs)


STATE_DICTS: list[Any] = [
    lambda s: {**s, "param_groups": []},
    lambda s: {**s, "param_groups": s["param_groups"] * 2},
    lambda s: {**s, "param_groups": [{**s["param_groups"][0], "params": [0]}]},
    lambda s: {"state": {}},
    lambda s: {"param_groups": s["param_groups"]},
    lambda s: {},
    lambda s: {**s, "state": {}},
]


@pytest.mark.parametrize("change", STATE_DICTS)
def test_state_dicts_that_do_not_fit(change: Any) -> None:
    results = []
    for f in (lucid, torch):
        p, q = leaf(f), leaf(f)
        optimizer = f.optim.Adam([p, q])
        p.grad, q.grad = f.ones(2), f.ones(2)
        optimizer.step()
        try:
            optimizer.load_state_dict(change(optimizer.state_dict()))
            groups = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
            results.append((groups, len(optimizer.state)))
        except Exception as e:
            results.append(e)
    ours, theirs = results
    if isinstance(theirs, Exception):
        assert isinstance(ours, type(theirs)), (ours, theirs)
    else:
        assert ours == theirs


def test_closures_and_hooks_run_in_order() -> None:
    seen: list[list[str]] = []
    for f in (lucid, torch):
        calls: list[str] = []
        p = leaf(f)
        optimizer = f.optim.NAdam([p], lr=0.1)
        optimizer.register_step_pre_hook(lambda o, a, k, calls=calls: calls.append(f"before {len(a)} {sorted(k)}"))
        optimizer.register_step_post_hook(lambda o, a, k, calls=calls: calls.append("after"))

        def closure(p: Any = p, optimizer: Any = optimizer, calls: list[str] = calls, f: Any = f) -> Any:
            calls.append(f"closure {f.is_grad_enabled()}")
            optimizer.zero_grad()
            loss = p.square().sum()
            loss.backward()
            return loss

        with f.no_grad():
            calls.append(f"{float(optimizer.step(closure)):.3f}")
            calls.append(f"{float(optimizer.step(closure=closure)):.3f}")
        handle = optimizer.register_step_pre_hook(lambda o, a, k: 3)
        with pytest.raises(RuntimeError, match="must return None or a tuple"):
            optimizer.step()
        handle.remove()
        optimizer.register_step_pre_hook(lambda o, a, k: (a, {}))
        calls.append(str(optimizer.step(closure)))
        seen.append(calls)
    assert seen[0] == seen[1]


BETAS: dict[str, Any] = {
    "a list": lambda m: [0.8, 0.9],
    "three": lambda m: (0.8, 0.9, 0.99),
    "by number": lambda m: {0: 0.8, 1: 0.9},
    "tensors": lambda m: (m.tensor(0.8), m.tensor(0.9)),
    "a tensor": lambda m: m.tensor([0.8, 0.9]),
    "tensors of one": lambda m: (m.tensor([0.8]), m.tensor([0.9])),
    "one of each": lambda m: (0.8, m.tensor(0.9)),
    "integers": lambda m: (0, 0),
    "one": lambda m: (0.8,),
    "a number": lambda m: 0.8,
    "too large": lambda m: (0.8, 1.0),
    "below zero": lambda m: (-0.1, 0.9),
}


@pytest.mark.parametrize("foreach", [None, True, False])
@pytest.mark.parametrize("betas", BETAS)
@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_forms_of_betas(name: str, betas: str, foreach: bool | None) -> None:
    def run(m: Any) -> Any:
        w = m.nn.Parameter(m.tensor([[1.0, 2.0], [3.0, 4.0]]))
        try:
            steps = getattr(m.optim, name)([w], lr=0.01, betas=BETAS[betas](m), foreach=foreach)
        except (ValueError, TypeError, IndexError) as e:
            return next(k for k in (ValueError, TypeError, IndexError) if isinstance(e, k))
        for _ in range(3):
            steps.zero_grad()
            (w * w).sum().backward()
            steps.step()
        return np.round(w.detach().numpy(), 5).tolist()

    assert run(lucid) == run(torch)


def test_hooks_of_every_step() -> None:
    calls: dict[str, list[str]] = {}
    for f in (lucid, torch):
        seen = calls.setdefault(f.__name__, [])
        m = importlib.import_module(f"{f.__name__}.optim.optimizer")
        optimizer = f.optim.SGD([f.ones(1, requires_grad=True)], lr=1.0)
        optimizer.register_step_pre_hook(lambda o, a, k, seen=seen: seen.append("own before"))
        optimizer.register_step_post_hook(lambda o, a, k, seen=seen: seen.append("own after"))
        before = m.register_optimizer_step_pre_hook(lambda o, a, k, seen=seen: seen.append(f"before {len(a)}"))
        after = m.register_optimizer_step_post_hook(lambda o, a, k, seen=seen: seen.append(f"after {len(a)}"))
        optimizer.step()
        before.remove()
        after.remove()
        optimizer.step()
    assert calls["lucid"] == calls["torch"] and len(calls["torch"]) == 6
