"""`lucid.autograd.forward_ad` against PyTorch's: levels, ops, writes, views, reverse over forward, custom functions."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import TABLE, within

DEVICES = ["cpu", "gpu"]
A = np.linspace(0.2, 1.9, 6).astype(np.float32).reshape(2, 3)
B = np.linspace(1.5, 0.3, 6).astype(np.float32).reshape(2, 3)


def numbers(t: Any) -> Any:
    return None if t is None else np.asarray(t.detach().cpu().tolist())


def listed(out: Any) -> Any:
    return out if isinstance(out, (tuple, list)) else (out,)


def both(f: Callable[..., Any], device: str, wants: bool = False) -> list[list[Any]]:
    """What `f(module, forward_ad, a, b)` gives for dual tensors: values, tangents and gradients of these."""
    found = []
    for m in (lucid, torch):
        fwd = importlib.import_module(f"{m.__name__}.autograd.forward_ad")
        place = device if m is lucid else "cpu"
        xs = [m.tensor(a.tolist(), device=place, requires_grad=wants) for a in (A, B)]
        steps = [m.tensor(np.cos(np.arange(6) + i).reshape(2, 3).tolist(), device=place) for i in range(2)]
        with fwd.dual_level():
            out: list[Any] = []
            for y in listed(f(m, *[fwd.make_dual(x, v) for x, v in zip(xs, steps, strict=True)])):
                value, tangent = fwd.unpack_dual(y)
                out += [numbers(value), numbers(tangent)]
                if wants:
                    grads = m.autograd.grad((tangent * tangent).sum(), xs, allow_unused=True, retain_graph=True)
                    out += [numbers(g) for g in grads]
        found.append(out)
    return found


def agree(f: Callable[..., Any], device: str, wants: bool = False) -> None:
    ours, theirs = both(f, device, wants)
    assert [x is None for x in ours] == [x is None for x in theirs]
    for a, b in zip(ours, theirs, strict=True):
        if b is not None:
            np.testing.assert_allclose(a, b, **within("function transforms"))


def write_chain(m: Any, a: Any, b: Any) -> Any:
    y = a.clone()
    y.mul_(3)
    y.add_(b).exp_()
    return y


def write_parts(m: Any, a: Any, b: Any) -> Any:
    y = a * 1
    y[0].mul_(b[1])
    y[1, 1] = 5
    return y, y[0], y * a


def write_into_plain(m: Any, a: Any, b: Any) -> Any:
    whole = m.zeros(3, 2, device=a.device)
    row, turned = whole[1], whole.t()
    whole[:] = a.T
    return whole * 1, row, turned


def write_by_index(m: Any, a: Any, b: Any) -> Any:
    whole = m.zeros(4, device=a.device)
    whole[1:3] = a[0, :2]
    one = whole[2]
    whole.index_add_(0, m.tensor([0, 0], device=a.device), b[1, :2])
    return whole * 1, one


def write_nothing(m: Any, a: Any, b: Any) -> Any:
    y, z = a.clone(), a.clone()
    y.zero_()
    z.t_().unsqueeze_(0)
    return y, z


def write_apart(m: Any, a: Any, b: Any) -> Any:
    # The tangent of a sum with a number is that of the tensor, but not in its memory.
    y = a + 1
    y.mul_(2)
    return y, a * 1, b * 1


WRITES = [write_chain, write_parts, write_into_plain, write_by_index, write_nothing, write_apart]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("f", WRITES, ids=lambda f: f.__name__)
def test_writes_and_views_carry_tangents(f: Any, device: str) -> None:
    agree(f, device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "f",
    [
        lambda m, a, b: a * b.exp(),
        lambda m, a, b: (a @ b.T).tanh(),
        lambda m, a, b: a.cumprod(1) / b.norm(),
        lambda m, a, b: m.linalg.det(a.T @ b + m.eye(3, device=a.device)),
        lambda m, a, b: m.where(a > 1, a * b, b.sin()),
        lambda m, a, b: m.nn.functional.conv1d(a[None], b[None]).sigmoid(),
        lambda m, a, b: (a.sort(1, descending=True).values * b).amax(1),
        write_chain,
    ],
)
def test_gradients_go_through_tangents(f: Any, device: str) -> None:
    agree(f, device, wants=True)


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_of_dual_tensors_carry_tangents(device: str) -> None:
    """Forward over reverse: a product of the Hessian with a vector, also where the rule needs the result."""

    def f(m: Any, a: Any, b: Any) -> Any:
        y = (a * b).exp().sum() + (a * a).prod() + m.softmax(a, 1).log().norm()
        return m.autograd.grad(y, [a, b], create_graph=True)

    ours, theirs = both(lambda m, a, b: f(m, a.requires_grad_(), b.requires_grad_()), device)
    for x, y in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(x, y, **within("second derivatives"))


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_of_tangents_of_layer_norm(device: str) -> None:
    """PyTorch 2.15 gets these wrong; differences of the tangents say what they are."""
    fwd = lucid.autograd.forward_ad
    step = lucid.tensor(np.cos(np.arange(6)).reshape(2, 3).tolist(), device=device)

    def size(x: Any) -> Any:
        with fwd.dual_level():
            y = lucid.nn.functional.layer_norm(fwd.make_dual(x, step), (3,))
            return (fwd.unpack_dual(y).tangent ** 2).sum()

    x = lucid.tensor(A.tolist(), device=device, requires_grad=True)
    (found,) = lucid.autograd.grad(size(x), x)
    np.testing.assert_allclose(numbers(found)[0], [-2.9048, 8.9480, -6.0432], **within("second derivatives"))
    np.testing.assert_allclose(numbers(found)[1], [-2.5713, 9.7358, -7.1645], **within("second derivatives"))


def kinds(call: Callable[[Any, Any], Any]) -> list[Any]:
    found = []
    for m in (lucid, torch):
        fwd = importlib.import_module(f"{m.__name__}.autograd.forward_ad")
        try:
            call(m, fwd)
            found.append(None)
        except Exception as e:
            found.append((e, str(e)))
    return found


def refused(call: Callable[[Any, Any], Any]) -> None:
    """Both refuse it with the same kind of error and, but for the prefix, in the same words."""
    ours, theirs = kinds(call)
    assert theirs is not None and ours is not None
    builtin = next(c for c in type(theirs[0]).__mro__ if c.__module__ == "builtins")
    assert isinstance(ours[0], builtin)
    assert theirs[1].replace("torch", "lucid").split(".")[0][:60] in ours[1]


def at_level(call: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def run(m: Any, fwd: Any) -> None:
        with fwd.dual_level():
            call(m, fwd)

    return run


def test_wrong_use_is_refused_as_in_pytorch() -> None:
    refused(lambda m, fwd: fwd.make_dual(m.ones(3), m.ones(3)))
    refused(lambda m, fwd: fwd.exit_dual_level())
    refused(at_level(lambda m, fwd: fwd.enter_dual_level()))
    refused(at_level(lambda m, fwd: fwd.exit_dual_level(level=5)))
    refused(at_level(lambda m, fwd: fwd.make_dual(m.ones(3), m.ones(2))))
    refused(at_level(lambda m, fwd: fwd.make_dual(m.ones(3), m.ones(3).long())))
    refused(at_level(lambda m, fwd: fwd.make_dual(m.ones(3).long(), m.ones(3))))
    refused(at_level(lambda m, fwd: fwd.make_dual(m.ones(3), m.ones(3), level=4)))
    refused(at_level(lambda m, fwd: fwd.make_dual(fwd.make_dual(m.ones(3), m.ones(3)), m.ones(3))))
    ours, theirs = kinds(at_level(lambda m, fwd: m.add(fwd.make_dual(m.ones(3), m.ones(3)), 1, out=m.ones(3))))
    assert isinstance(ours[0], NotImplementedError) and isinstance(theirs[0], NotImplementedError)


@pytest.mark.parametrize("device", DEVICES)
def test_what_carries_a_tangent_and_what_does_not(device: str) -> None:
    for m in (lucid, torch):
        fwd = importlib.import_module(f"{m.__name__}.autograd.forward_ad")
        x = m.ones(3, device=device if m is lucid else "cpu")
        tangent_of = lambda t, fwd=fwd: fwd.unpack_dual(t).tangent  # noqa: E731
        assert tangent_of(x) is None
        with fwd.dual_level() as level:
            assert level == 0
            dual = fwd.make_dual(x, 2 * x)
            assert dual._is_view() and tangent_of(x) is None
            primal = fwd.unpack_dual(dual).primal
            for without in (primal, primal[0], primal * 2, dual.detach(), dual.data, copy.deepcopy(x), dual.argmax()):
                assert tangent_of(without) is None
            for with_one in (dual, dual[1:], dual * 2, dual.to(m.float16), dual.clone()):
                assert tangent_of(with_one).dtype == with_one.dtype
            with m.no_grad():
                assert tangent_of(dual * 2) is not None
            with m.inference_mode():
                assert tangent_of(dual * 2) is None
            with fwd._set_fwd_grad_enabled(False):
                assert not fwd._is_fwd_grad_enabled()
                off = dual * 2
            assert tangent_of(off) is None and fwd._is_fwd_grad_enabled()
            assert "tangent=tensor([2., 2., 2.]" in str(dual)
            kept = dual * 2
        assert tangent_of(kept) is None and "tangent" not in str(kept)
        with fwd.dual_level():
            # Another level knows nothing of the former one's tangents.
            assert tangent_of(kept) is None and tangent_of(dual) is None


@pytest.mark.parametrize("device", DEVICES)
def test_a_dual_tensor_shares_memory_with_what_it_was_made_of(device: str) -> None:
    for m in (lucid, torch):
        fwd = importlib.import_module(f"{m.__name__}.autograd.forward_ad")
        place = device if m is lucid else "cpu"
        x, v, turned = m.ones(2, 2, device=place), m.ones(2, 2, device=place), m.ones(2, 2, device=place)
        with fwd.dual_level():
            fwd.make_dual(x, v).mul_(3)
            fwd.make_dual(x.clone(), turned.expand(2, 2).t()).mul_(3)
        assert x.tolist() == [[3, 3], [3, 3]] and v.tolist() == [[3, 3], [3, 3]]
        assert turned.tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize("device", DEVICES)
def test_vmap_goes_together_with_dual_tensors(device: str) -> None:
    agree(lambda m, a, b: m.func.vmap(lambda x, y: (x * y).exp().sum())(a, b), device)
    agree(
        lambda m, a, b: m.func.vmap(lambda x: (x * b[0]).cumsum(0), in_dims=1, out_dims=1)(m.stack([a[0], b[0]], 1)),
        device,
    )

    fwd = lucid.autograd.forward_ad

    def along(x: Any, v: Any) -> Any:
        return fwd.unpack_dual((fwd.make_dual(x, v) ** 3).sum()).tangent

    x = lucid.tensor(A.tolist(), device=device)
    with fwd.dual_level():
        each = lucid.func.vmap(along)(x, x)
        same = lucid.func.vmap(along, in_dims=(0, None))(x, x[0])
    np.testing.assert_allclose(numbers(each), (3 * A**3).sum(1), rtol=TABLE["few ops"].rtol)
    np.testing.assert_allclose(numbers(same), (3 * A**2 * A[0]).sum(1), rtol=TABLE["few ops"].rtol)


# ---- custom functions ------------------------------------------------------------------------------------------------


def function(m: Any, gives: Callable[..., Any], materialize: bool, seen: list[Any]) -> Any:
    fwd = importlib.import_module(f"{m.__name__}.autograd.forward_ad")

    class Scaled(m.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any, n: float) -> Any:
            ctx.set_materialize_grads(materialize)
            ctx.save_for_forward(x, y)
            ctx.n = n
            seen.append((m.is_grad_enabled(), fwd._is_fwd_grad_enabled(), fwd.unpack_dual(x).tangent))
            return x * y * n, x + y, 3

        @staticmethod
        def jvp(ctx: Any, *steps: Any) -> Any:
            seen.append(
                (m.is_grad_enabled(), fwd._is_fwd_grad_enabled(), [None if t is None else t.tolist() for t in steps])
            )
            return gives(ctx, *steps)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return grads[0], grads[1], None

    return Scaled


def product(ctx: Any, dx: Any, dy: Any, dn: Any) -> Any:
    x, y = ctx.saved_tensors
    first = dx * y * ctx.n + (0 if dy is None else x * dy * ctx.n)
    return first, dx * 2, None


@pytest.mark.parametrize("materialize", [True, False])
def test_custom_functions_push_tangents(materialize: bool) -> None:
    logs = []
    for m in (lucid, torch):
        fwd = importlib.import_module(f"{m.__name__}.autograd.forward_ad")
        seen: list[Any] = []
        f = function(m, product, materialize, seen)
        x = m.tensor([1.0, 2.0], requires_grad=True)
        with fwd.dual_level():
            first, second, third = f.apply(fwd.make_dual(x, m.tensor([1.0, -1.0])), m.tensor([3.0, 4.0]), 2.0)
            seen += [fwd.unpack_dual(first).tangent.tolist(), fwd.unpack_dual(second).tangent.tolist(), third]
            seen.append(first.requires_grad)
        logs.append(seen)
    assert logs[0] == logs[1]


@pytest.mark.parametrize(
    "gives",
    [
        lambda ctx, *v: (v[0], v[0]),
        lambda ctx, *v: (v[0], v[0].sum(), None),
        lambda ctx, *v: (v[0], 5, None),
        lambda ctx, *v: (v[0], None, None),
    ],
)
def test_wrong_tangents_of_custom_functions_are_refused(gives: Any) -> None:
    def call(m: Any, fwd: Any) -> None:
        with fwd.dual_level():
            function(m, gives, True, []).apply(fwd.make_dual(m.ones(2), m.ones(2)), m.ones(2), 2.0)

    ours, theirs = kinds(call)
    assert isinstance(ours[0], RuntimeError) and isinstance(theirs[0], RuntimeError)


def one(m: Any, forward: Callable[..., Any], jvp: Callable[..., Any] | None) -> Any:
    names = {"forward": staticmethod(forward)} | ({} if jvp is None else {"jvp": staticmethod(jvp)})
    made = type(m.autograd.Function)("One", (m.autograd.Function,), names)
    return made.apply


def written(ctx: Any, x: Any) -> Any:
    ctx.mark_dirty(x)
    return x.mul_(2)


def partly(ctx: Any, x: Any) -> Any:
    fixed = x * 2
    ctx.mark_non_differentiable(fixed)
    return x * 1, fixed, x > 0


CASES: list[tuple[Any, Any]] = [
    (lambda ctx, x: x * 2, None),
    (written, lambda ctx, v: v.mul_(2)),
    (written, lambda ctx, v: v * 2),
    (lambda ctx, x: x.view(2, 1), lambda ctx, v: v.view(2, 1)),
    (lambda ctx, x: x.view(2, 1), lambda ctx, v: v.clone().view(2, 1) * 1),
    (lambda ctx, x: x, lambda ctx, v: v.view_as(v)),
    (lambda ctx, x: x, lambda ctx, v: v.clone()),
    (partly, lambda ctx, v: (v * 1, None, None)),
    (partly, lambda ctx, v: (v * 1, v * 2, None)),
]


@pytest.mark.parametrize("case", CASES)
def test_custom_functions_that_write_or_view(case: Any) -> None:
    found = []
    for m in (lucid, torch):
        fwd = importlib.import_module(f"{m.__name__}.autograd.forward_ad")
        with fwd.dual_level():
            x = fwd.make_dual(m.tensor([3.0, 4.0]), m.ones(2))
            try:
                out = listed(one(m, *case)(x))
                pairs = [fwd.unpack_dual(t) for t in (*out, x)]
                found.append([None if t is None else t.tolist() for pair in pairs for t in pair])
            except (RuntimeError, NotImplementedError) as e:
                found.append([isinstance(e, NotImplementedError), str(e)[:60]])
    assert found[0] == found[1]


def ranged(m: Any, n: int, step: float = 10.0) -> Any:
    return m.arange(1.0, n + 1) * step


def dual(m: Any, x: Any, v: Any) -> Any:
    return m.autograd.forward_ad.make_dual(x, v)


#: What is shown of a storage through `as_strided`, where a part of it was made dual or was taken from a dual tensor.
SHOWN: dict[str, Callable[[Any], Any]] = {
    "within": lambda m: dual(m, m.arange(8.0)[2:6], ranged(m, 4)).as_strided((3,), (1,)),
    "after": lambda m: dual(m, m.arange(8.0)[2:6], ranged(m, 4)).as_strided((4,), (1,), 4),
    "before": lambda m: dual(m, m.arange(8.0)[2:6], ranged(m, 4)).as_strided((3,), (1,), 1),
    "all": lambda m: dual(m, m.arange(8.0)[2:6], ranged(m, 4)).as_strided((8,), (1,), 0),
    "only beyond": lambda m: dual(m, m.arange(8.0)[2:6], ranged(m, 4)).as_strided((2,), (1,), 6),
    "gaps": lambda m: dual(m, m.arange(8.0)[::2], ranged(m, 4)).as_strided((8,), (1,), 0),
    "tangent in a larger storage": lambda m: dual(m, m.arange(8.0)[:4], ranged(m, 10)[:4]).as_strided((4,), (1,), 2),
    "tangent elsewhere": lambda m: dual(m, m.arange(8.0)[2:6], ranged(m, 10)[3:7]).as_strided((5,), (1,), 2),
    "tangent in the same place": lambda m: dual(m, m.arange(8.0)[2:6], ranged(m, 8)[2:6]).as_strided((5,), (1,), 3),
    "part of a dual": lambda m: dual(m, m.arange(8.0), ranged(m, 8))[2:6].as_strided((8,), (1,), 0),
    "part of a dual part": lambda m: dual(m, m.arange(8.0)[1:7], ranged(m, 6))[2:4].as_strided((8,), (1,), 0),
    "turned": lambda m: dual(m, m.arange(8.0).view(2, 4).t()[1:3], m.ones(2, 2)).as_strided((8,), (1,), 0),
    "part of a result": lambda m: (dual(m, m.arange(8.0), ranged(m, 8)) * 2)[::2].as_strided((8,), (1,), 0),
    "twice": lambda m: (
        dual(m, m.arange(8.0)[2:6], ranged(m, 4)).as_strided((8,), (1,), 0)[3:5].as_strided((8,), (1,), 0)
    ),
    "written": lambda m: m.arange(8.0).copy_(dual(m, m.ones(8), ranged(m, 8)))[1:3].as_strided((6,), (1,), 0),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", SHOWN)
def test_as_strided_shows_the_tangents_of_the_storage(name: str, device: str) -> None:
    found = []
    for m in (lucid, torch):
        fwd = m.autograd.forward_ad
        with fwd.dual_level(), lucid.device(device):
            found.append([t.tolist() for t in fwd.unpack_dual(SHOWN[name](m))])
    assert found[0] == found[1]


@pytest.mark.parametrize("device", DEVICES)
def test_writes_reach_a_tangent_in_a_storage_as_large(device: str) -> None:
    """A tangent is used as it is where its storage is like the tensor's, and copied otherwise."""

    def left(m: Any, size: int, begin: int, storage: int) -> Any:
        given = ranged(m, size)
        d = dual(m, m.ones(storage)[begin : begin + 4], given[begin : begin + 4])
        part = d[1:].as_strided((storage,), (1,), 0)
        d.mul_(2)
        return [given.tolist(), m.autograd.forward_ad.unpack_dual(part)[1].tolist()]

    for how in ((10, 0, 4), (10, 2, 10), (10, 2, 6), (4, 0, 4), (4, 0, 10)):
        found = []
        for m in (lucid, torch):
            with m.autograd.forward_ad.dual_level(), lucid.device(device):
                found.append(left(m, *how))
        assert found[0] == found[1], how


