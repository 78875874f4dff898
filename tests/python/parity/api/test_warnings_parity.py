"""What PyTorch warns of: the same categories, as often, at the user's line, and errors where a filter makes them so."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import lucid
import lucid.optim.swa_utils
import lucid.utils.checkpoint
import numpy as np
import pytest
import torch
import torch.optim.swa_utils
import torch.utils.checkpoint

from tests.python.parity.api.warned_programs import PROGRAMS
from tests.python.parity.ops.test_table_parity import ROWS, name_of, run_lucid, run_torch, weighted
from tests.python.samples import samples

BOTH = (torch, lucid)


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    """What programs set is set back."""
    try:
        yield
    finally:
        for module in BOTH:
            module.set_warn_always(False)
            module.set_default_dtype(module.float32)


def run(program: str, module: ModuleType, filters: str = "always") -> tuple[list[warnings.WarningMessage], str]:
    """The warnings of a program, and the kind of error that it ends with."""
    fixed = np.ones(2, dtype=np.float32)
    fixed.flags.writeable = False
    names = {"torch": module, "nn": module.nn, "F": module.nn.functional, "np": np, "io": io, "RO": fixed}
    ended = ""
    with warnings.catch_warnings(record=True) as seen, contextlib.redirect_stdout(io.StringIO()):
        warnings.resetwarnings()
        warnings.simplefilter(filters)  # type: ignore[arg-type]
        try:
            exec(compile(program, "<program>", "exec"), names)
        except Warning as e:
            ended = "Warning: " + type(e).__name__
        except Exception as e:
            ended = next(kind.__name__ for kind in type(e).__mro__ if kind.__module__ == "builtins")
    return seen, ended


def categories(program: str, module: ModuleType) -> tuple[list[str], str]:
    seen, ended = run(program, module)
    return [w.category.__name__ for w in seen], ended


@pytest.mark.parametrize("program", PROGRAMS)
def test_warnings(program: str) -> None:
    for module in BOTH:
        module.set_warn_always(True)
    theirs, ours = categories(program, torch), categories(program, lucid)
    assert ours == theirs
    # Once the first have been given, those of one in a process are not given again.
    for module in BOTH:
        module.set_warn_always(False)
        run(program, module)
    assert categories(program, lucid) == categories(program, torch)


# What PyTorch's gradients warn of is the op that they are made of, not what the user called.
MADE_OF_THEMSELVES = ("index_reduce", "triangular_solve")


def warned(sides: tuple[Any, Any], *given: Any) -> tuple[list[type[Warning]], bool]:
    """What a sample of the op table warns of on the way there and back, and whether it ends in an error."""
    run, arange = sides
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            loss = weighted(run(*given)[0], arange)
            if loss is not None:
                loss.backward()
        except Exception:
            return [], True
    return [w.category for w in seen], False


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_samples_of_the_op_table_warn_of_the_same(row: Any, device: str) -> None:
    def torch_arange(a: int, b: int, like: Any) -> Any:
        return torch.arange(a, b).to(like.dtype)

    def lucid_arange(a: int, b: int, like: Any) -> Any:
        return lucid.arange(a, b, device=like.device).to(like.dtype)

    def on_the_device(*given: Any) -> Any:
        return run_lucid(*given, device)

    for module in BOTH:
        module.set_warn_always(True)
    if row["name"] == "cast":
        return  # `Tensor.to`, which users call, warns; the op under it is Lucid's own.
    differentiable = row["differentiable"] and row["name"] not in MADE_OF_THEMSELVES
    for dtype in sorted({"float32", "int64", "complex64"} & set(row["dtypes"])):
        for sample in samples(row, device, integers=dtype == "int64"):
            sample = sample.of_complex(dtype) if dtype == "complex64" else sample
            given = (row, sample, dtype, "contiguous", differentiable and dtype != "int64")
            theirs, refused = warned((run_torch, torch_arange), *given)
            ours, failed = warned((on_the_device, lucid_arange), *given)
            if not refused and not failed:
                assert ours == theirs, f"{sample.text} {dtype}"


@pytest.mark.parametrize("program", PROGRAMS)
def test_they_are_of_the_users_line_and_may_be_errors(program: str) -> None:
    lucid.set_warn_always(True)
    seen, ended = run(program, lucid)
    assert all(w.filename == "<program>" and 0 < w.lineno <= program.count("\n") + 1 for w in seen)
    if seen and not ended and "except" not in program:
        assert run(program, lucid, "error")[1] == "Warning: " + seen[0].category.__name__


@pytest.mark.parametrize(
    "write",
    [
        "x.copy_(torch.full((2,), 3j + 2))",
        "x.expand(3, 2).index_fill_(1, torch.tensor([0, 1]), 2.0)",
        "x.expand(3, 2)[torch.ones(3, 2) > 0] = 2.0",
    ],
)
def test_what_a_call_wrote_before_its_warning_became_an_error_is_written(write: str) -> None:
    def after(module: Any) -> list[float]:
        module.set_warn_always(True)
        x = module.zeros(2)
        with warnings.catch_warnings(), pytest.raises(UserWarning):
            warnings.simplefilter("error")
            exec(write, {"torch": module, "x": x})
        return x.tolist()  # type: ignore[no-any-return]

    assert after(lucid) == after(torch)


def test_a_warning_beside_an_error_is_given_and_the_error_is_raised() -> None:
    mask = "torch.tensor([1, 0], dtype=torch.uint8)"
    program = f"torch.ones(2).masked_scatter({mask}, torch.ones(2))"
    for module in BOTH:
        seen, ended = run(program, module)
        assert ([w.category for w in seen], ended) == ([UserWarning], "RuntimeError")
        assert run(program, module, "error")[1] in ("RuntimeError", "Warning: UserWarning")


def test_once_in_a_process() -> None:
    program = "import warnings, lucid; warnings.simplefilter('always'); [lucid.ones(2).T for _ in range(3)]"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stderr
    assert told.count("UserWarning") == 1
    told = subprocess.run(
        [sys.executable, "-c", program.replace("; [", "; lucid.set_warn_always(True); [")],
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    assert told.count("UserWarning") == 3


def test_layers_of_lucid_are_passed_over() -> None:
    class Mine(lucid.nn.Module):
        def forward(self, x: lucid.Tensor) -> lucid.Tensor:
            return lucid.nn.functional.softmax(x)  # this line

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        lucid.nn.Sequential(lucid.nn.Identity(), Mine())(lucid.ones(2))
    assert [w.filename for w in seen] == [__file__]
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert lines[seen[0].lineno - 1].endswith("# this line")
