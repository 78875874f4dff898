"""Why random programs end otherwise than in PyTorch, where that is known and is to stay."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import lucid
import torch

from .autograd_programs import Program, Step, difference, slack
from .random_programs import ApartRun, WideRun

#: Names of steps that change a tensor's shape or strides in place.
TURNS = r"^t_$|transpose_\(|swapaxes_\(|squeeze_|as_strided_\("
#: Names of steps that write what they are called on.
WRITES = r"\w_\(|\w_$| =$"
#: Views whose elements may be one another's memory, or are outside of the view that they are taken from.
BEYOND = r"as_strided|unfold\(-1, 2, 1\)"
#: Ops with a gradient that is infinite, or none, where what they are taken of is zero or all alike.
KINKS = r"norm|std|sqrt|var"
#: Reasons by what the difference says, and by kinds and names of steps, all of which the program takes.
SAID: tuple[tuple[str, tuple[tuple[str, str], ...], str], ...] = (
    (r"gradients: number ([2-9]|\d\d) ", (("retain", ""),), "what retain_grad keeps of a tensor that is written"),
    (
        "A different number of tensors was saved",
        (("checkpoint", ""),),
        "what a checkpoint in a transform counts as saved",
    ),
    (
        "^values",
        (("vmap", ""), ("", TURNS)),
        "PyTorch's vmap turns the tensor outside, too, or gives what it was given",
    ),
    ("^values", (("transform", TURNS),), "PyTorch's transforms turn the tensor outside, too"),
    (
        "^(values|gradients)",
        (("transform", "_not_"),),
        "PyTorch keeps the tangent of what is not differentiable, in place",
    ),
    ("^gradients", (("data", ""),), "PyTorch's gradients see what is written to data after a result was saved"),
    (
        "^values: number",
        (("data", ""), ("autograd.grad", "")),
        "PyTorch's gradients see what is written to data after a result was saved",
    ),
    (r"^gradients: number \d+ is [^n]* here, .*nan.* there", (("", KINKS),), "NaN there, at a kink"),
    (
        "is RuntimeError and TypeError here, IndexError there",
        (("wide write", "index_put_"),),
        "another of two faults",
    ),
    (
        "^(values|gradients|refused)",
        (("no_grad", "^t$|" + TURNS),),
        "PyTorch loses the tape of a view that is transposed under no_grad",
    ),
    (
        "^(values|gradients)",
        (("wide write", "masked_scatter_"),),
        "PyTorch writes some values before it says that there are too few",
    ),
    (
        "^refused here: .*(modified by an inplace operation|function of several views made)",
        (("", r"index_put_"),),
        "PyTorch refuses values that show the memory that is written, which are copied first here",
    ),
    (
        "^refused here: .*(matmul|unsafe_view) saved a tensor",
        (("", "^matmul$"), ("", WRITES)),
        "PyTorch's product has saved a copy of what it folds into a matrix",
    ),
    ("^refused here: .*use_reentrant=True.*there: .*RuntimeError", (("checkpoint", ""),), "another of two faults"),
    (
        "^gradients",
        (("", r"fill_|cummax|cummin|copy_\(y\.sum"), ("", "std|var")),
        "what is left of equal numbers but for rounding has a slope",
    ),
    (
        "^values",
        (("", "layer_norm"), ("", r"cumsum|sum|mean|x\[0\] ="), ("", "sqrt|log|pow|where")),
        "rounding decides the sign of a sum that is zero on paper",
    ),
    ("refused there: .*isFloatingType", (("dtype", "complex|cfloat"),), "PyTorch's own assertion of gradients' dtypes"),
    ("refused there: .*single memory location", (), "PyTorch adds gradients up in memory that overlaps itself"),
    (
        r"^values: (\d+|number \d+ is .*) here",
        (("vmap", ""), ("", BEYOND)),
        "PyTorch's vmap shows memory beyond a sample",
    ),
    (
        r"^gradients: (\d+|number .* is RuntimeError) here",
        (("transform", "hessian|jac"), ("hook", "")),
        "derivatives that are zero require gradients, or do not",
    ),
    (
        "^gradients: .* here, .* there: .*RuntimeError",
        (("transform", ""),),
        "derivatives that are zero require gradients, or do not",
    ),
    (
        "refused there: .*multiple views",
        (("no_grad|transform|vmap|data|detach", ""),),
        "PyTorch refuses views of several that were written where its tape does not look",
    ),
    # Nothing is written where a dimension changes places with itself.
    (
        "refused there: .*multiple views",
        (("", TURNS),),
        "PyTorch refuses views of several that were written where its tape does not look",
    ),
    (r"^values: \d+ here", (("transform", ""),), "PyTorch lets other views be written that transforms return"),
    (
        "modified by an inplace operation",
        (("transform", ""),),
        "derivatives that are zero require gradients, or do not",
    ),
    # A hook on a view that is written later: PyTorch drops it, or gives it the gradient of what was written.
    ("^gradients", (("hook", ""), ("", WRITES)), "what a hook is given of a view that is written"),
    ("refused there: .*use_reentrant=True", (("checkpoint", ""),), "checkpoints that are entered again and grad"),
    (
        "^refused here: .*Checkpoint.* saved a tensor",
        (("checkpoint", ""), ("", WRITES)),
        "a checkpoint computes again from what was written: an error here, another gradient in PyTorch",
    ),
    ("^(values|gradients)", (("transform", "layer_norm"),), "PyTorch does not differentiate layer_norm's tangent"),
    # Lucid's are those of the formula in float64, by itself and in PyTorch.
    ("^gradients", (("autograd.grad", ""), ("", "layer_norm")), "PyTorch's third derivative of layer_norm is another"),
    (
        r"^gradients: number \d+ is .*nan.* here",
        (("", "prod"), ("", "std|var")),
        "a NaN times the derivative of a product of two zeros, which PyTorch gives as 0",
    ),
    (
        r"^values: number \d+ is .*e-0[4-9].* here",
        (("transform", "jac"), ("", "std|var")),
        "derivatives of a deviation that cancel: nothing is left but rounding",
    ),
    (
        r"^values: number \d+ is .*e-0[4-9].* here",
        (("transform", "hessian|jac"), ("", "where")),
        "rounding decides a comparison, of numbers that are equal on paper",
    ),
    (
        r"^gradients: (\d+|number \d+ is RuntimeError) here",
        (("transform|vmap", ""), ("no_grad", ""), ("hook", "")),
        "PyTorch's transforms give back a view that was made under no_grad as one with a tape",
    ),
    (
        "^refused here: .*does not require grad",
        (("autograd.grad", ""), ("", TURNS)),
        "views of what is transposed in place are not derived from it anew",
    ),
    (
        r"^values: .*(-9223372036854775808|-9.223372036854776e\+18|-2147483648)",
        (("", "int|long"),),
        "NaN as an integer",
    ),
    (r"^values: .*\b255\b", (("", "exp"), ("dtype", "uint8")), "a number that is beyond an integer's range"),
    (
        "^gradients: .*nan.* here",
        (("transform", "jac|hessian"), ("", "std|var")),
        "the variance of one number, and its derivatives, are NaN",
    ),
    (
        "^gradients: number",
        (("transform", "^jvp$"), ("no_grad", "")),
        "PyTorch's transforms give back a view that was made under no_grad as one with a tape",
    ),
    (
        "^(values|gradients)",
        (("transform|vmap", r"mul_\(x\.t\(\)\)"),),
        "PyTorch's derivative of a product with a view of its own takes the view as it was written",
    ),
    (
        "^(values|gradients|refused)",
        (("", BEYOND), ("", WRITES)),
        "writes to memory that overlaps itself or is outside of a view",
    ),
    ("^values", (("", BEYOND), ("data", "")), "writes to memory that overlaps itself or is outside of a view"),
    (
        "^gradients",
        (("hook", ""), ("", "logsumexp|cumprod|exp|sigmoid|tanh|softmax|norm|std|var")),
        "hooks on what a step saved",
    ),
    ("leaf variable has been moved", (("requires_grad_", ""),), "PyTorch refuses a leaf that was written before"),
    (
        r"^(refused|values: \d+ here)",
        (("no_grad|view|wide view", ""), ("", WRITES), ("dtype", "")),
        "a view that has lost its place on the tape is refused by ops without a gradient, too",
    ),
    ("A view was created in no_grad mode", (("no_grad", ""),), "views without a tape whose base is written later"),
    (r"^values: number \d+ is (.*), True\) here, \1, False\) there", (("no_grad|transform", ""),), "flags alone"),
    (
        r"^gradients: number \d+ is .*\[[0., []*[], ]+, True\) here, .*, False\) there",
        (("", WRITES),),
        "derivatives that are zero require gradients, or do not",
    ),
    (
        r"^(gradients|refused).*(None here, |does not require grad)",
        (("transform", ""),),
        "derivatives that are zero require gradients, or do not",
    ),
    (
        "^refused here: .*vmap that has ended",
        (("vmap", ""), ("checkpoint", "")),
        "checkpoints in a vmap, entered later",
    ),
    (
        "view was created inside a custom Function",
        (("function", ""), ("", WRITES)),
        "writes to what a Function passed on",
    ),
    ("'NoneType' object has no attribute 'detach'", (("hook", ""), ("function", "two")), "hooks that get no gradient"),
    (r"^\w+: \d+ here", (("hook", ""), ("function", "two"), ("autograd.grad", "")), "hooks that get no gradient"),
    (
        "^values",
        (("transform", "^grad$"), ("transform", "complex|cfloat")),
        "PyTorch gives zeros as the gradient of a complex number that does not depend on what is asked for",
    ),
    ("^values", (("transform", ""), ("", BEYOND)), "PyTorch's hessian of memory that overlaps itself"),
    (
        "^values",
        (("wide view|view|no_grad", r"\[.*:|narrow|slice"), ("", BEYOND)),
        "views beyond an empty one, which begins where its storage does",
    ),
    (
        "^(values|gradients)",
        (("autograd.grad", ""), ("", WRITES)),
        "writes to gradients, which may be views of one another",
    ),
    (
        r"^values: \d+ here",
        (("autograd.grad|detach|wide view", ""), ("", WRITES)),
        "PyTorch refuses writes to views of gradients",
    ),
    ("^values", (("", r"mul_\(x\.t\(\)\)"),), "PyTorch reads what it has written, or writes an element twice"),
    # What PyTorch's transforms return is a view of what they were given, where the function returns it or a view of it.
    (
        "^(values|gradients|refused)",
        (("transform|vmap", ""), ("", WRITES)),
        "writes to what a transform was given or has returned as it was",
    ),
)


def flat(todo: tuple[Step, ...]) -> list[Step]:
    return [t for s in todo for t in (s, *flat(s.inner))]


def takes(program: Program, kind: str, name: str) -> bool:
    """Has a program a step of a kind, with a name in it or in what it is made of?"""
    steps = [s for s in flat(program.steps) if not kind or re.fullmatch(kind, s.kind)]
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


def stated(program: Program, why: str) -> str | None:
    """The reason in the list."""
    for pattern, all_of, said in SAID:
        if re.search(pattern, why) and all(takes(program, kind, name) for kind, name in all_of):
            return said
    return None


def reason(program: Program, device: str, why: str) -> str | None:
    """The reason for a difference; None where it has none."""
    if (said := stated(program, why)) is not None:
        return said
    # A leaf that is a view itself, as `tensor(...).reshape(...)` is, loses the tape of views that are written off it.
    if program.seed % 3 == 0 and why.startswith("gradients") and takes(program, "no_grad", WRITES):
        return "a leaf that is a view, which another view of it writes under no_grad"
    if why.startswith(("values", "gradients")):
        names = {s.name for s in flat(program.steps) if s.kind == "dtype"}
        if any("16" in n or "half" in n for n in names):
            return "16-bit floats are rounded after other steps"
        apart = difference(program, device, ApartRun)
        if apart is None or (apart != why and stated(program, apart)):
            return "PyTorch reads what it has written, or writes an element twice"
        with in_double():
            exact = difference(program, "cpu", WideRun) is None
        if exact and (device == "cpu" or rounded(program, device, why)):
            return "rounding to 32 bits decides"
        compares = takes(program, "dtype", "[=<>]") or takes(program, "", "maximum|minimum")
        if compares and takes(program, "", "mean|sum"):
            return "rounding decides a comparison, of numbers that are equal on paper"
        if nans_within(why):
            return "NaN here where PyTorch has NaN"
    return None


def rounded(program: Program, device: str, why: str) -> bool:
    """Is a difference on the GPU device, which has no float64, of a few hundredths, a comparison's or an integer's?"""
    if takes(program, "dtype", "[=<>]") and "True" in why:
        return True
    if takes(program, "dtype", "int|long|short|byte|char") and takes(program, "", "mean|sum|softmax"):
        return True
    token = slack.set(3e-2)
    try:
        return difference(program, device, WideRun) is None
    finally:
        slack.reset(token)


def nans_within(why: str) -> bool:
    """Are numbers the same but for those that are NaN in PyTorch?"""
    ours, _, theirs = why.partition(" here, ")
    number = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?|-?inf|nan")
    pairs = list(zip(number.findall(ours.partition(" is ")[2]), number.findall(theirs), strict=False))
    return "nan" in theirs and all(b == "nan" or (a != "nan" and abs(float(a) - float(b)) <= 1e-2) for a, b in pairs)