@pytest.mark.parametrize("device", DEVICES)
def test_filling_an_expanded_tensor_leaves_no_tangent(device: str) -> None:
    def run(m: Any, wide: bool) -> Any:
        v = m.ones(2, 3) if wide else m.ones(3).expand(2, 3)
        return [t.tolist() for t in m.func.jvp(lambda a: a.fill_(2.0), (m.ones(3).expand(2, 3),), (v,))]

    with lucid.device(device):
        assert run(lucid, False) == run(torch, False) == run(lucid, True) == [[[2.0] * 3] * 2, [[0.0] * 3] * 2]


def test_what_carries_a_tangent_is_not_resized() -> None:
    for m in (lucid, torch):
        with m.autograd.forward_ad.dual_level():
            x = dual(m, m.ones(2), m.ones(2))
            for size in (1, 2, 3):
                with pytest.raises(RuntimeError, match="cannot resize variables that has a forward grad"):
                    x.resize_(size)
            with pytest.raises(RuntimeError, match="cannot resize variables that has a forward grad"):
                x.resize_as_(m.ones(3))


#: Writes in place whose operand is the tensor itself. Some of PyTorch's tangents are made of what was written.
ITSELF: dict[str, Callable[[Any, Any], Any]] = {
    "mul_": lambda m, y: y.mul_(y),
    "mul_ of a view": lambda m, y: y.mul_(y[:]),
    "mul_ to a view": lambda m, y: y.view(-1).mul_(y) if y.ndim else y,
    "mul_ twice": lambda m, y: y.mul_(y).mul_(y),
    "div_": lambda m, y: y.div_(y),
    "pow_": lambda m, y: y.pow_(y),
    "sub_": lambda m, y: y.sub_(y, alpha=3),
    "addcmul_": lambda m, y: y.addcmul_(y, y),
    "addcdiv_": lambda m, y: y.addcdiv_(m.full_like(y, 2.0), y),
    "lerp_": lambda m, y: y.lerp_(m.ones_like(y), y),
    "copysign_": lambda m, y: y.copysign_(y),
    "hypot_": lambda m, y: y.hypot_(y),
    "xlogy_": lambda m, y: y.xlogy_(y),
    "masked_fill_": lambda m, y: y.masked_fill_(y.detach() > 1, y[0]),
    "a row by another": lambda m, y: (y[0].mul_(y[1]), y)[1],
    "diagonal": lambda m, y: (a := m.outer(y, y)).diagonal().mul_(a[0]) * 1,
    "addmv_": lambda m, y: y.addmv_(m.eye(3, dtype=y.dtype) * 2, y),
    "index_put_": lambda m, y: y.index_put_((m.tensor([2, 1, 0]),), y * 1),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ITSELF)
def test_a_write_by_the_tensor_itself_has_the_functions_derivative(name: str, device: str) -> None:
    """The values are PyTorch's, and the tangents those of differences of its values."""
    f = ITSELF[name]
    x, v = [0.5, 1.5, 2.0], [1.0, 2.0, -1.0]
    at = torch.tensor(x, dtype=torch.float64)
    value, near = f(torch, at.clone()), 1e-6 * torch.tensor(v, dtype=torch.float64)
    slope = (f(torch, at + near) - f(torch, at - near)) / 2e-6
    with lucid.device(device):
        out, tangent = lucid.func.jvp(lambda a: f(lucid, a.clone()), (lucid.tensor(x),), (lucid.tensor(v),))
        np.testing.assert_allclose(out.tolist(), value.tolist(), rtol=TABLE["few ops"].rtol)
        np.testing.assert_allclose(tangent.tolist(), slope.tolist(), **within("program"))
        batch = lucid.tensor([x, x]), lucid.tensor([v, v])
        each = lucid.vmap(lambda a, b: lucid.func.jvp(lambda c: f(lucid, c.clone()), (a,), (b,))[1])(*batch)
        np.testing.assert_allclose(each.tolist(), [slope.tolist()] * 2, **within("program"))
