"""Random programs beyond the tape: dtypes that change, views of every kind, temporaries, variables that are dropped.

They extend `autograd_programs` by steps that are expressions, whose names are their source, and are run by
`python -m tests.python.fuzz programs`.
"""

from __future__ import annotations

import ast
import functools
import gc
import inspect
import re
from dataclasses import asdict, replace
from typing import Any

import torch

from . import autograd_programs as tape
from .autograd_programs import Profile, Program, Run, Step

VIEWS = (
    "x.permute(*reversed(range(x.ndim)))", "x.mT", "x.squeeze()", "x.unsqueeze(-1)", "x.swapaxes(0, -1)",
    "x.unflatten(0, (1, -1))", "x.diagonal(1)", "x.as_strided((2, 2), (1, 2))", "x.as_strided((2,), (2,), 1)",
    "x.as_strided((2, 2), (1, 1))", "x[..., 1]", "x[..., None]", "x[1::2]", "x[:, :2]", "x.unfold(-1, 2, 1)",
    "x.unfold(0, 2, 2)", "x.reshape(-1)", "x.view(x.shape)", "x.tensor_split(2)[0]", "x.chunk(2, -1)[-1]",
    "x.narrow(-1, 1, 1)", "x.expand(2, *x.shape)", "x.unsqueeze(1).expand(-1, 2, *x.shape[1:])[:, 0]", "x.to(x.dtype)",
    "x.movedim(-1, 0)", "x.flatten(0, 1)", "x.select(-1, 0)", "x.T", "x.view_as(x)", "x.contiguous()", "x.real",
    "m.view_as_real(x)", "x.detach()[0:1]", "x.hsplit(2)[0]", "x.ravel()", "x.swapdims(0, 1)",
)  # fmt: skip
WRITES = (
    "x.diagonal().zero_()", "x.t().add_(y)", "x.t().mul_(2)", "x.unfold(0, 2, 2).mul_(2)", "x[::2].add_(1)",
    "x.as_strided((2,), (1,)).fill_(3)", "x.fill_diagonal_(0)", "x.index_fill_(0, m.tensor([0]), 1)",
    "x.index_copy_(0, m.tensor([0]), y[:1])", "x.scatter_(0, m.zeros_like(x, dtype=m.int64), 1)",
    "x.masked_scatter_(x.detach() > 0, y)", "x.transpose_(0, -1)", "x.squeeze_()", "x.swapaxes_(0, -1)", "x.add_(x)",
    "x.mul_(x.t())", "x.copy_(x.flip(0))", "x.clamp_min_(0)", "x.abs_()", "x.sqrt_()", "x.transpose(0, -1).zero_()",
    "x.select(-1, 0).copy_(y.sum())", "x.permute(*reversed(range(x.ndim)))[0].fill_(2)",
    "x.index_put_((m.tensor([0]),), y[0])",
    "x[..., :1].sub_(y[..., :1])", "x.view(-1)[::2].mul_(3)", "x.expand(1, *x.shape).add_(1)", "x.logical_not_()",
    "x.floor_()", "x.fmod_(2)", "x.addcdiv_(y, y.abs() + 1)", "x.unsqueeze(0).transpose(0, 1).exp_()",
    "x.chunk(2)[-1].neg_()", "x.reshape(-1)[:2].zero_()", "x.detach().mul_(2)", "(x * 1).as_strided_((2,), (1,))",
    "x.bitwise_not_()", "x.cumsum_(0)", "x.tril_()", "x.zero_().add_(y)", "x.sigmoid_().mul_(y)",
)  # fmt: skip
DTYPES = (
    "x.to(m.float32)", "x.to(m.bfloat16)", "x.to(m.float16)", "x.to(m.int32)", "x.to(m.int64)", "x.to(m.uint8)",
    "x.to(m.complex64)", "x.bool()", "x > 0", "x >= y", "x.type_as(y)", "x.to(m.float64)", "x.abs().long()", "x != y",
    "x.float()", "x.half()", "x.double()",
)  # fmt: skip
TEMPORARIES = (
    "(x * 1) * (y * 1)", "(x + 1).sin() * (y * 2)", "(x * 1).t() @ (y * 1)", "m.where((x * 1) > 0, x * 1, y * 1)",
    "(x > 0) ^ (y > 0)", "(x > 0) & (y * 1 > 0)", "m.addcmul(x * 1, y * 1, y * 1)", "m.cat([x * 1, y * 1])",
    "(x * 1).expand(2, *x.shape).sum(0)", "m.lerp(x * 1, y * 1, 0.3)", "(x * 1).softmax(-1)", "(x * 1).sort(0)[0]",
    "(x * 1).t().exp()", "(x * 1)[::2].mul_(2)", "m.maximum(x * 1, y * 1)", "(x * 1).sigmoid_()", "(x * 1).cumsum(0)",
    "(x * 1).unfold(0, 2, 1).sum(-1)", "(x * 1).clamp_(-1, 1)", "m.addcdiv(x * 1, y * 1, (y * 1).abs() + 1)",
    "(x * 1).as_strided((2, 2), (1, 1)).amax(-1)", "m.nn.functional.layer_norm(x * 1, x.shape[-1:])",
    "(x * 1).mean(-1)",
    "m.nn.functional.gelu(x * 1) * (y * 1)", "(x * 1).masked_fill_(y * 1 > 0, 2)", "(x * 1).var(0)", "x + 1 - y * 1",
    "(x * 1).diagonal().clone()", "m.einsum('i...,i...->...', x * 1, y * 1)", "(x * 1).prod(0)", "(x * 1).logsumexp(0)",
)  # fmt: skip
REDUCTIONS = (
    "x.unfold(-1, 2, 1).sum(-1)", "x.unfold(0, 2, 1).amax(-1)", "x.expand(3, *x.shape).mean(0)", "x.t().sum(0)",
    "x.as_strided((2, 2, 2), (1, 0, 1)).sum(1)", "x.as_strided((2, 2), (1, 1)).amin(0)",
    "x.permute(*reversed(range(x.ndim))).cumsum(0)",
    "x.sum()", "x.mean(0)", "x.std(0)", "x.amax(-1)", "x.norm(dim=0)", "x.any()", "x.all(0)", "x.argmax(0)", "x.prod()",
    "x.flip(0).cummax(0)[0]", "x[::2].logsumexp(0)", "x.nansum()", "x.count_nonzero()", "x.median()", "x.var()",
)  # fmt: skip

