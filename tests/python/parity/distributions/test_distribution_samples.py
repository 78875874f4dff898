"""Samples against scipy's distributions: tests of Kolmogorov and Smirnov and of chi-squared, with fixed seeds."""

from __future__ import annotations

from typing import Any

import lucid
import lucid.distributions as LD
import numpy as np
import pytest
from scipy import stats

N = 4000
#: No test of some two hundred fails by chance at this level; the seeds are fixed besides.
LEVEL = 1e-5

CONTINUOUS: list[tuple[str, Any, Any]] = [
    *[
        (f"beta-{a}-{b}", lambda a=a, b=b: ("Beta", (a, b)), stats.beta(a, b))
        for a, b in ((0.1, 0.3), (2.0, 5.0), (50.0, 0.7))
    ],
    ("cauchy", lambda: ("Cauchy", (1.0, 2.0)), stats.cauchy(1.0, 2.0)),
    *[(f"chi2-{v}", lambda v=v: ("Chi2", (v,)), stats.chi2(v)) for v in (0.5, 3.0, 40.0)],
    ("exponential", lambda: ("Exponential", (0.7,)), stats.expon(scale=1 / 0.7)),
    *[(f"f-{a}-{b}", lambda a=a, b=b: ("FisherSnedecor", (a, b)), stats.f(a, b)) for a, b in ((1.0, 4.0), (7.0, 3.0))],
    *[
        (f"gamma-{a}", lambda a=a: ("Gamma", (a, 2.0)), stats.gamma(a, scale=0.5))
        for a in (0.02, 0.3, 1.0, 1.0001, 1.7, 9.0, 300.0, 1e5)
    ],
    *[
        (f"pareto-{c}", lambda c=c: ("GeneralizedPareto", (1.0, 2.0, c)), stats.genpareto(c, 1.0, 2.0))
        for c in (-0.5, 0.0, 0.4)
    ],
    ("gumbel", lambda: ("Gumbel", (1.0, 2.0)), stats.gumbel_r(1.0, 2.0)),
    ("half-cauchy", lambda: ("HalfCauchy", (2.0,)), stats.halfcauchy(scale=2.0)),
    ("half-normal", lambda: ("HalfNormal", (2.0,)), stats.halfnorm(scale=2.0)),
    ("inverse-gamma", lambda: ("InverseGamma", (3.0, 2.0)), stats.invgamma(3.0, scale=2.0)),
    ("laplace", lambda: ("Laplace", (1.0, 2.0)), stats.laplace(1.0, 2.0)),
    ("log-normal", lambda: ("LogNormal", (0.3, 0.7)), stats.lognorm(0.7, scale=np.exp(0.3))),
    ("normal", lambda: ("Normal", (1.0, 2.0)), stats.norm(1.0, 2.0)),
    ("pareto", lambda: ("Pareto", (2.0, 1.5)), stats.pareto(1.5, scale=2.0)),
    *[(f"student-{v}", lambda v=v: ("StudentT", (v, 1.0, 2.0)), stats.t(v, 1.0, 2.0)) for v in (1.0, 6.0)],
    ("uniform", lambda: ("Uniform", (-1.0, 3.0)), stats.uniform(-1.0, 4.0)),
    *[(f"von-mises-{k}", lambda k=k: ("VonMises", (0.0, k)), stats.vonmises(k)) for k in (1e-4, 0.3, 2.0, 60.0, 1e4)],
    ("weibull", lambda: ("Weibull", (2.0, 1.5)), stats.weibull_min(1.5, scale=2.0)),
]


@pytest.mark.parametrize("i", range(len(CONTINUOUS)), ids=[c[0] for c in CONTINUOUS])
@pytest.mark.parametrize(("device", "dtype"), [("cpu", "float64"), ("gpu", "float32")])
def test_continuous(i: int, device: str, dtype: str) -> None:
    name, args = CONTINUOUS[i][1]()
    lucid.manual_seed(1234 + i)
    params = [lucid.tensor(a, dtype=getattr(lucid, dtype), device=device) for a in args]
    d = getattr(LD, name)(*params)
    x = d.sample((N,)).cpu().numpy().astype(np.float64)
    assert np.isfinite(x).all()
    if CONTINUOUS[i][2].support()[0] == 0 and x.min() <= np.finfo(dtype).tiny:
        # Numbers of distributions that have none below 0, and below the dtype's smallest have become that.
        least = float(CONTINUOUS[i][2].cdf(np.finfo(dtype).tiny * 1.01))
        assert abs((x <= np.finfo(dtype).tiny * 1.01).mean() - least) < 0.03
        x = np.where(
            x <= np.finfo(dtype).tiny * 1.01, CONTINUOUS[i][2].ppf(least * np.random.default_rng(0).random(N)), x
        )
    assert stats.kstest(x, CONTINUOUS[i][2].cdf).pvalue > LEVEL


DISCRETE: list[tuple[str, Any, Any]] = [
    ("bernoulli", lambda t: LD.Bernoulli(t(0.3)), stats.bernoulli(0.3)),
    ("binomial", lambda t: LD.Binomial(9, t(0.3)), stats.binom(9, 0.3)),
    ("binomial-many", lambda t: LD.Binomial(200, t(0.3)), stats.binom(200, 0.3)),
    (
        "categorical",
        lambda t: LD.Categorical(t([0.1, 0.0, 0.6, 0.3])),
        stats.rv_discrete(values=([0, 2, 3], [0.1, 0.6, 0.3])),
    ),
    ("geometric", lambda t: LD.Geometric(t(0.3)), stats.geom(0.3, loc=-1)),
    ("negative-binomial", lambda t: LD.NegativeBinomial(t(3.5), t(0.6)), stats.nbinom(3.5, 0.4)),
    ("poisson", lambda t: LD.Poisson(t(0.8)), stats.poisson(0.8)),
    ("poisson-many", lambda t: LD.Poisson(t(30.0)), stats.poisson(30.0)),
]


