"""Densities, moments, entropies and their gradients, against PyTorch's."""

from __future__ import annotations

from typing import Any

import lucid
import pytest
import torch

from tests.python.parity.distributions.distribution_cases import (
    Case,
    array,
    cases,
    make,
    outcome,
    places,
    same,
    values,
)

# PyTorch's von Mises uses polynomials of seven digits for Bessel functions.
LOOSE = {"von-mises": 1e4}


def both(case: Case, dtype: str, device: str, f: Any, gradient: bool = False) -> None:
    """Compares what `f` of a distribution and of values gives, or that both refuse."""
    if case.cls == "GeneralizedPareto":
        # PyTorch compares the concentration with a float32 zero, and so takes no other dtype.
        dtype = "float32"
    made = []
    for m in (lucid, torch):
        d, params = make(m, case, dtype, device, grad=gradient)
        x = values(m, case, dtype, device)
        got = outcome(lambda d=d, x=x: f(d, x))
        if gradient and not isinstance(got, Exception):
            if not got.requires_grad:
                return
            grads = outcome(
                lambda got=got, p=params, m=m: m.autograd.grad(got.sum(), list(p.values()), allow_unused=True)
            )
            got = [] if isinstance(grads, Exception) else list(grads)
            # What no op reads of a triangular matrix: PyTorch's `cholesky_solve` gives it a gradient.
            got = [g.tril() if n == "scale_tril" and g is not None else g for n, g in zip(params, got, strict=False)]
        made.append(got)
    ours, theirs = made
    if isinstance(theirs, Exception):
        assert isinstance(ours, type(theirs)) or isinstance(theirs, AttributeError), f"{ours!r}, not {theirs!r}"
        return
    assert not isinstance(ours, Exception), ours
    scale = LOOSE.get(case.name, 1.0) if dtype == "float64" else LOOSE.get(case.name, 1.0) ** 0.5
    if not gradient:
        same(ours, theirs, dtype, scale=scale, what=case.name)
        return
    for a, b in zip(ours, theirs, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            same(a, b, dtype, gradient=True, scale=scale, what=case.name)


@cases
@places
def test_log_prob(case: Case, device: str, dtype: str) -> None:
    both(case, dtype, device, lambda d, x: d.log_prob(x))


@cases
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_log_prob_gradients(case: Case, device: str) -> None:
    both(case, "float64" if device == "cpu" else "float32", device, lambda d, x: d.log_prob(x), gradient=True)


@cases
@pytest.mark.parametrize("name", ["mean", "mode", "variance", "stddev"])
def test_moments(case: Case, name: str) -> None:
    for dtype, device in (("float64", "cpu"), ("float32", "gpu")):
        both(case, dtype, device, lambda d, x: getattr(d, name))


@cases
def test_entropy(case: Case) -> None:
    for dtype, device in (("float64", "cpu"), ("float32", "gpu")):
        both(case, dtype, device, lambda d, x: d.entropy())
        both(case, dtype, device, lambda d, x: d.perplexity())
    both(case, "float64", "cpu", lambda d, x: d.entropy(), gradient=True)


@cases
def test_cdf_and_icdf(case: Case) -> None:
    for dtype, device in (("float64", "cpu"), ("float32", "gpu")):
        both(case, dtype, device, lambda d, x: d.cdf(x))
        both(case, dtype, device, lambda d, x: d.icdf(0.01 + 0.9 * (x - x.min()) / (x.max() - x.min() + 1)))
    both(case, "float64", "cpu", lambda d, x: d.cdf(x), gradient=True)
    # One is the inverse of the other.
    d, _ = make(lucid, case, "float64", "cpu")
    x = values(lucid, case, "float64", "cpu")
    back = outcome(lambda: d.icdf(d.cdf(x)))
    if not isinstance(back, Exception):
        same(back, x.expand(back.shape), "float64", scale=1e3)


@cases
def test_shapes_and_expand(case: Case) -> None:
    dtype = "float32" if case.cls == "GeneralizedPareto" else "float64"
    ours, _ = make(lucid, case, dtype, "cpu")
    theirs, _ = make(torch, case, dtype, "cpu")
    for d, t in ((ours, theirs), (ours.expand((2, *ours.batch_shape)), theirs.expand((2, *theirs.batch_shape)))):
        assert tuple(d.batch_shape) == tuple(t.batch_shape)
        assert tuple(d.event_shape) == tuple(t.event_shape)
        assert isinstance(d, type(ours))
        for shape in ((), (2,), (2, 3)):
            x = d.sample(shape)
            assert tuple(x.shape) == tuple(t.sample(shape).shape)
            assert not x.requires_grad
            assert d.log_prob(x).shape == shape + d.batch_shape
        x, y = (values(m, case, dtype, "cpu") for m in (lucid, torch))
        same(d.log_prob(x), t.log_prob(y), dtype, scale=LOOSE.get(case.name, 1.0))
        assert d.has_enumerate_support == t.has_enumerate_support
        assert d.has_rsample == t.has_rsample or case.cls in ("VonMises",)


@cases
def test_repr_and_constraints(case: Case) -> None:
    ours, _ = make(lucid, case, "float32", "cpu")
    theirs, _ = make(torch, case, "float32", "cpu")
    assert repr(ours).replace("lucid.Size", "torch.Size") == repr(theirs)
    assert repr(ours.support) == repr(theirs.support)
    assert ours.arg_constraints.keys() == theirs.arg_constraints.keys()
    for name, constraint in ours.arg_constraints.items():
        assert repr(constraint) == repr(theirs.arg_constraints[name])
    x, y = ours.sample((20,)), theirs.sample((20,))
    assert bool(ours.support.check(x).all())
    assert str(x.dtype).split(".")[-1] == str(y.dtype).split(".")[-1]
    assert ours.support.is_discrete == theirs.support.is_discrete
    assert ours.support.event_dim == theirs.support.event_dim


@cases
def test_enumerate_support(case: Case) -> None:
    for expand in (True, False):
        both(case, "float32", "gpu", lambda d, x, e=expand: d.enumerate_support(expand=e).to(x.dtype))


@cases
def test_a_seed_gives_the_same_numbers_on_both_devices(case: Case) -> None:
    drawn = []
    for device in ("cpu", "gpu"):
        d, _ = make(lucid, case, "float32", device)
        lucid.manual_seed(5)
        drawn.append(array(d.sample((50,))))
    same(lucid.tensor(drawn[1]), lucid.tensor(drawn[0]), "float32", scale=30.0, what=case.name)


def test_generators_are_taken() -> None:
    d = lucid.distributions.Gamma(lucid.tensor([2.0]), 1.0)
    g = lucid.Generator()
    a = d.sample((3,), generator=g.manual_seed(4))
    b = d.sample((3,), generator=g.manual_seed(4))
    assert bool((a == b).all())
