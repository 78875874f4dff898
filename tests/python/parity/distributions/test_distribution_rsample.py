"""Gradients through samples: against PyTorch's functions where these are exact, quantiles, and moments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucid
import lucid.distributions as LD
import numpy as np
import pytest
import torch
from lucid import _C
from scipy import special, stats

from tests.python.parity.distributions.distribution_cases import CASES, Case, make, same
from tests.python.tolerances import TABLE, within


def by_quantiles(frozen: Callable[[float], Any], a: float, x: Any) -> Any:
    """`dx/da` with the cumulative probability held, by differences of scipy's quantiles."""
    step = 1e-4 * a
    tail = x > frozen(a).median()
    up = frozen(a).sf(x)
    down = frozen(a).cdf(x)
    move = [np.where(tail, frozen(b).isf(up), frozen(b).ppf(down)) for b in (a + step, a - step)]
    return (move[0] - move[1]) / (2 * step)


@pytest.mark.parametrize("a", [0.05, 0.5, 1.0, 3.0, 30.0, 500.0])
def test_gamma_derivatives(a: float) -> None:
    x = stats.gamma(a).ppf([0.01, 0.1, 0.4, 0.6, 0.9, 0.999])
    x = x[x > 1e-30]
    got = _C._standard_gamma_grad(lucid.full((len(x),), a).double(), lucid.tensor(x)).numpy()
    np.testing.assert_allclose(got, by_quantiles(stats.gamma, a, x), rtol=TABLE["gamma slopes"].rtol)
    # PyTorch's approximations have some digits.
    want = torch._standard_gamma_grad(torch.full((len(x),), a).double(), torch.tensor(x)).numpy()
    np.testing.assert_allclose(got, want, rtol=TABLE["PyTorch's gamma slopes"].rtol)


@pytest.mark.parametrize("a", [1e4, 9.9e4, 1.1e5, 1e8])
def test_gamma_derivatives_of_large_concentrations(a: float) -> None:
    z = np.array([-4.0, -1.0, 0.0, 2.0, 5.0])
    x = a + z * np.sqrt(a) + (z**2 - 1) / 3
    got = _C._standard_gamma_grad(lucid.full((5,), a).double(), lucid.tensor(x)).numpy()
    np.testing.assert_allclose(got, 1 + z / (2 * np.sqrt(a)), rtol=TABLE["large gamma slopes"].rtol / a)


@pytest.mark.parametrize(("a", "b"), [(0.1, 0.3), (0.5, 2.0), (1.0, 1.0), (3.0, 0.7), (8.0, 20.0), (300.0, 100.0)])
def test_beta_derivatives(a: float, b: float) -> None:
    x = stats.beta(a, b).ppf([0.02, 0.2, 0.5, 0.8, 0.98])
    x = x[(x > 1e-20) & (x < 1 - 1e-9)]
    like = lucid.tensor(x)
    got = _C._dirichlet_grad(like, lucid.full_like(like, a), lucid.full_like(like, a + b)).numpy() * (1 - x)
    np.testing.assert_allclose(got, by_quantiles(lambda a: stats.beta(a, b), a, x), rtol=TABLE["beta slopes"].rtol)
    t = torch.tensor(x)
    want = torch._dirichlet_grad(t, torch.full_like(t, a), torch.full_like(t, a + b)).numpy() * (1 - x)
    np.testing.assert_allclose(got, want, rtol=TABLE["PyTorch's beta slopes"].rtol)


@pytest.mark.parametrize("k", [0.01, 0.8, 5.0, 49.0, 51.0, 900.0])
def test_von_mises_derivatives(k: float) -> None:
    lucid.manual_seed(2)
    for device, dtype, name in (("cpu", "float64", "float64 von Mises"), ("gpu", "float32", "von Mises")):
        kappa = lucid.full((40,), k, dtype=getattr(lucid, dtype), device=device, requires_grad=True)
        x = LD.VonMises(0.0, kappa).rsample()
        x.sum().backward()
        v = x.detach().cpu().numpy().astype(float)
        # -∂F/∂κ / p by differences in κ of the integral of the density.
        t = np.linspace(-np.pi, v, 20_001)
        density = lambda k, t: np.exp(k * (np.cos(t) - 1)) / (2 * np.pi * special.ive(0, k))  # noqa: E731
        step = 1e-4 * k
        slope = np.trapezoid((density(k + step, t) - density(k - step, t)) / (2 * step), t, axis=0)
        np.testing.assert_allclose(kappa.grad.cpu().numpy(), -slope / density(k, v), **within(name, 1 / k))