@pytest.mark.parametrize("i", range(len(DISCRETE)), ids=[c[0] for c in DISCRETE])
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_discrete(i: int, device: str) -> None:
    _, make, reference = DISCRETE[i]
    lucid.manual_seed(77 + i)
    x = make(lambda v: lucid.tensor(v, device=device)).sample((N,)).cpu().numpy()
    k = np.arange(0, int(reference.ppf(1 - 1e-9)) + 2)
    expected = reference.pmf(k) * N
    seen = np.bincount(x.astype(int), minlength=len(k))[: len(k)]
    assert seen.sum() == N
    assert not seen[expected == 0].any()
    # Rare values together.
    often = expected >= 5
    seen, expected = (np.append(v[often], v[~often].sum()) for v in (seen, expected))
    keep = expected > 0
    assert stats.chisquare(seen[keep], expected[keep] * seen[keep].sum() / expected[keep].sum()).pvalue > LEVEL


def close(x: Any, want: Any, deviations: float = 5.0) -> None:
    """Is the mean of samples where it should be, by its own standard error?"""
    x = x.detach().cpu().numpy().astype(np.float64)
    error = x.std(0) / np.sqrt(len(x)) + 1e-9
    np.testing.assert_array_less(np.abs(x.mean(0) - np.asarray(want)), deviations * error + 1e-6)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_vectors_and_matrices(device: str) -> None:
    lucid.manual_seed(5)
    t = lambda v: lucid.tensor(v, device=device)  # noqa: E731
    a = np.array([0.3, 2.0, 1.1])
    x = LD.Dirichlet(t(a.tolist())).sample((N,))
    close(x, a / a.sum())
    for i in range(3):
        assert stats.kstest(x[:, i].cpu().numpy(), stats.beta(a[i], a.sum() - a[i]).cdf).pvalue > LEVEL
    cov = np.array([[2.0, 0.6], [0.6, 1.0]])
    for d in (
        LD.MultivariateNormal(t([1.0, -1.0]), t(cov.tolist())),
        LD.LowRankMultivariateNormal(t([1.0, -1.0]), t([[1.0], [0.6]]), t([1.0, 0.64])),
    ):
        x = d.sample((N,)).cpu().numpy() - np.array([1.0, -1.0])
        close(lucid.tensor(np.einsum("ni,nj->nij", x, x)), cov)
        white = np.linalg.solve(np.linalg.cholesky(cov), x.T)
        assert stats.kstest(white.ravel(), "norm").pvalue > LEVEL
    x = LD.Wishart(t(4.0), t(cov.tolist())).sample((N,))
    close(x, 4 * cov)
    want = stats.wishart(4, cov)
    assert stats.ks_2samp(np.linalg.det(x.cpu().numpy()), np.linalg.det(want.rvs(N, random_state=1))).pvalue > LEVEL
    # The correlation of two variables is a beta number, from -1 to 1.
    x = LD.LKJCholesky(2, t(1.7)).sample((N,))
    assert stats.kstest((x[:, 1, 0].cpu().numpy() + 1) / 2, stats.beta(1.7, 1.7).cdf).pvalue > LEVEL
    x = LD.LKJCholesky(3, t(0.8)).sample((N,)).cpu().numpy()
    corr = np.einsum("nij,nkj->nik", x, x)
    for i, j in ((1, 0), (2, 0), (2, 1)):
        assert stats.kstest((corr[:, i, j] + 1) / 2, stats.beta(1.3, 1.3).cdf).pvalue > LEVEL
    x = LD.Multinomial(10, t([0.2, 0.3, 0.5])).sample((N,))
    assert bool((x.sum(-1) == 10).all())
    close(x, [2.0, 3.0, 5.0])
    x = LD.OneHotCategorical(t([0.2, 0.3, 0.5])).sample((N,))
    close(x, [0.2, 0.3, 0.5])
    mixture = LD.MixtureSameFamily(LD.Categorical(t([0.3, 0.7])), LD.Normal(t([-2.0, 1.0]), t([0.5, 1.0])))
    x = mixture.sample((N,)).cpu().numpy()
    cdf = lambda v: 0.3 * stats.norm(-2, 0.5).cdf(v) + 0.7 * stats.norm(1, 1).cdf(v)  # noqa: E731
    assert stats.kstest(x, cdf).pvalue > LEVEL
    low, k = (
        LD.RelaxedOneHotCategorical(t(0.1), t([0.2, 0.8])).sample((N,)),
        LD.Kumaraswamy(t(2.0), t(3.0)).sample((N,)),
    )
    close((low[:, 0] > 0.5).float(), 0.2)
    assert stats.kstest(k.cpu().numpy(), lambda v: 1 - (1 - v**2) ** 3).pvalue > LEVEL
    c = LD.ContinuousBernoulli(t([0.2, 0.5])).sample((N,)).cpu()
    for i in range(2):
        d = LD.ContinuousBernoulli(lucid.tensor([0.2, 0.5])[i].double())
        assert stats.kstest(c[:, i].numpy(), lambda v, d=d: d.cdf(lucid.tensor(v).double()).numpy()).pvalue > LEVEL


def test_tiny_concentrations_give_numbers_on_the_simplex() -> None:
    for device in ("cpu", "gpu"):
        x = LD.Dirichlet(lucid.full((500, 3), 1e-3, device=device)).sample()
        assert bool(LD.constraints.simplex.check(x).all()) and bool(x.isfinite().all())
        g = LD.Gamma(lucid.full((500,), 1e-4, device=device), 1.0).sample()
        assert bool((g > 0).all())
