"""Writes and views inside of transforms, side by side: writes to their inputs, views and data in them, tangents of
views, numbers that hooks on saved tensors do not see."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import lucid
import lucid.utils.checkpoint
import pytest
import torch
import torch.utils.checkpoint

from tests.python.parity.programs.autograd_programs import close, seen

DEVICES = ["cpu", "gpu"]


def leaf(m: Any, *shape: int) -> Any:
    n = lucid.Size(shape or (3,)).numel()
    return (m.arange(1.0, n + 1.0) / 4).reshape(shape or (3,)).requires_grad_()


def total(x: Any) -> Any:
    return (x * x).sum()


def written(write: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: (write(x), total(x))[1]


def product_with_a_view(m: Any) -> Any:
    """`vjp` of a view of what is captured that requires a gradient and has no history."""
    captured = leaf(m) * 1

    def function(x: Any) -> Any:
        with m.no_grad():
            return captured[:1]

    out, back = m.func.vjp(function, m.ones(3))
    return out, back(m.ones_like(out))


def no_grad_view(m: Any, x: Any) -> Any:
    with m.no_grad():
        v = x[1:]
    v.add_(1)
    return total(v)


def checkpointed(m: Any, times: Callable[[Any], Any]) -> Any:
    x = leaf(m)
    y = x * 1
    c = m.utils.checkpoint.checkpoint(times, y, use_reentrant=False)
    y.relu_()
    (g,) = m.autograd.grad(total(c), x, create_graph=True)
    return g, m.autograd.grad(g.sum(), x)


def packed(m: Any) -> Any:
    x, shapes = leaf(m) * 1, []
    with m.autograd.graph.saved_tensors_hooks(lambda t: (shapes.append(tuple(t.shape)), t)[1], lambda t: t):
        _ = x * 2, 2 / x, x / 2, x.pow(2), x * m.tensor(2.0)
    return shapes


def set_where(m: Any, x: Any) -> Any:
    x[x.detach() > 0.5] = 0.25
    return x


def third(m: Any, f: Callable[[Any], Any], outer: str, inner: str) -> Any:
    x = leaf(m)
    h = getattr(m.func, outer)(getattr(m.func, inner)(lambda x: total(f(x))))(x)
    return m.autograd.grad(total(h), x)


def captured_data(m: Any, how: str) -> Any:
    """Cut off for good: the transform knows nothing of it."""
    x = leaf(m, 3)
    t = x.detach() * 2
    run = {
        "jvp": lambda f: m.func.jvp(f, (t,), (m.ones(3),)),
        "jacfwd": lambda f: m.func.jacfwd(f)(t),
        "vmap": lambda f: m.vmap(f)(t),
    }[how]
    kept: list[bool] = []
    run(lambda s: (kept.append(x.data.requires_grad), s * x.data.sum())[1])
    y = run(lambda s: s * x.sum() + x.data.sum())
    y = y[0] if isinstance(y, tuple) else y
    return kept, m.autograd.grad(y.sum(), x)


def data_of_outside(m: Any) -> Any:
    x = leaf(m)
    f = m.func.grad(lambda b: m.func.grad(lambda a: (a * a * b.data * x.data * b).sum())(b).sum())
    return m.autograd.grad(f(x).sum(), x)


def unrecorded_view(m: Any, ask: str) -> Any:
    x = leaf(m) * 1
    with m.no_grad():
        v = x[1:]
    return m.autograd.grad(total(v), v, allow_unused=ask == "unused")


def looks(m: Any, x: Any) -> list[bool]:
    found: list[bool] = []
    m.func.grad(lambda a: (found.extend((a.is_leaf, a._is_view(), a.requires_grad, a[1:]._is_view())), total(a))[1])(x)
    return found


FILLED, TURNED = written(lambda x: x.fill_(2.0)), written(lambda x: x.unsqueeze_(0))
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "checkpoint of a product with a number": lambda m: checkpointed(m, lambda a: a * 2),
    "checkpoint of a copy's product with a number": lambda m: checkpointed(m, lambda a: a.contiguous() * 2),
    "checkpoint of what needs its argument": lambda m: checkpointed(m, lambda a: a * a),
    "what is packed": packed,
    "write in grad in jacfwd": lambda m: m.func.jacfwd(m.func.grad(FILLED))(leaf(m) * 1),
    "write in a hessian": lambda m: m.func.hessian(FILLED)(leaf(m) * 1),
    "write in grad in a hessian": lambda m: m.func.hessian(lambda x: total(m.func.grad(FILLED)(x)))(leaf(m) * 1),
    "turned in grad in vmap": lambda m: m.func.vmap(m.func.grad(TURNED))(leaf(m, 2, 3) * 1),
    "view without recording, of a leaf that is a view": lambda m: m.func.grad(lambda x: no_grad_view(m, x))(leaf(m)[:]),
    "view without recording, of what is captured": lambda m: m.func.grad(lambda x: no_grad_view(m, x))(leaf(m) * 1),
    **{f"piece written in vmap, {name}": lambda m, f=f: m.func.vmap(f)(leaf(m, 2, 3) * 1) for name, f in {
        "chunk": lambda s: s.chunk(2)[0].mul_(2),
        "split": lambda s: s.split(1)[0].mul_(2),
        "unbind": lambda s: s.unbind()[0].mul_(2),
        "base": lambda s: (s.split(1)[0], s.mul_(2))[0] * 2,
        "slice": lambda s: s[:2].mul_(2),
    }.items()},
    "piece written in grad in jvp": lambda m: m.func.jvp(
        m.func.grad(lambda x: total((x * 1).chunk(2)[0].mul_(2))), (leaf(m),), (m.ones(3),)
    ),
    "number where a sample is": lambda m: m.func.vmap(lambda s: set_where(m, s * 1))(leaf(m)),
    "number where samples are": lambda m: m.func.vmap(lambda s: set_where(m, s * 1))(leaf(m, 2, 3)),
    "samples without dimensions split": lambda m: m.func.vmap(lambda s: s.split(1))(leaf(m)),
    "samples without dimensions joined": lambda m: m.func.vmap(lambda s: m.cat([s, s]))(leaf(m)),
    "one chunk": lambda m: m.func.vmap(lambda s: s, chunk_size=5)(leaf(m)) + 0,
    **{f"jvp of a part, {name}": lambda m, part=part: m.func.jvp(
        lambda a: a.unfold(0, 2, 1).exp(), (part(leaf(m, 3, 3).detach()),), (m.arange(3.0),)
    ) for name, part in {
        "row": lambda x: x[1], "column": lambda x: x[:, 1], "diagonal": lambda x: x.diagonal(), "last": lambda x: x[2],
    }.items()},
    "jvp of as_strided of a part": lambda m: m.func.jvp(
        lambda a: a.as_strided((2,), (2,)) * 1, (leaf(m, 3, 3).detach()[1, :2],), (m.ones(2),)
    ),
    **{f"third derivative, {outer} {inner}, {name}": lambda m, f=f, outer=outer, inner=inner: third(m, f, outer, inner)
       for outer in ("jacfwd", "jacrev") for inner in ("jacfwd", "jacrev")
       for name, f in {"sin": lambda x: x.sin(), "pieces": lambda x: x.split([1, 2])[1] ** 3}.items()},
    "data of what is outside": data_of_outside,
    **{f"data of what is outside, {how}": lambda m, how=how: captured_data(m, how)
       for how in ("jvp", "jacfwd", "vmap")},
    "gradient of a view without recording": lambda m: unrecorded_view(m, "unused"),
    "gradient of a view without recording, which is needed": lambda m: unrecorded_view(m, ""),
    "product with a view without recording": lambda m: product_with_a_view(m),
    "input of what has a history": lambda m: looks(m, leaf(m) * 1),
    "input of what has none": lambda m: looks(m, leaf(m).detach()),
}  # fmt: skip


def outcome(program: Callable[[Any], Any], m: Any) -> Any:
    def flat(v: Any) -> list[Any]:
        return [x for part in v for x in flat(part)] if isinstance(v, (tuple, list)) else [v]

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return seen(flat(program(m)))
    except Exception as e:
        return next(k.__name__ for k in type(e).__mro__ if k.__module__ == "builtins")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_transform_corners(name: str, device: str) -> None:
    with lucid.device(device):
        ours = outcome(PROGRAMS[name], lucid)
    theirs = outcome(PROGRAMS[name], torch)
    assert close(ours, theirs), f"{ours} here, {theirs} there"
