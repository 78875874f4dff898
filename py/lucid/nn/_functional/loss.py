"""Losses over pairs, triplets, counts, labels and sequences. All have PyTorch's `reduction`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import lucid
from lucid import _C, Tensor, errors
from lucid._warnings import warn
from lucid.nn._functional.distance import pairwise_distance
from lucid.nn._functional.step import step

__all__ = [
    "cosine_embedding_loss",
    "ctc_loss",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "margin_ranking_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
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
    """`max(0, -y (x1 - x2) + margin)`: y = 1 wants the first larger, y = -1 the second."""
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
    """`x` where y = 1, `max(0, margin - x)` where y = -1."""
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
    """`1 - cos(x1, x2)` where y = 1, `max(0, cos(x1, x2) - margin)` where y = -1, for (N, D) or (D)."""
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
    """`max(0, d(a, p) - d(a, n) + margin)` with the p-norm distance; `swap` also looks at d(p, n)."""
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
    """`triplet_margin_loss` with any distance; `pairwise_distance` by default."""
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
    """`exp(x) - y x` for log-rates, `x - y log(x + eps)` for rates; `full` adds Stirling's term for log(y!)."""
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
    """`log(1 + exp(-y x))` for targets of 1 and -1."""
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


def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Binary cross-entropy of logits (…, C) with labels 0 and 1, averaged over the classes."""
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
    """`Σ_{i not in y, j in y} max(0, 1 - x_j + x_i) / C`; each row of `target` lists labels up to the first -1."""
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


_NEVER = -1e30  # log(0), but finite, so that gradients stay numbers


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """The negative log-likelihood of label sequences, summed over all alignments (Graves et al., 2006).

    Args:
        log_probs: (T, N, C) or (T, C) logarithms of probabilities.
        targets: (N, S) padded, or all labels in a row; none of them is `blank`.
        input_lengths: Per sequence, at most T.
        target_lengths: Per sequence, at most S.
        blank: The class that stands for nothing. Default: 0.
        reduction: "mean" divides each loss by its target's length first. Default: "mean".
        zero_infinity: Whether losses of sequences that cannot be aligned are 0, not infinite. Default: False.

    The gradient of `log_probs` is PyTorch's: the derivative and the probabilities, which a `log_softmax` before takes
    out again; by itself it is the derivative of no function. Of an infinite loss it is NaN, without `zero_infinity`.
    """
    alone = log_probs.dim() == 2
    if alone:
        log_probs = log_probs.unsqueeze(1)
    if log_probs.dim() != 3:
        raise errors.RuntimeError(f"ctc_loss: log_probs must be (T, N, C) or (T, C), got {list(log_probs.shape)}")
    steps, count, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise errors.RuntimeError(f"blank must be in label range, got {blank} for {classes} labels")
    ins, outs = (_lengths(what, given, count) for what, given in (("input", input_lengths), ("target", target_lengths)))
    if any(n > steps or n < 0 for n in ins):
        raise errors.RuntimeError(f"Expected input_lengths to have value at most {steps}, but got {max(ins)}")
    if any(n < 0 for n in outs):
        raise errors.RuntimeError(f"Expected target_lengths to have value at least 0, but got {min(outs)}")
    device, longest = log_probs.device, max(outs, default=0)
    targets = targets.to(lucid.int64)
    if targets.dim() == 1 and not (alone and len(outs) == 1 and targets.shape[0] == outs[0]):
        if targets.shape[0] != sum(outs):
            raise errors.RuntimeError(f"Expected targets to have {sum(outs)} elements, got {targets.shape[0]}")
        pieces = targets.split(outs) if outs else ()
        rows = [lucid.constant_pad_nd(piece, [0, longest - piece.shape[0]], 0) for piece in pieces]
        targets = lucid.stack(rows) if rows else targets.reshape([0, 0])
    elif targets.dim() == 1:
        targets = targets.unsqueeze(0)
    if targets.dim() != 2 or targets.shape[0] != count or targets.shape[1] < longest:
        raise errors.RuntimeError(f"Expected targets of at least {count} x {longest}, got {list(targets.shape)}")
    targets = targets.narrow(1, 0, longest).to(device)
    in_length, out_length = (lucid.tensor(n, device=device) for n in (ins, outs))
    with _C._Step("ctc_loss"):
        loss = _ctc(log_probs, targets, in_length, out_length, blank, zero_infinity)
    if zero_infinity:
        loss = loss.where(loss.detach() != math.inf, 0.0)
    if alone and reduction == "none":
        return loss.squeeze(0)
    return reduced(loss / out_length.clamp(min=1).to(loss.dtype) if reduction == "mean" else loss, reduction)


def _ctc(
    log_probs: Tensor, targets: Tensor, in_length: Tensor, out_length: Tensor, blank: int, zero_infinity: bool
) -> Tensor:
    """The loss of each sequence, of padded targets; with `zero_infinity` infinite ones have no gradient."""
    steps, count, _ = log_probs.shape
    device, longest = log_probs.device, targets.shape[1]
    # Labels with blanks around them, and where a step may skip the blank between two.
    used = lucid.arange(longest, device=device) < out_length.unsqueeze(1)
    targets = targets.masked_fill(used.logical_not(), blank)
    blanks = lucid.full_like(targets, blank)
    labels = lucid.cat(
        [lucid.stack([blanks, targets], 2).reshape([count, 2 * longest]), _column(blank, count, device)], 1
    )
    width = 2 * longest + 1
    before = lucid.constant_pad_nd(labels, [2, 0], blank).narrow(1, 0, width)
    skips = (labels != blank) & (labels != before)
    found = log_probs.gather(2, labels.unsqueeze(0).expand([steps, count, width]))
    start = lucid.arange(width, device=device) < (1 + (out_length > 0).to(lucid.int64)).unsqueeze(1)
    if steps == 0:
        alpha = lucid.full([count, width], 0.0, dtype=found.dtype, device=device)
        loss = lucid.where(out_length == 0, alpha[:, 0], math.inf)
    else:
        alpha = found[0].masked_fill(start.logical_not() | (in_length == 0).unsqueeze(1), _NEVER)
        for t in range(1, steps):
            one = lucid.constant_pad_nd(alpha, [1, 0], _NEVER).narrow(1, 0, width)
            two = (
                lucid.constant_pad_nd(alpha, [2, 0], _NEVER)
                .narrow(1, 0, width)
                .masked_fill(skips.logical_not(), _NEVER)
            )
            step = lucid.stack([alpha, one, two]).logsumexp(0) + found[t]
            alpha = lucid.where((in_length > t).unsqueeze(1), step, alpha)
        ends = lucid.stack([2 * out_length, (2 * out_length - 1).clamp(min=0)], 1)
        last = alpha.gather(1, ends)
        # A target without labels ends in one place only.
        single = lucid.stack([out_length < 0, out_length == 0], 1)
        loss = -last.masked_fill(single, _NEVER).logsumexp(1)
        loss = lucid.where((in_length == 0) & (out_length == 0), 0.0, loss)
        loss = loss.masked_fill(loss.detach() > -0.5 * _NEVER, math.inf)
    if log_probs.requires_grad and lucid.is_grad_enabled() and steps > 0:
        read = lucid.arange(steps, device=device).unsqueeze(1) < in_length
        sums = log_probs.exp().masked_fill(read.logical_not().unsqueeze(2), 0.0).sum([0, 2])
        infinite = loss.detach() == math.inf
        finite = sums.masked_fill(infinite, 0.0)
        loss = loss + (finite - finite.detach())
        if not zero_infinity:
            # The root adds 0, and its gradient there is NaN.
            loss = loss + (sums.masked_fill(infinite.logical_not(), 0.0) * 0.0).sqrt()
    return loss


def _column(value: int, count: int, device: Any) -> Tensor:
    return lucid.full([count, 1], value, device=device)


def _lengths(what: str, given: Any, count: int) -> list[int]:
    if isinstance(given, Tensor) and given.is_floating_point():
        raise errors.RuntimeError(f"{what}_lengths must be integral, got {given.dtype}")
    values = given.reshape([-1]).tolist() if isinstance(given, Tensor) else [int(n) for n in given]
    if len(values) != count:
        raise errors.RuntimeError(f"{what}_lengths must be of size batch_size {count}, got {len(values)}")
    return [int(n) for n in values]
