"""What batched tensors do apart from ops: printing, escaping, threads, randomness, writes, sizes of 0 and 1."""

from __future__ import annotations

import threading
from typing import Any

import lucid
import pytest
from lucid import func

from tests.python.tolerances import within


def test_printing(device: str) -> None:
    seen: list[str] = []

    def f(x: Any, y: Any) -> Any:
        seen.append(repr(x * y))
        return x

    x = lucid.arange(2.0, device=device)
    func.vmap(func.vmap(f, in_dims=(None, 0)), in_dims=(0, None))(x, x)
    where = "" if device == "cpu" else f", device='{x.device}'"
    assert seen == [
        "BatchedTensor(lvl=2, bdim=0, value=\n    BatchedTensor(lvl=1, bdim=0, value=\n"
        f"        tensor([[0., 0.],\n                [0., 1.]]{where})\n    )\n)"
    ]


def test_shapes_leave_the_batch_out(device: str) -> None:
    def f(x: Any) -> Any:
        assert x.shape == (3,) and x.ndim == 1 and x.numel() == 3 and len(x) == 3
        assert x.dtype is lucid.float32 and str(x.device) == str(given.device)
        return x

    given = lucid.randn(3, 5, device=device)
    assert func.vmap(f, in_dims=1, out_dims=1)(given).shape == (3, 5)


@pytest.mark.parametrize("size", [0, 1])
def test_small_batches(size: int, device: str) -> None:
    x, w = lucid.randn(size, 2, 6, 6, device=device), lucid.randn(4, 2, 3, 3, device=device, requires_grad=True)
    y = func.vmap(lambda x: lucid.nn.functional.conv2d(x, w).relu().flatten(1).sum(1).softmax(0))(x)
    assert y.shape == (size, 4)
    y = func.vmap(lambda w: lucid.nn.functional.conv2d(x, w))(w.unsqueeze(0)[:size])
    assert y.shape == (size, size, 4, 4, 4)


def test_a_tensor_that_escapes_is_refused(device: str) -> None:
    kept: list[Any] = []

    def keep(x: Any) -> Any:
        kept.append(x)
        return x

    x = lucid.ones(2, 3, device=device)
    func.vmap(keep)(x)
    for use in (
        lambda t: t + 1,
        lambda t: t[0],
        lambda t: t.add_(1),
        lambda t: t.tolist(),
        lambda t: t.sum().item(),
        lambda t: func.vmap(lambda y: y + t)(x),
        lambda t: func.grad(lambda y: (y * t).sum())(x[0]),
    ):
        with pytest.raises(RuntimeError, match="vmap"):
            use(kept[0])
    assert lucid.allclose(x, lucid.ones(2, 3, device=device))
    repr(kept[0])


def test_levels_belong_to_the_thread() -> None:
    def f(x: Any) -> Any:
        errors: list[BaseException] = []

        def other() -> None:
            try:
                assert func.vmap(lambda y: y * 2)(lucid.ones(4)).tolist() == [2.0] * 4
                assert lucid.rand(2).shape == (2,)
                with pytest.raises(RuntimeError, match="vmap"):
                    x + 1
            except BaseException as e:
                errors.append(e)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert errors == []
        return x

    func.vmap(f)(lucid.ones(3))


def test_an_exception_ends_the_level() -> None:
    def fails(x: Any) -> Any:
        raise KeyError("inside")

    with pytest.raises(KeyError):
        func.vmap(func.vmap(fails))(lucid.ones(2, 2))
    assert lucid._C._vmap_active() == []
    assert lucid.rand(2).shape == (2,)


