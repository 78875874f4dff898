"""Random programs, compiled against eager: values, gradients, writes in place, and the state that they leave.

    python -m tests.python.fuzz compiled [SECONDS] [SEED]

A program is drawn as source text, so that a failure prints what fails. It works on a few tensors of compatible shapes,
with views, writes in place, reductions, branches on Python values, reads of elements, buffers and random numbers.
"""

from __future__ import annotations

import random
import textwrap
import time
from typing import Any

import lucid

from tests.python.tolerances import within

UNARY = ("sin", "cos", "tanh", "sigmoid", "relu", "exp", "abs", "neg", "square", "floor")
BINARY = ("+", "-", "*")
REDUCTIONS = ("sum", "mean", "amax", "amin")


def draw_program(draw: random.Random) -> str:
    """The source of a function of `x`, `y` and `state`."""
    rows, columns = draw.choice([(2, 3), (4, 4), (1, 5), (6, 2)])
    lines: list[str] = []
    full = ["x", "y"]
    fresh = 0

    def name() -> str:
        nonlocal fresh
        fresh += 1
        return f"v{fresh}"

    for _ in range(draw.randint(3, 12)):
        kind = draw.choice("uuubbbrvvwwsmmcdgp")
        a, b = draw.choice(full), draw.choice(full)
        new = name()
        if kind == "u":
            lines.append(f"{new} = ({a} * 0.5).{draw.choice(UNARY)}()")
        elif kind == "b":
            lines.append(f"{new} = {a} {draw.choice(BINARY)} {b}")
        elif kind == "r":
            op, dim = draw.choice(REDUCTIONS), draw.choice([0, 1, -1])
            lines.append(f"{new} = {a} - {b}.{op}({dim}, keepdim=True)")
        elif kind == "v":
            view = draw.choice(
                [f"{a}.t().contiguous().t()", f"{a}.flip(0)", f"{a}.reshape(-1).view({rows}, {columns})"]
            )
            lines.append(f"{new} = {view} + 0.25")
        elif kind == "w":
            target = draw.choice(["[0]", "[:, 0]", "[:1]", "[:, -1:]", ""])
            op = draw.choice(["add_", "mul_", "copy_"])
            lines.append(f"{new} = {a}.clone()")
            lines.append(f"{new}{target or '[:]'}.{op}({b}{target or '[:]'} * 0.5)")
        elif kind == "s":
            lines.append(f"{new} = lucid.where({a} > {b}, {a}, {b} * 0.5)")
        elif kind == "m":
            lines.append(f"{new} = ({a} @ {b}.t()).tanh() @ {a}")
        elif kind == "c":
            lines.append(f"{new} = {a} * 2 if {draw.randint(0, 3)} in flags else {b} + 1")
        elif kind == "d":
            lines.append(f"{new} = {a} + lucid.rand({rows}, {columns}, device=x.device) * 0.1")
        elif kind == "g":
            lines.append(f"state.add_({a}.detach().mean())")
            lines.append(f"{new} = {a} + state")
        else:
            lines.append(f"k = {a}.detach().abs().max().item()")
            lines.append(f"{new} = {b} / (k + 1.0)")
        full.append(new)
    results = draw.sample(full[2:], min(len(full) - 2, draw.randint(1, 3)))
    lines.append(f"return {', '.join(results)},")
    body = textwrap.indent("\n".join(lines), "    ")
    return f"# {rows} {columns}\ndef program(x, y, state, flags):\n{body}\n"


def run(source: str, seed: int, device: str = "cpu", dynamic: bool = False) -> str | None:
    """What differs between three compiled calls of a program and three eager ones; `None` where nothing does."""
    import linecache

    rows, columns = map(int, source.split("\n", 1)[0][2:].split())
    file = f"<program {seed}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    space: dict[str, Any] = {"lucid": lucid, "__name__": "random_program"}
    exec(compile(source, file, "exec"), space)
    plain = space["program"]
    compiled = lucid.compile(plain, dynamic=dynamic)
    found: list[list[Any]] = []
    for f in (plain, compiled):
        lucid.manual_seed(seed)
        state = lucid.zeros(1, device=device)
        rows_of: list[Any] = []
        for turn in range(4):
            x = lucid.rand(rows, columns, device=device).requires_grad_(True)
            y = (lucid.rand(rows, columns, device=device) - 0.5).requires_grad_(turn % 2 == 0)
            outs = f(x, y, state, (1, 2))
            wanted = [o for o in outs if o.requires_grad]
            own = [t for t in (x, y) if t.requires_grad]
            grads: Any = ()
            if wanted:
                grads = lucid.autograd.grad([o.sum() for o in wanted], own, allow_unused=True)
            rows_of += [*outs, *grads, state.clone()]
        found.append(rows_of)
    for i, (a, b) in enumerate(zip(*found, strict=True)):
        if a is None or b is None:
            # A part whose result is used on one way alone gives zeros on the other.
            if any(t is not None and bool(t.count_nonzero()) for t in (a, b)):
                return f"result {i}: {a} and {b}"
            continue
        if a.shape != b.shape or a.dtype != b.dtype or a.requires_grad != b.requires_grad:
            return f"result {i}: {a.shape} {a.dtype} and {b.shape} {b.dtype}"
        if not lucid.allclose(a.detach(), b.detach(), **within("program"), equal_nan=True):
            return f"result {i}: {a.detach()} and {b.detach()}"
    return None


def main(given: list[str]) -> int:
    """Draws programs until the time is over; the exit status."""
    seconds = float(given[0]) if given else 60.0
    seed = int(given[1]) if len(given) > 1 else 0
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        source = draw_program(random.Random(seed))
        try:
            why = run(source, seed, ("cpu", "gpu")[seed % 4 == 0], seed % 3 == 0)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        if why is not None:
            print(f"seed {seed}: {why}\n{source}")
            return 1
        seed, count = seed + 1, count + 1
        lucid.compiler.reset()
    print(f"{count} programs, no difference")
    return 0
