"""Ops that are not differentiable: which error is raised, and when; and comparisons in place, whose gradients are 0.
Against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import within

DEVICES = ("cpu", "gpu")
Call = Callable[[Any, Any, Any], Any]


def on(m: Any, device: str) -> dict[str, str]:
    return {} if m is torch else {"device": device}


def leaf(m: Any, numbers: Any, grad: bool, device: str) -> Any:
    return m.tensor(numbers, requires_grad=grad, dtype=m.float32, **on(m, device))


def into(t: Any, name: str, *args: Any) -> Any:
    getattr(t, name)(*args)
    return t


def divided(t: Any, by: Any) -> Any:
    t //= by
    return t


#: Results without a derivative, of two tensors.
REFUSING: dict[str, Call] = {
    "heaviside": lambda m, x, y: m.heaviside(x, y),
    "heaviside_": lambda m, x, y: into(x.clone(), "heaviside_", y),
    "floor_divide": lambda m, x, y: m.floor_divide(x, y),
    "operator": lambda m, x, y: x // y,
    "floor_divide_": lambda m, x, y: into(x.clone(), "floor_divide_", y),
    "in-place operator": lambda m, x, y: divided(x.clone(), y),
    "by a number": lambda m, x, y: (x + y) // 2,
    "of a number": lambda m, x, y: 2 // (x + y),
    "unique": lambda m, x, y: m.unique(x + y),
    "unsorted": lambda m, x, y: m.unique(x + y, sorted=False).sort()[0],
    "unique with places": lambda m, x, y: m.unique(x + y, return_inverse=True)[0],
    "unique with counts": lambda m, x, y: (x + y).unique(return_counts=True)[0],
    "unique slices": lambda m, x, y: m.unique((x + y).reshape(2, 2), dim=0),
    "runs": lambda m, x, y: m.unique_consecutive(x + y),
    "runs with places": lambda m, x, y: (x + y).unique_consecutive(return_inverse=True, return_counts=True)[0],
    "runs of slices": lambda m, x, y: m.unique_consecutive((x + y).reshape(2, 2), dim=1),
}


def refusal(m: Any, call: Call, grads: tuple[bool, bool], device: str) -> tuple[Any, ...]:
    x, y = leaf(m, [1.0, -2.0, 0.0, 7.5], grads[0], device), leaf(m, [3.0, 1.0, 2.0, 2.0], grads[1], device)
    out = call(m, x, y)
    with pytest.raises(RuntimeError) as raised:
        out.sum().backward()
    assert "is not implemented" in str(raised.value)
    assert x.grad is None and y.grad is None
    kind = NotImplementedError if isinstance(raised.value, NotImplementedError) else RuntimeError
    return out.tolist(), out.requires_grad, out.is_leaf, type(out.grad_fn).__name__, kind


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("grads", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("name", REFUSING)
def test_backward_is_refused_alike(name: str, grads: tuple[bool, bool], device: str) -> None:
    want, got = (refusal(m, REFUSING[name], grads, device) for m in (torch, lucid))
    assert got == want


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", REFUSING)
def test_nothing_is_recorded_without_need(name: str, device: str) -> None:
    for m in (torch, lucid):
        x, y = (leaf(m, [1.0, -2.0, 0.0, 7.5], grad, device) for grad in (True, False))
        with m.no_grad():
            assert not REFUSING[name](m, x, y).requires_grad
        assert not REFUSING[name](m, x.detach(), y).requires_grad


@pytest.mark.parametrize("device", DEVICES)
def test_indices_and_integers_carry_no_gradient(device: str) -> None:
    for m in (torch, lucid):
        x = leaf(m, [1.0, 1.0, 2.0], True, device)
        for found in (m.unique, m.unique_consecutive):
            values, *rest = found(x, return_inverse=True, return_counts=True)
            assert values.requires_grad and not any(t.requires_grad for t in rest)
        # Another path around what has no derivative is free.
        (x.sum() + m.unique(x).detach().sum()).backward()
        assert x.grad.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_rounded_quotients_have_gradient_0(mode: str, device: str) -> None:
    def run(m: Any) -> tuple[Any, ...]:
        x, y = leaf(m, [[1.0, -2.0, 0.0], [7.5, 3.0, -1.0]], True, device), leaf(m, [3.0, 0.0, 2.0], True, device)
        outs = [m.div(x, y, rounding_mode=mode), m.div(x, 2.5, rounding_mode=mode)]
        outs.append(into(x.clone(), "copy_", x).div_(y, rounding_mode=mode))
        grads = [m.autograd.grad(out.sum(), [x, y], allow_unused=True) for out in outs]
        names = [type(out.grad_fn).__name__ for out in outs[:2]]
        return [out.tolist() for out in outs], names, [[g if g is None else g.tolist() for g in pair] for pair in grads]

    np.testing.assert_equal(run(lucid), run(torch))


@pytest.mark.parametrize("device", DEVICES)
def test_a_batch_refuses_too(device: str) -> None:
    for m in (torch, lucid):
        x = leaf(m, [[1.0, -2.0], [3.0, 0.0]], True, device)
        half = m.tensor(0.5, **on(m, device))
        for f in (lambda t, m=m, half=half: m.heaviside(t, half), lambda t: t // 2):
            out = m.vmap(f)(x)
            assert out.requires_grad
            with pytest.raises(RuntimeError, match="is not implemented"):
                out.sum().backward()


@pytest.mark.parametrize("device", DEVICES)
def test_tangents_are_refused(device: str) -> None:
    for m in (torch, lucid):
        ad = m.autograd.forward_ad
        x = leaf(m, [1.0, -2.0], False, device)
        with ad.dual_level():
            dual = ad.make_dual(x, m.ones_like(x))
            pair = (lambda t, m=m: m.heaviside(t, t), lambda t, m=m: m.unique(t))
            for f in (*pair, lambda t: t.unique_consecutive(), lambda t: t // 2):
                with pytest.raises(NotImplementedError, match="forward AD"):
                    f(dual)
            floor = m.div(dual, 2, rounding_mode="floor")
            tangent = ad.unpack_dual(floor).tangent
            assert tangent is None or tangent.tolist() == [0.0, 0.0]


# ---- comparisons in place --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("grads", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("name", ["eq_", "ne_", "lt_", "le_", "gt_", "ge_"])
def test_comparisons_in_place_have_gradient_0(name: str, grads: tuple[bool, bool], device: str) -> None:
    def run(m: Any) -> tuple[Any, ...]:
        x, y = leaf(m, [[1.0, -2.0], [0.0, 2.0]], grads[0], device), leaf(m, [1.0, 2.0], grads[1], device)
        z = into(x.clone(), name, y)
        steps = [step and type(step).__name__ for step, _ in z.grad_fn.next_functions]
        (z * 3).sum().backward()
        part = x.clone()
        into(part[0], name, y)
        found = m.autograd.grad(part.sum(), [t for t in (x, y) if t.requires_grad])
        zeros = [t.grad if t.grad is None else t.grad.tolist() for t in (x, y)]
        return (
            z.tolist(),
            z._version,
            type(z.grad_fn).__name__,
            steps,
            zeros,
            part.tolist(),
            [g.tolist() for g in found],
        )

    assert run(lucid) == run(torch)


@pytest.mark.parametrize("device", DEVICES)
def test_comparisons_in_place_refuse_and_take_alike(device: str) -> None:
    def run(m: Any) -> list[Any]:
        x, y = leaf(m, [1.0, 2.0], True, device), leaf(m, [1.0, 1.0], True, device)
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            x.eq_(y)
        with m.no_grad():
            x.gt_(y)
        made = [x.tolist(), x.requires_grad]
        for other in (1, leaf(m, 2.0, True, device), leaf(m, [1.0, 1.0], False, device)):
            z = into(y.clone(), "le_", other)
            made += [z.tolist(), z.requires_grad, type(z.grad_fn).__name__]
        wide = m.tensor([1.0, 2.0], dtype=m.float16, **on(m, device))
        wide.ge_(y)
        wide.sum().backward()
        return [*made, wide.tolist(), wide.requires_grad, y.grad.tolist(), str(y.grad.dtype).split(".")[-1]]

    assert run(lucid) == run(torch)


# ---- the weights of losses -------------------------------------------------------------------------------------------

LABELS = [0, 2, 1, 1]
SHARES = np.random.default_rng(3).random((4, 3)).astype(np.float32) * 0.9 + 0.05


def labels(m: Any, device: str, *shape: int) -> Any:
    return m.tensor(LABELS, **on(m, device)).reshape(4, *shape)


#: Losses of (m, input, weight, device) whose weight takes no gradient.
WEIGHTED: dict[str, Callable[[Any, Any, Any, str], Any]] = {
    "binary_cross_entropy": lambda m, x, w, d: m.nn.functional.binary_cross_entropy(x, 1 - x.detach(), weight=w),
    "logits": lambda m, x, w, d: m.nn.functional.binary_cross_entropy_with_logits(x, 1 - x.detach(), weight=w),
    "positive": lambda m, x, w, d: m.nn.functional.binary_cross_entropy_with_logits(x, 1 - x.detach(), pos_weight=w),
    "nll_loss": lambda m, x, w, d: m.nn.functional.nll_loss(x, labels(m, d), weight=w),
    "nll_loss of pixels": lambda m, x, w, d: m.nn.functional.nll_loss(x[:, :, None], labels(m, d, 1), weight=w),
    "nll_loss of none": lambda m, x, w, d: m.nn.functional.nll_loss(x, labels(m, d), weight=w, reduction="none"),
    "cross_entropy": lambda m, x, w, d: m.nn.functional.cross_entropy(x, labels(m, d), weight=w),
    "smoothed": lambda m, x, w, d: m.nn.functional.cross_entropy(x, labels(m, d), weight=w, label_smoothing=0.1),
    "multi_margin_loss": lambda m, x, w, d: m.nn.functional.multi_margin_loss(x, labels(m, d), weight=w),
    "layer": lambda m, x, w, d: m.nn.CrossEntropyLoss(weight=w)(x, labels(m, d)),
}
#: Those whose weight takes one.
FOLLOWED: dict[str, Callable[[Any, Any, Any, str], Any]] = {
    "probabilities": lambda m, x, w, d: m.nn.functional.cross_entropy(x, 1 - x.detach(), weight=w),
    "multilabel_soft_margin_loss": lambda m, x, w, d: m.nn.functional.multilabel_soft_margin_loss(
        x, (x.detach() > 0.5).to(x.dtype), weight=w
    ),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", WEIGHTED)
def test_recorded_weights_are_refused(name: str, grad: bool, device: str) -> None:
    said = []
    for m in (torch, lucid):
        x, w = leaf(m, SHARES.tolist(), grad, device), leaf(m, [0.5, 1.0, 2.0], True, device)
        if name == "binary_cross_entropy":
            w = w.expand(4, 3)
        with pytest.raises(RuntimeError, match="is not differentiable with respect to argument") as raised:
            WEIGHTED[name](m, x, w, device)
        text = str(raised.value)
        said.append(text[text.index("The function") : text.index("requires_grad True")])
        with m.no_grad():
            plain = WEIGHTED[name](m, x, w, device)
        fixed = WEIGHTED[name](m, x, w.detach(), device)
        assert fixed.requires_grad == grad and plain.tolist() == fixed.tolist()
    assert said[0] == said[1]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", FOLLOWED)
def test_weights_of_other_losses_have_gradients(name: str, device: str) -> None:
    grads = []
    for m in (torch, lucid):
        x, w = leaf(m, SHARES.tolist(), True, device), leaf(m, [0.5, 1.0, 2.0], True, device)
        FOLLOWED[name](m, x, w, device).backward()
        grads.append((x.grad.tolist(), w.grad.tolist()))
    for mine, theirs in zip(grads[1], grads[0], strict=True):
        np.testing.assert_allclose(mine, theirs, **within("few ops"))
