"""Kullback-Leibler divergences of every pair that PyTorch has, against PyTorch's, and the estimate of others."""

from __future__ import annotations

import warnings
from typing import Any

import lucid
import lucid.distributions as LD
import numpy as np
import pytest
import torch
import torch.distributions as TD
from torch.distributions import kl as torch_kl

from tests.python.parity.distributions.distribution_cases import same
from tests.python.tolerances import within

TRIL = [[[1.2, 0.0], [0.3, 0.7]], [[0.8, 0.0], [-0.3, 1.7]]]
# Two of each class; those of bounded support are inside of one another where that gives finite divergences.
PARAMS: dict[str, list[dict[str, Any]]] = {
    "Bernoulli": [{"probs": [0.2, 0.0]}, {"probs": [0.6, 0.1]}],
    "Beta": [
        {"concentration1": [0.5, 3.0], "concentration0": [1.5, 2.0]},
        {"concentration1": [2.5, 1.0], "concentration0": [0.7, 4.0]},
    ],
    "Binomial": [{"total_count": 5.0, "probs": [0.2, 0.7]}, {"total_count": 5.0, "probs": [0.6, 0.1]}],
    "Categorical": [{"probs": [[0.2, 0.3, 0.5], [0.0, 0.4, 0.6]]}, {"logits": [0.2, -1.0, 0.4]}],
    "Cauchy": [{"loc": [0.0, 1.0], "scale": [1.0, 2.0]}, {"loc": [0.5, -1.0], "scale": [0.4, 3.0]}],
    "ContinuousBernoulli": [{"probs": [0.2, 0.7]}, {"probs": [0.6, 0.3]}],
    "Dirichlet": [{"concentration": [[0.5, 1.0, 2.0], [3.0, 1.0, 0.4]]}, {"concentration": [1.5, 0.7, 1.0]}],
    "Exponential": [{"rate": [0.5, 3.0]}, {"rate": [1.5, 0.4]}],
    "Gamma": [{"concentration": [0.5, 3.0], "rate": [1.0, 2.0]}, {"concentration": [1.5, 0.7], "rate": [0.3, 4.0]}],
    "Gumbel": [{"loc": [0.0, 1.0], "scale": [1.0, 2.0]}, {"loc": [0.5, -1.0], "scale": [0.4, 3.0]}],
    "Geometric": [{"probs": [0.2, 0.7]}, {"probs": [0.6, 0.1]}],
    "HalfNormal": [{"scale": [0.2, 0.7]}, {"scale": [0.6, 3.0]}],
    "Laplace": [{"loc": [0.0, 1.0], "scale": [1.0, 2.0]}, {"loc": [0.5, -1.0], "scale": [0.4, 3.0]}],
    "LowRankMultivariateNormal": [
        {"loc": [0.1, 0.2], "cov_factor": [[1.0], [0.4]], "cov_diag": [0.5, 1.5]},
        {"loc": [[0.3, -0.2], [1.0, 0.0]], "cov_factor": [[0.3], [-0.4]], "cov_diag": [1.5, 0.7]},
    ],
    "MultivariateNormal": [
        {"loc": [[0.1, 0.2], [0.0, -1.0]], "scale_tril": TRIL},
        {"loc": [0.4, 1.0], "scale_tril": TRIL[1]},
    ],
    "Normal": [{"loc": [0.0, 1.0], "scale": [1.0, 2.0]}, {"loc": [0.5, -1.0], "scale": [0.4, 3.0]}],
    "OneHotCategorical": [{"probs": [[0.2, 0.3, 0.5], [0.1, 0.3, 0.6]]}, {"logits": [0.2, -1.0, 0.4]}],
    "Pareto": [{"scale": [0.5, 3.0], "alpha": [2.5, 0.9]}, {"scale": [0.2, 0.5], "alpha": [1.5, 2.0]}],
    "Poisson": [{"rate": [0.5, 3.0]}, {"rate": [1.5, 0.4]}],
    "Uniform": [{"low": [0.25, 0.6], "high": [0.75, 0.9]}, {"low": [-0.5, -1.0], "high": [1.5, 2.0]}],
}


def made(m: Any, name: str, which: int, dtype: str, device: str, grad: bool) -> tuple[Any, list[Any]]:
    where = {"device": device} if m is lucid else {}
    if name == "LogNormal":
        name, transforms = "Normal", True
    else:
        transforms = False
    params = {k: m.tensor(v, dtype=getattr(m, dtype), **where) for k, v in PARAMS[name][which].items()}
    if grad:
        params = {k: v.requires_grad_() for k, v in params.items()}
    return getattr(m.distributions, "LogNormal" if transforms else name)(**params), list(params.values())