# The mean of `f` of samples has the gradient of its closed form.
MOMENTS: dict[str, tuple[list[float], Callable[..., Any], Callable[..., Any]]] = {
    "Gamma": ([2.3, 1.7], lambda x: x.square(), lambda a, b: a * (a + 1) / b**2),
    "Beta": ([2.3, 1.7], lambda x: x.square(), lambda a, b: a * (a + 1) / ((a + b) * (a + b + 1))),
    "Chi2": ([3.0], lambda x: x.square(), lambda v: v * (v + 2)),
    "StudentT": ([9.0, 0.5, 2.0], lambda x: x.square(), lambda v, m, s: m**2 + s**2 * v / (v - 2)),
    "FisherSnedecor": ([4.0, 12.0], lambda x: x, lambda a, b: b / (b - 2) + 0 * a),
    "VonMises": ([0.4, 2.0], lambda x: x.sin(), lambda m, k: m.sin() * torch.special.i1e(k) / torch.special.i0e(k)),
    "InverseGamma": ([6.0, 2.0], lambda x: x, lambda a, b: b / (a - 1)),
    "Normal": ([0.4, 2.0], lambda x: x.square(), lambda m, s: m**2 + s**2),
    "Gumbel": ([0.4, 2.0], lambda x: x, lambda m, s: m + 0.5772156649 * s),
    "Laplace": ([0.4, 2.0], lambda x: x.square(), lambda m, s: m**2 + 2 * s**2),
    "Kumaraswamy": (
        [2.0, 3.0],
        lambda x: x,
        lambda a, b: b * ((1 + 1 / a).lgamma() + b.lgamma() - (1 + 1 / a + b).lgamma()).exp(),
    ),
    "Weibull": ([2.0, 1.5], lambda x: x, lambda s, k: s * (1 + 1 / k).lgamma().exp()),
}


@pytest.mark.parametrize("name", MOMENTS)
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_gradients_of_moments(name: str, device: str) -> None:
    values, f, closed = MOMENTS[name]
    n = 40_000
    lucid.manual_seed(8)
    params = [lucid.full((n,), v, device=device, requires_grad=True) for v in values]
    f(getattr(LD, name)(*params).rsample()).sum().backward()
    theirs = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in values]
    closed(*theirs).backward()
    for p, t in zip(params, theirs, strict=True):
        g = p.grad.cpu().numpy().astype(float)
        assert abs(g.mean() - t.grad.item()) < 5 * g.std() / np.sqrt(n) + 1e-4


