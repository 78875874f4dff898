"""Tools around training: timing, counting, seeding, processes, tests' tensors, and names of a group of processes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import lucid
import lucid.utils.benchmark as ours
import numpy as np
import pytest
import torch
import torch.utils.benchmark as theirs
from lucid import _warnings
from lucid.utils.flop_counter import FlopCounterMode
from torch.utils.flop_counter import FlopCounterMode as TheirFlopCounterMode

from tests.python.parity.packages import spawned
from tests.python.tolerances import TABLE

BOTH = [torch, lucid]
DEVICES = ["cpu", "gpu"]


@pytest.fixture(autouse=True)
def warned_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_warnings, "_given", set())


# --- conditions, seeds ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("flag", [True, False])
def test_conditions(flag: bool, device: str) -> None:
    x = lucid.tensor([1.0, 2.0], device=device, requires_grad=True)
    for pred in (flag, lucid.tensor(flag, device=device), lucid.tensor([flag], device=device)):
        y = lucid.cond(pred, lambda a, b: {"y": a * b}, lambda a, b: {"y": a - b}, (x, x + 1))["y"]
        (grad,) = lucid.autograd.grad(y.sum(), x)
        assert y.tolist() == ([2, 6] if flag else [-1, -1])
        assert grad.tolist() == ([3, 5] if flag else [0, 0])
    preds = lucid.tensor([True, False], device=device)
    got = lucid.vmap(lambda p, v: lucid.cond(p, lambda t: t.sin(), lambda t: t.cos(), (v,)))(preds, x.detach())
    want = torch.vmap(lambda p, v: torch.cond(p, lambda t: t.sin(), lambda t: t.cos(), (v,)))(
        torch.tensor([True, False]), torch.tensor([1.0, 2.0])
    )
    np.testing.assert_allclose(got.cpu().numpy(), want.numpy(), rtol=TABLE["rounding"].rtol)


def test_bad_conditions() -> None:
    one = lucid.ones(1)
    for bad in ((lucid.ones(2).bool(), len, len), (one, len, len), (3, len, len), (True, 3, len), (True, len, None)):
        with pytest.raises(RuntimeError, match="Expect"):
            lucid.cond(*bad, (one,))
    with pytest.raises(RuntimeError, match="operands"):
        lucid.cond(True, len, len, one)


def test_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    for _ in range(2):
        assert lucid.seed_everything(7) == 7
        drawn.append((random.random(), float(np.random.rand()), *(lucid.rand(3, device=d).tolist() for d in DEVICES)))
    assert drawn[0] == drawn[1]
    assert os.environ["PL_GLOBAL_SEED"] == "7"
    assert lucid.seed_everything() == 7
    for bad in (-1, 1 << 32, 2.5, True):
        with pytest.raises(ValueError, match="between 0 and"):
            lucid.seed_everything(bad)  # type: ignore[arg-type]
    monkeypatch.delenv("PL_GLOBAL_SEED")
    monkeypatch.delenv("PL_SEED_WORKERS")


# --- timing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_timers(device: str) -> None:
    x, threads = lucid.ones(8, device=device), lucid.get_num_threads()
    timer = ours.Timer("(x + y).eval()", "y = x", globals={"x": x}, label="add", sub_label="8", description=device)
    once = timer.timeit(20)
    assert (once.number_per_run, len(once.raw_times), once.title) == (20, 1, "add: 8")
    assert 0 < once.median < 1
    seen: list[Any] = []
    blocks = timer.blocked_autorange(lambda n, t: seen.append((n, t)), min_run_time=0.02)
    assert sum(blocks.raw_times) >= 0.02
    assert seen == [(blocks.number_per_run, t) for t in blocks.raw_times]
    assert len(timer.adaptive_autorange(threshold=9.0, min_run_time=0.001, max_run_time=0.5).raw_times) >= 1
    assert "add: 8" in repr(blocks)
    assert lucid.get_num_threads() == threads
    assert ours.timer() <= ours.timer()


TIMES = [[2e-3], [1e-3, 3e-3, 2e-3, 2.5e-3, 9e-3], [1.0, 1.1, 1.05, 1.07, 1.2, 1.01], [5e-6] * 5]


@pytest.mark.parametrize("times", TIMES)
def test_statistics(times: list[float]) -> None:
    there = theirs.Measurement(10, list(times), theirs.TaskSpec("f()", "pass", sub_label="s", num_threads=2))
    here = ours.Measurement(10, list(times), ours.TaskSpec("f()", "pass", sub_label="s", num_threads=2))
    for name in ("median", "mean", "iqr", "times", "title", "as_row_name", "stmt", "num_threads"):
        assert getattr(here, name) == pytest.approx(getattr(there, name)), name
    assert here.meets_confidence() == there.meets_confidence()
    assert here.significant_figures == there.significant_figures
    assert ours.select_unit(here.median) == theirs.select_unit(there.median)
    assert ours.trim_sigfig(here.mean, 2) == pytest.approx(theirs.trim_sigfig(there.mean, 2))
    with pytest.raises(AttributeError):
        _ = here.nothing


def test_tables() -> None:
    task = [
        ours.TaskSpec("f", "pass", "", "title", row, column, None, n)
        for n in (1, 4)
        for row in ("small", "large")
        for column in ("old", "new")
    ]
    table = ours.Compare([ours.Measurement(1, [1e-3 * (i + 1)], t) for i, t in enumerate(task)])
    table.extend_results([ours.Measurement(2, [2e-3], task[0])])
    table.trim_significant_figures()
    table.colorize(rowwise=True)
    table.highlight_warnings()
    shown = str(table)
    assert "title" in shown
    assert "4 threads" in shown
    assert "*" in shown
    assert "milliseconds (ms)" in shown
    assert len(ours.Measurement.merge([ours.Measurement(1, [1.0], task[0]), ours.Measurement(2, [4.0], task[0])])) == 1
    with pytest.raises(ValueError, match="Measurement"):
        table.extend_results([3])  # type: ignore[list-item]


@pytest.mark.parametrize("arguments", [{"stmt": 3}, {"global_setup": "x"}, {"language": "fortran"}])
def test_bad_timers(arguments: Any) -> None:
    for module in (theirs, ours):
        with pytest.raises(ValueError):
            module.Timer(**arguments)
    with pytest.raises(NotImplementedError):
        ours.Timer(language="c++")
    with pytest.raises(NotImplementedError, match="blocked_autorange"):
        ours.Timer().repeat()
    with pytest.raises(NotImplementedError, match="callgrind"):
        ours.Timer().collect_callgrind()


# --- counting ---------------------------------------------------------------------------------------------------------


def model(f: Any) -> Any:
    nn = f.nn
    return nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 9, 5))


@pytest.mark.parametrize("device", DEVICES)
def test_operations_are_counted_as_in_pytorch(device: str) -> None:
    found = []
    for f, counter in ((torch, TheirFlopCounterMode), (lucid, FlopCounterMode)):
        where = device if f is lucid else "cpu"
        net, x = model(f).to(where), f.ones(2, 3, 8, 8, device=where)
        q = f.ones(2, 3, 4, 8, device=where, requires_grad=True)
        with counter(display=False) as c:
            net(x)
            f.nn.functional.scaled_dot_product_attention(q, q, q)
            f.ones(3, 4, 5, device=where) @ f.ones(3, 5, 2, device=where)
        counts = c.get_flop_counts()
        found.append((c.get_total_flops(), *(sum(counts[f"Sequential{n}"].values()) for n in ("", ".0", ".3"))))
        with counter(display=False) as c:
            net(x).sum().backward()
        found[-1] += (c.get_total_flops(),)
    assert found[0] == found[1]


def test_the_table_of_operations(capsys: pytest.CaptureFixture[str]) -> None:
    with FlopCounterMode(depth=1) as counter:
        model(lucid)(lucid.ones(2, 3, 8, 8))
    shown = capsys.readouterr().out
    assert "Global" in shown
    assert "Sequential.0" not in shown
    assert "Sequential.0" in counter.get_table(depth=2)
    with pytest.raises(NotImplementedError):
        FlopCounterMode(custom_mapping={1: 2})
    with pytest.raises(ZeroDivisionError), FlopCounterMode(display=False):
        _ = 1 // 0
    with FlopCounterMode(display=False) as again:
        pass
    assert again.get_total_flops() == 0


@pytest.mark.parametrize("device", DEVICES)
def test_summaries(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    net = model(lucid).to(device)
    net[0].weight.requires_grad_(False)
    found = lucid.utils.summary(net, (2, 3, 8, 8))
    assert net.training
    assert found.total_params == sum(p.numel() for p in net.parameters())
    assert found.trainable_params == found.total_params - net[0].weight.numel()
    assert found.total_flops == 2 * (2 * 4 * 9 * 27) + 2 * 2 * 36 * 5
    assert [row["shapes"] for row in found.rows] == [[(2, 5)], [(2, 4, 3, 3)], [(2, 4, 3, 3)], [(2, 36)], [(2, 5)]]
    assert found.param_bytes == 4 * found.total_params
    shown = capsys.readouterr().out
    assert "Conv2d (0)" in shown
    assert f"{found.total_params:,}" in shown
    again = lucid.utils.summary(net, lucid.ones(1, 3, 8, 8, device=device), depth=0, verbose=False)
    assert len(again.rows) == 1
    assert not net._forward_hooks
    with pytest.raises(TypeError, match="expected a module"):
        lucid.utils.summary(len, (1,))  # type: ignore[arg-type]


# --- processes --------------------------------------------------------------------------------------------------------


def test_processes_are_spawned() -> None:
    shared = lucid.zeros(2).share_memory_()
    assert lucid.multiprocessing.spawn(spawned.write, (shared, 3), nprocs=2) is None
    assert shared.tolist() == [3, 6]
    context = lucid.multiprocessing.spawn(spawned.write, (shared, 5), nprocs=2, join=False)
    assert context is not None
    assert len(context.pids()) == 2
    while not context.join(timeout=30):
        pass
    assert context.join()
    assert shared.tolist() == [5, 10]


def test_processes_that_fail() -> None:
    mp = lucid.multiprocessing
    with pytest.raises(mp.ProcessRaisedException, match="told by the process") as raised:
        mp.spawn(spawned.fail, nprocs=2)
    assert raised.value.error_index == 1
    with pytest.raises(mp.ProcessExitedException, match="exit code 7") as left:
        mp.spawn(spawned.leave)
    assert (left.value.exit_code, left.value.signal_name) == (7, None)
    with pytest.raises(mp.ProcessExitedException, match="SIGKILL"):
        mp.spawn(spawned.killed)
    with pytest.raises(ValueError, match="MLX hangs after a fork"):
        mp.start_processes(spawned.leave, start_method="fork")


# --- tensors for tests ------------------------------------------------------------------------------------------------

MAKES: list[dict[str, Any]] = [
    {"dtype": "float32"},
    {"dtype": "float32", "low": 2, "high": 3.5, "requires_grad": True},
    {"dtype": "bfloat16", "exclude_zero": True},
    {"dtype": "int64", "low": -3, "high": 3, "exclude_zero": True},
    {"dtype": "uint8", "low": 250, "high": 999},
    {"dtype": "int8", "low": -999},
    {"dtype": "bool"},
    {"dtype": "complex64", "noncontiguous": True},
    {"dtype": "float32", "low": -3.5e38, "high": 3.5e38},
    {"dtype": "int32", "noncontiguous": True},
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("options", MAKES, ids=str)
def test_made_tensors(options: dict[str, Any], device: str) -> None:
    for f in BOTH:
        given = {**options, "dtype": getattr(f, options["dtype"]), "device": device if f is lucid else "cpu"}
        for shape in ((), (3,), (4, 5), (0, 2)):
            x = f.testing.make_tensor(shape, **given)
            assert tuple(x.shape) == shape
            assert x.dtype is given["dtype"]
            assert x.requires_grad == options.get("requires_grad", False)
            assert x.is_leaf
            if x.numel() and not x.is_complex() and x.dtype is not f.bool:
                assert float(x.min()) >= options.get("low", -9)
                assert float(x.max()) <= options.get("high", 10)
            if options.get("noncontiguous") and x.numel() > 1:
                assert not x.is_contiguous()
            if options.get("exclude_zero"):
                assert bool((x != 0).all())


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "float32", "low": 3, "high": 2},
        {"dtype": "float32", "low": float("nan")},
        {"dtype": "int64", "requires_grad": True},
        {"dtype": "uint8", "low": 300, "high": 400},
        {"dtype": "bool", "low": 5, "high": 6},
        {"dtype": "float32", "noncontiguous": True, "memory_format": "channels_last"},
    ],
    ids=str,
)
def test_bad_made_tensors(options: dict[str, Any]) -> None:
    for f in BOTH:
        given = {k: getattr(f, v) if isinstance(v, str) else v for k, v in options.items()}
        with pytest.raises(ValueError):
            f.testing.make_tensor(2, 2, 2, 2, device="cpu", **given)


# --- switches, scopes, groups -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_the_choice_of_attention(device: str) -> None:
    q = lucid.rand(1, 2, 3, 4, device=device)
    want = lucid.nn.functional.scaled_dot_product_attention(q, q, q)
    switches = lucid.backends.cuda
    attention = lucid.nn.attention
    with pytest.warns(UserWarning, match="changes nothing"), attention.sdpa_kernel([attention.SDPBackend.MATH]):
        assert switches.math_sdp_enabled()
        assert not switches.flash_sdp_enabled()
        got = lucid.nn.functional.scaled_dot_product_attention(q, q, q)
    assert lucid.equal(got, want)
    assert switches.flash_sdp_enabled()
    with pytest.raises(AssertionError, match="SDPBackend"), attention.sdpa_kernel("math"):
        pass
    with pytest.warns(UserWarning, match="changes nothing"):
        switches.enable_flash_sdp(False)
    assert not switches.flash_sdp_enabled()
    switches.enable_flash_sdp(True)
    switches.allow_fp16_bf16_reduction_math_sdp(True)
    assert switches.fp16_bf16_reduction_math_sdp_allowed()
    switches.allow_fp16_bf16_reduction_math_sdp(False)
    assert {b.name for b in attention.SDPBackend} >= {"ERROR", "MATH", "FLASH_ATTENTION", "EFFICIENT_ATTENTION"}


def test_scopes_of_nvtx() -> None:
    nvtx = lucid.cuda.nvtx
    with lucid.profiler.profile() as p:
        assert nvtx.range_push("outer") == 0
        assert nvtx.range_push("inner") == 1
        number = nvtx.range_start("across")
        nvtx.mark("here")
        _ = lucid.ones(2) + 1
        assert nvtx.range_pop() == 1
        assert nvtx.range_pop() == 0
        nvtx.range_end(number)
        nvtx.range_end(number)
    assert nvtx.range_pop() == -1
    assert {"outer", "inner", "across", "here"} <= {e.name for e in p.events()}


def test_questions_before_there_is_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    for group in (lucid.distributed, torch.distributed):
        assert group.is_available()
        assert not group.is_initialized()
        assert group.is_gloo_available()
        for name in ("all_reduce", "get_rank", "barrier"):
            with pytest.raises(ValueError, match="Default process group has not been initialized"):
                tensors = [lucid.ones(1) if group is lucid.distributed else torch.ones(1)]
                getattr(group, name)(*(tensors if name == "all_reduce" else []))
        assert group.ReduceOp.SUM != group.ReduceOp.MAX
    with pytest.raises(ValueError, match="RANK is not set"):
        lucid.distributed.init_process_group()
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        lucid.nn.parallel.DistributedDataParallel(lucid.nn.Linear(1, 1))


def test_the_report_of_the_machine() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lucid.utils.collect_env"], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    for word in (lucid.__version__, "Python version", "GPU device", "[pip3] mlx=="):
        assert word in done.stdout


# --- tools/imports.py -------------------------------------------------------------------------------------------------

SOURCE = """
import torch
import torch.nn as nn
from torch.nn import functional as F
from torch.utils import data
try:
    from torch.export import export
