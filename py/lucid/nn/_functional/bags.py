"""What becomes of bags of an embedding's rows."""

from __future__ import annotations

import math

from lucid import _C, Tensor, errors

__all__ = ["of_bags", "sums_of_bags"]


def of_bags(rows: Tensor, counted: Tensor | None, mode: str) -> Tensor:
    """The sums, means or maxima of (bags, length, size) over the length, of what is `counted` (bags, length, 1)."""
    if mode == "max":
        seen = rows if counted is None else rows.masked_fill(counted.logical_not(), -math.inf)
        picked = rows.gather(1, seen.detach().argmax(1, keepdim=True)).squeeze(1)
        return picked if counted is None else picked.masked_fill(counted.any(1).logical_not(), 0.0)
    if counted is None:
        return rows.sum(1) if mode == "sum" else rows.mean(1)
    made = rows.masked_fill(counted.logical_not(), 0.0).sum(1)
    return made if mode == "sum" else made / counted.sum(1).clamp(min=1).to(made.dtype)


def sums_of_bags(
    flat: Tensor, weight: Tensor, lengths: set[int], factors: Tensor | None, mode: str, sparse: bool
) -> Tensor | None:
    """Sums or means of bags of `weight`'s rows, all of one length, in one pass; `None` for others."""
    if len(lengths) != 1 or lengths == {0}:
        return None
    (length,) = lengths
    index = flat.reshape([flat.shape[0] // length, length])
    factors = None if factors is None else factors.reshape(index.shape)
    scale = 1 / length if mode == "mean" else 1.0
    try:
        made: Tensor = _C.embedding_sum(index, weight, factors, scale=scale, sparse=sparse)
        return made
    except errors.IndexError as error:
        raise errors.RuntimeError(f"embedding_bag: {error}, which is not in the valid range") from None
