"""Probability distributions, with densities, samples, gradients through samples, transforms and KL divergences.

Distributions take tensors as parameters, which broadcast. `sample` draws; `rsample` draws with gradients in the
parameters where `has_rsample` is True; `log_prob` gives densities, whose gradients make policy gradients and maximum
likelihood.
Samples come from the library's generator: a seed gives the same numbers on both devices.

Policy gradient::

    m = Categorical(logits=policy(state))
    action = m.sample()
    loss = -m.log_prob(action) * reward

Variational inference::

    z = Normal(mean, scale).rsample()
    loss = -likelihood(z) + kl_divergence(Normal(mean, scale), Normal(0.0, 1.0)).sum()
"""

from lucid.distributions.bernoulli import Bernoulli as Bernoulli
from lucid.distributions.beta import Beta as Beta
from lucid.distributions.binomial import Binomial as Binomial
from lucid.distributions.categorical import Categorical as Categorical
from lucid.distributions.cauchy import Cauchy as Cauchy
from lucid.distributions.chi2 import Chi2 as Chi2
from lucid.distributions.constraint_registry import biject_to as biject_to
from lucid.distributions.constraint_registry import transform_to as transform_to
from lucid.distributions.continuous_bernoulli import ContinuousBernoulli as ContinuousBernoulli
from lucid.distributions.dirichlet import Dirichlet as Dirichlet
from lucid.distributions.distribution import Distribution as Distribution
from lucid.distributions.exp_family import ExponentialFamily as ExponentialFamily
from lucid.distributions.exponential import Exponential as Exponential
from lucid.distributions.fishersnedecor import FisherSnedecor as FisherSnedecor
from lucid.distributions.gamma import Gamma as Gamma
from lucid.distributions.generalized_pareto import GeneralizedPareto as GeneralizedPareto
from lucid.distributions.geometric import Geometric as Geometric
from lucid.distributions.gumbel import Gumbel as Gumbel
from lucid.distributions.half_cauchy import HalfCauchy as HalfCauchy
from lucid.distributions.half_normal import HalfNormal as HalfNormal
from lucid.distributions.independent import Independent as Independent
from lucid.distributions.inverse_gamma import InverseGamma as InverseGamma
from lucid.distributions.kl import kl_divergence as kl_divergence
from lucid.distributions.kl import register_kl as register_kl
from lucid.distributions.kumaraswamy import Kumaraswamy as Kumaraswamy
from lucid.distributions.laplace import Laplace as Laplace
from lucid.distributions.lkj_cholesky import LKJCholesky as LKJCholesky
from lucid.distributions.log_normal import LogNormal as LogNormal
from lucid.distributions.logistic_normal import LogisticNormal as LogisticNormal
from lucid.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal as LowRankMultivariateNormal
from lucid.distributions.mixture_same_family import MixtureSameFamily as MixtureSameFamily
from lucid.distributions.multinomial import Multinomial as Multinomial
from lucid.distributions.multivariate_normal import MultivariateNormal as MultivariateNormal
from lucid.distributions.negative_binomial import NegativeBinomial as NegativeBinomial
from lucid.distributions.normal import Normal as Normal
from lucid.distributions.one_hot_categorical import OneHotCategorical as OneHotCategorical
from lucid.distributions.one_hot_categorical import OneHotCategoricalStraightThrough as OneHotCategoricalStraightThrough
from lucid.distributions.pareto import Pareto as Pareto
from lucid.distributions.poisson import Poisson as Poisson
from lucid.distributions.relaxed_bernoulli import RelaxedBernoulli as RelaxedBernoulli
from lucid.distributions.relaxed_categorical import RelaxedOneHotCategorical as RelaxedOneHotCategorical
from lucid.distributions.studentT import StudentT as StudentT
from lucid.distributions.transformed_distribution import TransformedDistribution as TransformedDistribution
from lucid.distributions.transforms import AbsTransform as AbsTransform
from lucid.distributions.transforms import AffineTransform as AffineTransform
from lucid.distributions.transforms import CatTransform as CatTransform
from lucid.distributions.transforms import ComposeTransform as ComposeTransform
from lucid.distributions.transforms import CorrCholeskyTransform as CorrCholeskyTransform
from lucid.distributions.transforms import CumulativeDistributionTransform as CumulativeDistributionTransform
from lucid.distributions.transforms import ExpTransform as ExpTransform
from lucid.distributions.transforms import IndependentTransform as IndependentTransform
from lucid.distributions.transforms import LowerCholeskyTransform as LowerCholeskyTransform
from lucid.distributions.transforms import PositiveDefiniteTransform as PositiveDefiniteTransform
from lucid.distributions.transforms import PowerTransform as PowerTransform
from lucid.distributions.transforms import ReshapeTransform as ReshapeTransform
from lucid.distributions.transforms import SigmoidTransform as SigmoidTransform
from lucid.distributions.transforms import SoftmaxTransform as SoftmaxTransform
from lucid.distributions.transforms import SoftplusTransform as SoftplusTransform
from lucid.distributions.transforms import StackTransform as StackTransform
from lucid.distributions.transforms import StickBreakingTransform as StickBreakingTransform
from lucid.distributions.transforms import TanhTransform as TanhTransform
from lucid.distributions.transforms import Transform as Transform
from lucid.distributions.transforms import identity_transform as identity_transform
from lucid.distributions.uniform import Uniform as Uniform
from lucid.distributions.von_mises import VonMises as VonMises
from lucid.distributions.weibull import Weibull as Weibull
from lucid.distributions.wishart import Wishart as Wishart

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "CatTransform",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ComposeTransform",
    "ContinuousBernoulli",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "Dirichlet",
    "Distribution",
    "ExpTransform",
    "Exponential",
    "ExponentialFamily",
    "FisherSnedecor",
    "Gamma",
    "GeneralizedPareto",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "IndependentTransform",
    "InverseGamma",
    "Kumaraswamy",
    "LKJCholesky",
    "Laplace",
    "LogNormal",
    "LogisticNormal",
    "LowRankMultivariateNormal",
    "LowerCholeskyTransform",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "StudentT",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "VonMises",
    "Weibull",
    "Wishart",
    "biject_to",
    "identity_transform",
    "kl_divergence",
    "register_kl",
    "transform_to",
]