except ImportError:
    export = None
if hasattr(torch, "qint8"):
    kind = torch.qint8

def f(x, nn2):
    torch.relu(x).anything()
    nn.Linear(1, 1)
    F.there_is_none(x)
    data.DataLoader
    torch.quantize_per_tensor(x)
    return torch.float32
"""


def test_imports(tmp_path: Path) -> None:
    tool = str(Path(__file__).resolve().parents[4] / "tools" / "imports.py")
    (tmp_path / "a.py").write_text(SOURCE)
    (tmp_path / "b.py").write_text("import torch\nx = torch.ones(1)\n")
    (tmp_path / "c.py").write_text("import json\n")
    (tmp_path / "broken.py").write_text("import torch\n  x")

    def run(*args: str) -> Any:
        env = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
        return subprocess.run([sys.executable, tool, *args], capture_output=True, text=True, check=False, env=env)

    done = run(str(tmp_path / "a.py"), str(tmp_path / "b.py"), str(tmp_path / "c.py"))
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "1 of 2 files that use torch are complete (50.0%)"
    assert [line.rpartition(" ")[2] for line in lines[:-1]] == ["torch.quantize_per_tensor"]
    whole = run(str(tmp_path), "--all", "--summary")
    assert "broken.py" in whole.stderr
    for name in ("torch.nn.functional.there_is_none", "torch.qint8", "torch.quantize_per_tensor"):
        assert name in whole.stdout
    assert run(str(tmp_path / "b.py")).returncode == 0


def test_nothing_warns_at_import() -> None:
    names = "jit fx hub compiler library ops distributed futures einops signal nn.attention utils.benchmark"
    code = "import importlib\n" + "\n".join(f"importlib.import_module('lucid.{n}')" for n in names.split())
    with warnings.catch_warnings():
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False, timeout=120
        )
    assert done.returncode == 0, done.stderr


def test_there_is_no_intel_gpu() -> None:
    assert not lucid.xpu.is_available()
    assert lucid.xpu.device_count() == lucid.xpu.memory_allocated() == 0
    lucid.xpu.empty_cache()
    with pytest.raises(RuntimeError, match=r"xpu.synchronize\(\): there is no Intel GPU"):
        lucid.xpu.synchronize()