KINDS = {
    **{k: w / 2 for k, w in tape.KINDS.items()},
    "wide view": 5.0, "wide write": 4.0, "dtype": 2.0, "temporary": 3.0, "reduction": 2.0, "drop": 2.0,
}  # fmt: skip
NAMES = {
    **tape.NAMES, "wide view": VIEWS, "wide write": WRITES, "dtype": DTYPES, "temporary": TEMPORARIES,
    "reduction": REDUCTIONS,
}  # fmt: skip
#: Steps that are expressions, by the kind.
EXPRESSIONS = ("wide view", "wide write", "dtype", "temporary", "reduction")
WIDE = Profile(KINDS, NAMES)


@functools.cache
def compiled(source: str) -> Any:
    return eval(f"lambda m, x, y: {source}")


class Refusal:
    """The builtin kinds of an error; those of another are as good where one of them is of these."""

    def __init__(self, e: Exception) -> None:
        plain = (Exception, BaseException, object, LookupError)
        self.kinds = tuple(k for k in type(e).__mro__ if k.__module__ == "builtins" and k not in plain)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Refusal):
            return False
        return any(issubclass(a, b) or issubclass(b, a) for a in self.kinds for b in other.kinds)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return " and ".join(k.__name__ for k in self.kinds)


class WideRun(Run):
    """A run that also takes the steps of this file."""

    #: Is what is written never read from the memory that it is written to, and no element of it written twice?
    apart = False

    def take(self, todo: tuple[Step, ...], values: list[Any]) -> list[Any]:
        for s in todo:
            try:
                self.one(s, values)
            except Exception as e:
                if self.m is torch:
                    if any(lack in str(e) for lack in (*tape.LACKS, tape.WRITTEN_SINCE)):
                        raise
                    # Much is refused there by transforms that nothing is wrong with.
                    if self.depth or s.kind in ("transform", "vmap"):
                        raise RuntimeError(f"does not support: {e}") from e
                elif self.depth:
                    raise
                # A refusal is part of the outcome, and what comes after it must go on as if nothing had been tried.
                self.log.append(Refusal(e))
        return values

    def one(self, s: Step, values: list[Any]) -> None:
        if s.kind == "drop":
            # Nothing else holds what is dropped: what the tape needs of it must still be there.
            if len(values) > 1:
                del values[s.i % len(values)]
                gc.collect(0)
        elif s.kind in EXPRESSIONS:
            x, y = values[s.i % len(values)], values[s.j % len(values)]
            if s.kind == "wide write":
                x, y = self.operands(x, y)
            values.append(compiled(s.name)(self.m, x, y))
            del x, y
        else:
            super().take((s,), values)

    def operands(self, x: Any, y: Any) -> tuple[Any, Any]:
        """What is written, and what is read for it."""
        if self.apart and overlaps_itself(x):
            raise ValueError("not written apart")
        return x, y * 1 if self.apart or (self.depth and y is x) else y

    def do_write(self, s: Step, x: Any, y: Any) -> Any:
        return super().do_write(s, *self.operands(x, y))

    def do_no_grad(self, s: Step, x: Any, y: Any) -> Any:
        return super().do_no_grad(s, *(self.operands(x, y) if s.r else (x, y)))