PAIRS = [
    ("LogNormal", "LogNormal") if p is TD.TransformedDistribution else (p.__name__, q.__name__)
    for p, q in torch_kl._KL_REGISTRY
    if p not in (TD.ExponentialFamily, TD.Independent)
]


def test_every_pair_of_pytorch_is_registered() -> None:
    ours = {(p.__name__, q.__name__) for p, q in LD.kl._KL_REGISTRY}
    theirs = {(p.__name__, q.__name__) for p, q in torch_kl._KL_REGISTRY}
    assert theirs <= ours


@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: f"{p[0]}-{p[1]}")
@pytest.mark.parametrize(("device", "dtype"), [("cpu", "float64"), ("gpu", "float32")])
def test_pairs(pair: tuple[str, str], device: str, dtype: str) -> None:
    results, grads = [], []
    for m in (lucid, torch):
        p, a = made(m, pair[0], 0, dtype, device, True)
        q, b = made(m, pair[1], 1, dtype, device, True)
        result = m.distributions.kl_divergence(p, q)
        results.append(result)
        if result.requires_grad and bool(m.isfinite(result).all()):
            grads.append(m.autograd.grad(result.sum(), a + b, allow_unused=True))
    same(results[0], results[1], dtype, scale=3.0)
    if len(grads) == 2:
        for x, y in zip(*grads, strict=True):
            assert (x is None) == (y is None)
            if x is not None:
                same(x, y, dtype, gradient=True)


@pytest.mark.parametrize("name", ["Normal", "Gamma", "Beta", "Exponential", "Bernoulli", "Poisson"])
def test_exponential_families_agree_with_their_closed_forms(name: str) -> None:
    """The Bregman divergence of the log normaliser, which subclasses of registered classes do not need."""
    p, _ = made(lucid, name, 0, "float64", "cpu", False)
    q, _ = made(lucid, name, 1, "float64", "cpu", False)
    general = LD.kl._KL_REGISTRY[LD.ExponentialFamily, LD.ExponentialFamily]
    if name == "Bernoulli":
        p = LD.Bernoulli(p.probs.clamp(min=0.1))
    same(general(p, q), LD.kl_divergence(p, q), "float64", scale=10.0)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_batches_of_wishart_distributions(device: str) -> None:
    """PyTorch adds the terms of a batch's degrees of freedom; one distribution at a time it does not."""
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((2, 3, 2, 2)).astype(np.float32)
    factors[:] = np.tril(factors, -1) + np.eye(2, dtype=np.float32) * (0.7 + np.abs(factors))
    degrees = rng.uniform(3, 6, (2, 3)).astype(np.float32)

    def wishart(m: Any, i: int, at: Any, **where: str) -> Any:
        return m.distributions.Wishart(m.tensor(degrees[i][at], **where), scale_tril=m.tensor(factors[i][at], **where))

    want = [float(torch.distributions.kl_divergence(*(wishart(torch, i, k) for i in (0, 1)))) for k in range(3)]
    got = LD.kl_divergence(*(wishart(lucid, i, slice(None), device=device) for i in (0, 1)))
    np.testing.assert_allclose(got.detach().cpu().numpy(), want, **within("solve"))
    alone = LD.kl_divergence(*(wishart(lucid, i, 1, device=device) for i in (0, 1)))
    np.testing.assert_allclose(alone.item(), want[1], **within("solve"))


def test_independent_and_errors() -> None:
    for m, d in ((lucid, LD), (torch, TD)):
        p = d.Independent(d.Normal(m.zeros(2, 3), 1.0), 1)
        q = d.Independent(d.Normal(m.ones(2, 3), 2.0), 1)
        assert tuple(d.kl_divergence(p, q).shape) == (2,)
        a = d.MultivariateNormal(m.zeros(2), m.eye(2))
        b = d.MultivariateNormal(m.zeros(3), m.eye(3))
        with pytest.raises(ValueError, match="different event shapes cannot be computed"):
            d.kl_divergence(a, b)
    for kinds in ((3, LD.Normal), (LD.Normal, "Normal")):
        with pytest.raises(TypeError, match="to be a Distribution subclass"):
            LD.register_kl(*kinds)  # type: ignore[arg-type]
    same(
        LD.kl_divergence(
            LD.Independent(LD.Normal(lucid.zeros(2, 3), 1.0), 1), LD.Independent(LD.Normal(lucid.ones(2, 3), 2.0), 1)
        ),
        TD.kl_divergence(
            TD.Independent(TD.Normal(torch.zeros(2, 3), 1.0), 1), TD.Independent(TD.Normal(torch.ones(2, 3), 2.0), 1)
        ),
        "float32",
    )


