"""Averaged weights against PyTorch's: averages, buffers, batch norm's statistics, the schedule."""

from __future__ import annotations

from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import within

BOTH = (lucid, torch)


def net(framework: Any) -> Any:
    draw = np.random.default_rng(1)
    model = framework.nn.Sequential(framework.nn.Linear(3, 4), framework.nn.BatchNorm1d(4), framework.nn.Linear(4, 2))
    with framework.no_grad():
        for p in model.parameters():
            p.copy_(framework.tensor(draw.standard_normal(tuple(p.shape)), dtype=framework.float32))
    return model


@pytest.mark.parametrize("kind", ["plain", "avg", "multi"])
@pytest.mark.parametrize("use_buffers", [False, True])
def test_averages(kind: str, use_buffers: bool) -> None:
    sides = []
    for framework in BOTH:
        utils = framework.optim.swa_utils
        options = {
            "avg": {"avg_fn": utils.get_ema_avg_fn(0.9)},
            "multi": {"multi_avg_fn": utils.get_ema_multi_avg_fn(0.8)},
        }
        model = net(framework)
        averaged = utils.AveragedModel(model, use_buffers=use_buffers, **options.get(kind, {}))
        sgd = framework.optim.SGD(model.parameters(), lr=0.1)
        x = framework.tensor(np.random.default_rng(0).standard_normal((6, 3)), dtype=framework.float32)
        for _ in range(4):
            sgd.zero_grad()
            model(x).square().mean().backward()
            sgd.step()
            averaged.update_parameters(model)
        utils.update_bn([x[:3], (x[3:], 0)], averaged)
        sides.append({k: v.tolist() for k, v in averaged.state_dict().items()})
        assert averaged(x).shape == (6, 2)
    assert list(sides[0]) == list(sides[1])
    for name, value in sides[0].items():
        np.testing.assert_allclose(value, sides[1][name], **within("program"), err_msg=name)


@pytest.mark.parametrize("options", [{}, {"anneal_strategy": "linear", "anneal_epochs": 5}, {"anneal_epochs": 0}])
def test_schedule(options: dict[str, Any]) -> None:
    traces = []
    for framework in BOTH:
        sgd = framework.optim.SGD([framework.zeros(2, requires_grad=True)], lr=0.3)
        scheduler = framework.optim.swa_utils.SWALR(sgd, swa_lr=0.05, **options)
        trace = list(scheduler.get_last_lr())
        for _ in range(15):
            sgd.step()
            scheduler.step()
            trace += scheduler.get_last_lr()
        traces.append(trace)
    assert traces[0] == pytest.approx(traces[1])


def test_wrong_arguments() -> None:
    for framework in BOTH:
        utils = framework.optim.swa_utils
        sgd = framework.optim.SGD([framework.zeros(2, requires_grad=True)], lr=0.3)
        with pytest.raises(ValueError, match="Invalid decay"):
            utils.get_ema_avg_fn(1.5)
        with pytest.raises(ValueError, match="anneal_strategy"):
            utils.SWALR(sgd, 0.1, anneal_strategy="sin")
        with pytest.raises(ValueError, match="anneal_epochs"):
            utils.SWALR(sgd, 0.1, anneal_epochs=-1)
        with pytest.raises(AssertionError, match="Only one of"):
            utils.AveragedModel(framework.nn.Linear(1, 1), avg_fn=lambda a, b, c: a, multi_avg_fn=lambda a, b, c: None)
