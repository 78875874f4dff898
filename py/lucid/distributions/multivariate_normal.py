"""The multivariate normal distribution."""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid import Size, Tensor
from lucid.distributions import constraints
from lucid.distributions.distribution import Distribution
from lucid.distributions.utils import _standard_normal, lazy_property

__all__ = ["MultivariateNormal"]


def _batch_mv(matrix: Tensor, vector: Tensor) -> Tensor:
    """Products of matrices `(..., n, m)` with vectors `(..., m)`, which broadcast."""
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def _batch_mahalanobis(factor: Tensor, x: Tensor) -> Tensor:
    """`xᵀ (L Lᵀ)⁻¹ x` for factors `(..., n, n)` and vectors `(..., n)`, which broadcast.

    Where there are more vectors than factors, these are the columns of one system for each factor.
    """
    n, lead = x.shape[-1], factor.dim() - 2
    extra = x.dim() - 1 - lead
    if extra > 0 and (lead == 0 or x.shape[extra:-1] == factor.shape[:-2]):
        columns = x.reshape((-1, *x.shape[extra:])).movedim(0, -1)
        solved = lucid.linalg.solve_triangular(factor, columns, upper=False)
        return solved.square().sum(-2).movedim(-1, 0).reshape(x.shape[:-1])
    shape = lucid.broadcast_shapes(factor.shape[:-2], x.shape[:-1])
    factor, column = factor.expand((*shape, n, n)), x.expand((*shape, n)).unsqueeze(-1)
    return lucid.linalg.solve_triangular(factor, column, upper=False).squeeze(-1).square().sum(-1)


def _precision_to_scale_tril(precision: Tensor) -> Tensor:
    """The Cholesky factor of the inverse of matrices: the inverse of that of the matrix with both orders reversed."""
    flipped = lucid.linalg.cholesky(lucid.flip(precision, (-2, -1)))
    inverse = lucid.flip(flipped, (-2, -1)).mT
    identity = lucid.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return lucid.linalg.solve_triangular(inverse, identity.expand(precision.shape), upper=False)


def _half_log_det(factor: Tensor) -> Tensor:
    """Half the logarithm of the determinant of `L Lᵀ`."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


class MultivariateNormal(Distribution):
    """The normal distribution of vectors: `p(x) = exp(-½ (x - m)ᵀ Σ⁻¹ (x - m)) / √det(2π Σ)`.

    The lower triangular factor of `Σ` is the cheapest to give: the others are factorised first.

    Args:
        loc (Tensor): means `(..., n)`.
        covariance_matrix (Tensor, optional): `Σ`, positive definite, `(..., n, n)`.
        precision_matrix (Tensor, optional): `Σ⁻¹`, positive definite, `(..., n, n)`.
        scale_tril (Tensor, optional): `L` with `Σ = L Lᵀ` and a positive diagonal, `(..., n, n)`; one of the three is
            given.
        validate_args (bool, optional): whether to check parameters and values.

    Raises:
        ValueError: if `loc` has no dimension, not exactly one matrix is given, or it is invalid.

    Example:
        >>> MultivariateNormal(lucid.zeros(2), lucid.eye(2)).log_prob(lucid.zeros(2))
        tensor(-1.8379)
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True
    _expandable = {
        "loc": 1,
        "covariance_matrix": 2,
        "precision_matrix": 2,
        "scale_tril": 2,
    }

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        given = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        matrices = [(name, m) for name, m in given.items() if m is not None]
        if len(matrices) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        name, matrix = matrices[0]
        if matrix.dim() < 2:
            lead = "must be at least two-dimensional, with optional leading batch dimensions"
            raise ValueError(f"{name} matrix {lead}" if name == "scale_tril" else f"{name} {lead}")
        batch_shape = lucid.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        self.__dict__[name] = matrix.expand((*batch_shape, -1, -1))
        self.loc = loc.expand((*batch_shape, -1))
        super().__init__(batch_shape, self.loc.shape[-1:], validate_args=validate_args)
        if name == "scale_tril":
            self._unbroadcasted_scale_tril = matrix
        elif name == "covariance_matrix":
            self._unbroadcasted_scale_tril = lucid.linalg.cholesky(matrix)
        else:
            self._unbroadcasted_scale_tril = _precision_to_scale_tril(matrix)

    def _expand_into(self, new: Any, batch_shape: Size) -> None:
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril

    def _matrices(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Any:
        """The lower triangular factor of the covariance, of shape `batch_shape + (n, n)`."""
        return self._matrices(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The covariance, of shape `batch_shape + (n, n)`."""
        return self._matrices(self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT)

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of the covariance, of shape `batch_shape + (n, n)`."""
        return self._matrices(lucid.cholesky_inverse(self._unbroadcasted_scale_tril))

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self._unbroadcasted_scale_tril.square().sum(-1).expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        noise = _standard_normal(self._extended_shape(sample_shape), self.loc.dtype, self.loc.device)
        return self.loc + _batch_mv(self._unbroadcasted_scale_tril, noise)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        distance = _batch_mahalanobis(self._unbroadcasted_scale_tril, value - self.loc)
        constant = self._event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (constant + distance) - _half_log_det(self._unbroadcasted_scale_tril)

    def entropy(self) -> Tensor:
        constant = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi))
        return (constant + _half_log_det(self._unbroadcasted_scale_tril)).expand(self._batch_shape)
