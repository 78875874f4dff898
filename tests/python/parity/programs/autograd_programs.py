"""Random programs about the tape: program N is made from the seed N, and run with PyTorch and with Lucid.

    python -m tests.python.parity.programs.autograd_programs 0 1000 [--device gpu] [--show]

A program takes steps over a list of values, which begins with two leaves' products: ops, views, writes in place, modes,
hooks, checkpoints, functions of its own, and transforms of other programs. In the end it asks for gradients. Values,
gradients, what hooks saw, and where it is refused are compared.
"""

from __future__ import annotations

import argparse
import contextvars
import random
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import lucid
import lucid.utils.checkpoint
import torch
import torch.utils.checkpoint

Op = Callable[[Any, Any], Any]
Write = Callable[["Any", "Any", "Any", bool], Any]

UNARY: dict[str, Op] = {
    **{
        name: lambda m, x, name=name: getattr(x, name)()
        for name in ("sin", "exp", "relu", "tanh", "sigmoid", "square", "neg", "abs", "round")
    },
    **{name: lambda m, x, name=name: getattr(x, name)() for name in ("contiguous", "clone", "detach")},
    "sqrt": lambda m, x: (x.abs() + 1).sqrt(),
    "log1p": lambda m, x: x.abs().log1p(),
    "softmax": lambda m, x: x.softmax(0) if x.ndim else x * 1,
    "gelu": lambda m, x: m.nn.functional.gelu(x),
    "cumsum": lambda m, x: x.cumsum(0),
    "cumprod": lambda m, x: x.cumprod(0),
    "flip": lambda m, x: x.flip(0),
    "roll": lambda m, x: x.roll(1, 0),
    "sort": lambda m, x: x.sort(0)[0],
    "tril": lambda m, x: x.tril() if x.ndim == 2 else x * 1,
    "max": lambda m, x: x.max(0, keepdim=True)[0] + x,
    "logsumexp": lambda m, x: x.logsumexp(0, keepdim=True) + x,
    "norm": lambda m, x: x.norm() + x,
    "std": lambda m, x: x.std() + x,
    "prod": lambda m, x: x.prod(0, keepdim=True) * x,
    "expand, sum": lambda m, x: x.unsqueeze(0).expand(2, *x.shape).sum(0),
}
BINARY: dict[str, Callable[[Any, Any, Any], Any]] = {
    **{name: lambda m, x, y, name=name: getattr(m, name)(x, y) for name in ("mul", "add", "sub", "maximum")},
    "div": lambda m, x, y: x / (y.abs() + 1),
    "matmul": lambda m, x, y: x @ y,
    "cat": lambda m, x, y: m.cat([x, y]),
    "stack": lambda m, x, y: m.stack([x, y]),
    "where": lambda m, x, y: m.where(x > 0, x, y),
    "outer": lambda m, x, y: m.outer(x.flatten(), y.flatten()),
}
VIEWS: dict[str, Op] = {
    "slice": lambda m, x: x[1:],
    "slice of the last": lambda m, x: x[..., :2],
    "step": lambda m, x: x[::2],
    "row": lambda m, x: x[0],
    "select": lambda m, x: x.select(0, -1),
    "narrow": lambda m, x: x.narrow(0, 0, 1),
    "diagonal": lambda m, x: x.diagonal() if x.ndim == 2 else x[:],
    "t": lambda m, x: x.t() if x.ndim <= 2 else x.transpose(0, 1),
    "movedim": lambda m, x: x.movedim(0, -1),
    "view": lambda m, x: x.view(-1),
    "flatten": lambda m, x: x.flatten(),
    "unsqueeze": lambda m, x: x.unsqueeze(0)[0],
    "expand": lambda m, x: x.expand(2, *x.shape)[1],
    "as_strided": lambda m, x: x.as_strided((2,), (1,)),
    "unfold": lambda m, x: x.unfold(0, 1, 1),
    "first of chunk": lambda m, x: x.chunk(2)[0],
    "last of chunk": lambda m, x: x.chunk(2)[-1],
    "unbind": lambda m, x: x.unbind()[0],
    "split": lambda m, x: x.split(1)[-1],
}


