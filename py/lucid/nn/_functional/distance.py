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
    """`x / max(‖x‖_p, eps)` along `dim`, one dimension, several, or all (`None`).

    Args:
        input (Tensor): any shape, floating.
        p (float, default: 2.0): the order of the norm.
        dim (int | tuple[int, ...], default: 1): the dimensions that share a norm; None is all.
        eps (float, default: 1e-12): the smallest divisor.
        out (Tensor, optional): a tensor that the result is written to.

    Returns:
        Tensor: the shape and dtype of `input`.

    Raises:
        RuntimeError: a dtype that is neither floating nor complex.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.normalize(lucid.tensor([[3.0, 4.0]]))
        tensor([[0.6000, 0.8000]])
    """
    if not (input.is_floating_point() or input.is_complex()):
        raise errors.NotImplementedError(f"Expected a floating point or complex tensor as input, got {input.dtype}")
    return _C.div(input, _C.norm(input, p, dim, True).clamp(min=eps), out=out)


@step("pairwise_distance")
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """`‖x1 - x2 + eps‖_p` along the last dimension; both broadcast.

    Args:
        x1 (Tensor): (…, D).
        x2 (Tensor): (…, D), of a shape that broadcasts with `x1`.
        p (float, default: 2.0): the order of the norm.
        eps (float, default: 1e-06): what is added to each difference, so that the gradient at 0 is finite.
        keepdim (bool, default: False): keeps the last dimension, with size 1.

    Returns:
        Tensor: (…), or (…, 1) with `keepdim`.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.pairwise_distance(lucid.tensor([[0.0, 0.0]]), lucid.tensor([[3.0, 4.0]]))
        tensor([5.0000])
    """
    distance: Tensor = _C.norm(x1 - x2 + eps, p, -1, keepdim)
    return distance


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """`x1 · x2 / (max(‖x1‖, eps) max(‖x2‖, eps))` along `dim`; both broadcast.

    Args:
        x1 (Tensor): any shape, floating.
        x2 (Tensor): a shape that broadcasts with `x1`.
        dim (int, default: 1): the dimension of the vectors.
        eps (float, default: 1e-08): the smallest norm.

    Returns:
        Tensor: the shape that both broadcast to, without dimension `dim`; within -1 to 1.

    Raises:
        RuntimeError: a dtype that is not floating.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.cosine_similarity(lucid.tensor([[1.0, 0.0]]), lucid.tensor([[1.0, 1.0]]))
        tensor([0.7071])
    """
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
    """The p-norm distances of all pairs of rows of (N, M), row-major above the diagonal: N(N-1)/2 numbers.

    Args:
        input (Tensor): N points, (N, M).
        p (float, default: 2.0): the order of the norm.

    Returns:
        Tensor: (N·(N − 1)/2,).

    Raises:
        RuntimeError: `input` is no matrix, or `p` negative.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.pdist(lucid.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]))
        tensor([5.0000, 1.0000, 4.2426])
    """
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
