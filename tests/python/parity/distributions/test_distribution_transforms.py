"""Transforms, their inverses, log determinants, domains and shapes, and the registries, against PyTorch's."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import lucid
import lucid.distributions as LD
import pytest
import torch
import torch.distributions as TD

from tests.python.parity.distributions.distribution_cases import outcome, places, same

V = [[0.3, -1.2, 0.8], [2.0, 0.1, -0.4]]
M = [[0.3, -1.2], [0.8, 0.5]]
# What makes a transform of a module of distributions `d` and its framework `m`, with what it is applied to.
TRANSFORMS: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "abs": (lambda d, m: d.AbsTransform(), V),
    "affine": (lambda d, m: d.AffineTransform(0.5, -2.0), V),
    "affine-event": (lambda d, m: d.AffineTransform(0.5, -2.0, event_dim=1), V),
    "affine-cached": (lambda d, m: d.AffineTransform(0.5, 3.0, cache_size=1), V),
    "cat": (lambda d, m: d.CatTransform([d.ExpTransform(), d.AffineTransform(1.0, 2.0)], dim=-1, lengths=[1, 2]), V),
    "cat-events": (
        lambda d, m: d.CatTransform([d.CorrCholeskyTransform(), d.CorrCholeskyTransform()], dim=0, lengths=[1, 1]),
        V,
    ),
    "cdf": (lambda d, m: d.CumulativeDistributionTransform(d.Normal(0.3, 2.0)), V),
    "compose": (
        lambda d, m: d.ComposeTransform([d.AffineTransform(0.1, 0.4), d.ExpTransform(), d.PowerTransform(2.0)]),
        V,
    ),
    "compose-events": (lambda d, m: d.ComposeTransform([d.ExpTransform(), d.ReshapeTransform((3,), (3, 1))]), V),
    "compose-inverse": (
        lambda d, m: d.ComposeTransform([d.TanhTransform(), d.AffineTransform(0.0, 2.0)]).inv,
        [[0.3, -1.2]],
    ),
    "compose-none": (lambda d, m: d.ComposeTransform([]), V),
    "corr-cholesky": (lambda d, m: d.CorrCholeskyTransform(), V),
    "corr-cholesky-6": (lambda d, m: d.CorrCholeskyTransform(), [0.3, -1.2, 0.8, 2.0, 0.1, -0.4]),
    "exp": (lambda d, m: d.ExpTransform(), V),
    "exp-inverse": (lambda d, m: d.ExpTransform().inv, [0.3, 2.0]),
    "independent": (lambda d, m: d.IndependentTransform(d.ExpTransform(), 1), V),
    "lower-cholesky": (lambda d, m: d.LowerCholeskyTransform(), M),
    "positive-definite": (lambda d, m: d.PositiveDefiniteTransform(), M),
    "power": (lambda d, m: d.PowerTransform(-0.5), [0.3, 2.0]),
    "reshape": (lambda d, m: d.ReshapeTransform((3,), (1, 3)), V),
    "sigmoid": (lambda d, m: d.SigmoidTransform(), V),
    "sigmoid-far": (lambda d, m: d.SigmoidTransform(), [-200.0, 200.0, 20.0]),
    "softmax": (lambda d, m: d.SoftmaxTransform(), V),
    "softplus": (lambda d, m: d.SoftplusTransform(), V),
    "stack": (lambda d, m: d.StackTransform([d.ExpTransform(), d.TanhTransform(), d.SigmoidTransform()], dim=-1), V),
    "stick-breaking": (lambda d, m: d.StickBreakingTransform(), V),
    "tanh": (lambda d, m: d.TanhTransform(), V),
    "tanh-far": (lambda d, m: d.TanhTransform(), [-6.0, 6.0]),
}
transforms = pytest.mark.parametrize("name", TRANSFORMS)


def pair(name: str, dtype: str, device: str) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    make, x = TRANSFORMS[name]
    ours = lucid.tensor(x, dtype=getattr(lucid, dtype), device=device, requires_grad=True)
    return (make(LD, lucid), ours), (make(TD, torch), torch.tensor(x, dtype=getattr(torch, dtype), requires_grad=True))


def agree(f: Callable[..., Any], a: tuple[Any, ...], b: tuple[Any, ...], dtype: str, gradient: bool = True) -> Any:
    """Compares results and gradients, or kinds of errors; gives ours."""
    ours, theirs = outcome(lambda: f(*a)), outcome(lambda: f(*b))
    if isinstance(theirs, Exception):
        assert isinstance(ours, type(theirs)), f"{ours!r}, not {theirs!r}"
        return None
    assert not isinstance(ours, Exception), ours
    if str(theirs.dtype).endswith(dtype):
        same(ours, theirs, dtype, scale=20.0)
    else:
        same(ours.to(getattr(lucid, dtype)), theirs.to(getattr(torch, dtype)), dtype, scale=20.0)
    if gradient and theirs.requires_grad:
        weights = (torch.arange(theirs.numel(), dtype=theirs.dtype) + 1).reshape(theirs.shape)
        (theirs * weights).sum().backward()
        (ours * lucid.tensor(weights.numpy(), device=ours.device)).sum().backward()
        grads = [x.grad.to(getattr(m, dtype)) for x, m in ((a[1], lucid), (b[1], torch))]
        same(grads[0], grads[1], dtype, gradient=True, scale=20.0)
        a[1].grad = b[1].grad = None
    return ours


@transforms
@places
def test_values_and_gradients(name: str, device: str, dtype: str) -> None:
    a, b = pair(name, dtype, device)
    if name == "cdf":
        # Its parameters are numbers, and so float32.
        dtype = "float32"
    y = agree(lambda t, x: t(x), a, b, dtype)
    agree(lambda t, x: t.inv(t(x).detach()), a, b, dtype, gradient=False)
    agree(lambda t, x: t.log_abs_det_jacobian(x, t(x)), a, b, dtype)
    agree(lambda t, x: t.inv.log_abs_det_jacobian(t(x), x), a, b, dtype)
    assert y is not None and y.device.type == ("cpu" if device == "cpu" else lucid.zeros(1, device="gpu").device.type)


@transforms
def test_attributes(name: str) -> None:
    (t, x), (u, z) = pair(name, "float64", "cpu")
    assert t.bijective == u.bijective
    for side in ("domain", "codomain"):
        ours, theirs = getattr(t, side), getattr(u, side)
        assert repr(ours) == repr(theirs)
        assert ours.event_dim == theirs.event_dim
        assert ours.is_discrete == theirs.is_discrete
    assert repr(t) == repr(u) and repr(t.inv) == repr(u.inv)
    assert t.inv.inv is t
    assert tuple(t.forward_shape(x.shape)) == tuple(u.forward_shape(z.shape))
    assert tuple(t.inverse_shape(t(x).shape)) == tuple(u.inverse_shape(u(z).shape))
    sign, want = outcome(lambda: t.sign), outcome(lambda: u.sign)
    assert isinstance(sign, type(want)) if isinstance(want, Exception) else float(sign) == float(want)
    assert isinstance(outcome(lambda: t.event_dim), ValueError) or t.event_dim == u.event_dim
    other = TRANSFORMS[name][0](LD, lucid)
    assert (t == other) == (u == TRANSFORMS[name][0](TD, torch))
    assert t == t and t != LD.Transform()
    wrong = [(), (1,), (2, 2, 3)]
    for shape in wrong:
        got, want = outcome(lambda s=shape: t.forward_shape(s)), outcome(lambda s=shape: u.forward_shape(s))
        assert type(got).__name__ == type(want).__name__ or tuple(got) == tuple(want)


@transforms
def test_log_determinants_are_those_of_the_jacobian(name: str) -> None:
    t, x = pair(name, "float64", "cpu")[0]
    if not t.bijective or name in ("cat-events", "sigmoid-far"):
        return
    flat = x.detach()
    if t.domain.event_dim <= 1 < flat.dim():
        flat = flat[0]
    y = t(flat)
    if y.numel() != flat.numel():
        return
    jacobian = lucid.func.jacrev(t)(flat).reshape(flat.numel(), flat.numel())
    got = t.log_abs_det_jacobian(flat, y).sum()
    same(got, lucid.linalg.slogdet(jacobian).logabsdet, "float64", scale=1e3)


def test_caches_give_back_what_was_mapped() -> None:
    for t in (
        LD.TanhTransform(cache_size=1),
        LD.TanhTransform().with_cache(),
        LD.AffineTransform(1.0, 2.0).with_cache(1),
    ):
        x = lucid.tensor([20.0, 0.3])
        y = t(x)
        assert t.inv(y) is x and t(x) is y
        assert t.with_cache(1) is t and t.with_cache(0)._cache_size == 0
    with pytest.raises(ValueError, match="cache_size must be 0 or 1"):
        LD.ExpTransform(cache_size=2)
    back = pickle.loads(pickle.dumps(LD.ExpTransform(cache_size=1)))
    assert back == LD.ExpTransform() and back._cache_size == 1

    class Mine(LD.Transform):
        def __init__(self) -> None:
            super().__init__()

    with pytest.raises(NotImplementedError, match="with_cache is not implemented"):
        Mine().with_cache()
    with pytest.raises(NotImplementedError):
        Mine()(lucid.zeros(1))


CONSTRAINTS: list[Callable[[Any, Any], Any]] = [
    lambda c, m: c.real,
    lambda c, m: c.real_vector,
    lambda c, m: c.positive,
    lambda c, m: c.nonnegative,
    lambda c, m: c.greater_than(m.tensor([0.5, -1.0])),
    lambda c, m: c.greater_than_eq(0.5),
    lambda c, m: c.less_than(0.5),
    lambda c, m: c.unit_interval,
    lambda c, m: c.interval(-1.0, 3.0),
    lambda c, m: c.half_open_interval(-1.0, 3.0),
    lambda c, m: c.simplex,
    lambda c, m: c.lower_cholesky,
    lambda c, m: c.corr_cholesky,
    lambda c, m: c.positive_definite,
    lambda c, m: c.positive_semidefinite,
    lambda c, m: c.independent(c.positive, 1),
    lambda c, m: c.cat([c.positive, c.real], -1, [1, 1]),
    lambda c, m: c.stack([c.positive, c.unit_interval], -1),
    lambda c, m: c.boolean,
    lambda c, m: c.dependent,
    lambda c, m: c.one_hot,
]


@pytest.mark.parametrize("i", range(len(CONSTRAINTS)))
@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
def test_registries(i: int, registry: str) -> None:
    ours, theirs = CONSTRAINTS[i](LD.constraints, lucid), CONSTRAINTS[i](TD.constraints, torch)
    t, u = outcome(lambda: getattr(LD, registry)(ours)), outcome(lambda: getattr(TD, registry)(theirs))
    if isinstance(u, Exception):
        assert type(t) is type(u) and str(t) == str(u)
        return
    x: Any = [[0.3, -0.4], [1.2, 0.7]] if ours.event_dim == 2 else [0.3, -0.4]
    if "Corr" in repr(ours):
        x = [[0.3], [0.9]]
    y = t(lucid.tensor(x))
    same(y, u(torch.tensor(x)), "float32")
    assert bool(ours.check(y).all())
    if t.bijective:
        same(t.inv(y), torch.tensor(x), "float32", scale=3.0)


def test_registering() -> None:
    with pytest.raises(TypeError, match="Expected constraint to be either a Constraint subclass or instance"):
        LD.biject_to.register(3, lambda c: LD.ExpTransform())

    class Even(LD.constraints.Constraint):
        pass

    @LD.transform_to.register(Even)
    def even(constraint: Any) -> LD.Transform:
        return LD.ExpTransform()

    assert LD.transform_to(Even()) == LD.ExpTransform()
    with pytest.raises(NotImplementedError, match="Cannot transform Even constraints"):
        LD.biject_to(Even())


TRANSFORMED: list[Callable[[Any, Any], Any]] = [
    lambda d, m: d.TransformedDistribution(d.Normal(m.zeros(3), 1.0), d.ExpTransform()),
    lambda d, m: d.TransformedDistribution(
        d.Normal(m.zeros(2, 3), 1.0), [d.AffineTransform(m.ones(3), -2.0), d.SigmoidTransform()]
    ),
    lambda d, m: d.TransformedDistribution(d.Normal(0.0, 1.0), [d.AffineTransform(m.zeros(2, 3), 2.0)]),
    lambda d, m: d.TransformedDistribution(d.Normal(m.zeros(2, 3), 1.0), d.StickBreakingTransform()),
    lambda d, m: d.TransformedDistribution(d.MultivariateNormal(m.zeros(3), m.eye(3)), d.CorrCholeskyTransform()),
    lambda d, m: d.TransformedDistribution(d.Normal(m.zeros(2, 3), 1.0), d.ReshapeTransform((2, 3), (3, 2))),
    lambda d, m: d.TransformedDistribution(
        d.Uniform(m.zeros(3), 1.0), [d.SigmoidTransform().inv, d.AffineTransform(1.0, 3.0)]
    ),
    lambda d, m: d.TransformedDistribution(d.Normal(m.zeros(3), 1.0), []),
    lambda d, m: d.Independent(d.TransformedDistribution(d.Normal(m.zeros(2, 3), 1.0), d.ExpTransform()), 1),
    lambda d, m: d.MixtureSameFamily(d.Categorical(m.ones(3)), d.Normal(m.arange(3.0), 1.0)),
    lambda d, m: d.MixtureSameFamily(d.Categorical(m.ones(2, 3)), d.Independent(d.Normal(m.zeros(2, 3, 4), 1.0), 1)),
    lambda d, m: d.MixtureSameFamily(d.Categorical(m.ones(3)), d.MultivariateNormal(m.ones(2, 3, 2), m.eye(2))),
    lambda d, m: d.Independent(d.Bernoulli(m.full((2, 3), 0.4)), 0),
]


@pytest.mark.parametrize("i", range(len(TRANSFORMED)))
def test_compound_distributions(i: int) -> None:
    lucid.manual_seed(3)
    d, t = TRANSFORMED[i](LD, lucid), TRANSFORMED[i](TD, torch)
    for a, b in ((d, t), (d.expand((2, *d.batch_shape)), t.expand((2, *t.batch_shape)))):
        assert tuple(a.batch_shape) == tuple(b.batch_shape) and tuple(a.event_shape) == tuple(b.event_shape)
        assert a.has_rsample == b.has_rsample and a.has_enumerate_support == b.has_enumerate_support
        assert repr(a.support).replace("lucid", "torch") == repr(b.support)
        x = a.sample((5,))
        y = torch.tensor(x.numpy())
        drawn = outcome(lambda b=b: b.sample((5,)))
        # PyTorch does not sample components with a batch whose weights have none.
        assert isinstance(drawn, RuntimeError) or tuple(drawn.shape) == tuple(x.shape)
        for f in ("log_prob", "cdf"):
            got, want = outcome(lambda f=f, a=a, x=x: getattr(a, f)(x)), outcome(lambda f=f, b=b, y=y: getattr(b, f)(y))
            assert type(got) is type(want) if isinstance(want, Exception) else True
            if not isinstance(want, Exception):
                same(got, want, "float32", scale=10.0)
        for f in ("mean", "variance", "mode"):
            got, want = outcome(lambda f=f, a=a: getattr(a, f)), outcome(lambda f=f, b=b: getattr(b, f))
            assert type(got) is type(want) if isinstance(want, Exception) else True
            if not isinstance(want, Exception):
                same(got, want, "float32")
        if isinstance(a, LD.TransformedDistribution) and a.event_shape == ():
            p = torch.tensor([0.1, 0.5, 0.9])
            same(a.icdf(lucid.tensor(p.numpy())), b.icdf(p), "float32", scale=10.0)