def overlaps_itself(x: Any) -> bool:
    """May two of its elements be one?"""
    dims = [(abs(t), n) for n, t in zip(x.shape, x.stride(), strict=True) if n > 1]
    return any(t == 0 for t, _ in dims) or sum((n - 1) * t for t, n in dims) + 1 < x.numel()


class ApartRun(WideRun):
    """A run whose writes read nothing that they write."""

    apart = True


#: What the GPU device does not have, and what stands for it there.
DOUBLE = {"x.to(m.float64)": "x.to(m.float32)", "x.double()": "x.float()"}


def case(seed: int, device: str = "cpu") -> Program:
    """The program of a seed: of three, one is about the tape alone."""
    program = Program.of(seed, tape.TAPE if seed % 3 == 0 else WIDE)

    def without_double(todo: tuple[Step, ...]) -> tuple[Step, ...]:
        return tuple(replace(s, name=DOUBLE.get(s.name, s.name), inner=without_double(s.inner)) for s in todo)

    return program if device == "cpu" else replace(program, steps=without_double(program.steps))


# ---- programs as text ------------------------------------------------------------------------------------------------


def _sources(table: str) -> dict[str, str]:
    """The expressions of a table of lambdas, by name."""
    tree = ast.parse(inspect.getsource(tape))
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == table:
            assert isinstance(node.value, ast.Dict)
            pairs = zip(node.value.keys, node.value.values, strict=True)
            return {
                k.value: ast.unparse(v.body if isinstance(v, ast.Lambda) else v)
                for k, v in pairs
                if isinstance(k, ast.Constant)
            }
    raise LookupError(table)


@functools.cache
def expressions() -> dict[str, dict[str, str]]:
    """What the named nodes of the graph's programs compute, as source."""
    binary = {n: f"m.{n}(x, y)" for n in ("mul", "add", "sub", "maximum")}
    return {
        "unary": {**{n: f"x.{n}()" for n in tape.UNARY}, **_sources("UNARY")},
        "binary": {**binary, **_sources("BINARY")},
        "view": _sources("VIEWS"),
        "write": {**{n: f"x.{n}()" for n in tape.WRITES}, **_sources("WRITES")},
    }


