"""Why random programs end otherwise than in PyTorch, where that is known and is to stay."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import lucid
import torch

from .autograd_programs import Program, Step, difference
from .random_programs import ApartRun, WideRun

#: Names of steps that change a tensor's shape or strides in place.
TURNS = r"^t_$|transpose_\(|swapaxes_\(|squeeze_|as_strided_\("
#: Reasons by what the difference says, and a kind and a part of the name of a step that the program takes.
SAID: tuple[tuple[str, str, str, str], ...] = (
    (r"gradients: number ([2-9]|\d\d) ", "retain", "", "what retain_grad keeps of a tensor that is written"),
    ("A different number of tensors was saved", "checkpoint", "", "what a checkpoint in a transform counts as saved"),
    ("^values", "vmap", TURNS, "PyTorch's vmap turns the tensor outside, too"),
    ("^(values|gradients)", "transform", "_not_", "PyTorch keeps the tangent of what is not differentiable, in place"),
    ("^gradients", "data", "", "PyTorch's gradients see what is written to data after a result was saved"),
    (r"^gradients: number \d+ is [^n]* here, .*nan.* there", "unary", "norm|std|sqrt", "NaN there, at a kink"),
    (
        "is RuntimeError and TypeError here, IndexError there",
        "wide write",
        "index_put_",
        "another of two faults",
    ),
    (
        "^(gradients|refused)",
        "no_grad",
        TURNS,
        "PyTorch loses the tape of a view that is turned under no_grad",
    ),
    ("^values", "wide write", "masked_scatter_", "PyTorch writes some values before it says that there are too few"),
    ("refused there: .*single memory location", "", "", "PyTorch adds gradients up in memory that overlaps itself"),
    (
        "^gradients: .* here, .* there: .*RuntimeError",
        "transform",
        "",
        "derivatives that are zero require gradients, or do not",
    ),
    (
        "refused there: .*returns multiple views",
        "no_grad",
        "",
        "PyTorch refuses views of several that were made without the tape",
    ),
    (r"^values: \d+ here", "transform", "", "PyTorch lets other views be written that transforms return"),
    ("modified by an inplace operation", "transform", "", "derivatives that are zero require gradients, or do not"),
)


def flat(todo: tuple[Step, ...]) -> list[Step]:
    return [t for s in todo for t in (s, *flat(s.inner))]


def takes(program: Program, kind: str, name: str) -> bool:
    """Has a program a step of a kind, with a name in it or in what it is made of?"""
    steps = [s for s in flat(program.steps) if kind in ("", s.kind)]
    return any(re.search(name, t.name) for s in steps for t in (s, *flat(s.inner)))


@contextlib.contextmanager
def in_double() -> Iterator[None]:
    """Leaves of float64 in both."""
    for m in (torch, lucid):
        m.set_default_dtype(m.float64)
    try:
        yield
    finally:
        for m in (torch, lucid):
            m.set_default_dtype(m.float32)


def reason(program: Program, device: str, why: str) -> str | None:
    """The reason for a difference; None where it has none."""
    for pattern, kind, name, said in SAID:
        if re.search(pattern, why) and takes(program, kind, name):
            return said
    if why.startswith(("values", "gradients")):
        names = {s.name for s in flat(program.steps) if s.kind == "dtype"}
        if any("16" in n or "half" in n for n in names):
            return "16-bit floats are rounded after other steps"
        if difference(program, device, ApartRun) is None:
            return "PyTorch reads what it has written, or writes an element twice"
        if device == "cpu":
            with in_double():
                if difference(program, device, WideRun) is None:
                    return "rounding to 32 bits decides"
    return None
