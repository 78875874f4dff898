"""Losses over pairs, triplets, counts, labels and sequences. All have PyTorch's `reduction`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid._warnings import warn
from lucid.nn._functional.distance import pairwise_distance
from lucid.nn._functional.step import step

__all__ = [
    "cosine_embedding_loss",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "margin_ranking_loss",
    "poisson_nll_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]


def legacy_reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """`reduction`, or what PyTorch's old arguments for it say, with a warning."""
    if size_average is None and reduce is None:
        if reduction == "elementwise_mean":
            warn("reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead.")
            return "mean"
        if reduction not in ("none", "mean", "sum"):
            raise errors.ValueError(f"{reduction} is not a valid value for reduction")
        return reduction
    # The older arguments may be anything that is true or not.
    mean, all_in_one = size_average is None or bool(size_average), reduce is None or bool(reduce)
    reduction = "none" if not all_in_one else "mean" if mean else "sum"
    warn(f"size_average and reduce args will be deprecated, please use reduction='{reduction}' instead.")
    return reduction


@contextmanager
def labels_within(op: str) -> Iterator[None]:
    """Labels out of range are a RuntimeError here, as in PyTorch."""
    try:
        yield
    except errors.IndexError as error:
        raise errors.RuntimeError(f"{op}: target out of range ({error})") from None


def reduced(loss: Tensor, reduction: str) -> Tensor:
    """The mean, the sum, or the losses themselves."""
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    if reduction == "none":
        return loss
    raise errors.ValueError(f"{reduction} is not a valid value for reduction")


def _hinge(x: Tensor) -> Tensor:
    return x.clamp(min=0)


def _positive(x: Tensor) -> Tensor:
    """The positive elements, and zeros for others: NaN counts nothing."""
    return lucid.where(x.detach() > 0, x, 0.0)