def test_the_most_derived_pair_is_taken_and_ambiguity_warned_of() -> None:
    class A(LD.Normal):
        pass

    class B(LD.Normal):
        pass

    LD.register_kl(A, LD.Normal)(lambda p, q: lucid.tensor(1.0))
    LD.register_kl(LD.Normal, B)(lambda p, q: lucid.tensor(2.0))
    with pytest.warns(RuntimeWarning, match="Ambiguous kl_divergence"):
        assert LD.kl_divergence(A(0.0, 1.0), B(0.0, 1.0)).item() == 1.0
    LD.register_kl(A, B)(lambda p, q: lucid.tensor(3.0))
    assert LD.kl_divergence(A(0.0, 1.0), B(0.0, 1.0)).item() == 3.0
    for key in [key for key in LD.kl._KL_REGISTRY if A in key or B in key]:
        del LD.kl._KL_REGISTRY[key]
    LD.kl._lookup.cache_clear()


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_pairs_without_a_closed_form_are_estimated(device: str) -> None:
    lucid.manual_seed(0)
    loc = lucid.tensor([0.0, 1.0], device=device, requires_grad=True)
    p, q = LD.Laplace(loc, 1.0), LD.Cauchy(lucid.zeros(2, device=device), 1.0)
    with pytest.warns(UserWarning, match="estimated from 20000 samples"):
        got = LD.kl_divergence(p, q, num_samples=20_000)
    grid = torch.linspace(-30, 30, 200_001, dtype=torch.float64)[:, None]
    tp, tq = TD.Laplace(torch.tensor([0.0, 1.0]).double(), 1.0), TD.Cauchy(torch.zeros(2).double(), 1.0)
    want = (tp.log_prob(grid).exp() * (tp.log_prob(grid) - tq.log_prob(grid))).sum(0) * (60 / 200_000)
    assert (got.detach().cpu() - lucid.tensor(want.numpy()).float()).abs().max().item() < 0.02
    got.sum().backward()
    assert abs(loc.grad.cpu()[1].item() - 0.5) < 0.2


def test_discrete_pairs_are_summed_exactly_and_impossible_values_are_infinite() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        p, q = LD.Bernoulli(lucid.tensor([0.3, 0.3])), LD.Geometric(lucid.tensor([0.6, 0.2]))
        got = LD.kl_divergence(p, q)
    x = torch.tensor([[0.0], [1.0]])
    tp, tq = TD.Bernoulli(torch.tensor([0.3, 0.3])), TD.Geometric(torch.tensor([0.6, 0.2]))
    same(got, (tp.log_prob(x).exp() * (tp.log_prob(x) - tq.log_prob(x))).sum(0), "float32")
    with pytest.warns(UserWarning, match="no closed form"):
        assert LD.kl_divergence(LD.Cauchy(0.0, 1.0), LD.Gamma(1.0, 1.0)).item() == float("inf")


def test_what_has_no_divergence_is_refused() -> None:
    for p, q in ((LD.Bernoulli(0.5), LD.Normal(0.0, 1.0)), (LD.Normal(0.0, 1.0), LD.Geometric(0.5))):
        with pytest.raises(NotImplementedError, match=r"No KL\(p \|\| q\) is implemented"):
            LD.kl_divergence(p, q)
    with pytest.raises(TypeError, match="expected q to be a Distribution"):
        LD.kl_divergence(LD.Normal(0.0, 1.0), 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="event shapes"):
        LD.kl_divergence(LD.Independent(LD.Normal(lucid.zeros(2), 1.0), 1), LD.Normal(0.0, 1.0))


def test_uniform_and_continuous_bernoulli_divergences_are_finite_where_supports_allow() -> None:
    """PyTorch gives infinity for both, though each support is inside of the other's."""
    p, q = LD.ContinuousBernoulli(lucid.tensor(0.2).double()), LD.Uniform(lucid.tensor(0.0).double(), 1.0)
    x = (lucid.arange(100_000).double() + 0.5) / 100_000
    same(LD.kl_divergence(p, q), (p.log_prob(x).exp() * p.log_prob(x)).mean(), "float64", scale=100.0)
    same(LD.kl_divergence(q, p), -p.log_prob(x).mean(), "float64", scale=100.0)
