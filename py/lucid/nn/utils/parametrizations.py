"""Ready-made parametrizations: weight normalisation, spectral normalisation, orthogonal matrices."""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid import _C, Tensor, errors
from lucid.nn import functional as F
from lucid.nn.modules.module import Module
from lucid.nn.utils import parametrize

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def norm_except(v: Tensor, dim: int | None) -> Tensor:
    """The 2-norm over all dimensions but `dim`, which are kept with size 1; over all for None."""
    dims = [i for i in range(v.dim()) if dim is None or i != dim % v.dim()]
    return v.square().sum(dims, dim is not None).sqrt()


def scaled(v: Tensor, g: Tensor, dim: int | None) -> Tensor:
    """`g · v / ‖v‖`; over the first or the last dimension it is one step in PyTorch."""
    if dim is None or dim % max(v.dim(), 1) not in (0, v.dim() - 1):
        return v * (g / norm_except(v, dim))
    with _C._Step("weight_norm_interface"):
        return v * (g / norm_except(v, dim))


class _WeightNorm(Module):
    """`g · v / ‖v‖` (Salimans and Kingma, 2016)."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = None if dim == -1 else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return scaled(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Length and direction."""
        return norm_except(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int = 0) -> Module:
    """Makes a weight the product of a length per index of `dim` (`original0`) and a direction (`original1`).

    Args:
        module (Module): the module with the weight.
        name (str, default: "weight"): the name of the weight.
        dim (int, default: 0): the dimension whose indices have a length each.

    Returns:
        Module: `module` itself.

    Example:
        >>> from lucid import nn
        >>> sorted(nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)).state_dict())
        ['bias', 'parametrizations.weight.original0', 'parametrizations.weight.original1']
    """
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
        module (Module): Whose weight.
        name (str, default: "weight"): the name of the weight.
        n_power_iterations (int, default: 1): Steps per call in training.
        eps (float, default: 1e-12): the smallest norm that is divided by.
        dim (int, optional): The outputs' dimension.

    Returns:
        Module: `module` itself.

    Raises:
        ValueError: the module has no such weight.

    Example:
        >>> from lucid import nn
        >>> sorted(nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2)).state_dict())
        ['bias', 'parametrizations.weight.0._u', 'parametrizations.weight.0._v', 'parametrizations.weight.original']
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise errors.ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if dim is None:
        dim = 1 if getattr(module, "transposed", False) else 0
    parametrize.register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))
    return module


_MAPS = ("matrix_exp", "cayley", "householder")


class _Orthogonal(Module):
    """A matrix with orthonormal columns, or rows where those are fewer, from any; wide ones are transposed first.

    "matrix_exp" and "cayley" map the skew-symmetric `A = L - Lᵀ` of the lower triangle to `exp(A)` and to
    `(I - A/2)⁻¹ (I + A/2)`; "householder" takes the columns below the diagonal as reflections, and signs from the
    diagonal. With the buffer `base` the result is a product with it (Lezcano Casado, 2019), so that any orthonormal
    matrix can be assigned: it becomes the base.
    """

    base: Tensor | None

    def __init__(self, weight: Tensor, orthogonal_map: str, *, use_trivialization: bool = True) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise errors.ValueError("The householder parametrization does not support complex tensors.")
        self.shape = tuple(weight.shape)
        self.orthogonal_map = orthogonal_map
        self.use_trivialization = use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x: Tensor) -> Tensor:
        wide = x.shape[-2] < x.shape[-1]
        x = x.transpose(-2, -1) if wide else x
        n, k = x.shape[-2:]
        if self.orthogonal_map == "householder":
            below = x.tril(-1)
            tau = 2.0 / (1.0 + below.square().sum(-2))
            made = _reflected(below, tau) * x.diagonal(0, -2, -1).trunc().detach().unsqueeze(-2)
        else:
            low = x.tril()
            if n != k:
                low = lucid.cat([low, lucid.zeros_like(low[..., :1]).expand([*low.shape[:-1], n - k])], -1)
            skew = low - low.transpose(-2, -1).conj()
            if self.orthogonal_map == "matrix_exp":
                made = _exp(skew)
            else:
                one = lucid.eye(n, dtype=x.dtype, device=x.device)
                made = _C.solve_matrices(one - 0.5 * skew, one + 0.5 * skew)
            made = made[..., :k]
        base = getattr(self, "base", None)
        if base is not None:
            made = base.matmul(made)
        return made.transpose(-2, -1) if wide else made

    def right_inverse(self, value: Tensor) -> Tensor:
        """What `forward` makes the value of; without a base that is known for reflections only."""
        if tuple(value.shape) != self.shape:
            raise errors.ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape "
                f"{tuple(value.shape)}."
            )
        wide = value.shape[-2] < value.shape[-1]
        q = (value.transpose(-2, -1) if wide else value).detach()
        n, k = q.shape[-2:]
        with lucid.no_grad():
            if not self.use_trivialization:
                if self.orthogonal_map != "householder":
                    raise errors.NotImplementedError(
                        "It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
                        "use_trivialization=False."
                    )
                found = _reflections(q)
                return found.transpose(-2, -1) if wide else found
            if n != k:
                q = lucid.cat([q, lucid.randn([*q.shape[:-1], n - k], dtype=q.dtype, device=q.device)], -1)
            self.base = _orthonormal(q)
            # Each map takes -1 on the diagonal to the identity.
            one = lucid.zeros_like(value)
            one.diagonal(0, -2, -1).fill_(-1.0)
            return one


