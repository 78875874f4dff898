"""Random programs of views, writes in place, ops and what changes a tensor's place on the tape, against PyTorch, on
both devices: values, gradients, versions, what is a leaf, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import lucid
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from tests.python.property.draws import devices


class Step(NamedTuple):
    """An op on two of the tensors that there are, by number, with a small number of its own, in a grad mode."""

    name: str
    x: int = 0
    y: int = 0
    n: int = 0
    mode: str = "enable_grad"


def custom(m: Any, kind: str) -> Any:
    """A function with a gradient of its own: writes its input, or gives a view of it, or the input, or two results."""

    class Custom(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            if kind == "write":
                ctx.mark_dirty(x)
                return x.mul_(3)
            ctx.save_for_backward(x)
            results = {"view": lambda: x.view_as(x), "same": lambda: x, "two": lambda: (x * 2, x.detach())}
            return {**results, "views": lambda: (x.view_as(x), x.view_as(x))}[kind]()

        @staticmethod
        def backward(ctx: Any, g: Any, *rest: Any) -> Any:
            return g * 3 if kind == "write" else g * ctx.saved_tensors[0]

    return Custom.apply


def number(m: Any, x: Any, *values: int) -> Any:
    return m.tensor(list(values), device=x.device)


def dim(x: Any, n: int) -> int:
    return n % max(x.dim(), 1)


def put(x: Any, place: Any, value: Any) -> None:
    x[place] = value


VIEWS: dict[str, Callable[..., Any]] = {
    "transpose": lambda m, x, y, n: x.transpose(0, -1),
    "slice": lambda m, x, y, n: x[n % 2 :],
    "select": lambda m, x, y, n: x.select(dim(x, n), n % 3),
    "view": lambda m, x, y, n: x.view(-1),
    "flatten": lambda m, x, y, n: x.flatten(),
    "unsqueeze": lambda m, x, y, n: x.unsqueeze(dim(x, n)),
    "expand": lambda m, x, y, n: x.expand(2, *x.shape),
    "detach": lambda m, x, y, n: x.detach(),
    "diagonal": lambda m, x, y, n: x.diagonal(),
    "narrow": lambda m, x, y, n: x.narrow(dim(x, n), n % 2, 1),
    "alias": lambda m, x, y, n: x.view_as(x),
    "strided": lambda m, x, y, n: x.as_strided((2,), (1,), n % 2),
    "split": lambda m, x, y, n: x.split(1 + n % 2, dim(x, n)),
    "chunk": lambda m, x, y, n: x.chunk(2, dim(x, n)),
    "unbind": lambda m, x, y, n: x.unbind(dim(x, n)),
    "tensor_split": lambda m, x, y, n: x.tensor_split(2, dim(x, n)),
}
WRITES: dict[str, Callable[..., Any]] = {
    "mul_": lambda m, x, y, n: x.mul_(2),
    "add_": lambda m, x, y, n: x.add_(1),
    # Of memory that it writes PyTorch may read what it has just written: these read copies.
    "sub_": lambda m, x, y, n: x.sub_(y.clone()),
    "addcmul_": lambda m, x, y, n: (lambda v: x.addcmul_(v, v))(y.clone()),
    "zero_": lambda m, x, y, n: x.zero_(),
    "fill_": lambda m, x, y, n: x.fill_(2.0),
    # Ops that save their result save a copy of it here; PyTorch refuses the gradient once it is written.
    "clamp_": lambda m, x, y, n: x.clamp_(min=1.5),
    "masked_fill_": lambda m, x, y, n: x.masked_fill_(x > 2, 0.5),
    "index_add_": lambda m, x, y, n: x.index_add_(0, number(m, x, 0), x[:1].clone()),
    "copy_": lambda m, x, y, n: x.copy_(y),
    "put number": lambda m, x, y, n: put(x, n % 2, 3.0),
    "put tensor": lambda m, x, y, n: put(x, n % 2, y),
    "put all": lambda m, x, y, n: put(x, ..., y),
    "put sum": lambda m, x, y, n: put(x, slice(1, None), y.sum()),
}
OPS: dict[str, Callable[..., Any]] = {
    "mul": lambda m, x, y, n: x * 2,
    "add": lambda m, x, y, n: x + y,
    "product": lambda m, x, y, n: x * y,
    "exp": lambda m, x, y, n: (x * 0.1).exp(),
    "mean": lambda m, x, y, n: x.mean(dim(x, n)),
    "clone": lambda m, x, y, n: x.clone(),
    "reshape": lambda m, x, y, n: x.reshape(-1),
    "contiguous": lambda m, x, y, n: x.contiguous(),
    "cat": lambda m, x, y, n: m.cat([x, x], dim(x, n)),
    "index": lambda m, x, y, n: x[number(m, x, 0, 1)],
    "where": lambda m, x, y, n: m.where(x > 1, x, y),
}
PLACES: dict[str, Callable[..., Any]] = {
    "detach_": lambda m, x, y, n: x.detach_(),
    "requires_grad_": lambda m, x, y, n: x.requires_grad_(),
    "no gradient": lambda m, x, y, n: x.requires_grad_(False),
    "retain_grad": lambda m, x, y, n: x.retain_grad(),
    "backward": lambda m, x, y, n: x.sum().backward(retain_graph=True),
    "data": lambda m, x, y, n: x.data,
    # PyTorch calls hooks on pieces that nothing used too, with None.
    "hook": lambda m, x, y, n: (x.register_hook(lambda g: None if g is None else g * 2), None)[1],
    "no grad": lambda m, x, y, n: setattr(x, "grad", None),
    **{kind: lambda m, x, y, n, kind=kind: custom(m, kind)(x) for kind in ("write", "view", "same", "two", "views")},
}
STEPS = {**VIEWS, **WRITES, **OPS, **PLACES}
MODES = ["enable_grad"] * 8 + ["no_grad"] * 2 + ["inference_mode"]

#: What there is from the first, and the first few that are made, are looked at oftener.
numbers = st.one_of(st.integers(0, 20), st.integers(3, 6))
steps = st.builds(
    Step,
    st.one_of(*(st.sampled_from(sorted(kind)) for kind in (VIEWS, VIEWS, WRITES, WRITES, OPS, PLACES))),
    numbers,
    numbers,
    st.integers(0, 5),
    st.sampled_from(MODES),
)


def kind_of(e: Exception) -> str:
    return "refused: " + next(c.__name__ for c in type(e).__mro__ if c.__module__ == "builtins")


def attempt(f: Callable[[], Any]) -> Any:
    try:
        return f()
    except Exception as e:
        return kind_of(e)


def plain(t: Any) -> Any:
    return None if t is None else t.detach().cpu().tolist()


def look(t: Any) -> list[Any]:
    """All that can be seen of a tensor."""
    seen = [lambda: plain(t), lambda: t.requires_grad, lambda: t.is_leaf, lambda: t._is_view(), lambda: t.output_nr]
    seen += [lambda: plain(t.grad) if t.is_leaf or t.retains_grad else None, lambda: t.is_inference()]
    return [attempt(f) for f in seen]


def execute(m: Any, device: str, program: list[Step]) -> list[Any]:
    """What each step did, and then the gradients of all that there is by what it began with."""
    rows = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    leaves = [
        m.tensor(rows, device=device).requires_grad_(),
        m.tensor([0.5, 1.5, 2.5], device=device).requires_grad_(),
        m.tensor(rows, device=device),
    ]
    pool = [*leaves, leaves[0] * 1, leaves[2].clone()]
    # What a result's own kernels have written counts in PyTorch: only what comes after is compared.
    first = [t._version for t in pool]
    log: list[Any] = []
    for step in program:
        x, y = pool[step.x % len(pool)], pool[step.y % len(pool)]
        if step.name in (*WRITES, "write", "detach_") and (x.is_inference() or step.mode == "inference_mode"):
            # PyTorch writes inference tensors before it refuses to.
            continue
        made: Any = None
        try:
            with getattr(m, step.mode)():
                made = STEPS[step.name](m, x, y, step.n)
            did = "done"
        except Exception as e:
            did = kind_of(e)
        for t in made if isinstance(made, (tuple, list)) else [made]:
            if t is not None and not any(t is other for other in pool):
                pool.append(t)
                first.append(0 if t.is_inference() else t._version)
        versions = [t._version - n for t, n in zip(pool, first, strict=True) if not t.is_inference()]
        log.append((step, did, [look(t) for t in pool], versions))
    for t in pool:
        gradients = attempt(
            lambda t=t: [plain(g) for g in m.autograd.grad((t * t).sum(), leaves[:2], None, True, allow_unused=True)]
        )
        log.append(("gradients", gradients))
    return log


def agree(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return isinstance(b, (list, tuple)) and len(a) == len(b) and all(map(agree, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return (a != a and b != b) or a == b or abs(a - b) <= 1e-3 * max(1.0, abs(a))
    return type(a) is type(b) and bool(a == b)


@given(st.lists(steps, min_size=1, max_size=8), devices)
# A view made without recording, and one of that while gradients are recorded; pieces, and a write that nobody recorded.
@example([Step("transpose", 0, mode="no_grad"), Step("alias", 5)], "cpu")
@example([Step("unbind", 3), Step("add_", 3, mode="no_grad"), Step("mul", 5)], "gpu")
@example([Step("chunk", 0, mode="no_grad"), Step("hook", 5), Step("mul", 5)], "cpu")
# What is copied over another tensor stays what it was.
@example([Step("copy_", 2, 0), Step("hook", 2), Step("retain_grad", 2), Step("backward", 0)], "gpu")
@example([Step("put all", 2, 3), Step("hook", 2), Step("add", 2, 3)], "cpu")
# An element of the tensor itself, written all over it.
@example([Step("clone", 1), Step("unbind", 5), Step("put all", 5, 8)], "cpu")
# What shows a tensor several times, set to that tensor.
@example([Step("expand", 4), Step("put all", 5, 4)], "cpu")
# A write to what shows a tensor several times: no gradient reaches what it was before.
@example([Step("expand", 3), Step("fill_", 5)], "gpu")
@example([Step("expand", 3), Step("put all", 5, 3)], "cpu")
# Of views that the tape has lost: which error comes first, and what needs no place on it.
@example([Step("chunk", 1), Step("add_", 1, mode="no_grad"), Step("index", 6)], "cpu")
@example([Step("alias", 0, mode="no_grad"), Step("add_", 0, mode="no_grad"), Step("retain_grad", 5)], "cpu")
# A write to a part of what shows a tensor several times and is no view of it.
@example([Step("expand", 0), Step("data", 5), Step("put sum", 6, 0)], "cpu")
# Functions that write, or give back what they got, without recording; and one of a view that the tape has lost.
@example([Step("write", 4), Step("write", 3)], "gpu")
@example([Step("same", 0, mode="no_grad"), Step("view", 0, mode="inference_mode")], "cpu")
@example([Step("strided", 3, mode="no_grad"), Step("add_", 3), Step("two", 5)], "cpu")
# Pieces of what requires a gradient only later; what was saved, then cut off; a leaf that wants no gradient any more.
@example([Step("split", 2), Step("fill_", 5), Step("requires_grad_", 2)], "cpu")
@example([Step("product", 3, 1), Step("detach_", 3)], "gpu")
@example([Step("mul", 1), Step("no gradient", 1), Step("backward", 5)], "cpu")
# A view of what was cut off, and then written.
@example([Step("select", 3), Step("detach_", 3), Step("add_", 3, mode="no_grad"), Step("mul", 5)], "cpu")
# Views of inference tensors.
@example([Step("mul", 0, mode="inference_mode"), Step("slice", 5)], "gpu")
def test_programs_on_the_tape(program: list[Step], device: str) -> None:
    theirs, ours = execute(torch, "cpu", program), execute(lucid, device, program)
    for a, b in zip(theirs, ours, strict=True):
        assert agree(a, b), (a, b)
