"""The multivariate normal distribution with a covariance of low rank and a diagonal."""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid import Size, Tensor
from lucid.distributions import constraints
from lucid.distributions.distribution import Distribution
from lucid.distributions.multivariate_normal import _batch_mahalanobis, _batch_mv, _half_log_det
from lucid.distributions.utils import _standard_normal, lazy_property

__all__ = ["LowRankMultivariateNormal"]


def _capacitance(factor: Tensor, diagonal: Tensor) -> Tensor:
    """`I + Wᵀ D⁻¹ W`, the small matrix of Woodbury's identity."""
    identity = lucid.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    return identity + (factor.mT / diagonal.unsqueeze(-2)) @ factor


def _lowrank_log_det(diagonal: Tensor, capacitance_tril: Tensor) -> Tensor:
    """`log det(W Wᵀ + D)`, by the matrix determinant lemma."""
    return 2 * _half_log_det(capacitance_tril) + diagonal.log().sum(-1)


def _lowrank_mahalanobis(factor: Tensor, diagonal: Tensor, x: Tensor, capacitance_tril: Tensor) -> Tensor:
    """`xᵀ (W Wᵀ + D)⁻¹ x`, by Woodbury's identity."""
    small = _batch_mv(factor.mT / diagonal.unsqueeze(-2), x)
    return (x.square() / diagonal).sum(-1) - _batch_mahalanobis(capacitance_tril, small)


class LowRankMultivariateNormal(Distribution):
    """The normal distribution of vectors with the covariance `Σ = W Wᵀ + diag(d)`, where `W` has few columns.

    `p(x) = exp(-½ (x - m)ᵀ Σ⁻¹ (x - m)) / √det(2π Σ)`, by Woodbury's identity and the matrix determinant lemma.
    Densities and samples cost as much as products with `W`; no matrix of `n` columns is factorised.

    Args:
        loc (Tensor): means `(..., n)`.
        cov_factor (Tensor): `W`, of shape `(..., n, m)`.
        cov_diag (Tensor): `d > 0`, of shape `(..., n)`.
        validate_args (bool, optional): whether to check parameters and values.

    Raises:
        ValueError: if shapes do not fit or `cov_diag` is not positive.

    Example:
        >>> m = LowRankMultivariateNormal(lucid.zeros(2), lucid.tensor([[1.0], [0.0]]), lucid.ones(2))
        >>> m.covariance_matrix
        tensor([[2., 0.],
                [0., 1.]])
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True
    _expandable = {
        "loc": 1,
        "cov_factor": 2,
        "cov_diag": 1,
        "covariance_matrix": 2,
        "precision_matrix": 2,
        "scale_tril": 2,
        "variance": 1,
    }

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event_shape = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if cov_factor.shape[-2:-1] != event_shape:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event_shape[0]} x m")
        if cov_diag.shape[-1:] != event_shape:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event_shape}")
        try:
            batch_shape = lucid.broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        except RuntimeError as e:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, cov_diag {cov_diag.shape}"
            ) from e
        self.loc = loc.expand((*batch_shape, -1))
        self.cov_factor = cov_factor.expand((*batch_shape, -1, -1))
        self.cov_diag = cov_diag.expand((*batch_shape, -1))
        self._unbroadcasted_cov_factor = cov_factor
        self._unbroadcasted_cov_diag = cov_diag
        self._capacitance_tril = lucid.linalg.cholesky(_capacitance(cov_factor, cov_diag))
        super().__init__(batch_shape, event_shape, validate_args=validate_args)

    def _expand_into(self, new: Any, batch_shape: Size) -> None:
        new._unbroadcasted_cov_factor = self._unbroadcasted_cov_factor
        new._unbroadcasted_cov_diag = self._unbroadcasted_cov_diag
        new._capacitance_tril = self._capacitance_tril

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    def _matrices(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def variance(self) -> Any:
        """The variances, of shape `batch_shape + (n,)`."""
        own = self._unbroadcasted_cov_factor.square().sum(-1) + self._unbroadcasted_cov_diag
        return own.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Any:
        """The lower triangular factor of the covariance, of shape `batch_shape + (n, n)`."""
        # Of D^½ (I + V Vᵀ) D^½ with V = D^-½ W: the middle factor is well conditioned.
        root = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        v = self._unbroadcasted_cov_factor / root
        identity = lucid.eye(v.shape[-2], dtype=v.dtype, device=v.device)
        return self._matrices(root * lucid.linalg.cholesky(identity + v @ v.mT))

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance, of shape `batch_shape + (n, n)`."""
        w = self._unbroadcasted_cov_factor
        return self._matrices(w @ w.mT + self._unbroadcasted_cov_diag.diag_embed())

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance, of shape `batch_shape + (n, n)`."""
        scaled = self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)
        half = lucid.linalg.solve_triangular(self._capacitance_tril, scaled, upper=False)
        return self._matrices(self._unbroadcasted_cov_diag.reciprocal().diag_embed() - half.mT @ half)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        small = _standard_normal((*shape[:-1], self.cov_factor.shape[-1]), self.loc.dtype, self.loc.device)
        own = _standard_normal(shape, self.loc.dtype, self.loc.device)
        shared = _batch_mv(self._unbroadcasted_cov_factor, small)
        return self.loc + shared + self._unbroadcasted_cov_diag.sqrt() * own

    def _log_det(self) -> Tensor:
        return _lowrank_log_det(self._unbroadcasted_cov_diag, self._capacitance_tril)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        w, d = self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag
        distance = _lowrank_mahalanobis(w, d, value - self.loc, self._capacitance_tril)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + self._log_det() + distance)

    def entropy(self) -> Tensor:
        constant = self._event_shape[0] * (1.0 + math.log(2 * math.pi))
        return (0.5 * (constant + self._log_det())).expand(self._batch_shape)