def test_dirichlet_gradients_of_moments() -> None:
    n = 40_000
    lucid.manual_seed(8)
    a = lucid.tensor([0.4, 2.0, 1.3]).expand(n, 3).clone().requires_grad_()
    (LD.Dirichlet(a).rsample().square() * lucid.tensor([1.0, 2.0, 3.0])).sum().backward()
    t = torch.tensor([0.4, 2.0, 1.3], dtype=torch.float64, requires_grad=True)
    total = t.sum()
    (t * (t + 1) / (total * (total + 1)) * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    g = a.grad.numpy().astype(float)
    assert (np.abs(g.mean(0) - t.grad.numpy()) < 5 * g.std(0) / np.sqrt(n)).all()


@pytest.mark.parametrize(
    "case", [c for c in CASES if getattr(torch.distributions, c.cls).has_rsample is not False], ids=lambda c: c.name
)
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_samples_have_gradients_in_all_parameters(case: Case, device: str) -> None:
    d, params = make(lucid, case, "float32", device, grad=True)
    t, theirs = make(torch, case, "float32", "cpu", grad=True)
    if not t.has_rsample:
        return
    lucid.manual_seed(0)
    x = d.rsample((30,))
    assert x.requires_grad and x.shape == (30, *d.batch_shape, *d.event_shape)
    x.square().sum().backward()
    if case.cls != "Wishart":
        # PyTorch's gradients of these fail, as singular samples are replaced in place.
        t.rsample((30,)).square().sum().backward()
    for name, p in params.items():
        assert p.grad is not None if case.cls == "Wishart" else (p.grad is None) == (theirs[name].grad is None), name
        assert p.grad is None or bool(p.grad.isfinite().all())
    # The gradients of both devices are the same, as the samples are.
    if device == "gpu":
        c, others = make(lucid, case, "float32", "cpu", grad=True)
        lucid.manual_seed(0)
        c.rsample((30,)).square().sum().backward()
        for name, p in params.items():
            if p.grad is not None:
                scale = float(others[name].grad.abs().max()) + 1.0
                same(p.grad.cpu() / scale, others[name].grad / scale, "float32", gradient=True, scale=3.0)


def test_second_gradients_are_those_of_pytorch_or_refused() -> None:
    def gamma(m: Any, a: Any) -> Any:
        return m._standard_gamma(a)

    def dirichlet(m: Any, a: Any) -> Any:
        return m._sample_dirichlet(a)

    for make_it in (gamma, dirichlet):
        # PyTorch's own `_sample_dirichlet` has no gradient at all; its `Dirichlet` goes around it.
        for m, ns in ((lucid, _C), (torch, torch))[: 1 if make_it is dirichlet else 2]:
            a = m.full((4,), 2.0, requires_grad=True)
            (g,) = m.autograd.grad(make_it(ns, a).square().sum(), a, create_graph=True)
            with pytest.raises((NotImplementedError, RuntimeError), match=r"not implemented|derivative"):
                m.autograd.grad(g.sum(), a)
    # Von Mises numbers have them: both gradients are compositions.
    k = lucid.full((3,), 2.0, dtype=lucid.float64, requires_grad=True)
    lucid.manual_seed(3)
    x = LD.VonMises(0.0, k).rsample()
    (g,) = lucid.autograd.grad(x.sum(), k, create_graph=True)
    (h,) = lucid.autograd.grad(g.sum(), k)

    def slope(k: float, x: Any) -> Any:
        t = np.linspace(-np.pi, x, 200_001)
        density = np.exp(k * (np.cos(t) - np.cos(x)))
        return -np.trapezoid((np.cos(t) - special.ive(1, k) / special.ive(0, k)) * density, t, axis=0)

    v, move, step = x.detach().numpy(), g.detach().numpy(), 1e-3
    np.testing.assert_allclose(move, slope(2.0, v), rtol=TABLE["rounding"].rtol)
    want = (slope(2.0 + step, v + move * step) - slope(2.0 - step, v - move * step)) / (2 * step)
    np.testing.assert_allclose(h.numpy(), want, **within("implicit gradients"))
    m = lucid.zeros(3, requires_grad=True)
    s = lucid.ones(3, requires_grad=True)
    (g,) = lucid.autograd.grad(LD.LogNormal(m, s).rsample().sum(), m, create_graph=True)
    lucid.autograd.grad(g.sum(), (m, s))


def test_under_vmap_and_autocast_and_in_half() -> None:
    a = lucid.tensor([[0.5, 2.0], [3.0, 1.0], [40.0, 0.1]])
    lucid.manual_seed(1)
    draw = lucid.vmap(lambda a: _C._standard_gamma(a), randomness="different")
    assert draw(a).shape == (3, 2)
    slope = lucid.vmap(_C._standard_gamma_grad)(a, a)
    same(slope, torch.tensor(_C._standard_gamma_grad(a, a).numpy()), "float32")
    single = lucid.vmap(_C._standard_gamma_grad, in_dims=(0, None))(a, lucid.tensor([0.5, 2.0]))
    same(single, torch.tensor(_C._standard_gamma_grad(a, lucid.tensor([0.5, 2.0]).expand(3, 2)).numpy()), "float32")
    x = lucid.vmap(lambda a: _C._sample_dirichlet(a), randomness="different")(a)
    assert bool(((x.sum(-1) - 1).abs() < 1e-5).all())
    grads = lucid.vmap(lucid.func.grad(lambda a: _C._sample_dirichlet(a)[0]), randomness="different")(a)
    assert grads.shape == (3, 2) and bool(grads.isfinite().all())
    for op in (_C._standard_gamma, _C._sample_dirichlet, _C._standard_von_mises):
        for dtype in (lucid.float16, lucid.bfloat16):
            assert op(a.to(dtype)).dtype == dtype
        for device in ("cpu", "gpu"):
            assert op(a[:0].to(device)).shape == (0, 2)
        with pytest.raises(RuntimeError, match="floating-point"):
            op(lucid.ones(2, dtype=lucid.int64))
    with lucid.autocast("cpu", dtype=lucid.bfloat16):
        assert _C._standard_gamma(a).dtype == lucid.float32
    with pytest.raises(RuntimeError, match="dtype"):
        _C._standard_gamma_grad(a, a.double())
    with pytest.raises(RuntimeError, match="at least one dimension"):
        _C._sample_dirichlet(lucid.tensor(1.0))
