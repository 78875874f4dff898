"""Programs about the tape, side by side: when hooks run, gradients after writes, names of steps, what is refused."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import lucid
import lucid.utils.checkpoint
import pytest
import torch
import torch.utils.checkpoint

DEVICES = ["cpu", "gpu"]


def seen(value: Any) -> Any:
    if isinstance(value, (torch.Tensor, lucid.Tensor)):
        return tuple(value.shape), seen(value.detach().tolist()), value.requires_grad
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, (tuple, list)):
        return [seen(v) for v in value]
    return value


def outcome(f: Callable[[Any], Any], m: Any) -> Any:
    """What a program gives, or the kind of its error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return seen(f(m))
    except Exception as e:
        return next(k.__name__ for k in type(e).__mro__ if k.__module__ == "builtins")


def leaf(m: Any, n: int = 3) -> Any:
    return m.arange(1.0, n + 1.0).requires_grad_()


# ---- hooks -----------------------------------------------------------------------------------------------------------


def order_of_hooks(m: Any) -> Any:
    x, log = leaf(m), []
    y = x * 2
    y.register_hook(lambda g: log.append("first"))
    y.grad_fn.register_prehook(lambda g: log.append("before"))
    y.grad_fn.register_hook(lambda a, b: log.append("after"))
    y.register_hook(lambda g: log.append("second"))
    x.register_hook(lambda g: log.append("leaf"))
    x.register_post_accumulate_grad_hook(lambda t: log.append("grown"))
    y.sum().backward()
    return log


