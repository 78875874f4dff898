# ruff: noqa: UP006, UP035
"""Custom ops against PyTorch's: schemas, kernels, gradients, vmap, autocast, errors."""

from __future__ import annotations

import itertools
from typing import Any, List, Optional, Tuple

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import TABLE, within

DEVICES = ["cpu", "gpu"]
BOTH = [torch, lucid]
_count = itertools.count()


def fresh(name: str) -> str:
    return f"tests{next(_count)}::{name}"


def data(*shape: int) -> Any:
    return np.random.default_rng(4).standard_normal(shape).astype(np.float32)


SIGNATURES = {
    "(x: T) -> T": (),
    "(x: T, n: int = 2, *, a: float = 1.5, s: str = 'x', b: bool = True) -> T": (),
    "(x: T, y: Optional[T] = None, z: Optional[int] = None) -> Tuple[T, T]": (),
    "(xs: List[T], n: List[int], d: f.dtype = f.float32) -> List[T]": (),
    "(x: T, d: f.device) -> None": ("x",),
    "(x: T, y: T) -> None": "unknown",
    "(x: T) -> int": (),
}


@pytest.mark.parametrize("text", SIGNATURES)
def test_schemas(text: str) -> None:
    made = []
    for f in BOTH:
        space: dict[str, Any] = {"f": f, "T": f.Tensor, "List": List, "Optional": Optional, "Tuple": Tuple}
        exec(f"def op{text}: ...", space)
        made.append(f.library.infer_schema(space["op"], mutates_args=SIGNATURES[text]))
    assert made[0] == made[1]


@pytest.mark.parametrize(
    ("text", "mutates"),
    [
        ("(x) -> T", ()),
        ("(x: T)", ()),
        ("(x: object) -> T", ()),
        ("(x: T) -> object", ()),
        ("(x: T) -> T", ("y",)),
        ("(x: int) -> T", ("x",)),
        ("(*x: T) -> T", ()),
        ("(x: T) -> T", "all"),
    ],
)
def test_bad_signatures(text: str, mutates: Any) -> None:
    for f in BOTH:
        space: dict[str, Any] = {"T": f.Tensor}
        exec(f"def op{text}: ...", space)
        with pytest.raises(ValueError):
            f.library.infer_schema(space["op"], mutates_args=mutates)


