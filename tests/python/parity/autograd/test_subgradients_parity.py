"""Kinks, saturation and NaN: values and subgradients of functions there, against PyTorch.

What random numbers never are: 0 itself, probabilities of 0 and 1, equal elements, infinities.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import lucid
import numpy as np
import pytest
import torch

from tests.python.tolerances import near, within

DEVICES = ("cpu", "gpu")
INF, NAN = float("inf"), float("nan")
LINE = [0.0, -0.0, 1.0, -1.0, 30.0, -30.0]
ENDS = [*LINE, INF, -INF, NAN]


def loss(name: str, target: float, **how: Any) -> Callable[[Any, Any], Any]:
    return lambda m, x: getattr(m.nn.functional, name)(x, m.full_like(x, target), reduction="none", **how)


#: Functions of a tensor, and numbers to give it.
KINKS: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "logsigmoid": (lambda m, x: m.nn.functional.logsigmoid(x), ENDS),
    "logits of label 0": (loss("binary_cross_entropy_with_logits", 0.0), [*LINE, INF]),
    "logits of label 1": (loss("binary_cross_entropy_with_logits", 1.0), [*LINE, -INF]),
    "logits of a share": (loss("binary_cross_entropy_with_logits", 0.3, pos_weight=None), LINE),
    "probabilities of label 0": (loss("binary_cross_entropy", 0.0), [0.0, 1.0, 0.5, 1e-20]),
    "probabilities of label 1": (loss("binary_cross_entropy", 1.0), [0.0, 1.0, 0.5, 1e-20]),
    "probabilities of a share": (loss("binary_cross_entropy", 0.4), [0.0, 1.0, 0.5]),
    "soft margin": (loss("soft_margin_loss", -1.0), LINE),
    "several soft margins": (loss("multilabel_soft_margin_loss", 0.0), [LINE, LINE]),
    "smooth l1": (loss("smooth_l1_loss", 0.0), ENDS),
    "huber": (loss("huber_loss", 0.0, delta=2.0), ENDS),
    "kl_div": (loss("kl_div", 0.0), LINE),
    "kl_div of less than nothing": (loss("kl_div", -0.5), LINE),
    "std of one number": (lambda m, x: x.std(), [2.0, 2.0, 2.0]),
    "std of rows": (lambda m, x: x.std(0), [[0.0, 1.0, 4.0], [0.0, 2.0, 4.0]]),
    "std without correction": (lambda m, x: x.std(correction=0), [3.0]),
    "std_mean": (lambda m, x: m.std_mean(x, 1, keepdim=True)[0], [[0.0, 0.0], [1.0, 3.0]]),
    "atan2 at the origin": (lambda m, x: m.atan2(x, x.flip(0)), [0.0, 1.0, 0.0, -0.0]),
    "logit": (lambda m, x: m.logit(x), [0.0, 1.0, 0.5, 0.25, NAN]),
    "relu6": (lambda m, x: m.nn.functional.relu6(x), [*LINE, 6.0, INF, -INF]),
    "relu6 of NaN": (lambda m, x: m.nn.functional.relu6(x.detach()), [NAN, 1.0]),
    "hardsigmoid of NaN": (lambda m, x: m.nn.functional.hardsigmoid(x.detach()), [NAN, 1.0]),
    "an average beside NaN": (lambda m, x: m.nn.functional.adaptive_avg_pool1d(x, 3), [[1.0, 2.0, 3.0, NAN, INF]]),
    "averages beside NaN": (
        lambda m, x: m.nn.functional.adaptive_avg_pool2d(x, (3, 5)),
        [[[1.0, 2.0, 3.0], [4.0, NAN, 5.0], [7.0, 8.0, -INF], [1.0, 0.0, 2.0]]],
    ),
    "quotients that are cut": (lambda m, x: m.div(x, x.flip(0) * 0, rounding_mode="trunc"), [1.0, 2.0, -3.0]),
    "quotients that are cut, of a number": (lambda m, x: m.div(x, 0.0, rounding_mode="trunc"), [1.0, 2.0]),
    "renorm of a column of zeros": (lambda m, x: m.renorm(x.half(), 1, 1, 2.0).float(), [[0.0, 1.0], [0.0, 0.5]]),
    "softplus": (lambda m, x: m.nn.functional.softplus(x), ENDS),
    "logaddexp": (lambda m, x: m.logaddexp(x, m.zeros_like(x)), ENDS),
    "mish": (lambda m, x: m.nn.functional.mish(x), LINE),
    "silu": (lambda m, x: m.nn.functional.silu(x), LINE),
    "gelu": (lambda m, x: m.nn.functional.gelu(x), LINE),
    "normalize": (lambda m, x: m.nn.functional.normalize(x, dim=0), [0.0, 0.0]),
    "cosine_similarity": (lambda m, x: m.nn.functional.cosine_similarity(x, 2 * x, dim=0), [0.0, 0.0]),
    "cdist": (lambda m, x: m.cdist(x, x), [[0.0, 0.0], [1.0, 1.0]]),
    "norm": (lambda m, x: x.norm(), [0.0, 0.0]),
    "cumprod": (lambda m, x: x.cumprod(0), [0.0, 2.0, 0.0, 3.0]),
    "logsumexp": (lambda m, x: x.logsumexp(0), [-INF, 1.0]),
    "log_softmax": (lambda m, x: x.log_softmax(0), [-INF, 1.0]),
}


def outcome(m: Any, name: str, device: str, dtype: str, twice: bool) -> list[np.ndarray]:
    function, numbers = KINKS[name]
    x = m.tensor(numbers, dtype=getattr(m, dtype), device=device).requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = [function(m, x)]
    if made[0].requires_grad:
        weights = m.arange(1.0, made[0].numel() + 1, dtype=x.dtype, device=device).reshape(made[0].shape)
        made += m.autograd.grad(made[0], x, weights, create_graph=twice)
    if twice and made[-1].requires_grad:
        made += m.autograd.grad(made[-1].sum(), x)
    return [np.asarray(t.detach().tolist()) for t in made]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", KINKS)
def test_kinks(name: str, dtype: str, device: str) -> None:
    if device == "gpu" and dtype == "float64":
        dtype = "bfloat16" if name.startswith("prob") else "float32"
    wanted, given = outcome(torch, name, "cpu", dtype, False), outcome(lucid, name, device, dtype, False)
    assert len(wanted) == len(given)
    tolerance = {"float32": "near zero", "float64": "float64 rounding", "bfloat16": "bfloat16 gradients"}[dtype]
    for a, b in zip(wanted, given, strict=True):
        np.testing.assert_allclose(b, a, **within(tolerance))


#: Those whose second derivative PyTorch has there, too.
TWICE = ["logsigmoid", "logits of label 0", "logits of a share", "soft margin", "softplus"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", TWICE)
def test_second_derivatives(name: str, device: str) -> None:
    wanted, given = outcome(torch, name, "cpu", "float32", True), outcome(lucid, name, device, "float32", True)
    finite = np.isfinite(np.asarray(KINKS[name][1]))
    np.testing.assert_allclose(given[-1][finite], wanted[-1][finite], **within("program"))


#: What a number of a higher category than a tensor says of the dtype.
MIXED = {
    "addcmul": lambda m, d: m.ones(1, dtype=m.bfloat16, device=d).addcmul(
        m.tensor([[2, 3]], device=d), m.tensor([2, 3], device=d), value=3.14
    ),
    "add, alpha of truths": lambda m, d: m.add(
        m.tensor([2, 3], dtype=m.int16, device=d), m.tensor([True, False], device=d), alpha=-1
    ),
    "add, alpha of integers": lambda m, d: m.add(
        m.ones(2, dtype=m.float16, device=d), m.tensor([1, 2], device=d), alpha=2.5
    ),
    "sub, alpha of a number": lambda m, d: m.sub(
        m.tensor([2, 3], dtype=m.int16, device=d), m.tensor(3, device=d), alpha=2
    ),
    "select_scatter": lambda m, d: m.select_scatter(m.zeros(2, 3, device=d), m.tensor([1, 2, 3], device=d), 0, 1),
    "slice_scatter": lambda m, d: m.slice_scatter(m.zeros(3, device=d), m.tensor([True, False], device=d), 0, 1),
    "diagonal_scatter": lambda m, d: m.diagonal_scatter(
        m.zeros(2, 2, dtype=m.int32, device=d), m.tensor([1.5, 2.5], device=d)
    ),
    "as_strided_scatter": lambda m, d: m.as_strided_scatter(
        m.zeros(2, 2, device=d), m.tensor([1, 2], device=d), (2,), (2,)
    ),
    "matrix_power": lambda m, d: m.tensor([[1, 2], [3, 4]], device=d).matrix_power(3),
    "matrix_power of bytes": lambda m, d: m.linalg.matrix_power(m.tensor([[1, 2], [3, 4]], dtype=m.uint8, device=d), 4),
    "margin_ranking_loss": lambda m, d: m.nn.functional.margin_ranking_loss(
        m.tensor([2, 3], device=d), m.tensor([1, 3], device=d), m.tensor([1, -1], device=d), margin=1
    ),
    "trapezoid of nothing": lambda m, d: m.trapezoid(m.zeros(0, dtype=m.int16, device=d)),
    "histc of one number": lambda m, d: m.histc(m.tensor(-1.815704, device=d), 10),
    "cholesky, of the upper half": lambda m, d: m.linalg.cholesky(
        m.tensor([[4.0, 1.0], [9.0, 5.0]], device=d), upper=True
    ),
    "cholesky_ex that fails": lambda m, d: m.linalg.cholesky_ex(
        m.tensor([[-4.0, 9.0], [1.0, 5.0]], device=d), upper=True
    ),
    "adaptive_max_pool2d of no batch": lambda m, d: m.nn.functional.adaptive_max_pool2d(
        m.zeros(0, 4, 4, 3, device=d), (3, 3)
    ),
    "max_pool2d, one number for all": lambda m, d: m.nn.functional.max_pool2d(
        m.arange(36.0, device=d).reshape(1, 6, 6), (3,), None, 1, (1, 2), True, return_indices=True
    ),
    "one row's class": lambda m, d: m.nn.functional.cross_entropy(
        m.tensor([0.1, 0.2, 0.7], device=d), m.tensor([1], device=d), reduction="none"
    ),
    "one row's class, weighed": lambda m, d: m.nn.functional.nll_loss(
        m.tensor([0.1, 0.2, 0.7], device=d), m.tensor([1], device=d), weight=m.tensor([1.0, 2.0, 3.0], device=d)
    ),
    "kl_div of a number": lambda m, d: m.nn.functional.kl_div(
        m.tensor(1.0, device=d), m.ones(2, device=d), reduction="batchmean"
    ),
    "copy_": lambda m, d: m.zeros(2, device=d).copy_(other=m.ones(2, device=d)),
    "quantile": lambda m, d: m.quantile(
        m.arange(5.0, device=d), m.tensor([0.3], device=d, requires_grad=True), interpolation="lower"
    ),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", MIXED)
def test_of_other_kinds(name: str, device: str) -> None:
    def seen(made: Any) -> list[Any]:
        made = made if isinstance(made, tuple) else (made,)
        return [(str(t.dtype).split(".")[1], tuple(t.shape), t.requires_grad, t.detach().tolist()) for t in made]

    wanted, given = seen(MIXED[name](torch, "cpu")), seen(MIXED[name](lucid, device))
    for a, b in zip(wanted, given, strict=True):
        assert a[:3] == b[:3]
        np.testing.assert_allclose(np.asarray(b[3], float), np.asarray(a[3], float), **within("poles"))


#: Writes that change nothing, where a write is refused.
EMPTY_WRITES = {
    "scatter_": lambda m, x, at: x.scatter_(0, at, 1.0),
    "scatter_add_": lambda m, x, at: x.scatter_add_(0, at, x.detach()[:0]),
    "scatter_reduce_": lambda m, x, at: x.scatter_reduce_(0, at, x.detach()[:0], "sum"),
    "index_add_": lambda m, x, at: x.index_add_(0, at, x.detach()[:0]),
    "index_fill_": lambda m, x, at: x.index_fill_(0, at, 1.0),
    "put_": lambda m, x, at: x.put_(at, x.detach()[:0]),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", EMPTY_WRITES)
def test_leaves_are_not_written_to_with_nothing(name: str, device: str) -> None:
    for m, d in ((torch, "cpu"), (lucid, device)):
        x = m.ones(3, device=d, requires_grad=True)
        with pytest.raises(RuntimeError):
            EMPTY_WRITES[name](m, x, m.tensor([], dtype=m.int64, device=d))
        y = x * 1
        assert EMPTY_WRITES[name](m, y, m.tensor([], dtype=m.int64, device=d)).tolist() == [1, 1, 1]


@pytest.mark.parametrize(("p", "t"), [(1.5, 0.5), (-0.1, 0.5), (0.5, 1.1), (0.5, -0.5), (NAN, 0.5), (0.5, NAN)])
def test_what_is_no_probability(p: float, t: float) -> None:
    for m in (torch, lucid):
        with pytest.raises(RuntimeError, match="should be between 0 and 1"):
            m.nn.functional.binary_cross_entropy(m.tensor([0.5, p]), m.tensor([0.5, t]))


def test_one_row_has_one_class() -> None:
    for m in (torch, lucid):
        for loss in (m.nn.functional.nll_loss, m.nn.functional.cross_entropy):
            with pytest.raises(ValueError, match="1D target must have size 1"):
                loss(m.ones(3), m.tensor([1, 2]))


def _pool(name: str, **options: Any) -> Callable[[Any, Any], Any]:
    return lambda L, x: getattr(L.nn.functional, name)(x[None], 2, **options)


#: Piecewise linear functions: their gradient depends on the input at kinks alone.
BENT: dict[str, Callable[[Any, Any], Any]] = {
    "leaky_relu": lambda L, x: L.nn.functional.leaky_relu(x),
    "rrelu": lambda L, x: L.nn.functional.rrelu(x),
    "prelu": lambda L, x: L.nn.functional.prelu(x, L.tensor([0.25]).to(x.device)),
    "hardtanh": lambda L, x: L.nn.functional.hardtanh(x),
    "relu": lambda L, x: L.relu(x),
    "relu6": lambda L, x: L.nn.functional.relu6(x),
    "hardshrink": lambda L, x: L.nn.functional.hardshrink(x),
    "softshrink": lambda L, x: L.nn.functional.softshrink(x),
    "threshold": lambda L, x: L.nn.functional.threshold(x, 0.1, 20.0),
    "max_pool1d": _pool("max_pool1d"),
    "max_pool2d": _pool("max_pool2d"),
    "max_pool2d with indices": lambda L, x: L.nn.functional.max_pool2d(x[None], 2, return_indices=True)[0],
    "avg_pool2d": _pool("avg_pool2d"),
    "adaptive_avg_pool2d": _pool("adaptive_avg_pool2d"),
    "adaptive_max_pool2d": _pool("adaptive_max_pool2d"),
    "linear": lambda L, x: x * 3,
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("name", BENT)
def test_the_gradient_of_a_bent_function_has_zeros_as_its_own(name: str, squared: bool, device: str) -> None:
    def run(L: Any, device: str) -> Any:
        x = L.arange(-8.0, 8.0, device=device).reshape(4, 4).div(4).requires_grad_()
        y = BENT[name](L, x)
        (g,) = L.autograd.grad((y * y if squared else y).sum(), x, create_graph=True)
        seen = [g.requires_grad, g.tolist()]
        if g.requires_grad:
            seen += [L.autograd.grad((g * g).sum(), x, allow_unused=True)[0].tolist()]
        return seen

    assert run(lucid, device) == run(torch, "cpu")


@pytest.mark.parametrize("device", DEVICES)
def test_a_gradient_penalty_over_leaky_relu(device: str) -> None:
    def run(L: Any, device: str) -> Any:
        def make(*shape: int) -> Any:
            return (L.arange(float(math.prod(shape)), device=device).reshape(shape) / 10 - 0.3).requires_grad_()

        w, b, v, x = make(3, 4), make(3), make(1, 3), make(2, 4)
        score = L.nn.functional.linear(L.nn.functional.leaky_relu(L.nn.functional.linear(x, w, b), 0.2), v)
        (g,) = L.autograd.grad(score.sum(), x, create_graph=True)
        ((g.norm(dim=1) - 1) ** 2).mean().backward()
        return [t.grad.flatten().tolist() for t in (w, b, v)]

    for ours, theirs in zip(run(lucid, device), run(torch, "cpu"), strict=True):
        assert ours == pytest.approx(theirs, **near("few ops"))


def test_the_step_that_ties_a_gradient_has_pytorchs_name() -> None:
    def run(L: Any) -> Any:
        x = L.tensor([[-1.0, 2.0], [0.5, -3.0]], requires_grad=True)
        f = L.nn.functional
        made = [f.hardtanh(x), f.hardtanh(x, 0.0, 0.5)]
        return [L.autograd.grad(y.sum(), x, create_graph=True)[0].grad_fn.name() for y in made]

    assert run(lucid) == run(torch)