def source(program: Program, device: str = "cpu") -> str:
    """A program as Python. Values are a list `v`, of which steps take two, and to which they add what they give."""
    (first, second), data = program.shapes, [round(d, 3) for d in program.data]
    to = f".to({device!r})" if device != "cpu" else ""
    lines = [
        "import lucid as m  # or torch",
        "",
        f"a = m.tensor({data[: _count(first)]}).reshape{first}{to}.requires_grad_()",
        f"b = m.tensor({data[20:][: _count(second)]}).reshape{second}{to}.requires_grad_()",
        f"v = [{'a * 1' if program.seed % 3 else 'a'}, b * 1]",
    ]
    _write(program.steps, lines, "", "v")
    lines.append(f"# {program.end}: of the sum of squares of the floating values that require gradients, for a and b")
    return "\n".join(lines)


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for s in shape:
        count *= s
    return count


def _write(todo: tuple[Step, ...], lines: list[str], indent: str, v: str) -> None:
    named = expressions()
    for s in todo:
        x, y = f"{v}[{s.i} % len({v})]", f"{v}[{s.j} % len({v})]"
        lines.append(f"{indent}x, y = {x}, {y}")
        if s.kind == "drop":
            lines[-1] = f"{indent}{v}.pop({s.i} % len({v})) if len({v}) > 1 else None"
        elif s.kind in EXPRESSIONS:
            lines.append(f"{indent}{v}.append({s.name})")
        elif s.kind == "detach":
            lines.append(f"{indent}{v}.append(x.detach())")
        elif s.kind == "sum":
            lines.append(f"{indent}{v}.append((x * x).sum() if x.ndim else x * x)")
        elif s.kind in named:
            text = named[s.kind][s.name]
            text = re.sub(r"y if r else ([^,)]*)", "y" if s.r else r"\1", text)
            lines.append(f"{indent}{v}.append({text})")
        elif s.kind in ("transform", "vmap"):
            lines.append(f"{indent}def f(*args):")
            lines.append(f"{indent}    w = [*args{', y' if s.more['flag'] else ''}]")
            _write(s.inner, lines, indent + "    ", "w")
            lines.append(f"{indent}    return w[-1]")
            lines.append(f"{indent}{v}.append({s.kind} {s.name} of f at x, y)  # {s.more}")
        else:
            lines.append(f"{indent}{s.kind} {s.name} of x, y  # r = {s.r}, {s.more}")


# ---- programs that travel between processes, and shorter ones --------------------------------------------------------


def to_json(program: Program) -> dict[str, Any]:
    return asdict(program)


def from_json(said: dict[str, Any]) -> Program:
    def step(s: dict[str, Any]) -> Step:
        return Step(**{**s, "inner": tuple(map(step, s["inner"]))})

    first, second = (tuple(s) for s in said["shapes"])
    todo = tuple(map(step, said["steps"]))
    return Program(said["seed"], (first, second), todo, said["end"], tuple(said["data"]))


def shorter(program: Program) -> list[Program]:
    """Programs with a step less, with simpler steps, and with a simpler end."""
    found: list[Program] = []

    def lists(todo: tuple[Step, ...]) -> list[tuple[Step, ...]]:
        out = [todo[:i] + todo[i + 1 :] for i in reversed(range(len(todo)))]
        for i, s in enumerate(todo):
            out += [(*todo[:i], replace(s, inner=inner), *todo[i + 1 :]) for inner in lists(s.inner) if inner]
            for i2, j2 in ((0, 0), (1, 1), (0, s.j)):
                out.append((*todo[:i], replace(s, i=i2, j=j2), *todo[i + 1 :]))
        return [o for o in out if o != todo]

    found += [replace(program, steps=todo) for todo in lists(program.steps)]
    if program.end != "backward":
        found.append(replace(program, end="backward"))
    for shape in ((3,), (2, 3)):
        if program.shapes != (shape, shape):
            found.append(replace(program, shapes=(shape, shape)))
    return found


def size(program: Program) -> int:
    """How long a program is; what is simpler counts as shorter."""

    def of(todo: tuple[Step, ...]) -> int:
        return sum(10 + of(s.inner) + (s.i + s.j > 0) + (s.j not in (0, s.i)) for s in todo)

    return 10 * of(program.steps) + 5 * (program.end != "backward") + sum(map(_count, program.shapes))
