"""Margin losses over classes and over several labels."""

from __future__ import annotations

import lucid
from lucid import _C, Tensor, errors
from lucid.nn._functional.loss import _positive, labels_within, legacy_reduction, reduced
from lucid.nn._functional.step import step

__all__ = [
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
]


def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Binary cross-entropy of logits (…, C) with labels 0 and 1, averaged over the classes.

    Args:
        input (Tensor): logits, (N, C) or (C,).
        target (Tensor): labels 0 or 1, of the shape of `input`.
        weight (Tensor, optional): a weight for each class, (C,).
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".

    Returns:
        Tensor: 0-d, or (N,) for `reduction="none"`.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.multilabel_soft_margin_loss(lucid.zeros(1, 2), lucid.tensor([[1.0, 0.0]]))
        tensor(0.6931)
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    loss = -(target * _C.logsigmoid(input) + (1 - target) * _C.logsigmoid(-input))
    if weight is not None:
        loss = loss * weight
    classes = input.dim() - 1
    return reduced(loss.sum(classes) / input.shape[classes], reduction)


@step("multi_margin_loss")
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """`Σ_{i≠y} max(0, w_y (margin - x_y + x_i))^p / C` for logits (N, C) or (C) and class indices (N) or ().

    A `weight` that requires a gradient is a RuntimeError.

    Args:
        input (Tensor): scores, (N, C) or (C,).
        target (Tensor): class indices, (N,) or ().
        p (int, default: 1): 1 or 2, the exponent.
        margin (float, default: 1.0): by how much the right class should score higher.
        weight (Tensor, optional): a weight for each class, (C,).
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".

    Returns:
        Tensor: 0-d, or (N,) for `reduction="none"`.

    Raises:
        ValueError: `p` is neither 1 nor 2.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.multi_margin_loss(lucid.tensor([[0.0, 1.0]]), lucid.tensor([0]))
        tensor(1.)
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    if p not in (1, 2):
        raise errors.ValueError(f"only p == 1 and p == 2 supported, got {p}")
    if weight is not None and weight.dim() != 1:
        raise errors.ValueError("weight must be one-dimensional")
    if weight is not None and weight.requires_grad and lucid.is_grad_enabled():
        raise errors.RuntimeError(
            "The function 'multi_margin_loss' is not differentiable with respect to argument 'weight'. This input "
            "cannot have requires_grad True; detach() it."
        )
    alone = input.dim() < 2
    x = input.reshape([1, -1]) if alone else input
    y = target.reshape([-1])
    if x.dim() != 2 or y.shape[0] != x.shape[0]:
        raise errors.RuntimeError(
            f"inconsistent target size, got: {list(target.shape)} for an input of {list(input.shape)}"
        )
    if target.dtype != lucid.int64 or (weight is not None and weight.dtype != input.dtype):
        raise errors.DtypeMismatch(
            f"multi_margin_loss: expected target as int64 and weight as {input.dtype}, got {target.dtype} and "
            f"{None if weight is None else weight.dtype}"
        )
    classes = x.shape[1]
    with labels_within("multi_margin_loss"):
        picked = x.gather(1, y.unsqueeze(1))
    terms = _positive(margin - picked + x)
    if p == 2:
        terms = terms * terms
    if weight is not None and weight.shape[0] != classes:
        raise errors.RuntimeError(f"inconsistent weight size, expected {classes} but got {list(weight.shape)}")
    if weight is not None:
        terms = terms * weight.index_select(0, y).unsqueeze(1)
    own = lucid.arange(classes, device=x.device) == y.unsqueeze(1)
    loss = terms.masked_fill(own, 0.0).sum(1) / classes
    return reduced(loss.squeeze(0) if alone and reduction == "none" and target.dim() == 0 else loss, reduction)


@step("multilabel_margin_loss")
def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """`Σ_{i not in y, j in y} max(0, 1 - x_j + x_i) / C`; each row of `target` lists labels up to the first -1.

    Args:
        input (Tensor): scores, (N, C) or (C,).
        target (Tensor): class indices, of the shape of `input`, ended by -1.
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".

    Returns:
        Tensor: 0-d, or (N,) for `reduction="none"`.

    Raises:
        RuntimeError: shapes that do not fit, or a label out of range.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.multilabel_margin_loss(lucid.tensor([[0.0, 1.0, 0.5]]), lucid.tensor([[1, -1, 0]]))
        tensor(0.1667)
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    one = input.numel() == 1 and target.numel() == 1 and input.dim() < 2 and target.dim() < 2
    if (input.shape != target.shape and not one) or input.dim() > 2:
        raise errors.RuntimeError(
            f"inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}"
        )
    if target.dtype != lucid.int64:
        raise errors.DtypeMismatch(f"multilabel_margin_loss: expected target as int64, got {target.dtype}")
    alone = input.dim() < 2
    x, y = (t.reshape([1, -1]) if alone else t for t in (input, target))
    classes = x.shape[1]
    listed = ((y < 0).to(lucid.int64).cumsum(1)) == 0
    safe = y.masked_fill(listed.logical_not(), 0)
    places = lucid.arange(classes, device=x.device)
    # (N, listed, C): is class i the label j lists?
    matches = (safe.unsqueeze(2) == places) & listed.unsqueeze(2)
    labelled = matches.any(1)
    with labels_within("multilabel_margin_loss"):
        picked = x.gather(1, safe).unsqueeze(2)
    terms = _positive(1 - picked + x.unsqueeze(1))
    counted = listed.unsqueeze(2) & labelled.logical_not().unsqueeze(1)
    loss = terms.masked_fill(counted.logical_not(), 0.0).sum([1, 2]) / classes
    return reduced(loss.squeeze(0) if alone else loss, reduction)