def _reflected(below: Tensor, tau: Tensor) -> Tensor:
    """The first columns of `H₁ H₂ …`, where `Hᵢ = I - τᵢ vᵢ vᵢᵀ` and `vᵢ` is column i with a 1 on the diagonal."""
    n, k = below.shape[-2:]
    made = lucid.eye(n, k, dtype=below.dtype, device=below.device)
    vectors = below + made
    for i in reversed(range(k)):
        v = vectors[..., i : i + 1]
        made = made - tau[..., i : i + 1].unsqueeze(-1) * v.matmul(v.transpose(-2, -1).matmul(made))
    return made


def _reflections(q: Tensor) -> Tensor:
    """The inverse of the above for orthonormal columns: Householder's decomposition, the diagonal's signs beside."""
    rest, columns = q, []
    k = q.shape[-1]
    for i in range(k):
        x = rest[..., i:, i]
        first, tail = x[..., :1], x[..., 1:]
        flat = tail.square().sum(-1, True) == 0
        length = x.square().sum(-1, True).sqrt()
        diagonal = lucid.where(first > 0, -length, length)
        v = (tail / (first - diagonal).masked_fill(flat, 1.0)).masked_fill(flat, 0.0)
        # Where there is nothing to reflect, the map back still turns the sign.
        sign = lucid.where(flat, -first.sign(), diagonal.sign())
        columns.append(lucid.cat([rest.new_zeros([*rest.shape[:-2], i]), sign, v], -1))
        whole = lucid.cat([lucid.ones_like(first), v], -1).unsqueeze(-1)
        tau = (2.0 / whole.square().sum([-2, -1], True)).masked_fill(flat.unsqueeze(-1), 0.0)
        lower = rest[..., i:, :]
        lower = lower - tau * whole.matmul(whole.transpose(-2, -1).matmul(lower))
        rest = lucid.cat([rest[..., :i, :], lower], -2)
    return lucid.stack(columns, -1)


def _orthonormal(a: Tensor) -> Tensor:
    """The Q of `a`'s QR decomposition with a positive diagonal in R, by Gram and Schmidt."""
    columns: list[Tensor] = []
    for j in range(a.shape[-1]):
        v = a[..., j]
        # Twice is enough (Giraud et al., 2005).
        for _ in range(2):
            for q in columns:
                v = v - q * (q.conj() * v).sum(-1, True)
        columns.append(v / v.abs().square().sum(-1, True).sqrt())
    return lucid.stack(columns, -1)


def _exp(a: Tensor) -> Tensor:
    """The matrix exponential: Taylor's series of `a / 2^s`, squared s times. Reads the norm of `a`."""
    norm = a.detach().abs().sum(-2).max().item() if a.numel() else 0.0
    if not math.isfinite(norm):
        return a * math.nan
    squarings = max(0, math.ceil(math.log2(norm)) + 1) if norm > 0 else 0
    a = a / 2**squarings
    one = lucid.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    # Below a norm of 1/2 the 14th term is less than 1e-15.
    made = one + a / 14
    for i in range(13, 0, -1):
        made = one + a.matmul(made) / i
    for _ in range(squarings):
        made = made.matmul(made)
    return made


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """Makes a weight's rows or columns, whichever are fewer, orthonormal.

    Args:
        module (Module): Whose weight.
        name (str, default: "weight"): the name of the weight.
        orthogonal_map (str, optional): "matrix_exp", "cayley" or "householder".
        use_trivialization (bool, default: True): Whether the map is relative to a base (the buffer `base`), which
            makes training the weight start from what it is and lets one assign to it.

    Returns:
        Module: `module` itself.

    Raises:
        ValueError: the weight is no matrix, or another `orthogonal_map`.

    Example:
        >>> from lucid import nn
        >>> w = nn.utils.parametrizations.orthogonal(nn.Linear(2, 2)).weight
        >>> lucid.allclose(w @ w.T, lucid.eye(2), atol=1e-6)
        True
    """
    weight: Any = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise errors.ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.dim() < 2:
        raise errors.ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.dim()} dimensions.")
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1] or weight.is_complex()
        orthogonal_map = "matrix_exp" if square else "householder"
    if orthogonal_map not in _MAPS:
        raise errors.ValueError(
            f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}'
        )
    made = _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    parametrize.register_parametrization(module, name, made, unsafe=True)
    return module
