"""Constraints, helpers and errors against PyTorch's."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import lucid
import lucid.distributions as LD
import lucid.distributions.utils as LU
import pytest
import torch
import torch.distributions as TD
import torch.distributions.utils as TU

from tests.python.parity.distributions.distribution_cases import outcome, same

NAN, INF = float("nan"), float("inf")
NUMBERS = [0.0, 1.0, -1.0, 0.5, 2.0, 3.5, NAN, INF, -INF]
VECTORS = [[0.0, 1.0, 0.0], [0.2, 0.3, 0.5], [0.5, 0.6, 0.1], [1.0, 1.0, 0.0], [-0.5, 0.5, 1.0], [2.0, 3.0, 0.0]]
MATRICES = [
    [[1.0, 0.0], [0.5, 2.0]],
    [[1.0, 0.5], [0.5, 2.0]],
    [[1.0, 0.0], [0.6, 0.8]],
    [[1.0, 2.0], [2.0, 1.0]],
    [[-1.0, 0.0], [0.0, 1.0]],
    [[1.0, 1.0], [1.0, 1.0]],
]
CHECKS: list[tuple[Callable[[Any], Any], Any]] = [
    *[(lambda c, n=n: getattr(c, n), NUMBERS) for n in ("boolean", "real", "positive", "nonnegative", "unit_interval")],
    *[(lambda c, n=n: getattr(c, n), NUMBERS) for n in ("nonnegative_integer", "positive_integer")],
    *[(lambda c, n=n: getattr(c, n)(0.5), NUMBERS) for n in ("greater_than", "greater_than_eq", "less_than")],
    *[
        (lambda c, n=n: getattr(c, n)(-1.0, 2.0), NUMBERS)
        for n in ("interval", "half_open_interval", "integer_interval")
    ],
    *[(lambda c, n=n: getattr(c, n), VECTORS) for n in ("one_hot", "simplex", "real_vector")],
    (lambda c: c.multinomial(2), VECTORS),
    *[
        (lambda c, n=n: getattr(c, n), MATRICES)
        for n in ("lower_triangular", "lower_cholesky", "corr_cholesky", "square")
    ],
    *[(lambda c, n=n: getattr(c, n), MATRICES[i]) for n in ("symmetric", "positive_definite") for i in range(6)],
    *[(lambda c: c.positive_semidefinite, MATRICES[i]) for i in (0, 1, 3, 4)],
    (lambda c: c.positive_definite, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),
    (lambda c: c.independent(c.positive, 1), VECTORS),
    (lambda c: c.independent(c.positive, 3), VECTORS),
    (lambda c: c.MixtureSameFamilyConstraint(c.positive), VECTORS),
    (lambda c: c.MixtureSameFamilyConstraint(c.simplex), VECTORS),
    (lambda c: c.cat([c.positive, c.unit_interval], -1, [1, 2]), VECTORS),
    (lambda c: c.stack([c.positive, c.unit_interval, c.real], -1), VECTORS),
    (lambda c: c.stack([c.positive], 4), VECTORS),
    (lambda c: c.dependent, NUMBERS),
    (lambda c: c.dependent(is_discrete=True, event_dim=1), NUMBERS),
]


@pytest.mark.parametrize("i", range(len(CHECKS)))
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_checks(i: int, device: str) -> None:
    make, x = CHECKS[i]
    ours, theirs = make(LD.constraints), make(TD.constraints)
    got, want = (
        outcome(lambda: ours.check(lucid.tensor(x, device=device))),
        outcome(lambda: theirs.check(torch.tensor(x))),
    )
    if isinstance(want, Exception):
        assert type(got) is type(want) and str(got) == str(want)
        return
    same(got, want, "bool")
    for name in ("is_discrete", "event_dim"):
        assert outcome(lambda n=name: getattr(ours, n)) == outcome(lambda n=name: getattr(theirs, n)) or isinstance(
            outcome(lambda n=name: getattr(theirs, n)), NotImplementedError
        )
    if not isinstance(theirs, type(TD.constraints.dependent)):
        assert repr(ours) == repr(theirs)


def test_names() -> None:
    for ours, theirs in ((LD, TD), (LD.constraints, TD.constraints), (LD.transforms, TD.transforms), (LU, TU)):
        assert not set(theirs.__all__) - set(dir(ours))
    for name in ("constraint_registry", "kl", "studentT", "lowrank_multivariate_normal", "relaxed_bernoulli"):
        assert not set(getattr(TD, name).__all__) - set(dir(getattr(LD, name)))


def test_dependent_properties() -> None:
    assert LD.constraints.is_dependent(LD.Uniform.support) and not LD.constraints.is_dependent(LD.Normal.support)
    assert LD.Binomial.support.is_discrete and LD.Binomial.support.event_dim == 0
    with pytest.raises(NotImplementedError, match="cannot be determined statically"):
        _ = LD.MixtureSameFamily.support.event_dim


# What is refused, with the framework as `m` and its distributions as `d`.
REFUSED = """
d.Normal(0.0, -1.0); d.Normal(m.tensor([NAN, 1.0]), 1.0); d.Normal("a", 1.0); d.Normal(m.zeros(2), m.ones(3))
d.Bernoulli(); d.Bernoulli(0.5, 0.5); d.Bernoulli(1.5); d.Bernoulli(logits=NAN); d.Categorical(); d.Gamma(0.0, 1.0)
d.Categorical(m.tensor(1.0)); d.Categorical(m.tensor([-1.0, 2.0])); d.Categorical(logits=m.tensor(1.0))
d.Dirichlet(m.tensor(1.0)); d.Dirichlet(m.tensor([1.0, -1.0])); d.Beta(-1.0, 1.0); d.Poisson(-1.0); d.Geometric(0.0)
d.Uniform(1.0, 0.0); d.Uniform(m.zeros(2), m.zeros(2)); d.Multinomial(2.5, m.ones(2)); d.Binomial(-1, m.tensor(0.5))
d.MultivariateNormal(m.tensor(0.0), m.eye(1)); d.MultivariateNormal(m.zeros(2)); d.LKJCholesky(1)
d.MultivariateNormal(m.zeros(2), m.eye(2), m.eye(2)); d.MultivariateNormal(m.zeros(2), m.ones(2))
d.MultivariateNormal(m.zeros(2), -m.eye(2)); d.MultivariateNormal(m.zeros(2), scale_tril=m.ones(2, 2))
d.LowRankMultivariateNormal(m.tensor(0.0), m.ones(2, 1), m.ones(2)); d.Wishart(m.tensor(0.5), m.eye(2))
d.LowRankMultivariateNormal(m.zeros(2), m.ones(2), m.ones(2))
d.LowRankMultivariateNormal(m.zeros(2), m.ones(3, 1), m.ones(2))
d.LowRankMultivariateNormal(m.zeros(2), m.ones(2, 1), m.ones(3))
d.LowRankMultivariateNormal(m.zeros(3, 2), m.ones(2, 2, 1), m.ones(2)); d.Wishart(m.tensor(3.0))
d.Wishart(m.tensor(3.0), m.ones(2)); d.Independent(d.Normal(m.zeros(2), 1.0), 2)
d.TransformedDistribution(d.Normal(0.0, 1.0), "x"); d.TransformedDistribution(d.Normal(0.0, 1.0), [1])
d.TransformedDistribution(d.Normal(0.0, 1.0), d.StickBreakingTransform()); d.VonMises(0.0, -1.0)
d.MixtureSameFamily(d.Normal(0.0, 1.0), d.Normal(m.zeros(2), 1.0)); d.MixtureSameFamily(d.Categorical(m.ones(3)), 1)
d.MixtureSameFamily(d.Categorical(m.ones(3)), d.Normal(m.zeros(2), 1.0))
d.MixtureSameFamily(d.Categorical(m.ones(4, 3)), d.Normal(m.zeros(2, 3), 1.0)); d.StudentT(-1.0); d.Weibull(0.0, 1.0)
d.Normal(0.0, 1.0).log_prob(1.0); d.Normal(m.zeros(2), 1.0).log_prob(m.zeros(3))
d.Exponential(1.0).log_prob(m.tensor(-1.0)); d.Bernoulli(0.5).log_prob(m.tensor(0.5))
d.Categorical(m.ones(3)).log_prob(m.tensor(3)); d.Normal(0.0, 1.0).cdf(m.tensor(NAN))
d.Dirichlet(m.ones(3)).log_prob(m.ones(3)); d.Dirichlet(m.ones(3)).log_prob(m.ones(2))
d.Poisson(1.0).log_prob(m.tensor(0.5)); d.Uniform(0.0, 1.0).log_prob(m.tensor(2.0))
d.Gamma(1.0, 1.0).icdf(m.tensor(0.5)); d.Beta(1.0, 1.0).cdf(m.tensor(0.5)); d.Bernoulli(0.5).rsample()
d.Categorical(m.ones(2)).rsample(); d.Categorical(m.ones(2)).cdf(m.tensor(0)); d.Normal(0.0, 1.0).enumerate_support()
d.Independent(d.Bernoulli(m.ones(2)), 1).enumerate_support(); d.Distribution().mean
d.Binomial(m.tensor([1.0, 2.0]), m.tensor(0.5)).enumerate_support(); d.Distribution().sample()
d.Distribution().expand((2,)); d.Distribution.set_default_validate_args(3); d.Poisson(1.0).entropy()
d.CatTransform([1]); d.StackTransform([1]); d.CatTransform([d.ExpTransform()], lengths=[1, 2])
d.CatTransform([d.ExpTransform()])(m.zeros(2)); d.ReshapeTransform((2,), (3,))
d.StackTransform([d.ExpTransform()])(m.zeros(2)); d.IndependentTransform(d.ExpTransform(), 2)(m.zeros(2))
d.Normal(m.zeros(2), 1.0).expand((3,)); d.constraints.independent(1, 1)
d.constraints.independent(d.constraints.real, -1); d.Geometric(probs=m.tensor([0.0, 0.5]))
d.RelaxedBernoulli(m.tensor(1.0)); d.ContinuousBernoulli(m.tensor(2.0), validate_args=True); d.constraints.cat([1])
d.constraints.stack([1]); d.constraints.cat([d.constraints.real], lengths=[1, 2])
"""
LINES = [line.strip() for line in re.split(r"[;\n]", REFUSED) if line.strip()]


@pytest.mark.parametrize("line", LINES)
def test_errors(line: str) -> None:
    made = []
    for m, d in ((lucid, LD), (torch, TD)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made.append(outcome(lambda m=m, d=d: eval(line, {"m": m, "d": d, "NAN": NAN})))
    ours, theirs = made
    assert isinstance(theirs, Exception), f"PyTorch gives {theirs!r}"
    kinds = [k.__name__ for k in type(ours).__mro__] if isinstance(ours, Exception) else repr(ours)
    assert type(theirs).__name__ in kinds, f"{ours!r}, not {theirs!r}"

    def plain(e: Exception) -> str:
        text = str(e).replace("torch", "lucid").replace("dtype=lucid.float32", "").split("found invalid values")[0]
        return re.sub(r"\s+", " ", text).strip()

    # Messages of the distributions themselves are comparable; those of ops are the library's own.
    if isinstance(theirs, ValueError | NotImplementedError | AssertionError) and "Mixture distribution" not in plain(
        theirs
    ):
        assert plain(ours) == plain(theirs) or "event_dim" in plain(theirs) or "probs has invalid" in plain(theirs)


def test_validation_is_set_and_unset() -> None:
    LD.Distribution.set_default_validate_args(False)
    try:
        assert LD.Normal(0.0, -1.0).scale.item() == -1.0
        with pytest.raises(ValueError, match="Expected parameter scale"):
            LD.Normal(0.0, -1.0, validate_args=True)
    finally:
        LD.Distribution.set_default_validate_args(True)
    assert LD.Normal(0.0, -1.0, validate_args=False).expand((2,)).batch_shape == (2,)
    assert LD.Exponential(1.0, validate_args=False).log_prob(lucid.tensor(-1.0)).item() == 1.0

    class Bare(LD.Distribution):
        def log_prob(self, value: Any) -> Any:
            self._validate_sample(value)
            return value

    with pytest.warns(UserWarning, match="does not define `arg_constraints`"):
        bare = Bare()
    with pytest.warns(UserWarning, match="does not define `support`"):
        bare.log_prob(lucid.zeros(()))


def test_subclasses_of_pytorchs_idiom() -> None:
    class Mine(LD.Normal):
        def __init__(self, loc: Any, validate_args: Any = None) -> None:
            super().__init__(loc, 1.0, validate_args=validate_args)

    with pytest.raises(NotImplementedError, match=r"must also define a custom .expand\(\) method"):
        Mine(lucid.zeros(2)).expand((3, 2))

    class Expanding(Mine):
        def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
            new = self._get_checked_instance(Expanding, _instance)
            return super().expand(batch_shape, _instance=new)

    made = Expanding(lucid.zeros(2)).expand((3, 2))
    assert type(made) is Expanding and made.mean.shape == (3, 2)
    with pytest.warns(FutureWarning, match="sample_n"):
        assert made.sample_n(4).shape == (4, 3, 2)


def test_helpers() -> None:
    x = [[0.1, 0.6, 0.3], [0.0, 1.0, 0.0]]
    for binary in (False, True):
        same(LU.probs_to_logits(lucid.tensor(x), binary), TU.probs_to_logits(torch.tensor(x), binary), "float32")
        same(LU.logits_to_probs(lucid.tensor(x), binary), TU.logits_to_probs(torch.tensor(x), binary), "float32")
    same(LU.clamp_probs(lucid.tensor(x)), TU.clamp_probs(torch.tensor(x)), "float32")
    for a, b in zip(
        LU.broadcast_all(1, lucid.ones(2).double()), TU.broadcast_all(1, torch.ones(2).double()), strict=True
    ):
        same(a, b, "float64")
    with pytest.raises(ValueError, match="must all be instances of Number"):
        LU.broadcast_all("x", 1)
    m = lucid.arange(18.0).reshape(2, 3, 3)
    t = torch.arange(18.0).reshape(2, 3, 3)
    for diag in (-2, -1, 0, 1, 2):
        v = LU.tril_matrix_to_vec(m, diag)
        same(v, TU.tril_matrix_to_vec(t, diag), "float32")
        if diag <= 0:
            same(LU.vec_to_tril_matrix(v, diag), TU.vec_to_tril_matrix(TU.tril_matrix_to_vec(t, diag), diag), "float32")
    with pytest.raises(ValueError, match="cannot be expressed as the lower triangular part"):
        LU.vec_to_tril_matrix(lucid.zeros(4))
    for bad in (lambda u, q: u.tril_matrix_to_vec(q.eye(2), 2), lambda u, q: u.vec_to_tril_matrix(q.zeros(5))):
        got, want = outcome(lambda f=bad: f(LU, lucid)), outcome(lambda f=bad: f(TU, torch))
        assert type(got) is type(want) and str(got) == str(want)

    class Lazy:
        calls = 0

        @LU.lazy_property
        def value(self) -> Any:
            """What it is."""
            self.calls += 1
            return lucid.ones(1, requires_grad=True) * 2

    lazy = Lazy()
    with lucid.no_grad():
        assert lazy.value.requires_grad and lazy.value is lazy.value and lazy.calls == 1
    assert isinstance(Lazy.value, property) and isinstance(Lazy.value, LU.lazy_property)
