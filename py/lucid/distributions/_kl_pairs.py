"""Closed forms of Kullback-Leibler divergences.

Between families `KL(p ‖ q) = -H(p) - E_p[log q(x)]`: the entropy of `p`, and the cross entropy with `q`, which takes a
few expectations under `p`. `_Moments` has these of each `p`, `_CROSS` the cross entropy with each `q`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import lucid
import lucid.nn.functional as F
from lucid import Tensor
from lucid.distributions.bernoulli import Bernoulli
from lucid.distributions.beta import Beta
from lucid.distributions.binomial import Binomial
from lucid.distributions.categorical import Categorical
from lucid.distributions.cauchy import Cauchy
from lucid.distributions.continuous_bernoulli import ContinuousBernoulli
from lucid.distributions.dirichlet import Dirichlet
from lucid.distributions.exp_family import ExponentialFamily
from lucid.distributions.exponential import Exponential
from lucid.distributions.gamma import Gamma
from lucid.distributions.geometric import Geometric
from lucid.distributions.gumbel import Gumbel
from lucid.distributions.half_normal import HalfNormal
from lucid.distributions.independent import Independent
from lucid.distributions.kl import kl_divergence, register_kl
from lucid.distributions.laplace import Laplace
from lucid.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal, _lowrank_mahalanobis
from lucid.distributions.multivariate_normal import MultivariateNormal, _batch_mahalanobis, _half_log_det
from lucid.distributions.normal import Normal
from lucid.distributions.one_hot_categorical import OneHotCategorical
from lucid.distributions.pareto import Pareto
from lucid.distributions.poisson import Poisson
from lucid.distributions.transformed_distribution import TransformedDistribution
from lucid.distributions.uniform import Uniform
from lucid.distributions.utils import _sum_rightmost, euler_constant

# ---- one family ------------------------------------------------------------------------------------------------------


def _infinite_where(condition: Tensor, value: Tensor) -> Tensor:
    return lucid.where(condition, math.inf, value)


@register_kl(ExponentialFamily, ExponentialFamily)
def _kl_exponential_families(p: Any, q: Any) -> Tensor:
    """The Bregman divergence of the log normaliser: `F(θq) - F(θp) - <θq - θp, ∇F(θp)>`."""
    if type(p) is not type(q):
        raise NotImplementedError(
            f"The cross KL-divergence between different exponential families cannot be computed: {p}, {q}"
        )
    natural_q = q._natural_params
    _, normalizer_p, grads = p._natural_gradient()
    result = q._log_normalizer(*natural_q) - normalizer_p
    batch = len(lucid.broadcast_shapes(p.batch_shape, q.batch_shape))
    for own, other, grad in zip(p._natural_params, natural_q, grads, strict=True):
        # Of a Wishart distribution one parameter is a matrix, and the other a number.
        term = (other - own) * grad
        result = result - _sum_rightmost(term, max(term.ndim - batch, 0))
    return result


def _weighted_difference(weight: Tensor, mine: Tensor, theirs: Tensor) -> Tensor:
    """`weight (mine - theirs)`, of logarithms, which is 0 for a weight of 0."""
    return lucid.where(weight == 0, 0.0, weight * (mine - theirs))


@register_kl(Bernoulli, Bernoulli)
def _kl_bernoulli(p: Any, q: Any) -> Tensor:
    one = _weighted_difference(p.probs, -F.softplus(-p.logits), -F.softplus(-q.logits))
    zero = _weighted_difference(1 - p.probs, -F.softplus(p.logits), -F.softplus(q.logits))
    impossible = ((q.probs == 0) & (p.probs > 0)) | ((q.probs == 1) & (p.probs < 1))
    return _infinite_where(impossible, one + zero)


@register_kl(Binomial, Binomial)
def _kl_binomial(p: Any, q: Any) -> Tensor:
    if bool((p.total_count < q.total_count).any()):
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    result = p.total_count * (p.probs * (p.logits - q.logits) + F.softplus(q.logits) - F.softplus(p.logits))
    return _infinite_where(p.total_count > q.total_count, result)


@register_kl(Categorical, Categorical)
def _kl_categorical(p: Any, q: Any) -> Tensor:
    terms = _weighted_difference(p.probs, p.logits, q.logits)
    return _infinite_where((q.probs == 0) & (p.probs > 0), terms).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _kl_one_hot_categorical(p: Any, q: Any) -> Tensor:
    return _kl_categorical(p._categorical, q._categorical)


@register_kl(Beta, Beta)
def _kl_beta(p: Any, q: Any) -> Tensor:
    return _kl_dirichlet(p._dirichlet, q._dirichlet)


@register_kl(Dirichlet, Dirichlet)
def _kl_dirichlet(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    log_mean = a.digamma() - a.sum(-1, keepdim=True).digamma()
    normalizers = a.sum(-1).lgamma() - b.sum(-1).lgamma() + (b.lgamma() - a.lgamma()).sum(-1)
    return normalizers + ((a - b) * log_mean).sum(-1)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _kl_continuous_bernoulli(p: Any, q: Any) -> Tensor:
    normalizers = p._cont_bern_log_norm() - q._cont_bern_log_norm()
    return p.mean * (p.logits - q.logits) + normalizers + (-p.probs).log1p() - (-q.probs).log1p()


@register_kl(Exponential, Exponential)
def _kl_exponential(p: Any, q: Any) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - 1 - ratio.log()


@register_kl(Gamma, Gamma)
def _kl_gamma(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    shapes = b.lgamma() - a.lgamma() + (a - b) * a.digamma()
    return shapes + b * (p.rate / q.rate).log() + a * (q.rate / p.rate - 1)


@register_kl(Gumbel, Gumbel)
def _kl_gumbel(p: Any, q: Any) -> Tensor:
    ratio, shift = p.scale / q.scale, (p.loc - q.loc) / q.scale
    tail = (-shift + (ratio + 1).lgamma()).exp()
    return -ratio.log() + shift + euler_constant * (ratio - 1) + tail - 1


@register_kl(Geometric, Geometric)
def _kl_geometric(p: Any, q: Any) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(HalfNormal, HalfNormal)
def _kl_half_normal(p: Any, q: Any) -> Tensor:
    return _kl_normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _kl_laplace(p: Any, q: Any) -> Tensor:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * (-distance / p.scale).exp() - 1


@register_kl(Normal, Normal)
def _kl_normal(p: Any, q: Any) -> Tensor:
    ratio = (p.scale / q.scale).square()
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).square() - 1 - ratio.log())


@register_kl(Pareto, Pareto)
def _kl_pareto(p: Any, q: Any) -> Tensor:
    ratio = q.alpha / p.alpha
    result = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return _infinite_where(p.scale < q.scale, result)


@register_kl(Poisson, Poisson)
def _kl_poisson(p: Any, q: Any) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Uniform, Uniform)
def _kl_uniform(p: Any, q: Any) -> Tensor:
    result = ((q.high - q.low) / (p.high - p.low)).log()
    return _infinite_where((q.low > p.low) | (q.high < p.high), result)


@register_kl(Cauchy, Cauchy)
def _kl_cauchy(p: Any, q: Any) -> Tensor:
    distance = (p.scale + q.scale).square() + (p.loc - q.loc).square()
    return distance.log() - (4 * p.scale * q.scale).log()


@register_kl(TransformedDistribution, TransformedDistribution)
def _kl_transformed(p: Any, q: Any) -> Tensor:
    """A bijection that both share leaves the divergence as it is."""
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _kl_independent(p: Any, q: Any) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    return _sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


# ---- multivariate normal ---------------------------------------------------------------------------------------------


def _log_det(p: Any) -> Tensor:
    if isinstance(p, LowRankMultivariateNormal):
        return p._log_det()
    return 2 * _half_log_det(p._unbroadcasted_scale_tril)


def _roots(p: Any) -> list[Tensor]:
    """Matrices `A` whose products `A Aᵀ` sum to the covariance."""
    if isinstance(p, LowRankMultivariateNormal):
        return [p._unbroadcasted_cov_factor, p._unbroadcasted_cov_diag.sqrt().diag_embed()]
    return [p._unbroadcasted_scale_tril]


def _solved_square(factor: Tensor, right: Tensor) -> Tensor:
    """The sum of the squares of `L⁻¹ A`."""
    lead = lucid.broadcast_shapes(factor.shape[:-2], right.shape[:-2])
    factor, right = factor.expand(lead + factor.shape[-2:]), right.expand(lead + right.shape[-2:])
    return lucid.linalg.solve_triangular(factor, right, upper=False).square().sum((-2, -1))


@register_kl(MultivariateNormal, MultivariateNormal)
@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _kl_multivariate_normal(p: Any, q: Any) -> Tensor:
    """`½ (tr(Σq⁻¹ Σp) + (mq - mp)ᵀ Σq⁻¹ (mq - mp) - n + log det Σq - log det Σp)`."""
    if p.event_shape != q.event_shape:
        names = {MultivariateNormal: "Multivariate", LowRankMultivariateNormal: "Low Rank Multivariate"}
        kinds = [next(name for kind, name in names.items() if isinstance(d, kind)) for d in (p, q)]
        both = f"two {kinds[0]} Normals" if kinds[0] == kinds[1] else f"{kinds[0]} Normal and {kinds[1]} Normal"
        raise ValueError(f"KL-divergence between {both} with different event shapes cannot be computed")
    shift = q.loc - p.loc
    if isinstance(q, LowRankMultivariateNormal):
        w, d, small = q._unbroadcasted_cov_factor, q._unbroadcasted_cov_diag, q._capacitance_tril
        distance = _lowrank_mahalanobis(w, d, shift, small)
        scaled = w.mT / d.unsqueeze(-2)
        trace = sum((a.square() / d.unsqueeze(-1)).sum((-2, -1)) - _solved_square(small, scaled @ a) for a in _roots(p))
    else:
        factor = q._unbroadcasted_scale_tril
        distance = _batch_mahalanobis(factor, shift)
        trace = sum(_solved_square(factor, a) for a in _roots(p))
    return 0.5 * (trace + distance - p.event_shape[0] + _log_det(q) - _log_det(p))


# ---- between families ------------------------------------------------------------------------------------------------


def _x_log_x(x: Tensor) -> Tensor:
    return lucid.xlogy(x, x)


class _Moments:
    """Expectations under a distribution."""

    def __init__(self, p: Any) -> None:
        self.p = p

    @property
    def mean(self) -> Tensor:
        return self.p.mean

    def log(self) -> Tensor:
        """`E[log x]`."""
        p = self.p
        if isinstance(p, Beta):
            return p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
        if isinstance(p, Gamma):
            return p.concentration.digamma() - p.rate.log()
        if isinstance(p, Exponential):
            return -euler_constant - p.rate.log()
        if isinstance(p, Pareto):
            return p.scale.log() + p.alpha.reciprocal()
        return (_x_log_x(p.high) - _x_log_x(p.low)) / (p.high - p.low) - 1

    def log_rest(self) -> Tensor:
        """`E[log(1 - x)]`, of a uniform number."""
        p = self.p
        return (_x_log_x(1 - p.low) - _x_log_x(1 - p.high)) / (p.high - p.low) - 1

    def exp_fall(self, loc: Tensor, scale: Tensor) -> Tensor:
        """`E[exp(-(x - loc) / scale)]`."""
        p = self.p
        if isinstance(p, Normal):
            return ((loc - p.loc) / scale + 0.5 * (p.scale / scale).square()).exp()
        if isinstance(p, Uniform):
            fall = ((loc - p.low) / scale).exp() - ((loc - p.high) / scale).exp()
            return scale / (p.high - p.low) * fall
        power = p.concentration if isinstance(p, Gamma) else 1.0
        return (loc / scale).exp() * (1 + (p.rate * scale).reciprocal()) ** -power

    def distance(self, loc: Tensor) -> Tensor:
        """`E|x - loc|`, of a normal number."""
        z = (self.p.loc - loc) / self.p.scale
        folded = math.sqrt(2 / math.pi) * (-0.5 * z.square()).exp() + z * lucid.erf(z / math.sqrt(2))
        return self.p.scale * folded


def _cross_beta(m: _Moments, q: Any) -> Tensor:
    a, b = q.concentration1, q.concentration0
    log_beta = a.lgamma() + b.lgamma() - (a + b).lgamma()
    return log_beta - (a - 1) * m.log() - (b - 1) * m.log_rest()


def _cross_continuous_bernoulli(m: _Moments, q: Any) -> Tensor:
    return -m.mean * q.logits - (-q.probs).log1p() - q._cont_bern_log_norm()


def _cross_exponential(m: _Moments, q: Any) -> Tensor:
    return q.rate * m.mean - q.rate.log()


def _cross_gamma(m: _Moments, q: Any) -> Tensor:
    normalizer = q.concentration.lgamma() - q.concentration * q.rate.log()
    return normalizer - (q.concentration - 1) * m.log() + q.rate * m.mean


def _cross_gumbel(m: _Moments, q: Any) -> Tensor:
    return q.scale.log() + (m.mean - q.loc) / q.scale + m.exp_fall(q.loc, q.scale)


def _cross_laplace(m: _Moments, q: Any) -> Tensor:
    return (2 * q.scale).log() + m.distance(q.loc) / q.scale


def _cross_normal(m: _Moments, q: Any) -> Tensor:
    square = m.p.variance + (m.mean - q.loc).square()
    return q.scale.log() + 0.5 * math.log(2 * math.pi) + 0.5 * square / q.scale.square()


def _cross_pareto(m: _Moments, q: Any) -> Tensor:
    return (q.alpha + 1) * m.log() - q.alpha.log() - q.alpha * q.scale.log()


def _cross_poisson(m: _Moments, q: Any) -> Tensor:
    # Of 0 and 1, whose factorials are 1.
    return q.rate - m.mean * q.rate.log()


def _cross_uniform(m: _Moments, q: Any) -> Tensor:
    return (q.high - q.low).log()


_CROSS: dict[type, Callable[[_Moments, Any], Tensor]] = {
    Beta: _cross_beta,
    ContinuousBernoulli: _cross_continuous_bernoulli,
    Exponential: _cross_exponential,
    Gamma: _cross_gamma,
    Gumbel: _cross_gumbel,
    Laplace: _cross_laplace,
    Normal: _cross_normal,
    Pareto: _cross_pareto,
    Poisson: _cross_poisson,
    Uniform: _cross_uniform,
}

#: The pairs with a finite divergence, at least for some parameters.
_FINITE: dict[type, tuple[type, ...]] = {
    Bernoulli: (Poisson,),
    Beta: (ContinuousBernoulli, Exponential, Gamma, Normal, Uniform),
    ContinuousBernoulli: (Exponential, Normal, Uniform),
    Exponential: (Gamma, Gumbel, Normal),
    Gamma: (Exponential, Gumbel, Normal),
    Gumbel: (Normal,),
    Laplace: (Normal,),
    Normal: (Gumbel, Laplace),
    Pareto: (Exponential, Gamma, Normal),
    Uniform: (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Normal, Pareto),
}

#: The pairs where `p` always gives values that `q` cannot.
_INFINITE: dict[type, tuple[type, ...]] = {
    Beta: (Pareto,),
    ContinuousBernoulli: (Pareto,),
    Exponential: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gamma: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gumbel: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Laplace: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Normal: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Pareto: (Beta, ContinuousBernoulli, Uniform),
    Poisson: (Bernoulli, Binomial),
}


def _ends(d: Any) -> tuple[Any, Any]:
    """The lowest and the highest value of a distribution on an interval."""
    if isinstance(d, Uniform):
        return d.low, d.high
    if isinstance(d, Beta | ContinuousBernoulli):
        return 0.0, 1.0
    if isinstance(d, Pareto):
        return d.scale, math.inf
    if isinstance(d, Exponential | Gamma):
        return 0.0, math.inf
    return -math.inf, math.inf


def _kl_across(p: Any, q: Any) -> Tensor:
    cross = next(function for kind, function in _CROSS.items() if isinstance(q, kind))
    result = cross(_Moments(p), q) - p.entropy()
    if isinstance(p, Pareto):
        # The moments that the tail does not have.
        result = _infinite_where(p.alpha <= (2 if isinstance(q, Normal) else 1), result)
    if isinstance(p, Bernoulli):
        return result
    (low, high), (least, most) = _ends(p), _ends(q)
    outside = lucid.as_tensor(low < least) | lucid.as_tensor(high > most)
    return _infinite_where(outside.to(result.device), result)


def _kl_infinite(p: Any, q: Any) -> Tensor:
    shape = lucid.broadcast_shapes(p.batch_shape, q.batch_shape)
    return lucid.full(shape, math.inf, dtype=p.mean.dtype, device=p.mean.device)


for _p, _others in _FINITE.items():
    for _q in _others:
        register_kl(_p, _q)(_kl_across)
for _p, _others in _INFINITE.items():
    for _q in _others:
        register_kl(_p, _q)(_kl_infinite)
