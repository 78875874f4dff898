"""Gradients from Python: backward, grad, modes, hooks, the errors of wrong use."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import lucid
import pytest
from lucid import autograd, errors

DEVICES = ("cpu", "gpu")


def leaf(device: str, *values: float) -> lucid.Tensor:
    return lucid.tensor([float(v) for v in values], device=device, requires_grad=True)


@pytest.mark.parametrize("device", DEVICES)
def test_backward_adds_to_leaves(device: str) -> None:
    x = leaf(device, 1, 2)
    y = x * x
    y.backward(lucid.tensor([1.0, 10.0], device=device), retain_graph=True)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [4, 44]
    x.grad = None
    (x * 3).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [3, 3]
    x.grad.zero_()
    assert x.grad.tolist() == [0, 0]
    del x.grad
    assert x.grad is None


@pytest.mark.parametrize("device", DEVICES)
def test_backward_with_inputs(device: str) -> None:
    x, w = leaf(device, 1, 2), leaf(device, 3, 4)
    (x * w).sum().backward(inputs=[x])
    assert x.grad is not None and x.grad.tolist() == [3, 4] and w.grad is None
    with pytest.raises(RuntimeError, match="inputs"):
        (x * w).sum().backward(inputs=[])


@pytest.mark.parametrize("device", DEVICES)
def test_grad_gives_gradients_and_leaves_leaves_alone(device: str) -> None:
    x, unused = leaf(device, 2), leaf(device, 1)
    (g,) = autograd.grad((x**3).sum(), x, create_graph=True)
    (gg,) = autograd.grad(g.sum(), x)
    assert (g.tolist(), gg.tolist(), x.grad) == ([12], [12], None)
    with pytest.raises(RuntimeError, match="allow_unused"):
        autograd.grad((x * 2).sum(), [x, unused])
    assert autograd.grad((x * 2).sum(), [x, unused], allow_unused=True)[1] is None
    assert autograd.grad((x * 2).sum(), [x, unused], materialize_grads=True)[1].tolist() == [0]
    assert autograd.grad([x * 2, x * 3], x, [lucid.ones(1, device=device), None])[0].tolist() == [5]


@pytest.mark.parametrize("device", DEVICES)
def test_wrong_use_is_refused(device: str) -> None:
    x = leaf(device, 1, 2)
    plain = lucid.ones(2, device=device)
    y = (x * x).sum()
    y.backward()
    for wrong, words in [
        (lambda: y.backward(), "second time"),
        (lambda: plain.sum().backward(), "does not require grad"),
        (lambda: (x * 2).backward(), "scalar"),
        (lambda: (x * 2).backward(lucid.ones(3, device=device)), "shape"),
        (lambda: x.add_(1), "leaf"),
        (lambda: autograd.grad(x.sum(), plain), "require grad"),
        (lambda: lucid.ones(2, dtype=lucid.int64, device=device).requires_grad_(), "floating"),
        (lambda: setattr(x * 2, "requires_grad", False), "leaf"),
    ]:
        with pytest.raises(RuntimeError, match=words):
            wrong()
    with pytest.raises(TypeError, match="gradient"):
        (x * 2).backward(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Tensor or None"):
        x.grad = 3  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match="size"):
        x.grad = lucid.ones(3, device=device)


@pytest.mark.parametrize("device", DEVICES)
def test_changes_of_saved_tensors_are_noticed(device: str) -> None:
    x = leaf(device, 1, 2)
    y = x * 1
    z = y.exp()
    z.add_(1)
    with pytest.raises(errors.VersionMismatch, match="exp"):
        z.sum().backward()


@pytest.mark.parametrize("device", DEVICES)
def test_in_place_ops_take_part(device: str) -> None:
    x = leaf(device, 1, 2)
    y = x * 2
    y.mul_(3)
    y += 1
    y.relu_()
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [6, 6]


def test_modes_as_blocks_and_decorators() -> None:
    x = leaf("cpu", 1)
    with lucid.no_grad():
        assert not (x * 2).requires_grad
        with lucid.enable_grad():
            assert (x * 2).requires_grad
        with lucid.set_grad_enabled(True):
            assert lucid.is_grad_enabled()
        assert not lucid.is_grad_enabled()
    assert lucid.is_grad_enabled()
    with lucid.inference_mode(), lucid.inference_mode(False):
        assert lucid.is_grad_enabled()

    @lucid.no_grad()
    def plain(t: lucid.Tensor) -> lucid.Tensor:
        return t * 2

    @lucid.no_grad
    def bare(t: lucid.Tensor) -> lucid.Tensor:
        return t * 2

    @lucid.inference_mode()
    def inferred(t: lucid.Tensor) -> lucid.Tensor:
        return t * 2

    @lucid.set_grad_enabled(False)
    def switched(t: lucid.Tensor) -> lucid.Tensor:
        return t * 2

    assert lucid.is_grad_enabled()
    for function in (plain, bare, inferred, switched):
        assert not function(x).requires_grad
        assert lucid.is_grad_enabled()
    assert plain.__name__ == "plain"

    mode = lucid.set_grad_enabled(False)
    assert not lucid.is_grad_enabled()
    with mode:
        assert not lucid.is_grad_enabled()
    assert lucid.is_grad_enabled()
    lucid.set_grad_enabled(True)


def test_generators_keep_the_mode_to_themselves() -> None:
    x = leaf("cpu", 1)

    @lucid.no_grad()
    def steps() -> Iterator[bool]:
        for _ in range(3):
            sent = yield (x * 2).requires_grad
            assert sent is None or sent == "x"

    g: Any = steps()
    for _ in range(2):
        assert next(g) is False
        assert lucid.is_grad_enabled()
    assert g.send("x") is False
    g.close()


def test_an_exception_restores_the_mode() -> None:
    with pytest.raises(KeyError), lucid.no_grad():
        raise KeyError
    assert lucid.is_grad_enabled()


def test_the_mode_belongs_to_the_thread() -> None:
    seen = []
    with lucid.no_grad():
        t = threading.Thread(target=lambda: seen.append(lucid.is_grad_enabled()))
        t.start()
        t.join()
    assert seen == [True]


@pytest.mark.parametrize("device", DEVICES)
def test_hooks_see_and_replace_gradients(device: str) -> None:
    x = leaf(device, 1, 2)
    seen = []
    handle = x.register_hook(lambda g: seen.append(g.tolist()))
    (x * 3).sum().backward()
    handle.remove()
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    x.grad = None
    y.sum().backward()
    assert seen == [[3, 3]]
    assert x.grad is not None and x.grad.tolist() == [20, 20]

    def fails(g: lucid.Tensor) -> None:
        raise LookupError("from the hook")

    z = x * 2
    z.register_hook(fails)
    with pytest.raises(LookupError, match="from the hook"):
        z.sum().backward()
    w = x * 2
    w.register_hook(lambda g: 3)  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="hook"):
        w.sum().backward()
    with pytest.raises(RuntimeError):
        lucid.ones(1).register_hook(print)
    with pytest.raises(TypeError):
        x.register_hook(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", DEVICES)
def test_detach_and_leaves(device: str) -> None:
    x = leaf(device, 1)
    y = x * 2
    assert x.is_leaf and not y.is_leaf and y.detach().is_leaf
    assert not y.detach().requires_grad and y.detach()._shares_storage(y)
    assert y.detach_() is y and not y.requires_grad
    assert x.requires_grad_(False) is x and not x.requires_grad


def test_gradcheck_finds_wrong_gradients() -> None:
    x = lucid.randn(3, dtype=lucid.float64, requires_grad=True)
    assert autograd.gradcheck(lambda t: t.sin() * t, x)
    assert autograd.gradgradcheck(lambda t: t.sin() * t, x)
    captured = lucid.randn(3, dtype=lucid.float64)
    # What detach hides from the tape the differences still see.
    with pytest.raises(RuntimeError, match="mismatch"):
        autograd.gradcheck(lambda t: t * t.detach(), x)
    assert not autograd.gradcheck(lambda t: t * t.detach(), x, raise_exception=False)
    assert autograd.gradcheck(lambda t: (t * captured, t.sum()), x)
    assert autograd.gradcheck(lambda a, b: a @ b, (x, x.detach().clone().requires_grad_()))
    with pytest.raises(ValueError):
        autograd.gradcheck(lambda t: t * 2, captured)
    with pytest.warns(UserWarning, match="double precision"), pytest.raises(RuntimeError, match="mismatch"):
        autograd.gradcheck(lambda t: t * 2, lucid.ones(1, requires_grad=True))
    with pytest.raises(RuntimeError, match="stride 0"):
        autograd.gradcheck(lambda t: t * 2, lucid.ones(1, dtype=lucid.float64).expand(3).requires_grad_())
    with pytest.raises(AttributeError, match="'int' object has no attribute 'requires_grad'"):
        autograd.gradcheck(lambda t: (t * 2, 3), x)


def test_threads_run_their_own_graphs() -> None:
    out: list[Any] = []

    def work(k: int) -> None:
        for device in DEVICES:
            x = leaf(device, 1, 2)
            for _ in range(20):
                (x * k).sum().backward()
            out.append((k, device, x.grad.tolist() if x.grad is not None else None))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(out) == sorted((k, d, [20 * k, 20 * k]) for k in range(8) for d in DEVICES)


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_taken_away_by_hooks_end_there(device: str) -> None:
    x = leaf(device, 1, 2)
    y = x.exp()
    assert y.grad_fn is not None and y.grad_fn(None) is None
    y.grad_fn.register_prehook(lambda grads: (None,))
    y.sum().backward()
    assert x.grad is None


def test_gradcheck_checks_tangents_and_batches() -> None:
    x = lucid.tensor([0.3, -1.2, 2.0], dtype=lucid.float64, requires_grad=True)
    check, twice = lucid.autograd.gradcheck, lucid.autograd.gradgradcheck
    ways = {"check_forward_ad": True, "check_batched_grad": True}

    def good(x: lucid.Tensor) -> tuple[lucid.Tensor, lucid.Tensor]:
        return x.sin() * x.prod(), lucid.ones(2, dtype=lucid.float64)

    assert check(good, x, fast_mode=True, **ways)
    assert check(good, x, check_forward_ad=True, check_backward_ad=False)
    assert twice(lambda x: good(x)[0], x, check_fwd_over_rev=True, check_rev_over_rev=False)

    class Wrong(lucid.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: lucid.Tensor) -> lucid.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: lucid.Tensor) -> lucid.Tensor:
            return g * 2

        @staticmethod
        def jvp(ctx: Any, v: lucid.Tensor) -> lucid.Tensor:
            return v * 3

    assert check(Wrong.apply, x)
    with pytest.raises(RuntimeError, match="in forward mode"):
        check(Wrong.apply, x, check_forward_ad=True)
    assert not check(Wrong.apply, x, check_forward_ad=True, raise_exception=False)
    with pytest.raises(AssertionError, match="at least one"):
        check(good, x, check_backward_ad=False)


@pytest.mark.parametrize("device", DEVICES)
def test_half_a_mebibyte_of_stack_is_enough(device: str) -> None:
    """As much as macOS gives a thread that asks for nothing, where Python's own asks for sixteen."""
    seen: list[Any] = []

    def work() -> None:
        lucid.manual_seed(0)
        layer = lucid.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        model = lucid.nn.Sequential(layer, lucid.nn.Flatten(), lucid.nn.Linear(24, 3)).to(device)
        optimizer = lucid.optim.Adam(model.parameters())
        step = lucid.compile(lambda x, y: lucid.nn.functional.cross_entropy(model(x), y))
        for _ in range(2):
            optimizer.zero_grad()
            loss = step(lucid.ones(2, 3, 8, device=device), lucid.tensor([0, 2], device=device))
            loss.backward()
            optimizer.step()
        x = y = leaf(device, 1, 2)
        for _ in range(20_000):
            y = y + 1
        y.sum().backward()
        assert x.grad is not None
        seen.extend([float(loss.detach()), x.grad.tolist(), lucid.linalg.svdvals(lucid.eye(16))[0].item()])

    before = threading.stack_size(512 << 10)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert seen and seen[1:] == [[1, 1], 1]
