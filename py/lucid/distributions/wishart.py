"""The Wishart distribution."""

from __future__ import annotations

import math
import warnings
from numbers import Number
from typing import Any

import lucid
from lucid import Size, Tensor
from lucid.distributions import constraints
from lucid.distributions.chi2 import Chi2
from lucid.distributions.constraints import Constraint
from lucid.distributions.exp_family import ExponentialFamily
from lucid.distributions.multivariate_normal import _half_log_det, _precision_to_scale_tril
from lucid.distributions.utils import lazy_property

__all__ = ["Wishart"]

_LOG_2 = math.log(2)


class Wishart(ExponentialFamily):
    """The distribution of `Σ x xᵀ` over `v` normal vectors `x` of covariance `V`.

    `p(X) = det(X)^((v-n-1)/2) exp(-tr(V⁻¹ X) / 2) / (2^(vn/2) det(V)^(v/2) Γ_n(v/2))`, for positive definite `X`.

    Args:
        df (Tensor or float): degrees of freedom `v > n - 1`, any shape.
        covariance_matrix (Tensor, optional): `V`, positive definite, `(..., n, n)`.
        precision_matrix (Tensor, optional): `V⁻¹`, positive definite, `(..., n, n)`.
        scale_tril (Tensor, optional): `L` with `V = L Lᵀ` and a positive diagonal, `(..., n, n)`; one of the three is
            given.
        validate_args (bool, optional): whether to check parameters and values.

    Raises:
        AssertionError: if not exactly one matrix is given.
        ValueError: if it has no two dimensions, or `df` is too small.

    Example:
        >>> Wishart(lucid.tensor(3.0), lucid.eye(2)).mean
        tensor([[3., 0.],
                [0., 3.]])
    """

    support = constraints.positive_definite
    has_rsample = True
    _expandable = {"df": 0, "covariance_matrix": 2, "precision_matrix": 2, "scale_tril": 2}
    _mean_carrier_measure = 0

    def __init__(
        self,
        df: Any,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        given = {
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
        }
        matrices = [(name, m) for name, m in given.items() if m is not None]
        if len(matrices) != 1:
            raise AssertionError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        name, matrix = matrices[0]
        if matrix.dim() < 2:
            raise ValueError("scale_tril must be at least two-dimensional, with optional leading batch dimensions")
        if isinstance(df, Number):
            df = lucid.tensor(df, dtype=matrix.dtype, device=matrix.device)
        batch_shape = lucid.broadcast_shapes(matrix.shape[:-2], df.shape)
        self.df = df.expand(batch_shape)
        n = matrix.shape[-1]
        if bool(self.df.le(n - 1).any()):
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {n - 1}.")
        if bool(self.df.lt(n).any()):
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < ndim.",
                stacklevel=2,
            )
        self.__dict__[name] = matrix.expand((*batch_shape, -1, -1))
        super().__init__(batch_shape, matrix.shape[-2:], validate_args=validate_args)
        if name == "scale_tril":
            self._unbroadcasted_scale_tril = matrix
        elif name == "covariance_matrix":
            self._unbroadcasted_scale_tril = lucid.linalg.cholesky(matrix)
        else:
            self._unbroadcasted_scale_tril = _precision_to_scale_tril(matrix)

    def _expand_into(self, new: Any, batch_shape: Size) -> None:
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril

    @property
    def arg_constraints(self) -> dict[str, Constraint]:
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self._event_shape[-1] - 1),
        }

    def _matrices(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Any:
        """The lower triangular factor of `V`, of shape `batch_shape + (n, n)`."""
        return self._matrices(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The matrix `V`, of shape `batch_shape + (n, n)`."""
        return self._matrices(self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT)

    @lazy_property
    def precision_matrix(self) -> Any:
        """The inverse of `V`, of shape `batch_shape + (n, n)`."""
        return self._matrices(lucid.cholesky_inverse(self._unbroadcasted_scale_tril))

    @property
    def mean(self) -> Tensor:
        return self.df[..., None, None] * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self.df - self._event_shape[-1] - 1
        return lucid.where(factor > 0, factor, math.nan)[..., None, None] * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        diagonal = self.covariance_matrix.diagonal(dim1=-2, dim2=-1)
        outer = diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return self.df[..., None, None] * (self.covariance_matrix.square() + outer)

    def _bartlett(self, sample_shape: Size) -> Tensor:
        """Bartlett's decomposition: normal numbers below a diagonal of chi numbers of falling degrees of freedom."""
        n = self._event_shape[-1]
        factor = self._unbroadcasted_scale_tril
        fall = lucid.arange(n, dtype=factor.dtype, device=factor.device)
        chi = Chi2(self.df.unsqueeze(-1) - fall, validate_args=False).rsample(sample_shape).sqrt()
        shape = sample_shape + self._batch_shape + self._event_shape
        noise = lucid.randn(tuple(shape), dtype=factor.dtype, device=factor.device).tril(-1)
        root = factor @ (noise + chi.clamp(min=lucid.finfo(chi.dtype).eps).diag_embed())
        return root @ root.mT

    def rsample(self, sample_shape: Any = (), max_try_correction: int | None = None) -> Tensor:
        shape = Size(sample_shape)
        sample = self._bartlett(shape)
        regular = self.support.check(sample)
        if bool(regular.all()):
            return sample
        warnings.warn("Singular sample detected.", stacklevel=2)
        # All are drawn again, and those kept that were singular.
        for _ in range(10 if max_try_correction is None else max_try_correction):
            sample = lucid.where(regular[..., None, None], sample, self._bartlett(shape))
            regular = self.support.check(sample)
            if bool(regular.all()):
                break
        return sample

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        v, n = self.df, self._event_shape[-1]
        factor = self._unbroadcasted_scale_tril
        lead = lucid.broadcast_shapes(value.shape[:-2], factor.shape[:-2])
        square = (*lead, n, n)
        trace = lucid.cholesky_solve(value.expand(square), factor.expand(square)).diagonal(dim1=-2, dim2=-1).sum(-1)
        by_value = (v - n - 1) / 2 * lucid.linalg.slogdet(value).logabsdet - trace / 2
        return by_value - v * (n * _LOG_2 / 2 + _half_log_det(factor)) - lucid.mvlgamma(v / 2, n)

    def entropy(self) -> Tensor:
        v, n = self.df, self._event_shape[-1]
        half = lucid.arange(n, dtype=v.dtype, device=v.device) / 2
        digamma = (v.unsqueeze(-1) / 2 - half).digamma().sum(-1)
        log_det = n * _LOG_2 / 2 + _half_log_det(self._unbroadcasted_scale_tril)
        return (n + 1) * log_det + lucid.mvlgamma(v / 2, n) - (v - n - 1) / 2 * digamma + v * n / 2

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        n = self._event_shape[-1]
        half = y + (n + 1) / 2
        return half * (_LOG_2 * n - lucid.linalg.slogdet(-2 * x).logabsdet) + lucid.mvlgamma(half, n)
