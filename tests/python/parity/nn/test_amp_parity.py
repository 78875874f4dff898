"""Autocast and `GradScaler` against PyTorch's: the policy of every row, scales, steps left out, state dicts, errors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python import limitations
from tests.python.parity.ops.test_table_parity import ROWS, name_of, run_lucid, run_torch, to_numpy
from tests.python.samples import UP_TO_SIGN, samples
from tests.python.tolerances import TABLE, within

HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
#: Sections of PyTorch's header, and the policy on the GPU device that each stands for.
SECTIONS = {
    "LOWER_PRECISION_FP": "low",
    "FP32": "full",
    "FP32_SET_OPT_DTYPE": "full",
    "PROMOTE": "promote",
}
ON_GPU = {"low on gpu": "low", "full on gpu": "full", "promote on gpu": "promote", "full on cpu": "own"}


def listed() -> dict[str, str]:
    """PyTorch's GPU policy by op, from its own header."""
    text = HEADER.read_text()
    found: dict[str, str] = {}
    for section, policy in SECTIONS.items():
        body = re.search(rf"#define AT_FORALL_{section}\(_\)((?:.*\\\n)*.*\n)", text)
        assert body, section
        found.update((name, policy) for name in re.findall(r"_\((\w+)", body.group(1)))
    return found


def test_policies_on_the_gpu() -> None:
    policies = listed()
    assert policies["matmul"] == "low" and policies["exp"] == "full" and policies["scatter_add"] == "promote"
    compared, wrong = 0, []
    for row in lucid.op_schemas():
        wanted = policies.get(row.torch.rpartition(".")[2] or row.name)
        if wanted is not None and row.torch != "-":
            compared += 1
            got = ON_GPU.get(row.amp, row.amp)
            if got != wanted:
                wrong.append((row.name, got, wanted))
    assert compared > 30 and not wrong


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_policies_on_the_cpu(row: Any) -> None:
    if row["family"] in ("create", "random", "transfer"):
        return
    for sample in list(samples(row))[:2]:
        for dtype in ("float32", "bfloat16"):
            if not all(d.varies for d in sample.tensors()) and row["family"] == "view":
                continue
            try:
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    wanted, _ = run_torch(row, sample, dtype, "contiguous", False)
            except (RuntimeError, TypeError):
                # Not for this dtype in PyTorch.
                continue
            if limitations.known(f"autocast {row['name']}", "cpu", dtype):
                continue
            with lucid.autocast("cpu", dtype=lucid.bfloat16):
                got, _ = run_lucid(row, sample, dtype, "contiguous", False, "cpu")
            for a, b in zip(got, wanted, strict=True):
                if not isinstance(b, torch.Tensor):
                    continue
                assert str(a.dtype).rpartition(".")[2] == str(b.dtype).rpartition(".")[2], sample.text
                if b.is_floating_point():
                    mine, theirs = to_numpy(a), to_numpy(b)
                    if row["name"] in UP_TO_SIGN:
                        mine, theirs = np.abs(mine), np.abs(theirs)
                    np.testing.assert_allclose(mine, theirs, **within("lower precision"), err_msg=sample.text)


BOTH = (lucid, torch)


def build(framework: Any) -> tuple[Any, Any]:
    p = framework.tensor([1.0, -2.0, 3.0], requires_grad=True)
    return p, framework.optim.SGD([p], lr=0.1, momentum=0.5)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_scales_and_left_out_steps(device: str) -> None:
    bad = {3: float("inf"), 4: float("nan"), 9: float("-inf")}
    traces = []
    for framework in BOTH:
        place = device if framework is lucid else "cpu"
        p = framework.tensor([1.0, -2.0, 3.0], device=place, requires_grad=True)
        q = framework.tensor([[0.5]], device=place, requires_grad=True)
        optimizer = framework.optim.SGD([p, q], lr=0.1, momentum=0.5)
        scaler = framework.amp.GradScaler(place, init_scale=1024.0, growth_interval=3, growth_factor=4.0)
        trace = []
        for i in range(14):
            optimizer.zero_grad()
            loss = (p * p).sum() + q.sum() * bad.get(i, 1.0)
            scaler.scale(loss).backward()
            if i % 3 == 1:
                scaler.unscale_(optimizer)
                trace += p.grad.tolist()
            scaler.step(optimizer)
            scaler.update()
            trace += [*p.tolist(), *q.flatten().tolist(), scaler.get_scale(), scaler._get_growth_tracker()]
            if i == 7:
                state = scaler.state_dict()
                scaler = framework.amp.GradScaler(place)
                scaler.load_state_dict(state)
                trace += list(state.values())
        traces.append(trace)
    assert traces[0] == pytest.approx(traces[1], rel=TABLE["few ops"].rtol)


def test_state_dicts_of_scalers() -> None:
    ours, theirs = lucid.amp.GradScaler("cpu"), torch.amp.GradScaler("cpu")
    assert ours.state_dict() == theirs.state_dict()
    assert lucid.amp.GradScaler("cpu", enabled=False).state_dict() == {}
    with pytest.raises(RuntimeError, match="source state dict is empty"):
        ours.load_state_dict({})


@pytest.mark.parametrize("framework", BOTH, ids=["lucid", "torch"])
def test_errors_of_scalers(framework: Any) -> None:
    p, optimizer = build(framework)
    scaler = framework.amp.GradScaler("cpu", init_scale=8.0)
    with pytest.raises(AssertionError, match="_scale is None"):
        scaler.step(optimizer)
    scaler.scale((p * p).sum()).backward()
    with pytest.raises(AssertionError, match="No inf checks were recorded prior to update"):
        scaler.update()
    scaler.unscale_(optimizer)
    assert p.grad.tolist() == [2.0, -4.0, 6.0]
    with pytest.raises(RuntimeError, match="already been called on this optimizer"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="already been called since the last update"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match="being called after step"):
        scaler.unscale_(optimizer)
    scaler.update()
    with pytest.raises(RuntimeError, match="Closure use"):
        scaler.step(optimizer, closure=lambda: None)
    scaler.update(32.0) if framework is lucid else scaler.update(framework.tensor(32.0))
    assert scaler.get_scale() == 32.0
    for wrong in ({"growth_factor": 1.0}, {"backoff_factor": 1.0}):
        with pytest.raises(AssertionError):
            framework.amp.GradScaler("cpu", **wrong)
    half = framework.zeros(2, dtype=framework.float16, requires_grad=True)
    half.grad = framework.ones(2, dtype=framework.float16)
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.unscale_(framework.optim.SGD([half]))
    scaled = scaler.scale([framework.ones(2), (framework.ones(1),)])
    assert scaled[0].tolist() == [32.0, 32.0] and scaled[1][0].tolist() == [32.0]


@pytest.mark.parametrize(
    "device", ["cpu", "cuda", "mps", "xpu:1", "hpu", "ipu", "xla", "mtia", "privateuseone", "bogus"]
)
def test_asking_of_devices_that_are_elsewhere(device: str) -> None:
    def end(module: Any) -> str:
        try:
            return str(module.is_autocast_enabled(device))
        except RuntimeError:
            return "RuntimeError"

    assert end(lucid) == end(torch)
