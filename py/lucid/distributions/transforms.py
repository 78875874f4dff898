"""Transforms of random variables: of numbers, of vectors and of matrices."""

from __future__ import annotations

import math
from numbers import Number
from typing import Any

import lucid
import lucid.nn.functional as F
from lucid import Tensor
from lucid.distributions import constraints
from lucid.distributions._joined_transforms import CatTransform as CatTransform
from lucid.distributions._joined_transforms import StackTransform as StackTransform
from lucid.distributions._transform_base import TOO_FEW
from lucid.distributions._transform_base import ComposeTransform as ComposeTransform
from lucid.distributions._transform_base import IndependentTransform as IndependentTransform
from lucid.distributions._transform_base import ReshapeTransform as ReshapeTransform
from lucid.distributions._transform_base import Transform as Transform
from lucid.distributions._transform_base import _InverseTransform as _InverseTransform
from lucid.distributions._transform_base import identity_transform as identity_transform
from lucid.distributions.utils import broadcast_all, lazy_property, tril_matrix_to_vec, vec_to_tril_matrix

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "CatTransform",
    "ComposeTransform",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "ExpTransform",
    "IndependentTransform",
    "LowerCholeskyTransform",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "TanhTransform",
    "Transform",
    "identity_transform",
]


class _Plain(Transform):
    """A transform without parameters: all of a class are equal."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    __hash__ = None


# ---- numbers ---------------------------------------------------------------------------------------------------------


class ExpTransform(_Plain):
    """`y = exp(x)`.

    Args:
        cache_size (int): 0 or 1. Default: 0.

    Example:
        >>> ExpTransform()(lucid.tensor(0.0))
        tensor(1.)
    """

    domain = constraints.real
    codomain = constraints.positive
    bijective = True
    sign = 1

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class PowerTransform(Transform):
    """`y = x ** exponent`, of positive numbers.

    Args:
        exponent (Tensor or float): the exponent, of a shape that broadcasts with `x`.
        cache_size (int): 0 or 1. Default: 0.

    Example:
        >>> PowerTransform(2.0)(lucid.tensor(3.0))
        tensor(9.)
    """

    domain = constraints.positive
    codomain = constraints.positive
    bijective = True

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        (self.exponent,) = broadcast_all(exponent)

    def _arguments(self) -> tuple[Any, ...]:
        return (self.exponent,)

    @lazy_property
    def sign(self) -> Any:
        return self.exponent.sign()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and bool(self.exponent.eq(other.exponent).all())

    __hash__ = None

    def _call(self, x: Tensor) -> Tensor:
        return x.pow(self.exponent)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Any) -> Any:
        return lucid.broadcast_shapes(shape, self.exponent.shape)

    inverse_shape = forward_shape


def _clipped_sigmoid(x: Tensor) -> Tensor:
    info = lucid.finfo(x.dtype)
    return lucid.sigmoid(x).clamp(min=info.tiny, max=1.0 - info.eps)


class SigmoidTransform(_Plain):
    """`y = 1 / (1 + exp(-x))`, kept off 0 and 1; its inverse is the logit.

    Args:
        cache_size (int): 0 or 1. Default: 0.

    Example:
        >>> SigmoidTransform()(lucid.tensor(0.0))
        tensor(0.5000)
    """

    domain = constraints.real
    codomain = constraints.unit_interval
    bijective = True
    sign = 1

    def _call(self, x: Tensor) -> Tensor:
        return _clipped_sigmoid(x)

    def _inverse(self, y: Tensor) -> Tensor:
        info = lucid.finfo(y.dtype)
        y = y.clamp(min=info.tiny, max=1.0 - info.eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -F.softplus(-x) - F.softplus(x)


class SoftplusTransform(_Plain):
    """`y = log(1 + exp(x))`; `x` itself where that is above 20.

    Args:
        cache_size (int): 0 or 1. Default: 0.

    Example:
        >>> SoftplusTransform()(lucid.tensor(0.0))
        tensor(0.6931)
    """

    domain = constraints.real
    codomain = constraints.positive
    bijective = True
    sign = 1

    def _call(self, x: Tensor) -> Tensor:
        return F.softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -F.softplus(-x)


class TanhTransform(_Plain):
    """`y = tanh(x)`. A cache keeps inverses exact near ±1.

    Args:
        cache_size (int): 0 or 1. Default: 0.

    Example:
        >>> TanhTransform(cache_size=1)(lucid.tensor(0.0))
        tensor(0.)
    """

    domain = constraints.real
    codomain = constraints.interval(-1.0, 1.0)
    bijective = True
    sign = 1

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return lucid.atanh(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        # log(1 - tanh²) = 2 (log 2 - x - softplus(-2x)), which is finite for all x.
        return 2.0 * (math.log(2.0) - x - F.softplus(-2.0 * x))


class AbsTransform(_Plain):
    """`y = |x|`; its inverse gives the number that is not negative.

    Args:
        cache_size (int): 0 or 1. Default: 0.

    Example:
        >>> AbsTransform()(lucid.tensor(-2.0))
        tensor(2.)
    """

    domain = constraints.real
    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Number) and isinstance(b, Number):
        return a == b
    return bool(lucid.as_tensor(a == b).all())


class AffineTransform(Transform):
    """`y = loc + scale * x`.

    Args:
        loc (Tensor or float): what is added, of any shape.
        scale (Tensor or float): what is multiplied with, of any shape.
        event_dim (int, default: 0): how many dimensions an event has.
        cache_size (int, default: 0): 0 or 1.

    Example:
        >>> AffineTransform(1.0, 2.0)(lucid.tensor(3.0))
        tensor(7.)
    """

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.loc = loc
        self.scale = scale
        self._event_dim = event_dim

    def _arguments(self) -> tuple[Any, ...]:
        return self.loc, self.scale, self._event_dim

    @property
    def event_dim(self) -> int:
        return self._event_dim

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        return constraints.independent(constraints.real, self._event_dim) if self._event_dim else constraints.real

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        return constraints.independent(constraints.real, self._event_dim) if self._event_dim else constraints.real

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AffineTransform) and _same(self.loc, other.loc) and _same(self.scale, other.scale)

    __hash__ = None

    @property
    def sign(self) -> Any:
        if isinstance(self.scale, Number):
            scale = float(self.scale)  # type: ignore[arg-type]
            return (scale > 0) - (scale < 0)
        return self.scale.sign()

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if isinstance(self.scale, Number):
            log = lucid.full_like(x, math.log(abs(self.scale)))  # type: ignore[arg-type]
        else:
            log = self.scale.abs().log()
        if not self._event_dim:
            return log.expand(x.shape)
        log = log.reshape((*log.shape[: log.dim() - self._event_dim], -1)).sum(-1)
        return log.expand(x.shape[: x.dim() - self._event_dim])

    def forward_shape(self, shape: Any) -> Any:
        return lucid.broadcast_shapes(shape, getattr(self.loc, "shape", ()), getattr(self.scale, "shape", ()))

    inverse_shape = forward_shape


class CumulativeDistributionTransform(Transform):
    """The cumulative distribution function of a distribution, which gives uniform numbers of its samples.

    Args:
        distribution (Distribution): one with `cdf` and `icdf`.
        cache_size (int): 0 or 1. Default: 0.

    Example:
        >>> CumulativeDistributionTransform(lucid.distributions.Normal(0.0, 1.0))(lucid.tensor(0.0))
        tensor(0.5000)
    """

    bijective = True
    codomain = constraints.unit_interval
    sign = 1

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    def _arguments(self) -> tuple[Any, ...]:
        return (self.distribution,)

    @property
    def domain(self) -> Any:
        return self.distribution.support

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)


# ---- vectors and matrices --------------------------------------------------------------------------------------------


def _at_least(shape: Any, dims: int) -> Any:
    if len(shape) < dims:
        raise ValueError(TOO_FEW)
    return shape


def _shifted(x: Tensor) -> Tensor:
    """Each element in the next one's place; a one in the first's, the last one dropped."""
    return F.pad(x[..., :-1], [1, 0], value=1)


class CorrCholeskyTransform(Transform):
    """A vector of `D (D - 1) / 2` numbers to the Cholesky factor of a correlation matrix `(D, D)`.

    `tanh` gives the lower triangle of partial correlations `r`; row by row `y[i, j] = r[i, j] √Π_{k<j} (1 - r[i, k]²)`,
    with 1 for `r` on the diagonal.

    Args:
        cache_size (int): 0 or 1. Default: 0.

    Example:
        >>> CorrCholeskyTransform()(lucid.zeros(1))
        tensor([[1., 0.],
                [0., 1.]])

    Reference:
        Lewandowski, Kurowicka and Joe, "Generating random correlation matrices based on vines and extended onion
        method", 2009.
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        eps = lucid.finfo(x.dtype).eps
        r = vec_to_tril_matrix(lucid.tanh(x).clamp(min=-1 + eps, max=1 - eps), diag=-1)
        rest = (1 - r.square()).sqrt().cumprod(-1)
        return (r + lucid.eye(r.shape[-1], dtype=r.dtype, device=r.device)) * _shifted(rest)

    def _inverse(self, y: Tensor) -> Tensor:
        rest = 1 - y.square().cumsum(-1)
        t = tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(_shifted(rest), diag=-1).sqrt()
        return (t.log1p() - (-t).log1p()) / 2

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        rest = tril_matrix_to_vec(1 - y.square().cumsum(-1), diag=-2)
        by_tanh = -2 * (x + F.softplus(-2 * x) - math.log(2.0)).sum(-1)
        return 0.5 * rest.log().sum(-1) + by_tanh

    def forward_shape(self, shape: Any) -> Any:
        n = _at_least(shape, 1)[-1]
        d = round((0.25 + 2 * n) ** 0.5 + 0.5)
        if d * (d - 1) // 2 != n:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return lucid.Size((*shape[:-1], d, d))

    def inverse_shape(self, shape: Any) -> Any:
        if _at_least(shape, 2)[-2] != shape[-1]:
            raise ValueError("Input is not square")
        return lucid.Size((*shape[:-2], shape[-1] * (shape[-1] - 1) // 2))


class SoftmaxTransform(_Plain):
    """`y = exp(x) / Σ exp(x)` over the last dimension. Not a bijection: the inverse gives logarithms.

    Args:
        cache_size (int): 0 or 1. Default: 0.

    Example:
        >>> SoftmaxTransform()(lucid.zeros(2))
        tensor([0.5000, 0.5000])
    """

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        return F.softmax(x, dim=-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def forward_shape(self, shape: Any) -> Any:
        return _at_least(shape, 1)

    inverse_shape = forward_shape


class StickBreakingTransform(_Plain):
    """A vector of `K - 1` numbers to the simplex of `K`: each gives, by a sigmoid, the share of what is left.

    The sigmoid is shifted so that zeros give equal parts.

    Args:
        cache_size (int): 0 or 1. Default: 0.

    Example:
        >>> StickBreakingTransform()(lucid.zeros(2))
        tensor([0.3333, 0.3333, 0.3333])
    """

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    @staticmethod
    def _shift(x: Tensor) -> Tensor:
        """The logarithm of how many parts come after each one."""
        k = x.shape[-1]
        return lucid.arange(k, 0, -1, dtype=x.dtype, device=x.device).log()

    def _call(self, x: Tensor) -> Tensor:
        z = _clipped_sigmoid(x - self._shift(x))
        return F.pad(z, [0, 1], value=1) * F.pad((1 - z).cumprod(-1), [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        parts = y[..., :-1]
        left = (1 - parts.cumsum(-1)).clamp(min=lucid.finfo(y.dtype).tiny)
        return parts.log() - left.log() + self._shift(parts)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        x = x - self._shift(x)
        return (F.logsigmoid(x) - x + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        return lucid.Size((*_at_least(shape, 1)[:-1], shape[-1] + 1))

    def inverse_shape(self, shape: Any) -> Any:
        return lucid.Size((*_at_least(shape, 1)[:-1], shape[-1] - 1))


class LowerCholeskyTransform(_Plain):
    """A matrix to a lower triangular one with a positive diagonal, by the exponential of its own.

    Args:
        cache_size (int): 0 or 1. Default: 0.

    Example:
        >>> LowerCholeskyTransform()(lucid.zeros(2, 2))
        tensor([[1., 0.],
                [0., 1.]])
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(_Plain):
    """A matrix to a positive definite one: `L Lᵀ` with the factor of :class:`LowerCholeskyTransform`.

    Args:
        cache_size (int): 0 or 1. Default: 0.

    Example:
        >>> PositiveDefiniteTransform()(lucid.zeros(2, 2))
        tensor([[1., 0.],
                [0., 1.]])
    """

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(lucid.linalg.cholesky(y))
