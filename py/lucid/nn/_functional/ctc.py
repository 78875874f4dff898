"""The connectionist temporal classification loss."""

from __future__ import annotations

from typing import Any

from lucid import _C, Tensor, errors

__all__ = [
    "ctc_loss",
]


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
    lengths = (_lengths("input", input_lengths), _lengths("target", target_lengths))
    return _C.ctc_loss(
        log_probs, targets, *lengths, blank=blank, reduction=reduction, zero_infinity=bool(zero_infinity)
    )


def _lengths(what: str, given: Any) -> list[int]:
    if isinstance(given, Tensor):
        if given.is_floating_point():
            raise errors.RuntimeError(f"{what}_lengths must be integral, got {given.dtype}")
        given = given.reshape([-1]).tolist()
    return [int(n) for n in given]
