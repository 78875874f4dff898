"""Ready-made parametrizations: weight normalisation, spectral normalisation, orthogonal matrices."""

from __future__ import annotations

from typing import Any

import lucid
from lucid import Tensor, errors
from lucid.nn import functional as F
from lucid.nn.modules.module import Module
from lucid.nn.utils import parametrize

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def norm_except(v: Tensor, dim: int | None) -> Tensor:
    """The 2-norm over all dimensions but `dim`, which are kept with size 1; over all for None."""
    dims = [i for i in range(v.dim()) if dim is None or i != dim % v.dim()]
    return v.square().sum(dims, dim is not None).sqrt()


class _WeightNorm(Module):
    """`g · v / ‖v‖` (Salimans and Kingma, 2016)."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = None if dim == -1 else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / norm_except(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Length and direction."""
        return norm_except(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int = 0) -> Module:
    """Makes a weight the product of a length per index of `dim` (`original0`) and a direction (`original1`)."""
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)
    return module


class _SpectralNorm(Module):
    """A weight divided by its largest singular value, estimated by power iteration (Miyato et al., 2018)."""

    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        if dim >= weight.dim() or dim < -weight.dim():
            raise errors.IndexError(
                f"Dimension out of range (expected to be in range of [-{weight.dim()}, {weight.dim() - 1}] "
                f"but got {dim})"
            )
        if n_power_iterations <= 0:
            raise errors.ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )
        self.dim = dim if dim >= 0 else dim + weight.dim()
        self.eps = eps
        if weight.dim() > 1:
            self.n_power_iterations = n_power_iterations
            with lucid.no_grad():
                matrix = self._matrix(weight.detach())
                u, v = (lucid.randn(n, dtype=matrix.dtype, device=matrix.device) for n in matrix.shape)
                self.register_buffer("_u", F.normalize(u, dim=0, eps=eps))
                self.register_buffer("_v", F.normalize(v, dim=0, eps=eps))
                self._iterate(matrix, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        if self.dim != 0:
            weight = weight.permute([self.dim, *(d for d in range(weight.dim()) if d != self.dim)])
        return weight.reshape([weight.shape[0], -1])

    def _iterate(self, matrix: Tensor, count: int) -> None:
        with lucid.no_grad():
            matrix = matrix.detach()
            for _ in range(count):
                self._u = F.normalize(matrix.mv(self._v), dim=0, eps=self.eps)
                self._v = F.normalize(matrix.t().mv(self._u), dim=0, eps=self.eps)

    def forward(self, weight: Tensor) -> Tensor:
        if weight.dim() == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix, self.n_power_iterations)
        sigma = self._u.detach().dot(matrix.mv(self._v.detach()))
        return weight / sigma

    def right_inverse(self, value: Tensor) -> Tensor:
        """The value itself, taken to be normalised."""
        return value


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divides a weight by its largest singular value.

    Args:
        module: Whose weight.
        name: Default: "weight".
        n_power_iterations: Steps per call in training. Default: 1.
        eps: Default: 1e-12.
        dim: The outputs' dimension. Default: 1 for transposed convolutions, else 0.
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise errors.ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if dim is None:
        dim = 1 if getattr(module, "transposed", False) else 0
    parametrize.register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))
    return module


class _Orthogonal(Module):
    """An orthonormal matrix from any: the Q of its QR decomposition by Gram-Schmidt, in Tensor ops."""

    def forward(self, x: Tensor) -> Tensor:
        tall = x.shape[-2] >= x.shape[-1]
        a = x if tall else x.transpose(-2, -1)
        columns: list[Tensor] = []
        for j in range(a.shape[-1]):
            v = a[..., j]
            # Twice is enough (Giraud et al., 2005).
            for _ in range(2):
                for q in columns:
                    v = v - q * (q * v).sum(-1, True)
            columns.append(v / v.square().sum(-1, True).sqrt())
        made = lucid.stack(columns, -1)
        return made if tall else made.transpose(-2, -1)

    def right_inverse(self, q: Tensor) -> Tensor:
        """The matrix itself: of an orthonormal one, Q is that one."""
        return q


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """Makes a weight's rows or columns, whichever are fewer, orthonormal.

    Difference from PyTorch: the map is always the Q of a Gram-Schmidt decomposition; `orthogonal_map` ("matrix_exp",
    "cayley", "householder") and `use_trivialization` are accepted and change neither what can be represented nor this.
    """
    weight: Any = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise errors.ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.dim() < 2:
        raise errors.ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.dim()} dimensions.")
    if orthogonal_map not in (None, "matrix_exp", "cayley", "householder"):
        raise errors.ValueError(
            f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}'
        )
    parametrize.register_parametrization(module, name, _Orthogonal(), unsafe=True)
    return module