def kept_gradient(change: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """Whose gradient is kept, and what is done before it is made."""

    def program(m: Any) -> Any:
        x = leaf(m)
        y = x * 2
        kept = change(m, y)
        (y.sum() + (kept * 2).sum()).backward()
        return kept.grad, x.grad

    return program


def keep(t: Any) -> Any:
    t.retain_grad()
    return t


def written_base_of_kept(m: Any, y: Any) -> Any:
    v = keep(y[:2])
    y.mul_(3)
    return v


def written_kept_view(m: Any, y: Any) -> Any:
    return keep(y[:2]).mul_(3)


def written_view_of_kept(m: Any, y: Any) -> Any:
    keep(y)[:2].mul_(3)
    return y


def kept_twice_written(m: Any, y: Any) -> Any:
    v = keep(y[:2])
    y.mul_(3)
    v.add_(1)
    y.mul_(2)
    return v


def hooked_then_written(view: bool) -> Callable[[Any], Any]:
    def program(m: Any) -> Any:
        x, log = leaf(m), []
        y = x * 2
        v = y[:2] if view else y
        v.register_hook(lambda g: log.append(("before", g.tolist())))
        y.mul_(5)
        v.register_hook(lambda g: log.append(("after", g.tolist())))
        (v.sum() + y.sum()).backward()
        return log

    return program


def removed_by_another(m: Any) -> Any:
    x, log, later = leaf(m), [], []
    y = x * 2
    y.register_hook(lambda g: (log.append("remover"), later[0].remove())[0])
    later.append(y.register_hook(lambda g: log.append("removed")))
    for keeps in (True, False):
        y.sum().backward(retain_graph=keeps)
    return log


def added_in_a_hook(m: Any) -> Any:
    x, log = leaf(m), []
    y = x * 2

    def hook(g: Any) -> None:
        log.append("outer")
        y.register_hook(lambda g: log.append("inner"))
        x.register_hook(lambda g: log.append("leaf"))

    y.register_hook(hook)
    for keeps in (True, False):
        y.sum().backward(retain_graph=keeps)
        log.append("-")
    return log


def raises_once(m: Any) -> Any:
    x, calls = leaf(m), []

    def hook(g: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise KeyError("once")

    y = x * 2
    y.register_hook(hook)
    try:
        y.sum().backward(retain_graph=True)
    except KeyError as e:
        calls.append(str(e))
    y.sum().backward()
    return calls, x.grad


def on_accumulation(m: Any) -> Any:
    x, log = leaf(m), []
    y = x * 2
    node = y.grad_fn.next_functions[0][0]
    node.register_hook(lambda a, b: log.append((len(a), len(b))))
    node.register_prehook(lambda g: (g[0] * 2,))
    y.sum().backward()
    return log, x.grad, node.variable is x


def hooked(hook: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """The gradient where a hook on a step's result gives this."""

    def program(m: Any) -> Any:
        x = leaf(m)
        y = x * 2
        y.register_hook(lambda g: hook(m, g))
        y.sum().backward()
        return x.grad

    return program


def around_a_node(before: Any = None, after: Any = None) -> Callable[[Any], Any]:
    def program(m: Any) -> Any:
        x = leaf(m)
        y = x * 2
        if before is not None:
            y.grad_fn.register_prehook(before)
        if after is not None:
            y.grad_fn.register_hook(after)
        y.sum().backward()
        return x.grad

    return program


def backward_in_a_hook(m: Any) -> Any:
    x = leaf(m)
    y = x * 2
    y.register_hook(lambda g: (x * x).sum().backward())
    y.sum().backward()
    return x.grad


def gradient_in_a_hook(m: Any) -> Any:
    x, found = leaf(m), []
    y, z = x * 2, (x**3).sum()
    y.register_hook(lambda g: found.append(m.autograd.grad(z, x)[0]))
    y.sum().backward()
    return found, x.grad


def modes_in_hooks(m: Any) -> Any:
    x, log = leaf(m), []
    y = x * 2
    y.register_hook(lambda g: log.append(m.is_grad_enabled()))
    y.sum().backward(retain_graph=True)
    y.sum().backward(create_graph=True)
    return log


def hook_that_is_differentiated(m: Any) -> Any:
    x = leaf(m)
    y = x**2
    y.register_hook(lambda g: g * x)
    (g,) = m.autograd.grad(y.sum(), x, create_graph=True)
    return g, m.autograd.grad(g.sum(), x)


def clears_what_has_grown(m: Any) -> Any:
    x = leaf(m)
    x.register_post_accumulate_grad_hook(lambda t: setattr(t, "grad", None))
    (x * 2).sum().backward()
    return x.grad


def calls_at_the_end(m: Any) -> Any:
    x, log = leaf(m), []
    y = x * 2

    def hook(g: Any) -> None:
        m.autograd.graph.queue_callback(lambda: log.append("end"))
        log.append("hook")

    y.register_hook(hook)
    y.sum().backward()
    return [*log, "after"]


HOOKS: dict[str, Callable[[Any], Any]] = {
    "order": order_of_hooks,
    "kept": kept_gradient(lambda m, y: keep(y)),
    "kept, then written": kept_gradient(lambda m, y: keep(y).mul_(3)),
    "kept view, base written": kept_gradient(written_base_of_kept),
    "kept view, written": kept_gradient(written_kept_view),
    "kept base, view written": kept_gradient(written_view_of_kept),
    "kept view, all written": kept_gradient(kept_twice_written),
    "written after": hooked_then_written(False),
    "base written after": hooked_then_written(True),
    "removed by another": removed_by_another,
    "added in a hook": added_in_a_hook,
    "raises once": raises_once,
    "on accumulation": on_accumulation,
    "changes": hooked(lambda m, g: g * 3),
    "another shape": hooked(lambda m, g: g[:1]),
    "no tensor": hooked(lambda m, g: 3),
    "another dtype": hooked(lambda m, g: g.to(m.float16)),
    "two for one before": around_a_node(before=lambda g: (g[0], g[0])),
    "none for one after": around_a_node(after=lambda a, b: ()),
    "a tensor before": around_a_node(before=lambda g: g[0] * 7),
    "a tensor after": around_a_node(after=lambda a, b: b[0] * 7),
    "backward in a hook": backward_in_a_hook,
    "gradient in a hook": gradient_in_a_hook,
    "modes": modes_in_hooks,
    "differentiated": hook_that_is_differentiated,
    "clears": clears_what_has_grown,
    "calls at the end": calls_at_the_end,
    "a call at no pass's end": lambda m: m.autograd.graph.queue_callback(lambda: None),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", HOOKS)
def test_hooks(name: str, device: str) -> None:
    with lucid.device(device):
        assert outcome(HOOKS[name], lucid) == outcome(HOOKS[name], torch)


# ---- writes in place over windows that overlap -----------------------------------------------------------------------


WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "put_": lambda m, w: w.put_(m.tensor([0, 3]), m.tensor([5.0, 6.0])),
    "masked_scatter_": lambda m, w: w.masked_scatter_(m.eye(3, 2) > 0, m.tensor([5.0, 6.0])),
    "polygamma_": lambda m, w: w.polygamma_(1),
    "relu": lambda m, w: m.nn.functional.relu(w, inplace=True),
    "relu6": lambda m, w: m.nn.functional.relu6(w, inplace=True),
    "elu": lambda m, w: m.nn.functional.elu(w, inplace=True),
    "celu": lambda m, w: m.nn.functional.celu(w, inplace=True),
    "selu": lambda m, w: m.nn.functional.selu(w, inplace=True),
    "silu": lambda m, w: m.nn.functional.silu(w, inplace=True),
    "mish": lambda m, w: m.nn.functional.mish(w, inplace=True),
    "hardtanh": lambda m, w: m.nn.functional.hardtanh(w, inplace=True),
    "hardswish": lambda m, w: m.nn.functional.hardswish(w, inplace=True),
    "hardsigmoid": lambda m, w: m.nn.functional.hardsigmoid(w, inplace=True),
    "leaky_relu": lambda m, w: m.nn.functional.leaky_relu(w, inplace=True),
    "threshold": lambda m, w: m.nn.functional.threshold(w, 0.1, 2.0, inplace=True),
    "rrelu": lambda m, w: m.nn.functional.rrelu(w, inplace=True),
    "dropout of nothing": lambda m, w: m.nn.functional.dropout(w, 0.0, inplace=True),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", WRITES)
def test_gradients_of_writes_over_windows(name: str, device: str) -> None:
    def program(m: Any) -> Any:
        x = m.tensor([0.1, 0.2, 0.3, 0.4], requires_grad=True)
        b = x * 1
        w = b.unfold(0, 2, 1)
        WRITES[name](m, w)
        weights = m.arange(6.0).reshape(3, 2)
        return m.autograd.grad((w * weights).sum(), x, retain_graph=True), m.autograd.grad((b * b).sum(), x)

    with lucid.device(device):
        ours, theirs = outcome(program, lucid), outcome(program, torch)
    if name in ("silu", "mish", "hardswish", "polygamma_", "hardsigmoid", "selu"):
        # What PyTorch's loop reads of a window it may have written already: the values, and what follows from them.
        ours, theirs = ours[0], theirs[0]
    assert ours == theirs


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("part", ["x", "x[:]", "x.view(2, 2)", "x[1:]"])
def test_masked_scatter_of_what_it_writes(part: str, device: str) -> None:
    def program(m: Any) -> Any:
        leaf = m.tensor([0.1, 0.2, 0.3, 0.4], requires_grad=True)
        x = leaf * 1
        x.masked_scatter_(m.tensor([True, False, True, False]), eval(part, {"x": x}))
        return x.detach(), m.autograd.grad((x * m.arange(1.0, 5.0)).sum(), leaf)

    with lucid.device(device):
        assert outcome(program, lucid) == outcome(program, torch)


PARTS: dict[str, Callable[[Any], Any]] = {
    "of several views": lambda x: x.unbind()[0][0],
    "select": lambda x: x[0, 1],
    "view": lambda x: x.view(-1)[5],
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PARTS)
def test_numbers_of_what_is_written(name: str, device: str) -> None:
    def program(read: Callable[[Any], Any]) -> Any:
        leaf = lucid.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], requires_grad=True)
        x = leaf * 1
        part = read(PARTS[name](x))
        x.index_put_((lucid.tensor([0]),), part)
        return x.detach(), lucid.autograd.grad((x * lucid.arange(6.0).view(2, 3)).sum(), leaf)

    # PyTorch refuses numbers that show what is written; here they are read first.
    with lucid.device(device):
        assert outcome(lambda _: program(lambda t: t), lucid) == outcome(lambda _: program(lambda t: t * 1), lucid)


# ---- names of steps --------------------------------------------------------------------------------------------------


def made_of(*sizes: int) -> Callable[[Any], Any]:
    def make(m: Any) -> Any:
        n = 1
        for s in sizes:
            n *= s
        return m.arange(1.0, n + 1.0).reshape(sizes).requires_grad_()

    return make


def linear(m: Any, x: Any, bias: bool) -> Any:
    return m.nn.functional.linear(x, made_of(2, 2)(m), made_of(2)(m) if bias else None)


def norm(name: str, ord: Any, keepdim: bool, dim: Any = (0, 1)) -> Callable[[Any], Any]:
    return lambda m: getattr(m.linalg, name)(made_of(2, 2)(m), ord, dim, keepdim)


def convolved(name: str, n: int) -> Callable[[Any], Any]:
    return lambda m: getattr(m.nn.functional, f"{name}{n}d")(made_of(2, *[3] * n)(m), made_of(2, 2, *[1] * n)(m))


def in_place(name: str, *args: Any) -> Callable[[Any], Any]:
    return lambda m: getattr(m.nn.functional, name)(leaf(m) * 1, *args, inplace=True)


INF = float("inf")
STEPS: dict[str, Callable[[Any], Any]] = {
    **{f"linear, {b}, {s}": lambda m, b=b, s=s: linear(m, made_of(*s)(m), b)
       for b in (True, False) for s in ((2,), (2, 2), (2, 2, 2), (2, 2, 2, 2))},
    **{f"linear of columns, {b}": lambda m, b=b: linear(m, made_of(2, 2, 2)(m).transpose(0, 1), b)
       for b in (True, False)},
    **{f"{f}, {o}, {k}": norm(f, o, k) for f in ("norm", "matrix_norm") for k in (True, False)
       for o in ("fro", "nuc", 1, -1, 2, -2, INF, -INF)},
    **{f"norm of vectors, {o}": norm("norm", o, False, 0) for o in (None, 1, 2, 3, INF)},
    "norm of all": lambda m: m.linalg.norm(made_of(2, 2)(m)),
    **{f"{f}{n}d": convolved(f, n) for f in ("conv", "conv_transpose") for n in (1, 2, 3)},
    "matmul of a batch and a vector": lambda m: made_of(2, 2, 2)(m) @ made_of(2)(m),
    "matmul of a vector and a batch": lambda m: made_of(2)(m) @ made_of(2, 2, 2)(m),
    "diag": lambda m: leaf(m).diag(),
    "circular pad": lambda m: m.nn.functional.pad(made_of(1, 1, 4)(m), (1, 1), mode="circular"),
    "masked_scatter_": lambda m: (leaf(m) * 1).masked_scatter_(m.tensor([True, False, True]), m.ones(3)),
    "put_": lambda m: (leaf(m) * 1).put_(m.tensor([0]), m.ones(1)),
    "put_ in a view": lambda m: (leaf(m) * 1)[1:].put_(m.tensor([0]), m.ones(1)),
    "silu in place": in_place("silu"),
    "mish in place": in_place("mish"),
    "hardswish in place": in_place("hardswish"),
    "hardsigmoid in place": in_place("hardsigmoid"),
    "hardtanh in place": in_place("hardtanh"),
    "relu in place": in_place("relu"),
    "elu of a view in place": lambda m: m.nn.functional.elu((leaf(m) * 1)[1:], inplace=True),
}  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", STEPS)
def test_names_of_steps(name: str, device: str) -> None:
    with lucid.device(device):
        ours, theirs = (STEPS[name](m).grad_fn.name().rpartition(":")[2] for m in (lucid, torch))
    assert ours == theirs


# ---- modes, threads, functions, checkpoints --------------------------------------------------------------------------


def inference(m: Any) -> Any:
    with m.inference_mode():
        i = m.ones(3)
    w = leaf(m)
    calls: list[Callable[[], Any]] = [
        lambda: (i * w).requires_grad,
        lambda: (i + w).requires_grad,
        lambda: i.add_(1),
        lambda: i.view(3).add_(1),
        lambda: (w * i.clone()).requires_grad,
        lambda: i.requires_grad_(),
        lambda: i._version,
        lambda: i.detach().is_inference(),
        lambda: i.view(3).is_inference(),
        lambda: (i + 1).is_inference(),
        lambda: m.ones(3).add_(i).is_inference(),
        lambda: i.copy_(w),
        lambda: m.stack([i, w]).requires_grad,
        lambda: i.sum().backward(),
        lambda: i[0].is_inference(),
        lambda: w.mul_(i),
    ]
    return [outcome(lambda _, call=call: call(), m) for call in calls]


def inference_around_others(m: Any) -> Any:
    w, n, y = leaf(m), m.ones(3), leaf(m) * 1
    with m.inference_mode():
        calls: list[Callable[[], Any]] = [
            lambda: (w * 2).requires_grad,
            lambda: w.view(3).is_inference(),
            lambda: w.view(3).requires_grad,
            lambda: n.add_(1)._version,
            lambda: y.mul_(2)._version,
            lambda: w.mul_(2)._version,
            lambda: m.ones(2, requires_grad=True).requires_grad,
            lambda: n.view(3).add_(1)._version,
            lambda: w.detach().is_inference(),
            lambda: (w * 2)._version,
            lambda: w.clone().is_inference(),
        ]
        found = [outcome(lambda _, call=call: call(), m) for call in calls]
        with m.inference_mode(False):
            found += [(w * 2).requires_grad, m.ones(2).is_inference()]
        with m.enable_grad():
            found += [(w * 2).requires_grad, (w * 2).is_inference()]
        views = [n.view(3), w.view(3)]
    return found + [outcome(lambda _, v=v: v.add_(1).is_inference(), m) for v in views]


def modes_of_threads(m: Any) -> Any:
    found: list[bool] = []

    def ask() -> None:
        found.extend((m.is_grad_enabled(), m.is_inference_mode_enabled()))

    with m.no_grad(), m.inference_mode():
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    return found


def checkpointed(end: Callable[[Any, Any, Any], Any]) -> Callable[[Any], Any]:
    def program(m: Any) -> Any:
        x = leaf(m)
        once = m.utils.checkpoint.checkpoint
        y = once(lambda x: once(lambda x: x.sin(), x, use_reentrant=True).exp(), x, use_reentrant=True)
        end(m, x, y.sum())
        return x.grad

    return program


def old_style(use: Callable[[Any, Any, Any], Any]) -> Callable[[Any], Any]:
    """A function without `setup_context` inside of a transform."""

    def program(m: Any) -> Any:
        class Double(m.autograd.Function):  # type: ignore[misc, name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x * 2

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * 2

            @staticmethod
            def jvp(ctx: Any, t: Any) -> Any:
                return t * 2

            @staticmethod
            def vmap(info: Any, dims: Any, x: Any) -> Any:
                return x * 2, dims[0]

        return use(m, Double.apply, m.ones(3))

    return program


def old_style_inside(m: Any) -> Any:
    """The `forward` of a function is not seen into."""

    class Inner(m.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

    class Outer(m.autograd.Function):  # type: ignore[misc, name-defined]
        @staticmethod
        def forward(x: Any) -> Any:
            return Inner.apply(x)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    return m.func.grad(lambda x: Outer.apply(x).sum())(m.ones(3))


def threads_at_choice(m: Any) -> Any:
    switch = m.autograd.set_multithreading_enabled
    with switch(False):
        x = leaf(m)
        (x * 2).sum().backward()
    return x.grad, switch(True)(lambda: 3)()


def cloned_modes(m: Any) -> Any:
    kinds = [m.no_grad(), m.enable_grad(), m.inference_mode(False), m.autograd.forward_ad.dual_level()]
    return [type(k.clone()) is type(k) for k in kinds]


def grad_modes(m: Any) -> Any:
    if m is torch:
        from torch.autograd import grad_mode
        from torch.autograd.gradcheck import gradcheck
    else:
        from lucid.autograd import grad_mode
        from lucid.autograd.gradcheck import gradcheck
    x = m.ones(2, dtype=m.float64, device="cpu", requires_grad=True)
    with grad_mode.no_grad():
        recorded = m.is_grad_enabled()
    return recorded, gradcheck(lambda x: x * x, x), m.autograd.gradcheck(lambda x: x * x, x)


REST: dict[str, Callable[[Any], Any]] = {
    "inference tensors": inference,
    "others in inference mode": inference_around_others,
    "modes of threads": modes_of_threads,
    "checkpoint": checkpointed(lambda m, x, y: y.backward()),
    "checkpoint, grad": checkpointed(lambda m, x, y: m.autograd.grad(y, x)),
    "checkpoint, inputs": checkpointed(lambda m, x, y: y.backward(inputs=[x])),
    "old function, grad": old_style(lambda m, f, x: m.func.grad(lambda x: f(x).sum())(x)),
    "old function, vjp": old_style(lambda m, f, x: m.func.vjp(f, x)[0]),
    "old function, jvp": old_style(lambda m, f, x: m.func.jvp(f, (x,), (x,))),
    "old function, vmap": old_style(lambda m, f, x: m.func.vmap(f)(x)),
    "old function of what is captured": old_style(lambda m, f, x: m.func.grad(lambda y: (y * f(x)).sum())(x)),
    "old function inside of a function": old_style_inside,
    "threads": threads_at_choice,
    "threads, no bool": lambda m: m.autograd.set_multithreading_enabled("x"),
    "clones": cloned_modes,
    "modules": grad_modes,
    "called functions of old": lambda m: m.autograd.function.InplaceFunction(True).inplace,
    "nested functions of old": lambda m: issubclass(m.autograd.NestedIOFunction, m.autograd.Function),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", REST)
def test_modes_and_functions(name: str, device: str) -> None:
    with lucid.device(device):
        assert outcome(REST[name], lucid) == outcome(REST[name], torch)


# ---- inside of vmap and of inference mode ----------------------------------------------------------------------------


def filled(make: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """What is made like one sample's tensor is written by what differs between samples."""

    def one(m: Any, x: Any) -> Any:
        y = make(m, x)
        y[0] = x.sum()
        return y

    return lambda m: m.func.vmap(lambda x: one(m, x))(made_of(2, 3)(m).detach())


def in_inference_mode(f: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    def program(m: Any) -> Any:
        with m.inference_mode():
            return f(m, m.arange(1.0, 4.0))

    return program


INSIDE: dict[str, Callable[[Any], Any]] = {
    "zeros_like": filled(lambda m, x: m.zeros_like(x)),
    "ones_like": filled(lambda m, x: m.ones_like(x, dtype=m.float64, device="cpu").to(m.float32)),
    "full_like": filled(lambda m, x: m.full_like(x, 3)),
    "new_zeros": filled(lambda m, x: x.new_zeros(4)),
    "new_ones": filled(lambda m, x: x.new_ones((2, 2))[0]),
    "new_full": filled(lambda m, x: x.new_full((2,), 5.0)),
    "two levels": lambda m: m.func.vmap(filled_rows(m))(made_of(2, 3, 2)(m).detach()),
    "grad": in_inference_mode(lambda m, x: m.func.grad(lambda t: (t * t * 2).sum())(x)),
    "vjp": in_inference_mode(lambda m, x: m.func.vjp(lambda t: t * t, x)[1](x)),
    "jvp": in_inference_mode(lambda m, x: m.func.jvp(lambda t: t * t, (x,), (x,))),
    "jacrev": in_inference_mode(lambda m, x: m.func.jacrev(lambda t: t * t)(x)),
    "unwrapped": lambda m: m.func.vmap(lambda x: x * len(m.func.debug_unwrap(x)))(m.ones(2, 3)),
}


def filled_rows(m: Any) -> Callable[[Any], Any]:
    def row(x: Any, y: Any) -> Any:
        z = x.new_zeros(3)
        z[1] = y.sum()
        z[0] = x.sum()
        return z

    return lambda x: m.func.vmap(row, in_dims=(0, None))(x, x)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", INSIDE)
def test_inside_of_vmap_and_of_inference_mode(name: str, device: str) -> None:
    with lucid.device(device):
        assert outcome(INSIDE[name], lucid) == outcome(INSIDE[name], torch)
