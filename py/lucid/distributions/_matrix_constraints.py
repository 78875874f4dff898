"""Constraints of square matrices, of which each makes one event."""

from __future__ import annotations

import lucid
from lucid import Tensor
from lucid.distributions._constraint_base import Constraint


class _LowerTriangular(Constraint):
    """Matrices that are zero above the diagonal."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return (value.tril() == value).all(-1).all(-1)


class _LowerCholesky(_LowerTriangular):
    """Lower triangular matrices with a positive diagonal."""

    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    """Lower triangular matrices with a positive diagonal whose rows have length 1: factors of correlation matrices."""

    def check(self, value: Tensor) -> Tensor:
        # Each element of a row may be off by an epsilon, or some.
        tolerance = lucid.finfo(value.dtype).eps * value.size(-1) * 10
        length = value.detach().square().sum(-1).sqrt()
        return super().check(value) & ((length - 1.0).abs() <= tolerance).all(-1)


class _Square(Constraint):
    """Square matrices."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        is_square = value.shape[-2] == value.shape[-1]
        return lucid.full(value.shape[:-2], is_square, dtype=lucid.bool, device=value.device)


class _Symmetric(_Square):
    """Symmetric matrices."""

    def check(self, value: Tensor) -> Tensor:
        is_square = super().check(value)
        if not bool(is_square.all()):
            return is_square
        return lucid.isclose(value, value.mT, atol=1e-6).all(-2).all(-1)


class _PositiveSemidefinite(_Symmetric):
    """Symmetric matrices without negative eigenvalues."""

    def check(self, value: Tensor) -> Tensor:
        is_symmetric = super().check(value)
        if not bool(is_symmetric.all()):
            return is_symmetric
        return lucid.linalg.eigvalsh(value).ge(0).all(-1)


class _PositiveDefinite(_Symmetric):
    """Symmetric matrices that have a Cholesky factor."""

    def check(self, value: Tensor) -> Tensor:
        is_symmetric = super().check(value)
        if not bool(is_symmetric.all()):
            return is_symmetric
        return lucid.linalg.cholesky_ex(value).info.eq(0)


# ---- several constraints along a dimension ---------------------------------------------------------------------------