def test_randomness(device: str) -> None:
    x = lucid.zeros(5, 3, device=device)
    for draw in (
        lambda x: lucid.rand(3, device=device),
        lambda x: x + lucid.randn_like(x),
        lambda x: lucid.nn.functional.dropout(x + 1, 0.5),
        lambda x: x.clone().uniform_(),
        lambda x: lucid.randperm(30, device=device),
    ):
        with pytest.raises(RuntimeError, match="randomness"):
            func.vmap(draw)(x)
        same = func.vmap(draw, randomness="same")(x)
        different = func.vmap(draw, randomness="different")(x)
        assert same.shape == different.shape
        assert bool((same == same[0]).all())
        assert not bool((different == different[0]).all())
        nested = func.vmap(func.vmap(draw, randomness="same"), randomness="different")(x.expand(4, 5, 3))
        assert bool((nested == nested[:, :1]).all()) and not bool((nested == nested[:1]).all())
    chunked = func.vmap(lambda x: lucid.rand(3, device=device), randomness="same", chunk_size=2)(x)
    assert bool((chunked == chunked[0]).all())
    with pytest.raises(RuntimeError, match="randomness"):
        func.jacfwd(lambda x: x * lucid.rand(3, device=device))(x[0])
    jac = func.jacfwd(lambda x: x * lucid.rand(3, device=device), randomness="same")(x[0])
    assert jac.shape == (3, 3)
    with pytest.raises(RuntimeError, match="vmap: inplace"):
        func.vmap(lambda y: x[0].uniform_(), randomness="different")(x)


def test_writes_reach_what_was_mapped(device: str) -> None:
    x, log = lucid.zeros(3, 2, device=device), lucid.zeros(2, 3, device=device)

    def f(x: Any, row: Any) -> Any:
        x.add_(row.sum())
        row[1] = x[0] + 1
        return x

    func.vmap(f, in_dims=(0, 1))(x, log)
    assert x.tolist() == [[0.0, 0.0]] * 3
    assert log.tolist() == [[0.0] * 3, [1.0] * 3]


def test_data_dependence_is_refused(device: str) -> None:
    x = lucid.ones(2, 3, device=device)
    for use in (
        lambda x: x.sum().item(),
        lambda x: float(x[0]),
        lambda x: int(x[0]),
        lambda x: bool(x[0]),
        lambda x: x.tolist(),
        lambda x: x.nonzero(),
        lambda x: lucid.equal(x, x),
        lambda x: lucid.allclose(x, x),
        lambda x: x[x > 0],
        lambda x: x.numpy(force=True),
    ):
        with pytest.raises(RuntimeError, match="vmap"):
            func.vmap(use)(x)
    with pytest.raises(RuntimeError, match="vmap"):
        func.vmap(lambda x: x.requires_grad_().sum().backward())(x)


def test_autograd_grad_inside(device: str) -> None:
    """The tape is the same one: `autograd.grad` works inside of `vmap`, and gives each sample its own."""
    x = lucid.arange(6.0, device=device).reshape(3, 2)

    def f(x: Any) -> Any:
        y = x.detach()
        y.requires_grad = True
        (g,) = lucid.autograd.grad((y**3).sum(), y)
        return g

    assert func.vmap(f)(x).tolist() == (3 * x**2).tolist()


def test_batched_weights_of_a_gradient(device: str) -> None:
    x = lucid.arange(3.0, device=device).requires_grad_()
    y = x**2
    rows = func.vmap(lambda v: lucid.autograd.grad(y, x, v, retain_graph=True)[0])(lucid.eye(3, device=device))
    assert rows.tolist() == [[0.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 4.0]]


def test_hooks_see_the_gradient_of_a_sample(device: str) -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        def double(g: Any) -> Any:
            seen.append(g.shape)
            return g * 2

        y = x * 3
        y.register_hook(double).remove()
        y.register_hook(double)
        total = y.square().sum()
        (g,) = lucid.autograd.grad(total, x)
        return g

    def leaf(x: Any) -> Any:
        x = x.detach()
        x.requires_grad = True
        return x

    x = lucid.arange(6.0, device=device).reshape(3, 2)
    assert func.vmap(lambda x: f(leaf(x)))(x).tolist() == (36 * x).tolist()
    assert seen == [(2,)]


def test_one_product_for_all_samples() -> None:
    """A batch against shared weights is one matrix product, not one per sample."""
    x, w = lucid.randn(64, 8, device="gpu"), lucid.randn(4, 8, device="gpu")
    for f in (lambda x: w @ x, lambda x: x @ w.T, lambda x: lucid.nn.functional.linear(x, w)):
        y = func.vmap(f)(x)
        assert lucid._C.primitives(y).get("Matmul") == 1
        assert lucid.allclose(y, x @ w.T, **within("near zero"))
