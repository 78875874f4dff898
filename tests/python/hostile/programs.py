"""The program of a case: a call that succeeds, with what its condition makes of its arguments."""

from __future__ import annotations

import ast
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.python.fuzz.calls import DTYPES

from .calls import Call, Calls
from .operands import DOUBLE, MAKERS, NUMBERS, REALS, Operand, host

#: What a call writes its result over, where `x` is one of its arguments.
VIEWS_OF_OUT = ("x", "x", "x.t() if x.ndim == 2 else x", "x[..., :1]", "x.expand(3, *x.shape)", "x.reshape(-1)[:1]")
#: Memory that takes no gradient, or that somebody else writes.
NO_GRADIENT = ("shared", "read-only", "read-only page", "mutated")


#: Ops of the memory that their argument is in, not of its values.
OF_MEMORY = ("as_strided", "as_strided_copy", "as_strided_scatter")


@dataclass(frozen=True)
class Draw:
    """A call, its operands as they were varied, and what else was drawn."""

    path: str
    call: Call
    operands: list[Operand]
    device: str
    rng: random.Random
    grad: bool

    def plain(self) -> list[str]:
        return [x.text(self.device) for x in self.operands]

    def made(self, *conditions: str, all_of_them: bool = False) -> list[str]:
        """The arguments, one of them or all as one of the conditions makes them."""
        n = len(self.operands)
        which = range(n) if all_of_them or self.rng.random() < 0.3 else [self.rng.randrange(n)]
        texts = self.plain()
        for i in which:
            texts[i] = MAKERS[self.rng.choice(conditions)](self.operands[i], self.device, self.rng)
        return texts

    def compared(self, function: str, texts: list[str], more: str = "") -> str:
        return f"out = {function}({self.call.function()}, {', '.join(texts)}{more})"

    def is_pure(self) -> bool:
        """Does it follow from the values of its arguments what it gives, and does it write none of them?"""
        name = self.path.rsplit(".", 1)[-1]
        return self.call.unique and name not in OF_MEMORY and not name.endswith("_")


def temporary(d: Draw) -> str | None:
    if d.path.endswith("data_ptr"):
        return None
    texts = d.made("permuted", "special", all_of_them=True) if d.rng.random() < 0.5 else d.plain()
    return d.compared("with_temporaries", texts, ", grad=True" if d.grad else "")


def copies(d: Draw) -> str | None:
    return d.compared("with_copies", d.made("overlapping", "permuted", all_of_them=True)) if d.is_pure() else None


def vmap(d: Draw) -> str | None:
    if not d.is_pure():
        return None
    return d.compared("with_loop", [f"lucid.stack([{t}, {t}]).flip(0)" for t in d.made("permuted", "special")])


def raw_bool(d: Draw) -> str | None:
    if not any(x.dtype == "bool" for x in d.operands) or not d.call.unique:
        return None
    raw = host("raw_bool")
    texts = [raw(x, d.device, d.rng) if x.dtype == "bool" else x.text(d.device) for x in d.operands]
    return d.compared("with_copies", texts)


def same(d: Draw) -> str | None:
    """One tensor as several arguments."""
    dtype = d.rng.choice(d.operands).dtype
    texts = d.plain()
    alike = [x.dtype == dtype for x in d.operands]
    first = texts[alike.index(True)]
    return f"x = {first}\nout = {d.call.of(['x' if a else t for a, t in zip(alike, texts, strict=True)])}"


def out(d: Draw) -> str | None:
    """The result over an argument, or over a view of one."""
    if d.path.startswith("lucid.Tensor.") or not d.call.text.endswith(")") or not d.call.dtypes:
        return None
    texts = d.plain()
    target = d.rng.choice(texts)
    body = d.call.of(["x" if t == target else t for t in texts])
    return f"x = {target}\nout = {body[:-1]}, out={d.rng.choice(VIEWS_OF_OUT)})"


def mutated(d: Draw) -> str | None:
    lines = [f"arg{i} = {t}" for i, t in enumerate(d.made("mutated"))]
    return "\n".join([*lines, f"for _ in range(20):\n    out = {d.call.text}"])


def dtype(d: Draw) -> str | None:
    """Each argument in a dtype of its own."""
    operands = [replace(x, dtype=d.rng.choice(DTYPES)) for x in d.operands]
    return "out = " + d.call.of([x.text("cpu" if x.dtype in DOUBLE else d.device) for x in operands])


def argument(condition: str) -> Callable[[Draw], str | None]:
    def program(d: Draw) -> str | None:
        texts = d.made(condition)
        if d.grad and condition not in NO_GRADIENT and not d.path.endswith("_"):
            real = [x.dtype.startswith(("float", "bfloat", "complex")) for x in d.operands]
            texts = [f"{t}.requires_grad_()" if r else t for r, t in zip(real, texts, strict=True)]
        return "out = " + d.call.of(texts)

    return program


#: Conditions that compare two calls, and those that only must not end badly.
CONDITIONS: dict[str, Callable[[Draw], str | None]] = {
    "temporary": temporary,
    "copies": copies,
    "vmap": vmap,
    "raw bool": raw_bool,
    "same": same,
    "out": out,
    "dtype": dtype,
    **{name: argument(name) for name in MAKERS},
    "mutated": mutated,
}
NUMBERS_ALONE = "numbers"


def with_numbers(text: str, rng: random.Random) -> str | None:
    """A call with one of its numbers, or two, as large, small or odd as numbers can be."""
    tree = ast.parse(text, mode="eval")
    numbers = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and type(n.value) in (int, float, bool)]
    if not numbers:
        return None
    for n in rng.sample(numbers, min(len(numbers), rng.choice([1, 1, 2]))):
        real = isinstance(n.value, float) and rng.random() < 0.8
        n.value = eval(rng.choice(REALS)) if real else rng.choice(NUMBERS)
    return ast.unparse(tree).replace("1e309", "inf")


class Programs:
    """Writes the program of a case; None where a condition says nothing about a target."""

    def __init__(self) -> None:
        self.calls = Calls()

    def __call__(self, path: str, condition: str, seed: int) -> str | None:
        rng = random.Random(zlib.crc32(f"{path} {condition} {seed}".encode()))
        known = self.calls(path)
        if not known:
            return None
        call = rng.choice(known)
        device = rng.choice(["cpu", "gpu"])
        if condition == NUMBERS_ALONE:
            text = with_numbers(call.text, rng)
            return text and "out = " + replace(call, text=text).of([x.text(device) for x in call.operands])
        if not call.operands:
            return None
        operands = list(call.operands)
        if rng.random() < 0.3:
            taken = [d for d in call.dtypes or DTYPES if device == "cpu" or d not in DOUBLE]
            drawn = rng.choice(taken)
            operands = [x.cast(drawn) for x in operands]
        return CONDITIONS[condition](Draw(path, call, operands, device, rng, rng.random() < 0.5))
