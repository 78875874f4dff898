"""Norms, distances and similarities along a dimension."""

from __future__ import annotations

import lucid
from lucid import _C, Tensor, errors
from lucid.nn._functional.step import step

__all__ = ["cosine_similarity", "normalize", "pairwise_distance", "pdist"]


def normalize(
    input: Tensor,
    p: float = 2.0,
    dim: int | tuple[int, ...] | None = 1,
    eps: float = 1e-12,
    out: Tensor | None = None,
) -> Tensor:
    """`x / max(‖x‖_p, eps)` along `dim`, one dimension, several, or all (`None`)."""
    if not (input.is_floating_point() or input.is_complex()):
        raise errors.NotImplementedError(f"Expected a floating point or complex tensor as input, got {input.dtype}")
    return _C.div(input, _C.norm(input, p, dim, True).clamp(min=eps), out=out)


@step("pairwise_distance")
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """`‖x1 - x2 + eps‖_p` along the last dimension; both broadcast."""
    distance: Tensor = _C.norm(x1 - x2 + eps, p, -1, keepdim)
    return distance


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """`x1 · x2 / (max(‖x1‖, eps) max(‖x2‖, eps))` along `dim`; both broadcast."""
    common = lucid.promote_types(x1.dtype, x2.dtype)
    if not common.is_floating_point:
        raise errors.RuntimeError(f"expected common dtype to be floating point, yet got {common}")
    if not eps >= 0:
        raise errors.RuntimeError(f"eps must be non-negative, got: {eps}")
    x1, x2 = x1.to(common), x2.to(common)
    # Broadcast first: `dim` counts in the common shape.
    shape = (x1 * x2).shape
    x1, x2 = x1.expand(shape), x2.expand(shape)
    a, b = (_C.norm(x, 2, dim, True).clamp(min=eps) for x in (x1, x2))
    return ((x1 / a) * (x2 / b)).sum(dim)


@step("pdist")
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The p-norm distances of all pairs of rows of (N, M), row-major above the diagonal: N(N-1)/2 numbers."""
    if input.dim() != 2:
        raise errors.RuntimeError(f"pdist only supports 2D tensors, got: {input.dim()}D")
    if not input.is_floating_point():
        raise errors.RuntimeError(f"pdist only supports floating-point dtypes, got {input.dtype}")
    if not p >= 0:
        raise errors.RuntimeError("pdist only supports non-negative p values")
    n = input.shape[0]
    rows = [i for i in range(n) for _ in range(i + 1, n)]
    columns = [j for i in range(n) for j in range(i + 1, n)]
    first, second = (lucid.tensor(places, dtype=lucid.int64, device=input.device) for places in (rows, columns))
    first, second = input.index_select(0, first), input.index_select(0, second)
    # One row beside one row: the gradients are those of all pairs.
    return lucid.cdist(first.unsqueeze(1), second.unsqueeze(1), p).reshape([-1])