def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """`max(0, -y (x1 - x2) + margin)`: y = 1 wants the first larger, y = -1 the second.

    Args:
        input1 (Tensor): the first scores, (N,) or any shape.
        input2 (Tensor): the second scores, of the shape of `input1`.
        target (Tensor): 1 or -1, of the shape of the inputs.
        margin (float, default: 0): by how much the better score should be larger.
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".

    Returns:
        Tensor: 0-d, or the shape of the inputs for `reduction="none"`.

    Raises:
        RuntimeError: the numbers of dimensions differ.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.margin_ranking_loss(lucid.tensor([1.0, 3.0]), lucid.tensor([2.0, 1.0]), lucid.tensor([1.0, 1.0]))
        tensor(0.5000)
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    if not input1.dim() == input2.dim() == target.dim():
        raise errors.RuntimeError(
            f"margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {list(input1.shape)}, input2: {list(input2.shape)}, target: {list(target.shape)} "
        )
    return reduced(_hinge(-target * (input1 - input2) + float(margin)), reduction)


def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """`x` where y = 1, `max(0, margin - x)` where y = -1.

    Args:
        input (Tensor): distances, of any shape.
        target (Tensor): 1 or -1, of the shape of `input`.
        margin (float, default: 1.0): the distance that dissimilar pairs should have.
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".

    Returns:
        Tensor: 0-d, or the shape of `input` for `reduction="none"`.

    Raises:
        RuntimeError: the dtype of `input` cannot hold `margin`.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.hinge_embedding_loss(lucid.tensor([0.5, 0.25]), lucid.tensor([1, -1]))
        tensor(0.6250)
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    if not (input.is_floating_point() or input.is_complex() or input.dtype == lucid.bool):
        # As in PyTorch it is a number of the input's dtype.
        if (input.dtype == lucid.uint8 and margin < 0) or not math.isfinite(margin):
            raise errors.RuntimeError(f"value {margin} cannot be converted to {input.dtype} without overflow")
        margin = int(margin)
    apart = _hinge(margin - input).masked_fill(target == 1, 0.0)
    return reduced(apart + input.masked_fill(target == -1, 0.0), reduction)


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """`1 - cos(x1, x2)` where y = 1, `max(0, cos(x1, x2) - margin)` where y = -1, for (N, D) or (D).

    Args:
        input1 (Tensor): (N, D) or (D,).
        input2 (Tensor): of the shape of `input1`.
        target (Tensor): 1 or -1, (N,) or ().
        margin (float, default: 0): the cosine that dissimilar pairs may have, within -1 to 1.
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".

    Returns:
        Tensor: 0-d, or the shape of `target` for `reduction="none"`.

    Raises:
        RuntimeError: the shapes do not fit.

    Example:
        >>> import lucid.nn.functional as F
        >>> x = lucid.tensor([[1.0, 0.0]])
        >>> F.cosine_embedding_loss(x, lucid.tensor([[0.0, 1.0]]), lucid.tensor([1]))
        tensor(1.)
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    if target.dim() > 1 or input1.dim() != target.dim() + 1 or input2.dim() != target.dim() + 1:
        raise errors.RuntimeError(
            f"{target.dim()}D target tensor expects {target.dim() + 1}D input tensors, but found inputs with sizes "
            f"{list(input1.shape)} and {list(input2.shape)}."
        )
    dim, eps = target.dim(), 1e-12
    sizes = ((input1 * input1).sum(dim) + eps) * ((input2 * input2).sum(dim) + eps)
    cosine = (input1 * input2).sum(dim) / sizes.sqrt()
    near = (1 - cosine).masked_fill(target != 1, 0.0)
    return reduced(near + _hinge(cosine - margin).masked_fill(target != -1, 0.0), reduction)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """`max(0, d(a, p) - d(a, n) + margin)` with the p-norm distance; `swap` also looks at d(p, n).

    Args:
        anchor (Tensor): (N, D) or (D,).
        positive (Tensor): what should be near, of the shape of `anchor`.
        negative (Tensor): what should be far, of the shape of `anchor`.
        margin (float, default: 1.0): by how much the negative should be farther away.
        p (float, default: 2): the order of the norm.
        eps (float, default: 1e-06): what is added to each difference.
        swap (bool, default: False): takes the distance of positive and negative where it is smaller.
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".

    Returns:
        Tensor: 0-d, or (N,) for `reduction="none"`.

    Raises:
        ValueError: `margin` is not positive.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.triplet_margin_loss(lucid.zeros(1, 2), lucid.zeros(1, 2), lucid.tensor([[0.3, 0.4]]))
        tensor(0.5000)
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    if margin <= 0:
        raise errors.ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.dim() == positive.dim() == negative.dim():
        raise errors.RuntimeError(
            f"The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {anchor.dim()}D, positive {positive.dim()}D, and negative {negative.dim()}D inputs"
        )

    def distance(a: Tensor, b: Tensor) -> Tensor:
        return pairwise_distance(a, b, p, eps)

    return _triplet(anchor, positive, negative, distance, margin, swap, reduction)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: Any = False,
    reduction: str = "mean",
) -> Tensor:
    """`triplet_margin_loss` with any distance; `pairwise_distance` by default.

    Args:
        anchor (Tensor): (N, …).
        positive (Tensor): what should be near, of the shape of `anchor`.
        negative (Tensor): what should be far, of the shape of `anchor`.
        distance_function (callable, optional): takes two tensors, and returns their distances.
        margin (float, default: 1.0): by how much the negative should be farther away.
        swap (bool, default: False): takes the distance of positive and negative where it is smaller.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".

    Returns:
        Tensor: 0-d, or the shape of the distances for `reduction="none"`.

    Raises:
        ValueError: `margin` is not positive.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.triplet_margin_with_distance_loss(lucid.zeros(1, 2), lucid.zeros(1, 2), lucid.tensor([[0.3, 0.4]]))
        tensor(0.5000)
    """
    if margin <= 0:
        raise errors.ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.dim() == positive.dim() == negative.dim():
        raise errors.RuntimeError(
            f"The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {anchor.dim()}D, positive {positive.dim()}D, and negative {negative.dim()}D inputs"
        )
    return _triplet(anchor, positive, negative, distance_function or pairwise_distance, margin, swap, reduction)