def set_item(index: Callable[[Any], Any], value: Callable[[Any], Any]) -> Write:
    def write(m: Any, x: Any, y: Any, r: bool) -> Any:
        x[index(x)] = value(y)
        return x

    return write


WRITES: dict[str, Write] = {
    **{
        name: lambda m, x, y, r, name=name: getattr(x, name)()
        for name in ("sin_", "zero_", "relu_", "neg_", "sigmoid_", "tanh_", "exp_")
    },
    "mul_": lambda m, x, y, r: x.mul_(y if r else 2.0),
    "add_": lambda m, x, y, r: x.add_(y if r else 1.0),
    "sub_": lambda m, x, y, r: x.sub_(y if r else 1.0, alpha=2),
    "div_": lambda m, x, y, r: x.div_(2.0),
    "pow_": lambda m, x, y, r: x.pow_(2),
    "fill_": lambda m, x, y, r: x.fill_(2.0),
    "clamp_": lambda m, x, y, r: x.clamp_(-1, 1),
    "copy_": lambda m, x, y, r: x.copy_(y),
    "lerp_": lambda m, x, y, r: x.lerp_(y, 0.3),
    "addcmul_": lambda m, x, y, r: x.addcmul_(y, y),
    "masked_fill_": lambda m, x, y, r: x.masked_fill_(x.detach() > 0.5, 0.3),
    "index_add_": lambda m, x, y, r: x.index_add_(0, m.tensor([0]), x.detach()[:1] * 1),
    "t_": lambda m, x, y, r: x.t_() if x.ndim == 2 else x.mul_(3),
    "unsqueeze_": lambda m, x, y, r: x.unsqueeze_(0).squeeze_(0),
    "x[0] =": set_item(lambda x: 0, lambda y: y.sum()),
    "x[-1:] =": set_item(lambda x: slice(-1, None), lambda y: 2.0),
    "x[mask] =": set_item(lambda x: x.detach() > 0, lambda y: 0.25),
}
FUNCTIONS = ("exp", "view", "same", "two")
TRANSFORMS = ("grad", "vjp", "jvp", "jacrev", "jacfwd", "hessian", "grad of two")
ENDS = ("backward", "backward twice", "grad", "grad of grad", "batched grad")


def total(x: Any) -> Any:
    return (x * x).sum() if x.ndim else x * x


