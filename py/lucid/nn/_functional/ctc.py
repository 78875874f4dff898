"""The connectionist temporal classification loss."""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid import _C, Tensor, errors
from lucid.nn._functional.loss import reduced

__all__ = [
    "ctc_loss",
]


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

    The gradient of `log_probs` is PyTorch's: the derivative and the probabilities, which a `log_softmax` before takes
    out again; by itself it is the derivative of no function. Of an infinite loss it is NaN, without `zero_infinity`.

    Args:
        log_probs (Tensor): logarithms of probabilities, (T, N, C) or (T, C).
        targets (Tensor): (N, S) padded, or all labels in a row; none of them is `blank`.
        input_lengths (tuple of ints or Tensor): the length of each input, (N,).
        target_lengths (tuple of ints or Tensor): the length of each target, (N,).
        blank (int, default: 0): The class that stands for nothing.
        reduction (str, default: "mean"): "mean" divides each loss by its target's length first.
        zero_infinity (bool, default: False): Whether losses of sequences that cannot be aligned are 0, not
            infinite.

    Returns:
        Tensor: 0-d, or (N,) for `reduction="none"`.

    Raises:
        RuntimeError: shapes, lengths or labels that do not fit.

    Example:
        >>> import lucid.nn.functional as F
        >>> log_probs = lucid.zeros(4, 1, 3).log_softmax(2)
        >>> F.ctc_loss(log_probs, lucid.tensor([[1, 2]]), (4,), (2,))
        tensor(0.8432)
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
        loss = _ctc(log_probs, targets, (ins, in_length), out_length, blank, zero_infinity)
    if zero_infinity:
        loss = loss.where(loss.detach() != math.inf, 0.0)
    if alone and reduction == "none":
        return loss.squeeze(0)
    return reduced(loss / out_length.clamp(min=1).to(loss.dtype) if reduction == "mean" else loss, reduction)


def _ctc(
    log_probs: Tensor,
    targets: Tensor,
    in_lengths: tuple[list[int], Tensor],
    out_length: Tensor,
    blank: int,
    zero_infinity: bool,
) -> Tensor:
    """The loss of each sequence, of padded targets; with `zero_infinity` infinite ones have no gradient."""
    (steps, count, _), (ins, in_length) = log_probs.shape, in_lengths
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
        closed = start.logical_not() | (in_length == 0).unsqueeze(1)
        alpha = found[0].masked_fill(closed, _NEVER)
        # What may not be skipped over is as good as out of reach.
        toll = lucid.zeros_like(found[0]).masked_fill(skips.logical_not(), _NEVER)
        ragged = None if ins.count(steps) == count else in_length.unsqueeze(1)
        for t in range(1, steps):
            wide = lucid.constant_pad_nd(alpha, [2, 0], _NEVER)
            one, two = wide.narrow(1, 1, width), wide.narrow(1, 0, width) + toll
            step = lucid.logaddexp(lucid.logaddexp(alpha, one), two) + found[t]
            alpha = step if ragged is None else lucid.where(ragged > t, step, alpha)
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