def mul_op(f: Any) -> Any:
    """An op with a number by name, a gradient and a rule for vmap."""

    def mul(x: f.Tensor, y: f.Tensor, *, scale: float = 2.0) -> f.Tensor:
        return f.from_numpy(x.cpu().numpy() * y.cpu().numpy() * np.float32(scale)).to(x.device)

    mul.__annotations__ = {"x": f.Tensor, "y": f.Tensor, "scale": float, "return": f.Tensor}
    op = f.library.custom_op(fresh("mul"), mul, mutates_args=())

    def setup(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.scale = keyword_only_inputs["scale"]
        ctx.needs = ctx.needs_input_grad

    def backward(ctx: Any, grad: Any) -> Any:
        x, y = ctx.saved_tensors
        return grad * y * ctx.scale, grad * x * ctx.scale

    op.register_autograd(backward, setup_context=setup)

    @op.register_vmap
    def _(info: Any, in_dims: Any, x: Any, y: Any, *, scale: float = 2.0) -> Any:
        def front(t: Any, d: Any) -> Any:
            return t.unsqueeze(0) if d is None else t.movedim(d, 0)

        x, y = front(x, in_dims[0]), front(y, in_dims[1])
        return x * y * scale, 0

    return op


@pytest.mark.parametrize("device", DEVICES)
def test_gradients(device: str) -> None:
    results = []
    for f in BOTH:
        where = device if f is lucid else "cpu"
        op = mul_op(f)
        x = f.tensor(data(3, 2), device=where, requires_grad=True)
        y = f.tensor(data(3, 2) + 1, device=where, requires_grad=True)
        z = op(x, y, scale=3.0)
        dx, dy = f.autograd.grad(z.sin().sum(), (x, y), create_graph=True)
        (again,) = f.autograd.grad((dx * dy).sum(), x)
        again_by_name = getattr(f.ops, op._qualname.split("::")[0]).mul.default(x, y=y)
        results.append([t.detach().cpu().tolist() for t in (z, dx, dy, again, again_by_name)])
        assert op(x.detach(), y.detach()).requires_grad is False
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(b, a, **within("few ops"))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dims", [(0, 0), (1, None), (None, 0)])
def test_vmap(dims: Any, device: str) -> None:
    results = []
    for f in BOTH:
        where = device if f is lucid else "cpu"
        op = mul_op(f)
        x, y = (f.tensor(data(3) if d is None else data(3, 3) + 1, device=where) for d in dims)
        results.append(f.vmap(op, in_dims=dims)(x, y).cpu().numpy())
    np.testing.assert_allclose(*results, rtol=TABLE["rounding"].rtol)


def test_without_a_rule_vmap_calls_once_for_each_sample() -> None:
    seen = []

    @lucid.library.custom_op(fresh("f"), mutates_args=())
    def f(x: lucid.Tensor, ys: List[lucid.Tensor]) -> Tuple[lucid.Tensor, lucid.Tensor]:
        seen.append(tuple(x.shape))
        return x + ys[0], x * ys[1]

    x, y, z = (lucid.tensor(data(3, 2) + i) for i in range(3))
    a, b = lucid.vmap(lambda p, q: f(p, [q, z[0]]))(x, y)
    assert seen == [(2,)] * 3
    assert lucid.equal(a, x + y)
    assert lucid.equal(b, x * z[0])


@pytest.mark.parametrize("device", DEVICES)
def test_lists_and_several_results(device: str) -> None:
    results = []
    for f in BOTH:
        where = device if f is lucid else "cpu"

        def fn(xs: Any, k: int) -> Any:
            return [x * k for x in xs]

        fn.__annotations__ = {"xs": List[f.Tensor], "k": int, "return": List[f.Tensor]}
        op = f.library.custom_op(fresh("many"), fn, mutates_args=())

        def setup(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.k = inputs[1]
            assert isinstance(output, list)

        op.register_autograd(lambda ctx, grads: ([g * ctx.k for g in grads], None), setup_context=setup)
        xs = [f.tensor(data(2) + i, device=where, requires_grad=True) for i in range(3)]
        made = op(xs, 3)
        assert isinstance(made, list)
        assert len(made) == 3
        (made[0] * made[2]).sum().backward()
        results.append([xs[0].grad.tolist(), xs[2].grad.tolist(), made[1].tolist()])
    np.testing.assert_allclose(results[1], results[0], rtol=TABLE["rounding"].rtol)


@pytest.mark.parametrize("device", DEVICES)
def test_writes_are_noticed(device: str) -> None:
    for f in BOTH:
        where = device if f is lucid else "cpu"

        def fn(x: Any) -> None:
            x.mul_(2)

        fn.__annotations__ = {"x": f.Tensor, "return": None}
        op = f.library.custom_op(fresh("twice"), fn, mutates_args=("x",))
        x = f.ones(2, device=where)
        w = f.ones(2, device=where, requires_grad=True)
        y = (w * x).sum()
        version = x._version
        assert op(x) is None
        assert x.tolist() == [2, 2]
        assert x._version > version
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.backward()
        with pytest.raises(RuntimeError, match="non-functional"):
            op.register_autograd(lambda ctx, g: g)


def test_errors() -> None:
    for f in BOTH:

        def fn(x: Any) -> Any:
            return x if x.ndim == 1 else x + 1

        fn.__annotations__ = {"x": f.Tensor, "return": f.Tensor}
        op = f.library.custom_op(fresh("same"), fn, mutates_args=())
        with pytest.raises(RuntimeError, match=r"argument|input"):
            op(f.ones(2))
        x = f.ones(2, 2, requires_grad=True)
        with pytest.raises(RuntimeError, match="no autograd formula was registered"):
            op(x).sum().backward()
        for call in (lambda op=op: op(), lambda op=op, f=f: op(f.ones(1), 2), lambda op=op: op(x=3)):
            with pytest.raises(RuntimeError):
                call()
        with pytest.raises(ValueError):
            f.library.custom_op("nonamespace", fn, mutates_args=())
        with pytest.raises(RuntimeError):
            f.library.register_fake("tests::there_is_none", fn)
        with pytest.raises(AttributeError):
            _ = f.ops.tests.there_is_none


@pytest.mark.parametrize("device", DEVICES)
def test_kernels_by_device(device: str) -> None:
    op = lucid.library.custom_op(fresh("k"), lambda x: x + 1, mutates_args=(), schema="(Tensor x) -> Tensor")
    other = {"cpu": "cuda", "gpu": "cpu"}[device]
    op.register_kernel("cpu" if device == "cpu" else "cuda")(lambda x: x + 10)
    op.register_kernel(other, lambda x: x + 100)
    x = lucid.zeros(1, device=device)
    assert op(x).item() == 10
    with op.set_kernel_enabled("cpu" if device == "cpu" else "cuda", False):
        assert op(x).item() == 1
    assert op(x).item() == 10
    only = lucid.library.custom_op(
        fresh("o"), lambda x: x + 1, mutates_args=(), device_types=other, schema="(Tensor x) -> Tensor"
    )
    with pytest.raises(NotImplementedError, match="no kernel for the device"):
        only(x)


@pytest.mark.parametrize("device", DEVICES)
def test_libraries(device: str) -> None:
    for f in BOTH:
        where = device if f is lucid else "cpu"
        name = f"tests{next(_count)}"
        lib = f.library.Library(name, "DEF")
        lib.define("plus(Tensor x, Scalar n=2) -> Tensor")
        lib.impl("plus", lambda x, n=2: x + n, "CompositeExplicitAutograd")
        assert getattr(f.ops, name).plus(f.zeros(2, device=where), 3).tolist() == [3, 3]
        assert getattr(f.ops, name).plus.default(f.zeros(2, device=where)).tolist() == [2, 2]
        f.library.define(f"{name}::minus", "(Tensor x) -> Tensor")

        @f.library.impl(f"{name}::minus", "default")
        def minus(x: Any) -> Any:
            return -x

        assert getattr(f.ops, name).minus(f.ones(1, device=where)).tolist() == [-1]
        with pytest.raises(RuntimeError):
            f.library.define(f"{name}::minus", "(Tensor x) -> Tensor")
        with pytest.raises(ValueError):
            f.library.Library(name, "OTHER")
    lib._destroy()
    with pytest.raises(AttributeError):
        _ = getattr(lucid.ops, name).plus


@pytest.mark.parametrize("device", DEVICES)
def test_autocast(device: str) -> None:
    op = lucid.library.custom_op(fresh("c"), lambda x: x + 1, mutates_args=(), schema="(Tensor x) -> Tensor")
    op.register_autocast("cpu" if device == "cpu" else "cuda", lucid.bfloat16)
    x = lucid.ones(2, device=device)
    with lucid.autocast(device):
        assert op(x).dtype is lucid.bfloat16
    assert op(x).dtype is lucid.float32
    with pytest.raises(ValueError, match="Unknown device type"):
        op.register_autocast("nothing", lucid.bfloat16)


def test_subclasses() -> None:
    class Sub(lucid.Tensor):
        pass

    op = lucid.library.custom_op(fresh("s"), lambda x: x + 1, mutates_args=(), schema="(Tensor x) -> Tensor")
    op.register_torch_dispatch(Sub, lambda cls, func, types, args, kwargs: (cls, func.name()))
    assert op(lucid.ones(1).as_subclass(Sub)) == (Sub, op._qualname)


def test_opcheck() -> None:
    op = mul_op(lucid)
    x = lucid.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="no function of shapes"):
        lucid.library.opcheck(op, (x, x))
    op.register_fake(lambda x, y, *, scale=2.0: lucid.empty_like(x))
    assert set(lucid.library.opcheck(op, (x, x)).values()) == {"SUCCESS"}
    op.register_fake(lambda x, y, *, scale=2.0: x.new_empty(5))
    told = lucid.library.opcheck(op, (x, x), raise_exception=False)
    assert "function of shapes" in str(told["test_faketensor"])
    writes = lucid.library.custom_op(
        fresh("w"), lambda x: x.add_(1) + 0, mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    with pytest.raises(RuntimeError, match="is written to"):
        lucid.library.opcheck(writes, (lucid.ones(2),), test_utils="test_schema")


@pytest.mark.parametrize("device", DEVICES)
def test_own_ops(device: str) -> None:
    x = lucid.tensor(data(2, 2), device=device)
    assert lucid.equal(lucid.ops.aten.mm.default(x, x), x @ x)
    assert lucid.equal(lucid.ops.aten.add.Tensor(x, x), x + x)
    assert lucid.equal(lucid.ops.aten.relu(x), x.relu())
    with pytest.raises(OSError, match="needs PyTorch"):
        lucid.ops.load_library("lib.so")