def function(m: Any, kind: str) -> Any:
    """A function with a gradient of its own, which is not always the right one."""

    class Own(m.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(x: Any) -> Any:
            if kind == "two":
                return x * 2, x + 1
            return {"view": lambda: x.view_as(x), "same": lambda: x, "exp": x.exp}[kind]()

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            if kind in ("exp", "two"):
                ctx.save_for_backward(output if kind == "exp" else inputs[0])

        @staticmethod
        def backward(ctx: Any, *g: Any) -> Any:
            if kind == "two":
                return g[0] * 2 + g[1] * ctx.saved_tensors[0]
            return g[0] * (ctx.saved_tensors[0] if kind == "exp" else 3)

        @staticmethod
        def vmap(info: Any, dims: Any, x: Any) -> Any:
            return Own.apply(x), (dims[0],) * 2 if kind == "two" else dims[0]

    return Own.apply


@dataclass(frozen=True)
class Step:
    """What is done to the values numbered `i` and `j`, counted around. `r` is a choice of it."""

    kind: str
    i: int
    j: int
    r: bool
    name: str = ""
    inner: tuple[Step, ...] = ()
    more: dict[str, Any] = field(default_factory=dict)


#: How often a step is of each kind. Transforms' functions take steps of their own.
KINDS = {
    "unary": 6.0, "binary": 4.0, "write": 6.0, "view": 7.0, "no_grad": 2.0, "hook": 1.0, "checkpoint": 1.0,
    "function": 1.5, "detach": 1.0, "retain": 1.0, "requires_grad_": 1.0, "enable_grad": 0.5, "transform": 2.5,
    "vmap": 2.0, "autograd.grad": 1.2, "removed hook": 0.3, "data": 0.6, "thread": 0.3, "saved hooks": 0.5, "sum": 1.0,
}  # fmt: skip
#: Kinds whose step has the name of one of these.
NAMES: dict[str, tuple[str, ...]] = {
    "unary": tuple(UNARY),
    "binary": tuple(BINARY),
    "write": tuple(WRITES),
    "view": tuple(VIEWS),
    "checkpoint": tuple(UNARY),
    "function": FUNCTIONS,
    "saved hooks": tuple(UNARY),
    "transform": TRANSFORMS,
}
#: PyTorch's transforms are a thread's own, where Lucid's tape is one for all.
OUTERMOST = ("hook", "removed hook", "retain", "autograd.grad", "thread")


@dataclass(frozen=True)
class Profile:
    """What programs are made of."""

    kinds: dict[str, float]
    names: dict[str, tuple[str, ...]]


TAPE = Profile(KINDS, NAMES)


def steps(rng: random.Random, depth: int = 0, profile: Profile = TAPE) -> Iterator[Step]:
    without = (OUTERMOST if depth else ()) + (("transform", "vmap") if depth == 2 else ())
    kinds = {k: w for k, w in profile.kinds.items() if k not in without}
    for _ in range(rng.randint(2, 7)):
        kind = rng.choices(list(kinds), list(kinds.values()))[0]
        i, j, r = rng.randint(0, 7), rng.randint(0, 7), rng.random() < 0.6
        names = profile.names.get(kind, ("",))
        if kind == "no_grad":
            # A step that PyTorch turns without recording has a gradient of the wrong shape.
            names = tuple(n for n in WRITES if n != "t_") if r else tuple(VIEWS)
        inner = tuple(steps(rng, depth + 1, profile)) if kind in ("transform", "vmap") else ()
        more = {"flag": rng.random() < 0.5}
        if kind == "vmap":
            more |= {"in": rng.choice([0, 1, -1, 0]), "out": rng.choice([0, 0, 0, 1, -1])}
            more |= {"both": rng.random() < 0.3, "chunk": rng.choice([None, None, 1])}
        yield Step(kind, i, j, r, rng.choice(names), inner, more)


class Run:
    """A run of a program with one of the packages."""

    def __init__(self, m: Any) -> None:
        self.m = m
        #: What hooks were given, and what is to be looked at in the end.
        self.log: list[Any] = []
        #: How many functions of transforms it is in.
        self.depth = 0

    def take(self, todo: tuple[Step, ...], values: list[Any]) -> list[Any]:
        for s in todo:
            x, y = values[s.i % len(values)], values[s.j % len(values)]
            made = getattr(self, f"do_{s.kind.replace(' ', '_').replace('.', '_')}")(s, x, y)
            values.extend(v for v in (made if isinstance(made, tuple) else (made,)) if v is not None)
        return values

    def inner(self, s: Step, y: Any) -> Callable[..., Any]:
        """The function that takes a step's own steps, and gives the last value. It may capture `y`."""

        def function(*args: Any) -> Any:
            self.depth += 1
            try:
                return self.take(s.inner, [*args, *([y] if s.more["flag"] else [])])[-1]
            finally:
                self.depth -= 1

        return function

    def do_unary(self, s: Step, x: Any, y: Any) -> Any:
        return UNARY[s.name](self.m, x)

    def do_binary(self, s: Step, x: Any, y: Any) -> Any:
        return BINARY[s.name](self.m, x, y)

    def do_view(self, s: Step, x: Any, y: Any) -> Any:
        return VIEWS[s.name](self.m, x)

    def do_write(self, s: Step, x: Any, y: Any) -> Any:
        # PyTorch's forward mode goes by the operand as it was written.
        y = y * 1 if self.depth and y is x else y
        return WRITES[s.name](self.m, x, y, s.r)

    def do_no_grad(self, s: Step, x: Any, y: Any) -> Any:
        with self.m.no_grad():
            return WRITES[s.name](self.m, x, y, s.more["flag"]) if s.r else VIEWS[s.name](self.m, x)

    def do_enable_grad(self, s: Step, x: Any, y: Any) -> Any:
        return self.m.enable_grad()(lambda a: a * 2)(x)

    def do_detach(self, s: Step, x: Any, y: Any) -> Any:
        return x.detach()

    def do_data(self, s: Step, x: Any, y: Any) -> Any:
        # In a transform the tape around PyTorch's sees what is written to data.
        if s.r or self.depth:
            return x.data
        x.data.mul_(2)
        return None

    def do_requires_grad_(self, s: Step, x: Any, y: Any) -> None:
        x.requires_grad_(s.r)

    def do_sum(self, s: Step, x: Any, y: Any) -> Any:
        return total(x)

    def do_hook(self, s: Step, x: Any, y: Any) -> None:
        x.register_hook(lambda g: (self.log.append(g.detach().clone()), g * 2)[1])

    def do_removed_hook(self, s: Step, x: Any, y: Any) -> None:
        x.register_hook(lambda g: g * 5).remove()

    def do_retain(self, s: Step, x: Any, y: Any) -> None:
        x.retain_grad()
        self.log.append(lambda: x.grad)

    def do_checkpoint(self, s: Step, x: Any, y: Any) -> Any:
        f = lambda a: UNARY[s.name](self.m, a) * 2  # noqa: E731
        return self.m.utils.checkpoint.checkpoint(f, x, use_reentrant=s.more["flag"])

    def do_saved_hooks(self, s: Step, x: Any, y: Any) -> Any:
        with self.m.autograd.graph.saved_tensors_hooks(lambda t: (t.detach().clone(),), lambda t: t[0]):
            return UNARY[s.name](self.m, x)

    def do_function(self, s: Step, x: Any, y: Any) -> Any:
        return function(self.m, s.name)(x)

    def do_thread(self, s: Step, x: Any, y: Any) -> Any:
        made: list[Any] = []

        def work() -> None:
            try:
                made.append(x * y)
            except Exception as e:
                made.append(e)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if isinstance(made[0], Exception):
            raise made[0]
        return made[0]

    def do_autograd_grad(self, s: Step, x: Any, y: Any) -> Any:
        ask = {"create_graph": s.more["flag"], "retain_graph": True, "allow_unused": True}
        return self.m.autograd.grad(total(x), y, **ask)[0]

    def do_transform(self, s: Step, x: Any, y: Any) -> Any:
        f, func, ones = self.inner(s, y), self.m.func, self.m.ones_like
        scalar = lambda *args: total(f(*args))  # noqa: E731
        if s.name in ("jacrev", "jacfwd"):
            return getattr(func, s.name)(f)(x)
        if s.name in ("grad", "hessian"):
            return getattr(func, s.name)(scalar)(x)
        if s.name == "grad of two":
            return func.grad(scalar, argnums=(0, 1))(x, y)
        if s.name == "jvp":
            return func.jvp(f, (x,), (ones(x),))
        out, other = getattr(func, s.name)(f, x)
        return (out, other(ones(out))[0]) if s.name == "vjp" else (out, other(ones(x)))

    def do_vmap(self, s: Step, x: Any, y: Any) -> Any:
        how = {"in_dims": s.more["in"], "out_dims": s.more["out"], "chunk_size": s.more["chunk"]}
        return self.m.func.vmap(self.inner(s, y), **how)(*([x, y] if s.more["both"] else [x]))


@dataclass(frozen=True)
class Program:
    seed: int
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    steps: tuple[Step, ...]
    end: str
    data: tuple[float, ...]

    @staticmethod
    def of(seed: int, profile: Profile = TAPE) -> Program:
        rng = random.Random(seed)
        todo = tuple(steps(rng, 0, profile))
        shape = rng.choice([(3,), (2, 3), (3, 3), (2, 2, 3)])
        shapes = shape, rng.choice([shape, shape, (3,)])
        return Program(seed, shapes, todo, rng.choice(ENDS), tuple(rng.uniform(-1.5, 1.5) for _ in range(40)))

    def run(self, m: Any, run: Run | None = None) -> Outcome:
        run, leaves = run or Run(m), []
        for n, shape in enumerate(self.shapes):
            count = m.Size(shape).numel() if hasattr(m.Size, "numel") else len(m.zeros(shape).flatten())
            leaves.append(m.tensor(self.data[20 * n :][:count]).reshape(shape).requires_grad_())
        values = [leaves[0] * 1 if self.seed % 3 else leaves[0], leaves[1] * 1]
        try:
            values = run.take(self.steps, values)
        except Exception as e:
            return Outcome((), (), error("steps", e))
        try:
            gradients = self.gradients(m, leaves, values)
        except Exception as e:
            return Outcome(seen(values), (), error("gradients", e))
        return Outcome(seen(values), (*seen(gradients), *seen([f() if callable(f) else f for f in run.log])), None)

    def gradients(self, m: Any, leaves: list[Any], values: list[Any]) -> list[Any]:
        """What the program's end asks for."""

        def summed(tensors: list[Any]) -> Any:
            return sum((total(v) for v in tensors if v is not None and v.requires_grad), m.zeros(()))

        out = summed([v for v in values if v.is_floating_point()])
        if self.end.startswith("backward"):
            out.backward(retain_graph=self.end == "backward twice")
            if self.end == "backward twice":
                out.backward()
            return [x.grad for x in leaves]
        if self.end == "batched grad":
            weights = m.tensor([1.0, 2.0])
            return list(m.autograd.grad(out, leaves, weights, is_grads_batched=True, allow_unused=True))
        found = list(m.autograd.grad(out, leaves, create_graph=self.end == "grad of grad", allow_unused=True))
        again = summed(found)
        return found + (list(m.autograd.grad(again, leaves, allow_unused=True)) if again.requires_grad else [])


@dataclass(frozen=True)
class Outcome:
    values: tuple[Any, ...]
    gradients: tuple[Any, ...]
    #: Where it was refused, the builtin kind of the error, and its message.
    refused: tuple[str, str, str] | None


def error(where: str, e: Exception) -> tuple[str, str, str]:
    return where, next(k.__name__ for k in type(e).__mro__ if k.__module__ == "builtins"), str(e)


def seen(values: Any) -> tuple[Any, ...]:
    def one(v: Any) -> Any:
        if not isinstance(v, (torch.Tensor, lucid.Tensor)):
            return v
        # What PyTorch does not show, a view that was lost, is shown nowhere.
        try:
            return tuple(v.shape), v.detach().tolist(), v.requires_grad
        except RuntimeError:
            return (tuple(v.shape),)

    return tuple(one(v) for v in values)


#: What PyTorch has no rule or no answer for.
LACKS = (
    "derivative for aten::", "is not implemented for", "atching rule", "we do not yet support", "not support",
    "vmap: It looks like", "INTERNAL ASSERT", "nternal assert", "Please file", "in-place arithmetic",
    "Cannot access data pointer", "returned an invalid gradient", "expected to be in range of [-1, 0], but got 1",
)  # fmt: skip
#: What an op that is made of others here may keep less of.
WRITTEN_SINCE = "has been modified by an inplace operation"


def shown_by_shape_alone(v: Any) -> bool:
    """Is it what `seen` makes of a tensor that PyTorch cannot show?"""
    return len(v) == 1 and isinstance(v[0], tuple)


def close(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, (tuple, list)) and isinstance(ours, (tuple, list)):
        if shown_by_shape_alone(theirs):
            # PyTorch keeps a gradient without memory for what is zero; ours is zeros, or none.
            return ours[:1] == theirs
        return len(ours) == len(theirs) and all(map(close, ours, theirs))
    if isinstance(theirs, bool) and isinstance(ours, bool):
        # PyTorch's derivatives that are sums of zeros require a gradient, too.
        return theirs or not ours
    if isinstance(theirs, complex) and isinstance(ours, complex):
        return close(ours.real, theirs.real) and close(ours.imag, theirs.imag)
    if isinstance(theirs, float) and isinstance(ours, float):
        large = abs(theirs) > 1e30 and not abs(ours) < 1e30
        return ours == theirs or (ours != ours and theirs != theirs) or large or near(ours, theirs)
    if ours is None and isinstance(theirs, tuple):
        return shown_by_shape_alone(theirs)
    return bool(ours == theirs)


#: How much two numbers may differ, of the larger one or of one.
slack = contextvars.ContextVar("slack", default=2e-3)


def near(a: float, b: float) -> bool:
    return abs(a - b) <= slack.get() * max(1.0, abs(a), abs(b))


def first_unlike(ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> str | None:
    """The first of what was seen that differs."""
    if len(ours) != len(theirs):
        return f"{len(ours)} here, {len(theirs)} there: {ours} here, {theirs} there"
    pairs = enumerate(zip(ours, theirs, strict=True))
    return next((f"number {i} is {a} here, {b} there" for i, (a, b) in pairs if not close(a, b)), None)


def difference(program: int | Program, device: str = "cpu", run: type[Run] = Run) -> str | None:
    """How a program, or that of a seed, ends otherwise than in PyTorch; `None` where it does not."""
    program = Program.of(program) if isinstance(program, int) else program
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = program.run(torch, run(torch))
        with lucid.device(device):
            ours = program.run(lucid, run(lucid))
    if theirs.refused is None:
        if ours.refused is not None:
            return f"refused here: {ours.refused}"
        for part in ("values", "gradients"):
            if unlike := first_unlike(getattr(ours, part), getattr(theirs, part)):
                return f"{part}: {unlike}"
        return None
    where, kind, why = theirs.refused
    if any(lack in why for lack in LACKS):
        return None
    if WRITTEN_SINCE in why and ours.refused and WRITTEN_SINCE in ours.refused[2]:
        return None
    if ours.refused is None:
        return None if WRITTEN_SINCE in why else f"refused there: {theirs.refused}"
    if ours.refused[:2] != (where, kind):
        return f"refused here: {ours.refused}, there: {theirs.refused}"
    unlike = first_unlike(ours.values, theirs.values)
    return unlike and f"values: {unlike}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs the programs of some seeds.")
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--show", action="store_true", help="print the programs that differ")
    asked = parser.parse_args()
    count = 0
    for seed in range(asked.first, asked.end):
        found = difference(seed, asked.device)
        if found is not None:
            count += 1
            print(seed, found[:600], flush=True)
            if asked.show:
                print_steps(Program.of(seed))
    print(f"{count} of {asked.end - asked.first} programs end otherwise")


def print_steps(program: Program) -> None:
    def show(todo: tuple[Step, ...], depth: int) -> None:
        for s in todo:
            print("    " * depth, s.kind, s.name, s.i, s.j, s.r, s.more)
            show(s.inner, depth + 1)

    print("   ", program.shapes, program.end, f"starts with {'a product' if program.seed % 3 else 'a leaf'}")
    show(program.steps, 1)


if __name__ == "__main__":
    main()
