"""Methods that change a tensor's own sizes, strides or storage, and views as copies, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import pytest
import torch

DEVICES = ("cpu", "gpu")


def both(scene: Callable[[Any, Any], Any], device: str) -> tuple[Any, Any]:
    """What a scene gives in each framework: lists, numbers, names; or the kind of error that it raises."""

    def run(L: Any, device: str) -> Any:
        def new(*shape: int) -> Any:
            n = 1
            for size in shape:
                n *= size
            return L.arange(n, dtype=L.float32, device=device).reshape(shape).clone()

        try:
            return scene(L, new)
        except (RuntimeError, IndexError, TypeError, ValueError) as e:
            return next(k.__name__ for k in type(e).__mro__ if k in (RuntimeError, IndexError, TypeError, ValueError))

    return run(lucid, device), run(torch, "cpu")


def shown(t: Any) -> Any:
    return t.tolist(), tuple(t.shape), tuple(t.stride()), t.storage_offset(), t.requires_grad, t.is_leaf


def name(t: Any) -> str:
    return t.grad_fn.name().rstrip("0123456789")


def alone(change: Callable[[Any, Any], Any], *shape: int) -> Callable[[Any, Any], Any]:
    """A change of a fresh tensor, of one with a gradient, of a view, and of a base that has a view."""

    def scene(L: Any, new: Any) -> Any:
        x = new(*shape)
        version = x._version
        assert change(L, x) is x
        assert x._version == version + 1
        x.mul_(2)
        seen = [shown(x)]

        leaf = new(*shape).requires_grad_()
        y = leaf * 3
        change(L, y)
        seen.append((shown(y), y._is_view()))
        y.mul_(2)
        (y * y).sum().backward()
        seen.append(leaf.grad.tolist())

        base = new(2, *shape)
        part = base[1]
        change(L, part)
        part.add_(1)
        seen += [shown(part), part._is_view(), shown(base)]

        base = (new(*shape).requires_grad_() * 2).clone()
        part = base[0]
        change(L, base)
        base.mul_(base)
        seen += [shown(part), shown(base), base._is_view()]
        return seen

    return scene


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "t_": alone(lambda L, x: x.t_(), 2, 3),
    "transpose_": alone(lambda L, x: x.transpose_(0, -1), 2, 3, 4),
    "swapaxes_": alone(lambda L, x: x.swapaxes_(0, 1), 2, 3),
    "swapdims_": alone(lambda L, x: x.swapdims_(1, 2), 2, 3, 4),
    "squeeze_": alone(lambda L, x: x.squeeze_(), 2, 1, 3),
    "squeeze_ dim": alone(lambda L, x: x.squeeze_(1), 2, 1, 3, 1),
    "squeeze_ dims": alone(lambda L, x: x.squeeze_((1, 3)), 2, 1, 3, 1),
    "unsqueeze_": alone(lambda L, x: x.unsqueeze_(-1), 2, 3),
    "as_strided_": alone(lambda L, x: x.as_strided_((2, 2), (1, 2)), 2, 3),
}


def refused_on_leaves(L: Any, new: Any) -> Any:
    return new(2, 3).requires_grad_().t_()


def refused_on_views_of_leaves(L: Any, new: Any) -> Any:
    return new(2, 3, 4).requires_grad_()[0].t_()


def leaves_without_recording(L: Any, new: Any) -> Any:
    x = new(2, 3).requires_grad_()
    with L.no_grad():
        x.t_()
    (x * x).sum().backward()
    return shown(x), x.grad.tolist()


def later_leaves(L: Any, new: Any) -> Any:
    x = new(2, 3)
    x.t_()
    x.requires_grad_()
    (x * x).sum().backward()
    return shown(x), x.grad.tolist(), x._is_view()


def saved_tensors_notice(L: Any, new: Any) -> Any:
    x = new(2, 2).requires_grad_()
    y = x * 2
    z = y * y
    y.t_()
    return z.sum().backward()


def bad_dimensions(L: Any, new: Any) -> Any:
    x = new(2, 3)
    before = shown(x)
    try:
        x.transpose_(0, 5)
    except IndexError:
        return shown(x) == before
    return None


def functions_of_module(L: Any, new: Any) -> Any:
    x = new(2, 2)
    seen = [L.as_strided_(x, (4,), (1,)) is x, L.fill_(x, 3) is x, shown(x), L.zero_(x) is x, shown(x)]
    y = new(3) - 1
    seen += [L.relu_(y) is y, L.exp_(y) is y, L.clamp_(y, max=2) is y, L.clip_(y, 1.5) is y, shown(y)]
    z = new(3).requires_grad_() * 2
    seen += [L.detach_(z) is z, shown(z)]
    w = L.index_put_(new(3), (L.tensor([1], device=x.device),), L.tensor([9.0], device=x.device))
    return [*seen, shown(w), shown(L.resize_as_(new(2, 3), new(3, 2)))]


def resized_smaller(L: Any, new: Any) -> Any:
    x = new(3, 4)
    assert x.resize_(2, 3) is x
    y = new(3, 4)[1:]
    y.resize_((4,))
    y.zero_()
    same = new(3, 4).t()
    same.resize_(4, 3)
    return shown(x), shown(y), shown(same), shown(new(2, 3).resize_as_(new(3)))


def resized_larger(L: Any, new: Any) -> Any:
    x = new(2, 2)
    x.resize_(3, 3)
    return x.reshape(-1)[:4].tolist(), tuple(x.shape), tuple(x.stride())


def resized_to_less_than_none(L: Any, new: Any) -> Any:
    return new(2).resize_(-1)


def resized_with_gradient(L: Any, new: Any) -> Any:
    return (new(2).requires_grad_() * 2).resize_(1)


def set_to_others(L: Any, new: Any) -> Any:
    x, y = new(2, 2), new(6)
    x.set_(y)
    x[0] = 7
    z = new(1).set_(y, 1, (2, 2), (2, 1))
    w = new(1).set_(y.untyped_storage(), 2, (3,))
    return shown(x), shown(y), shown(z), shown(w), shown(new(2).set_())


def set_to_another_dtype(L: Any, new: Any) -> Any:
    return new(2).set_(new(2).to(L.int32))


def diagonals(L: Any, new: Any) -> Any:
    square, tall, wide, cube = new(3, 3), new(7, 3), new(2, 4), new(3, 3, 3)
    seen = [shown(square.fill_diagonal_(5)), shown(tall.fill_diagonal_(5)), shown(wide.fill_diagonal_(5.5))]
    seen += [shown(cube.fill_diagonal_(-1)), shown(new(7, 3).fill_diagonal_(5, wrap=True))]
    seen += [shown(new(8, 3).fill_diagonal_(5, True)), shown(new(9, 2).t().fill_diagonal_(5, True))]
    seen += [
        shown(new(9, 2).fill_diagonal_(5, True)),
        shown(new(0, 3).fill_diagonal_(1)),
        shown(new(3, 1).fill_diagonal_(1, True)),
    ]
    x = new(3, 3).requires_grad_()
    y = (x * x)[1:]
    y.fill_diagonal_(2)
    y.sum().backward()
    return [*seen, x.grad.tolist()]


def diagonal_of_a_vector(L: Any, new: Any) -> Any:
    return new(3).fill_diagonal_(1)


def diagonal_of_a_box(L: Any, new: Any) -> Any:
    return new(3, 3, 2).fill_diagonal_(1)


def strided(L: Any, new: Any) -> Any:
    made = [L.empty_strided((2, 3), (1, 2)), L.empty_strided((2, 0), (5, 1)), new(2).new_empty_strided((2, 2), (3, 1))]
    made += [L.empty_permuted((2, 3, 5), (0, 2, 1)), L.empty_permuted((), ()), L.empty_strided((2, 2), (0, 1))]
    return [
        (tuple(t.shape), tuple(t.stride()), str(t.dtype).split(".")[-1], t.untyped_storage().nbytes()) for t in made
    ]


def new_ones(L: Any, new: Any) -> Any:
    x = new(2).to(L.float32)
    return [tuple(x.new(2, 3).shape), shown(x.new([1, 2])), shown(x.new()), tuple(x.new(L.Size([3])).shape)]


def filled_where_expanded(L: Any, new: Any) -> Any:
    x, y = new(3, 1), new(3)
    x.expand(3, 4).fill_(7)
    y.expand(2, 3).zero_()
    leaf = new(3, 1).requires_grad_()
    z = leaf * 2
    z.expand(3, 2).fill_(4.0)
    return shown(x), shown(y), z.tolist()


def filled_with_a_tensor_where_expanded(L: Any, new: Any) -> Any:
    return new(3, 1).expand(3, 4).fill_(L.tensor(4.0))


def written_where_expanded(op: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda L, new: op(L, new(1).expand(3))


SCENES: dict[str, Callable[[Any, Any], Any]] = CHANGES | {
    f.__name__: f
    for f in (
        refused_on_leaves,
        refused_on_views_of_leaves,
        leaves_without_recording,
        later_leaves,
        saved_tensors_notice,
        bad_dimensions,
        functions_of_module,
        resized_smaller,
        resized_larger,
        resized_to_less_than_none,
        resized_with_gradient,
        set_to_others,
        set_to_another_dtype,
        diagonals,
        diagonal_of_a_vector,
        diagonal_of_a_box,
        strided,
        new_ones,
        filled_where_expanded,
        filled_with_a_tensor_where_expanded,
    )
}
SCENES |= {
    f"expanded {key}": written_where_expanded(op)
    for key, op in {
        "add_": lambda L, x: x.add_(1),
        "mul_": lambda L, x: x.mul_(x),
        "relu_": lambda L, x: x.relu_(),
        "copy_": lambda L, x: x.copy_(x.clone()),
        "clamp_": lambda L, x: x.clamp_(0),
        "exp_": lambda L, x: x.exp_(),
        "zero_": lambda L, x: shown(x.zero_()),
        "fill_": lambda L, x: shown(x.fill_(2)),
        "index": lambda L, x: x.__setitem__(0, 1.0) or shown(x),
        "scatter_": lambda L, x: x.scatter_(0, L.tensor([0], device=x.device), 1.0),
        "masked_scatter_": lambda L, x: x.masked_scatter_(x > 5, x),
        "uniform_": lambda L, x: x.uniform_(),
        "normal_": lambda L, x: x.normal_(),
        "cumsum_": lambda L, x: x.cumsum_(0),
    }.items()
}


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
@pytest.mark.parametrize("device", DEVICES)
def test_scenes(scene: Callable[[Any, Any], Any], device: str) -> None:
    got, wanted = both(scene, device)
    assert got == wanted


COPIES: dict[str, Callable[[Any, Any], Any]] = {
    "as_strided_copy": lambda L, x: L.as_strided_copy(x, (2, 2), (1, 3)),
    "detach_copy": lambda L, x: L.detach_copy(x.detach()),
    "diagonal_copy": lambda L, x: L.diagonal_copy(x, 1),
    "expand_copy": lambda L, x: L.expand_copy(x, (2, 3, 4)),
    "narrow_copy": lambda L, x: L.narrow_copy(x, 1, 1, 2),
    "permute_copy": lambda L, x: L.permute_copy(x, (1, 0)),
    "select_copy": lambda L, x: L.select_copy(x, 0, 1),
    "split_copy": lambda L, x: L.split_copy(x, 2),
    "split_with_sizes_copy": lambda L, x: L.split_with_sizes_copy(x, (1, 2)),
    "squeeze_copy": lambda L, x: L.squeeze_copy(x.reshape(3, 1, 4), 1),
    "t_copy": lambda L, x: L.t_copy(x),
    "transpose_copy": lambda L, x: L.transpose_copy(x, 0, 1),
    "unbind_copy": lambda L, x: L.unbind_copy(x),
    "unfold_copy": lambda L, x: L.unfold_copy(x, 1, 2, 2),
    "unsqueeze_copy": lambda L, x: L.unsqueeze_copy(x, 0),
    "view_copy": lambda L, x: L.view_copy(x, (4, 3)),
    "view_as_complex_copy": lambda L, x: L.view_as_real_copy(L.view_as_complex_copy(x.detach().reshape(6, 2))),
}


@pytest.mark.parametrize("name", COPIES)
def test_views_as_copies(name: str) -> None:
    def run(L: Any) -> Any:
        x = L.arange(12.0).reshape(3, 4).clone().requires_grad_()
        out = COPIES[name](L, x)
        parts = list(out) if isinstance(out, (tuple, list)) else [out]
        assert not any(p._is_view() for p in parts)
        if parts[0].requires_grad:
            sum((p * p).sum() for p in parts).backward()
        return [p.tolist() for p in parts], None if x.grad is None else x.grad.tolist()

    assert run(lucid) == run(torch)


def test_copies_are_made_from_the_views_of_the_table() -> None:
    assert "transpose_copy" in dir(lucid)
    x = lucid.arange(6.0).reshape(2, 3)
    out = lucid.empty(0)
    assert lucid.t_copy(x, out=out) is out
    assert out.tolist() == x.t().tolist()
    with pytest.raises(AttributeError):
        _ = lucid.sum_copy


@pytest.mark.parametrize(
    "shapes", [((2, 1), (1, 3)), ((2,), (3,)), ((2,), 3), ((-1,), (1,)), (), (3,), ([1, 2], (2, 1)), ((2, -2),)]
)
def test_broadcast_shapes(shapes: Any) -> None:
    def run(L: Any) -> Any:
        try:
            return tuple(L.broadcast_shapes(*shapes))
        except (RuntimeError, ValueError) as e:
            return str(e)

    assert run(lucid) == run(torch)


def test_small_functions() -> None:
    for value in ("a", lucid.nn.Linear(2, 2), lucid.nn.Linear, 1.5):
        wanted = torch.typename(value)
        assert lucid.typename(value) == wanted
    assert lucid.typename(lucid.ones(2)) == lucid.ones(2).type()
    assert lucid.get_float32_matmul_precision() == torch.get_float32_matmul_precision() == "highest"
    lucid.set_float32_matmul_precision("high")
    assert lucid.get_float32_matmul_precision() == "high"
    with pytest.warns(UserWarning, match="not one of"):
        lucid.set_float32_matmul_precision("best")
    lucid.set_float32_matmul_precision("highest")
    with pytest.raises(RuntimeError):
        lucid.set_float32_matmul_precision(1)  # type: ignore[arg-type]
    assert not lucid.is_inference(lucid.ones(2))
    with pytest.raises(TypeError):
        lucid.nonzero_static(lucid.ones(2))


@pytest.mark.parametrize("device", DEVICES)
def test_nobody_goes_backward_through_what_filled_an_expanded_tensor(device: str) -> None:
    def run(L: Any, device: str) -> Any:
        x = L.ones(3, 2, device=device).requires_grad_()
        y = x * 2
        y[:, :1].expand(3, 4).fill_(4.0)
        with pytest.raises(RuntimeError):
            y.sum().backward()
        return y.tolist()

    assert run(lucid, device) == run(torch, "cpu") == [[4.0, 2.0]] * 3


@pytest.mark.parametrize("device", DEVICES)
def test_as_strided_scatter(device: str) -> None:
    def run(L: Any, device: str) -> Any:
        whole = L.arange(16.0, device=device)
        src = -L.ones(2, 2, device=device)
        seen = [L.as_strided_scatter(whole[:12].reshape(3, 4), src, (2, 2), (4, 2), 1)]
        odd = whole[4:].reshape(3, 4).t()
        seen += [L.as_strided_scatter(odd, src, (2, 2), (4, 2)), L.as_strided_scatter(odd, src, (2, 2), (4, 2), 5)]
        truth = (whole > 3).reshape(4, 4)
        seen.append(L.as_strided_scatter(truth, src[0] > 0, (2,), (3,), 9))
        return [(t.tolist(), tuple(t.stride())) for t in seen]

    assert run(lucid, device) == run(torch, "cpu")


def test_gradients_of_as_strided_scatter() -> None:
    x = lucid.arange(12.0, dtype=lucid.float64).reshape(3, 4).clone().requires_grad_()
    src = lucid.ones(2, 2, dtype=lucid.float64).requires_grad_()
    assert lucid.autograd.gradcheck(lambda x, s: lucid.as_strided_scatter(x, s, (2, 2), (4, 2), 1), (x, src))
    assert lucid.autograd.gradcheck(lambda x, s: lucid.as_strided_scatter(x.t(), s, (2, 2), (4, 2), 1), (x, src))