def _triplet(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    distance: Callable[[Tensor, Tensor], Tensor],
    margin: float,
    swap: bool,
    reduction: str,
) -> Tensor:
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = lucid.minimum(far, distance(positive, negative))
    return reduced(_hinge(margin + near - far), reduction)


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """`exp(x) - y x` for log-rates, `x - y log(x + eps)` for rates; `full` adds Stirling's term for log(y!).

    Args:
        input (Tensor): the logarithms of the rates, or the rates, of any shape.
        target (Tensor): the counts, of the shape of `input`.
        log_input (bool, default: True): `input` holds logarithms.
        full (bool, default: False): adds Stirling's approximation of log(y!).
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        eps (float, default: 1e-08): what keeps the logarithm of a rate of 0 finite.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".

    Returns:
        Tensor: 0-d, or the shape of `input` for `reduction="none"`.

    Raises:
        ValueError: another `reduction`.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.poisson_nll_loss(lucid.tensor([0.0, 1.0]), lucid.tensor([1.0, 2.0]))
        tensor(0.8591)
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    if reduction not in ("none", "mean", "sum"):
        raise errors.ValueError(f"{reduction} is not a valid value for reduction")
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        small = target <= 1
        y = (
            target.masked_fill(small, 2.0)
            if target.is_floating_point()
            else target.masked_fill(small, 2).to(loss.dtype)
        )
        loss = loss + (y * y.log() - y + 0.5 * (2 * math.pi * y).log()).masked_fill(small, 0.0)
    return reduced(loss, reduction)


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor | float,
    var: Tensor | float,
    full: Any = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """`(log max(var, eps) + (x - y)² / max(var, eps)) / 2`; `full` adds log(2π)/2.

    `var` is a number, or a tensor of the input's shape, of it without the last dimension, or with that of size 1. It
    may not be negative. No gradient passes the limit by `eps`.

    Args:
        input (Tensor): the means, of any shape.
        target (Tensor or float): the observations, of a shape that broadcasts with `input`.
        var (Tensor or float): the variances, of the shape of `input`, or one for each row, or a number.
        full (bool, default: False): adds the constant log(2π)/2.
        eps (float, default: 1e-06): the smallest variance.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".

    Returns:
        Tensor: 0-d, or the shape of `input` for `reduction="none"`.

    Raises:
        ValueError: a variance is negative, or its shape does not fit.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.gaussian_nll_loss(lucid.tensor([0.0]), lucid.tensor([1.0]), lucid.tensor([1.0]))
        tensor(0.5000)
    """
    if not isinstance(var, Tensor):
        if not isinstance(var, float):
            raise errors.TypeError(f"var must be a Tensor or a float, not {type(var).__name__}")
        if var < 0:
            raise errors.ValueError(f"var has negative entry/entries, got {var}")
        var = var * lucid.ones_like(input)
    elif (var < 0).any().item():
        raise errors.ValueError(f"var has negative entry/entries, the least is {var.min().item()}")
    if var.shape != input.shape:
        if input.shape[:-1] == var.shape:
            var = var.unsqueeze(-1)
        elif not (input.shape[:-1] == var.shape[:-1] and var.shape[-1] == 1) and not (
            var.dim() == input.dim() and all(a in (1, b) for a, b in zip(var.shape, input.shape, strict=True))
        ):
            raise errors.ValueError(
                f"var is of incorrect size, got {list(var.shape)} for an input of {list(input.shape)}"
            )
    if reduction not in ("none", "mean", "sum"):
        raise errors.ValueError(f"{reduction} is not valid")
    if not var.is_floating_point():
        raise errors.DtypeMismatch(f"gaussian_nll_loss: var has to be limited by eps, which {var.dtype} does not hold")
    # The limit acts on the value alone, not on its gradient.
    held = var + (var.detach().clamp(min=eps) - var.detach())
    loss = 0.5 * (held.log() + (input - target).square() / held)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduced(loss, reduction)


@step("soft_margin_loss")
def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """`log(1 + exp(-y x))` for targets of 1 and -1.

    Args:
        input (Tensor): scores, of any shape.
        target (Tensor): 1 or -1, of the shape of `input`.
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".

    Returns:
        Tensor: 0-d, or the shape of `input` for `reduction="none"`.

    Raises:
        RuntimeError: shapes that do not broadcast.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.soft_margin_loss(lucid.tensor([0.0, 2.0]), lucid.tensor([1.0, -1.0]))
        tensor(1.4100)
    """
    reduction = legacy_reduction(size_average, reduce, reduction)
    if target.requires_grad and lucid.is_grad_enabled():
        raise errors.RuntimeError(
            "The function 'soft_margin_loss' is not differentiable with respect to argument 'target'. This input "
            "cannot have requires_grad True; detach() it."
        )
    if not lucid.can_cast(target.dtype, input.dtype):
        raise errors.DtypeMismatch(f"soft_margin_loss: {target.dtype} can't be cast to the input's {input.dtype}")
    z = -(target * input).to(input.dtype)
    if z.shape != input.shape:
        why = f"output with shape {list(input.shape)} doesn't match the broadcast shape {list(z.shape)}"
        raise errors.ShapeMismatch(f"soft_margin_loss: {why}; the target is broadcast to the input")
    if not z.is_floating_point() and not z.is_complex():
        raise errors.DtypeMismatch(f"soft_margin_loss: the loss can't be cast to {z.dtype}; give floating point")
    # As PyTorch has it, which overflows for large `z`.
    return reduced(z.exp().log1p(), reduction)
