"""Values and gradients at ties, poles, NaN and infinities of distances, reductions at indices, bounds, ζ, renorm and
CTC, beside PyTorch on both devices."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn.functional
import numpy as np
import pytest
import torch
import torch.nn.functional

from tests.python.tolerances import TABLE, within

INF, NAN = float("inf"), float("nan")
DEVICES = pytest.mark.parametrize("device", ["cpu", "gpu"])


def gradients(m: Any, k: Any, run: Callable[..., Any], *values: Any) -> list[Any]:
    """The result and the gradients of its elements, weighted unlike each other."""
    given = [m.tensor(v, **k).requires_grad_() for v in values]
    made = run(m, *given)
    (made * (m.arange(1, made.numel() + 1, **k).reshape(made.shape) * 0.5)).sum().backward()
    return [np.array(t.tolist(), dtype=float) for t in (made.detach(), *(x.grad for x in given))]


def same(device: str, run: Callable[..., Any], *values: Any, rtol: float = TABLE["near zero"].rtol) -> None:
    theirs, ours = gradients(torch, {}, run, *values), gradients(lucid, {"device": device}, run, *values)
    for o, t in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(o, t, rtol=rtol, atol=TABLE["near zero"].atol)


# ---- distances -------------------------------------------------------------------------------------------------------

TIES = [[0.0, 0.0], [1.0, 1.0], [1.0, -1.0], [2.0, 2.0], [0.0, 1.0], [0.0, 0.0]]
OTHERS = [[0.0, 0.0], [1.0, 1.0], [-1.0, 1.0], [3.0, 3.0]]


@DEVICES
@pytest.mark.parametrize("p", [INF, 3, 2, 1.5, 1, 0.5, 0])
def test_distances_of_rows_with_ties(p: float, device: str) -> None:
    same(device, lambda m, x: m.nn.functional.pdist(x, p), TIES)
    same(device, lambda m, x: m.nn.functional.pdist(x, p), [[0.0, 0.0, 0.0], [1.0, -1.0, 1.0], [1.0, 1.0, 0.0]])
    same(device, lambda m, x, y: m.cdist(x, y, p), TIES, OTHERS)


def test_distances_of_ties_bend_twice() -> None:
    x = lucid.tensor(TIES, dtype=lucid.float64).requires_grad_()
    (g,) = lucid.autograd.grad((lucid.cdist(x, x * 2, INF) ** 2).sum(), x, create_graph=True)
    (h,) = lucid.autograd.grad(g.sum(), x)
    assert h.isfinite().all() and (h != 0).any()


# ---- reductions at indices -------------------------------------------------------------------------------------------

SOURCES = [
    [1.0, 1.0, 2.0, 2.0, 2.0, 0.0],
    [3.0, 3.0, 1.0, 1.0, NAN, NAN],
    [0.0, 0.0, 0.0, 1.0, 5.0, 5.0],
    [INF, INF, -INF, -INF, 0.0, 0.0],
]
FORMER = [[1.0, 2.0, 0.0], [0.0, 0.0, 0.0], [NAN, 1.0, 5.0], [3.0, 1.0, 2.0]]


@DEVICES
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["amin", "amax", "prod", "mean"])
def test_ties_and_nan_at_indices(reduce: str, include_self: bool, device: str) -> None:
    for name, source, former in itertools.product(["scatter_reduce", "index_reduce"], SOURCES, FORMER):

        def run(m: Any, x: Any, s: Any, name: str = name) -> Any:
            at = m.tensor([0, 0, 1, 1, 2, 2], device=x.device)
            return getattr(x, name)(0, at, s, reduce, include_self=include_self)

        if (reduce == "prod" and NAN in former) or (not include_self and INF in source):
            # PyTorch divides NaN by itself here, and counts infinities that take no part.
            continue
        same(device, run, former, source)


@DEVICES
@pytest.mark.parametrize("reduce", ["amin", "amax"])
def test_former_elements_that_no_index_meets(reduce: str, device: str) -> None:
    def run(m: Any, x: Any, s: Any) -> Any:
        return x.scatter_reduce(0, m.tensor([0, 2, 2], device=x.device), s, reduce, include_self=False)

    same(device, run, [1.0, 4.0, 3.0, 2.0], [1.0, 3.0, 3.0])


# ---- bounds ----------------------------------------------------------------------------------------------------------


@DEVICES
@pytest.mark.parametrize("low, high", [(NAN, 1.0), (-1.0, NAN), (NAN, NAN), (0.0, 0.0), (-INF, INF), (1, 1)])
def test_bounds_of_hardtanh(low: float, high: float, device: str) -> None:
    numbers = [-INF, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, INF, NAN]
    same(device, lambda m, x: m.nn.functional.hardtanh(x, low, high), numbers)
    same(device, lambda m, x: m.nn.functional.hardtanh(x * 1, low, high, inplace=True), numbers)
    if low != high:
        same(device, lambda m, x: m.nn.Hardtanh(low, high)(x), numbers)
    same(device, lambda m, x: m.clamp(x, low, high), numbers)


# ---- the Hurwitz zeta function ---------------------------------------------------------------------------------------

ORDERS = [NAN, 0.0, 1.0, 0.5, -1.0, 2.0, 3.0, 2.5, INF, -INF, 4.0, 50.0]
PLACES = [NAN, 0.0, -0.0, -1.0, -2.0, -1.5, -0.5, -3.7, INF, -INF, 1e-30, 1.0, 2.5, -1e10]


@DEVICES
def test_zeta(device: str) -> None:
    def table(m: Any, k: Any, dtype: str) -> np.ndarray:
        s, q = (m.tensor(v, dtype=getattr(m, dtype), **k) for v in (ORDERS, PLACES))
        return np.array(m.special.zeta(s.unsqueeze(1), q).tolist())

    for dtype in ["float32", "float64"] if device == "cpu" else ["float32"]:
        ours, theirs = table(lucid, {"device": device}, dtype), table(torch, {}, dtype)
        np.testing.assert_allclose(
            ours, theirs, rtol=TABLE["few ops" if dtype == "float32" else "float64 rounding"].rtol
        )


@DEVICES
@pytest.mark.parametrize("order", [0, 1, 2, 3, 4])
def test_polygamma_far_out(order: int, device: str) -> None:
    def run(m: Any, k: Any) -> list[float]:
        found: list[float] = m.polygamma(order, m.tensor([INF, 1e30, 3.0, -0.5, 0.0, NAN], **k)).tolist()
        return found

    np.testing.assert_allclose(run(lucid, {"device": device}), run(torch, {}), **within("near zero"))


# ---- renorm ----------------------------------------------------------------------------------------------------------

ROWS = [
    [[1.0, 2.0], [NAN, 1.0], [INF, 0.0], [0.0, 0.0], [3.0, 4.0]],
    [[NAN, NAN], [1.0, 1.0]],
    [[-INF, INF], [3.0, 4.0]],
]


@DEVICES
@pytest.mark.parametrize("p", [1, 2, 3, 0.5, INF])
@pytest.mark.parametrize("bound", [1.0, 0.0, 5.0, INF])
def test_renorm_of_rows_that_have_no_norm(bound: float, p: float, device: str) -> None:
    for rows in ROWS:
        # What an infinite row has as gradient, whose values are NaN, differs by the order of the steps.
        finite = [row for row in rows if p in (1, 2, INF) or INF not in row]
        same(device, lambda m, x: m.renorm(x, p, 0, bound), finite)
    given = {"device": device}
    ours, theirs = (m.tensor(ROWS[0], **k).renorm_(p, 0, bound) for m, k in ((lucid, given), (torch, {})))
    np.testing.assert_allclose(np.array(ours.tolist()), np.array(theirs.tolist()), rtol=TABLE["few ops"].rtol)


# ---- CTC -------------------------------------------------------------------------------------------------------------


@DEVICES
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("zero_infinity", [False, True])
def test_the_gradient_of_logarithms_of_probabilities(zero_infinity: bool, reduction: str, device: str) -> None:
    rng = np.random.default_rng(5)
    lengths = [((5, 5), (2, 2)), ((5, 3), (2, 1)), ((4, 5), (0, 2)), ((0, 5), (0, 2))]
    if zero_infinity:
        lengths.append(((5, 2), (2, 2)))
    for (ins, outs), normal in itertools.product(lengths, [False, True]):

        def run(m: Any, x: Any, ins: Any = ins, outs: Any = outs, normal: bool = normal) -> Any:
            targets = m.tensor([[1, 2], [2, 2]], device=x.device)
            rows = x.log_softmax(-1) if normal else x
            return m.nn.functional.ctc_loss(rows, targets, ins, outs, reduction=reduction, zero_infinity=zero_infinity)

        same(device, run, (rng.standard_normal((5, 2, 4)) - 2).astype(np.float32).tolist())


# ---- activations and special functions -------------------------------------------------------------------------------

EDGES = [NAN, INF, 3.0, -3.0, 0.0, -0.0, 1.0, -1.0, 6.0, 2.0, -2.0, 20.0]


@DEVICES
@pytest.mark.parametrize("name", ["hardsigmoid", "hardswish", "elu", "celu", "selu", "relu6", "hardtanh", "softplus"])
def test_gradients_of_activations_at_their_bounds_and_nan(name: str, device: str) -> None:
    same(device, lambda m, x: getattr(m.nn.functional, name)(x), EDGES)


@DEVICES
@pytest.mark.parametrize("eps", [None, 0.1, 0.6, 0.0, -0.5, NAN, 1.5])
def test_logit_outside_its_domain(eps: float | None, device: str) -> None:
    same(device, lambda m, x: m.logit(x, eps), [-1.0, -1e-6, 0.0, 0.1, 0.45, 0.5, 0.7, 0.9, 1.0, 2.0, NAN, INF])


@DEVICES
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_mvlgamma_is_rounded_step_by_step(dtype: str, device: str) -> None:
    x = [0.3, -4.03125, 2.3, 4.1, 7.7, 130.0]
    theirs = torch.tensor(x, dtype=getattr(torch, dtype)).mvlgamma(3)
    ours = lucid.tensor(x, dtype=getattr(lucid, dtype), device=device).mvlgamma(3)
    np.testing.assert_allclose(
        ours.tolist(), theirs.tolist(), rtol=TABLE["few ops" if dtype == "float32" else dtype].rtol
    )


@DEVICES
@pytest.mark.parametrize("name", ["chebyshev_polynomial_t", "hermite_polynomial_he", "laguerre_polynomial_l"])
def test_degrees_that_are_no_whole_numbers_of_64_bits(name: str, device: str) -> None:
    x, n = [0.5, 0.25, 0.1, 2.0, 0.3, 0.4], [INF, -INF, NAN, 3.0, -1.0, 1e30]
    theirs = getattr(torch.special, name)(torch.tensor(x), torch.tensor(n))
    ours = getattr(lucid.special, name)(lucid.tensor(x, device=device), lucid.tensor(n, device=device))
    np.testing.assert_allclose(ours.tolist(), theirs.tolist(), rtol=TABLE["few ops"].rtol)
    for degree in (INF, NAN, 1e30):
        ours = getattr(lucid.special, name)(lucid.tensor(x, device=device), degree)
        assert ours.tolist() == getattr(torch.special, name)(torch.tensor(x), degree).tolist()


@DEVICES
def test_products_over_nothing_are_not_multiplied_by_infinity(device: str) -> None:
    def run(m: Any, **k: Any) -> list[Any]:
        made = [
            m.addbmm(m.ones(2, 3, **k), m.ones(4, 2, 0, **k), m.ones(4, 0, 3, **k), alpha=INF),
            m.addmm(m.ones(2, 3, **k), m.ones(2, 0, **k), m.ones(0, 3, **k), alpha=NAN),
            m.addmv(m.ones(2, **k), m.ones(2, 0, **k), m.ones(0, **k), alpha=INF),
        ]
        return [t.tolist() for t in made]

    assert run(lucid, device=device) == run(torch)


@DEVICES
def test_weights_of_bytes_wrap_around(device: str) -> None:
    def run(m: Any, **k: Any) -> list[float]:
        x, t = m.tensor([0.5, -1.0], **k), m.tensor([0.5, 0.25], **k)
        weights = m.tensor([0, 2], dtype=m.uint8, **k)
        loss = m.nn.functional.binary_cross_entropy_with_logits(x, t, pos_weight=weights, reduction="none")
        return list(loss.tolist())

    np.testing.assert_allclose(run(lucid, device=device), run(torch), rtol=TABLE["few ops"].rtol)


@DEVICES
@pytest.mark.parametrize("reduce", ["amax", "amin"])
@pytest.mark.parametrize("index", [[[0], [1]], [[], []]])
def test_extrema_of_more_sources_than_indices(reduce: str, index: list[list[int]], device: str) -> None:
    def run(m: Any, **k: Any) -> Any:
        src = (m.arange(6.0, **k) - 2).reshape(2, 3).requires_grad_()
        at = m.tensor(index, dtype=m.int64, **k)
        return m.ones(2, 2, **k).scatter_reduce(1, at, src, reduce, include_self=False).tolist()

    assert run(lucid, device=device) == run(torch)


@DEVICES
@pytest.mark.parametrize("op", ["median", "nanmedian"])
@pytest.mark.parametrize("x", [[NAN, 2.0, NAN, 4.0], [NAN, NAN], [3.0, 1.0, 3.0, 2.0, 3.0], [1.0, NAN, 5.0, 1.0]])
def test_medians_beside_nan(device: str, op: str, x: list[float]) -> None:
    # Elements that are numbers have had the gradient of a median that is none.
    same(device, lambda m, x: getattr(m, op)(x), x)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("n", [6, 40, 600, 5000])
def test_topk_takes_the_first_of_equal_elements(n: int, device: str) -> None:
    values = np.random.default_rng(n).integers(0, n // 3, n).astype(np.float32)
    for k in (n // 4, n // 2, n // 2 + 1):
        for largest in (True, False):
            wanted = np.argsort(-values if largest else values, kind="stable")[:k]
            assert lucid.topk(lucid.tensor(values, device=device), k, largest=largest)[1].tolist() == wanted.tolist()
