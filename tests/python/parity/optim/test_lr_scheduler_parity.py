"""Learning-rate schedules against PyTorch's: rates and momenta over 60 steps, resuming, warnings, errors."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import lucid
import pytest
import torch

from tests.python.tolerances import near

STEPS = 60


class Twice:
    """A callable object, whose attributes state dicts hold."""

    def __init__(self) -> None:
        self.base = 0.9

    def __call__(self, epoch: int) -> float:
        return float(self.base**epoch)


Make = Callable[[Any, Any], Any]
SCHEDULES: dict[str, Make] = {
    "lambda": lambda s, o: s.LambdaLR(o, lambda e: 0.95**e),
    "lambdas": lambda s, o: s.LambdaLR(o, [lambda e: 1 / (1 + e), Twice()]),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda e: 0.9 + 0.001 * e),
    "step": lambda s, o: s.StepLR(o, 7, gamma=0.5),
    "multistep": lambda s, o: s.MultiStepLR(o, [3, 10, 10, 40], gamma=0.3),
    "constant": lambda s, o: s.ConstantLR(o, factor=0.25, total_iters=9),
    "linear": lambda s, o: s.LinearLR(o, start_factor=0.2, end_factor=0.8, total_iters=20),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.93),
    "polynomial": lambda s, o: s.PolynomialLR(o, total_iters=50, power=2.0),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 12, eta_min=1e-3),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 5, T_mult=2, eta_min=1e-3),
    "restarts of one length": lambda s, o: s.CosineAnnealingWarmRestarts(o, 8),
    "cyclic": lambda s, o: s.CyclicLR(o, 0.01, [0.1, 0.2], step_size_up=6),
    "cyclic halving": lambda s, o: s.CyclicLR(o, 0.01, 0.1, step_size_up=4, step_size_down=7, mode="triangular2"),
    "cyclic exponential": lambda s, o: s.CyclicLR(o, 0.01, 0.1, step_size_up=5, mode="exp_range", gamma=0.97),
    "cyclic of a function": lambda s, o: s.CyclicLR(
        o, 0.01, 0.1, step_size_up=5, scale_fn=Twice(), scale_mode="iterations", cycle_momentum=False
    ),
    "one cycle": lambda s, o: s.OneCycleLR(o, 0.3, total_steps=STEPS + 1),
    "one cycle linear": lambda s, o: s.OneCycleLR(
        o, [0.3, 0.5], epochs=10, steps_per_epoch=7, pct_start=0.4, anneal_strategy="linear", three_phase=True
    ),
    "chained": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, total_iters=4), s.ExponentialLR(o, 0.9)]),
    "sequential": lambda s, o: s.SequentialLR(
        o,
        [s.LinearLR(o, 0.1, total_iters=10), s.CosineAnnealingLR(o, 15), s.ExponentialLR(o, 0.9)],
        milestones=[10, 30],
    ),
    "nested": lambda s, o: s.SequentialLR(
        o,
        [s.ChainedScheduler([s.ConstantLR(o, 0.5, 3), s.StepLR(o, 2)]), s.PolynomialLR(o, 30)],
        milestones=[12],
    ),
}
BOTH = (lucid, torch)


def setting(framework: Any, kind: str = "SGD") -> Any:
    a, b = framework.zeros(2, requires_grad=True), framework.zeros(3, requires_grad=True)
    options = {"momentum": 0.5} if kind == "SGD" else {}
    return getattr(framework.optim, kind)([{"params": [a]}, {"params": [b], "lr": 0.07}], lr=0.1, **options)


def shown(optimizer: Any) -> list[Any]:
    names = ("lr", "momentum", "betas", "initial_lr", "max_lr", "min_lr", "max_momentum", "base_momentum")
    return [value for group in optimizer.param_groups for n in names if n in group for value in flat(group[n])]


def flat(value: Any) -> list[float]:
    return list(value) if isinstance(value, tuple) else [value]


def run(optimizer: Any, scheduler: Any, steps: int) -> list[list[Any]]:
    seen = []
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
        seen.append([*shown(optimizer), *scheduler.get_last_lr(), scheduler.state_dict().get("last_epoch", -99)])
    return seen


def close(ours: list[list[Any]], theirs: list[list[Any]]) -> None:
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a == pytest.approx(b, **near("float64"))


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_rates(name: str, kind: str) -> None:
    traces = []
    for framework in BOTH:
        optimizer = setting(framework, kind)
        scheduler = SCHEDULES[name](framework.optim.lr_scheduler, optimizer)
        traces.append([shown(optimizer), list(scheduler.get_last_lr()), *run(optimizer, scheduler, STEPS)])
    close(*traces)
    assert any(rates[:1] != traces[0][0][:1] for rates in traces[0][2:])


@pytest.mark.parametrize("name", SCHEDULES)
def test_resuming(name: str) -> None:
    wanted, got = [], []
    for framework in BOTH:
        optimizer = setting(framework)
        scheduler = SCHEDULES[name](framework.optim.lr_scheduler, optimizer)
        run(optimizer, scheduler, 17)
        saved = copy.deepcopy((optimizer.state_dict(), scheduler.state_dict()))
        fresh = setting(framework)
        resumed = SCHEDULES[name](framework.optim.lr_scheduler, fresh)
        fresh.load_state_dict(saved[0])
        resumed.load_state_dict(saved[1])
        wanted.append(run(optimizer, scheduler, 30))
        got.append(run(fresh, resumed, 30))
    close(got[0], wanted[0])
    close(wanted[0], wanted[1])


@pytest.mark.parametrize("name", SCHEDULES)
def test_state_dicts_have_the_same_keys(name: str) -> None:
    keys = []
    for framework in BOTH:
        optimizer = setting(framework)
        scheduler = SCHEDULES[name](framework.optim.lr_scheduler, optimizer)
        run(optimizer, scheduler, 3)
        keys.append(set(scheduler.state_dict()))
    assert keys[0] == keys[1]


@pytest.mark.parametrize(
    "make",
    [
        lambda s, o: s.StepLR(o, 7, last_epoch=12),
        lambda s, o: s.ExponentialLR(o, 0.9, last_epoch=12),
        lambda s, o: s.CosineAnnealingLR(o, 20, last_epoch=12),
        lambda s, o: s.LinearLR(o, 0.1, total_iters=30, last_epoch=12),
        lambda s, o: s.PolynomialLR(o, 30, last_epoch=12),
        lambda s, o: s.LambdaLR(o, lambda e: 1 / (e + 1), last_epoch=12),
        lambda s, o: s.MultiplicativeLR(o, lambda e: 0.9, last_epoch=12),
    ],
)
def test_starting_late(make: Make) -> None:
    traces = []
    for framework in BOTH:
        optimizer = setting(framework)
        with pytest.raises(KeyError, match="initial_lr"):
            make(framework.optim.lr_scheduler, optimizer)
        for group in optimizer.param_groups:
            group["initial_lr"] = 0.2
        scheduler = make(framework.optim.lr_scheduler, optimizer)
        traces.append([shown(optimizer), *run(optimizer, scheduler, 25)])
    close(*traces)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"patience": 2},
        {"mode": "max", "patience": 1, "factor": 0.5, "cooldown": 3},
        {"threshold": 0.3, "threshold_mode": "abs", "patience": 0, "min_lr": [0.01, 0.02]},
        {"mode": "max", "threshold_mode": "abs", "patience": 3, "eps": 1e-3},
    ],
)
def test_plateaus(options: dict[str, Any]) -> None:
    metrics = [1 / (1 + i % 13) + (i // 20) * 0.1 for i in range(STEPS)]
    traces = []
    for framework in BOTH:
        optimizer = setting(framework)
        scheduler = framework.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
        trace = []
        for i, metric in enumerate(metrics):
            optimizer.step()
            scheduler.step(framework.tensor(metric, dtype=framework.float64) if i % 2 else metric)
            if i == 30:
                state = copy.deepcopy(scheduler.state_dict())
                scheduler = framework.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
                scheduler.load_state_dict(state)
            trace.append([*shown(optimizer), *scheduler.get_last_lr(), scheduler.num_bad_epochs, scheduler.best])
        traces.append(trace)
        keys = set(scheduler.state_dict())
        assert keys == set(
            framework.optim.lr_scheduler.ReduceLROnPlateau(setting(torch if framework is torch else lucid)).state_dict()
        )
    close(*traces)


def test_epochs_that_are_given() -> None:
    for make in (
        lambda s, o: s.StepLR(o, 3),
        lambda s, o: s.MultiStepLR(o, [2, 5]),
        lambda s, o: s.ExponentialLR(o, 0.9),
        lambda s, o: s.CosineAnnealingLR(o, 9),
        lambda s, o: s.ConstantLR(o, 0.5),
        lambda s, o: s.LinearLR(o, 0.5),
        lambda s, o: s.PolynomialLR(o, 30),
        lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2),
        lambda s, o: s.CosineAnnealingWarmRestarts(o, 3),
    ):
        traces = []
        for framework in BOTH:
            optimizer = setting(framework)
            scheduler = make(framework.optim.lr_scheduler, optimizer)
            optimizer.step()
            trace = []
            for epoch in (4, 1, 7, 11, 23):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    scheduler.step(epoch)
                trace.append([*shown(optimizer), scheduler.last_epoch])
            traces.append(trace)
        close(*traces)


def test_fractional_restarts() -> None:
    traces = []
    for framework in BOTH:
        optimizer = setting(framework)
        scheduler = framework.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3, 2)
        trace = []
        for i in range(40):
            scheduler.step(i / 4)
            trace.append(shown(optimizer))
        traces.append(trace)
        with pytest.raises(ValueError, match="non-negative"):
            scheduler.step(-1)
    close(*traces)


@pytest.mark.parametrize("framework", BOTH, ids=["lucid", "torch"])
def test_warnings(framework: Any) -> None:
    schedulers = framework.optim.lr_scheduler
    optimizer = setting(framework)
    scheduler = schedulers.StepLR(optimizer, 3)
    with pytest.warns(UserWarning, match=r"`lr_scheduler.step\(\)` before `optimizer.step\(\)`"):
        scheduler.step()
    with pytest.warns(UserWarning, match="get_last_lr"):
        scheduler.get_lr()
    with pytest.warns(UserWarning, match="epoch parameter"):
        scheduler.step(2)
    optimizer = setting(framework)
    scheduler = schedulers.StepLR(optimizer, 3)
    optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler.step()
        scheduler.step()
    optimizer = setting(framework)
    scheduler = schedulers.StepLR(optimizer, 3)
    optimizer.step = lambda: None
    with pytest.warns(UserWarning, match="has been overridden"):
        scheduler.step()


WRONG: list[Make] = [
    lambda s, o: s.StepLR(3, 1),
    lambda s, o: s.LambdaLR(o, [lambda e: 1]),
    lambda s, o: s.MultiplicativeLR(o, [1, 2]),
    lambda s, o: s.ConstantLR(o, factor=1.5),
    lambda s, o: s.LinearLR(o, start_factor=0),
    lambda s, o: s.LinearLR(o, end_factor=1.1),
    lambda s, o: s.CosineAnnealingWarmRestarts(o, 0),
    lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 0),
    lambda s, o: s.CyclicLR(o, 0.1, 0.2, mode="square"),
    lambda s, o: s.CyclicLR(o, [0.1], 0.2),
    lambda s, o: s.OneCycleLR(o, 0.1),
    lambda s, o: s.OneCycleLR(o, 0.1, total_steps=-3),
    lambda s, o: s.OneCycleLR(o, 0.1, epochs=3, steps_per_epoch=0),
    lambda s, o: s.OneCycleLR(o, 0.1, total_steps=3, pct_start=2.0),
    lambda s, o: s.OneCycleLR(o, 0.1, total_steps=3, anneal_strategy="sin"),
    lambda s, o: s.ReduceLROnPlateau(o, factor=1.0),
    lambda s, o: s.ReduceLROnPlateau(o, mode="mean"),
    lambda s, o: s.ReduceLROnPlateau(o, threshold_mode="mean"),
    lambda s, o: s.ReduceLROnPlateau(o, min_lr=[0.1]),
    lambda s, o: s.SequentialLR(o, [], []),
    lambda s, o: s.SequentialLR(o, [s.StepLR(o, 1)], [3]),
    lambda s, o: s.SequentialLR(o, [s.StepLR(o, 1), s.ReduceLROnPlateau(o)], [3]),
    lambda s, o: s.ChainedScheduler([]),
    lambda s, o: s.ChainedScheduler([3]),
]


@pytest.mark.parametrize("make", WRONG)
def test_wrong_arguments(make: Make) -> None:
    def error(framework: Any) -> tuple[type, str]:
        with pytest.raises((TypeError, ValueError, AttributeError)) as caught:
            make(framework.optim.lr_scheduler, setting(framework))
        kinds = (TypeError, ValueError, AttributeError)
        return next(k for k in kinds if isinstance(caught.value, k)), str(caught.value)

    (kind, said), (wanted, theirs) = error(lucid), error(torch)
    assert kind is wanted
    # Here the class's name stands before, and sometimes the value after.
    assert theirs.rstrip(".!") in said


def test_schedulers_of_other_optimizers() -> None:
    for framework in BOTH:
        s = framework.optim.lr_scheduler
        a, b = setting(framework), setting(framework)
        with pytest.raises(ValueError, match="same optimizer"):
            s.ChainedScheduler([s.StepLR(a, 1), s.StepLR(b, 1)])
        with pytest.raises(ValueError, match="same optimizer"):
            s.SequentialLR(a, [s.StepLR(a, 1), s.StepLR(b, 1)], [2])


def test_too_many_steps_of_one_cycle() -> None:
    for framework in BOTH:
        optimizer = setting(framework)
        scheduler = framework.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=2)
        run(optimizer, scheduler, 2)
        with pytest.raises(ValueError, match="Tried to step 3 times"):
            scheduler.step()


def test_signatures() -> None:
    for name in torch.optim.lr_scheduler.__all__:
        ours, theirs = (
            [
                (p.name, p.kind, p.default)
                for p in inspect.signature(getattr(f.optim.lr_scheduler, name).__init__).parameters.values()
                if p.name != "eta_min" or name != "PolynomialLR"
            ]
            for f in BOTH
        )
        assert ours == theirs, name
        assert getattr(lucid.optim, name) is getattr(lucid.optim.lr_scheduler, name)


def test_noam() -> None:
    optimizer = setting(lucid)
    scheduler = lucid.optim.NoamScheduler(optimizer, model_size=16, warmup_steps=4, factor=2.0)
    for step in range(1, 12):
        wanted = 2.0 * 16**-0.5 * min(step**-0.5, step * 4**-1.5)
        assert scheduler.get_last_lr() == pytest.approx([0.1 * wanted, 0.07 * wanted])
        optimizer.step()
        scheduler.step()
    for wrong in ({"model_size": 0, "warmup_steps": 4}, {"model_size": 4, "warmup_steps": 0}):
        with pytest.raises(ValueError, match="positive"):
            lucid.optim.NoamScheduler(optimizer, **wrong)
