"""The losses that the engine has as one op, with what PyTorch's signatures have beside: older names and weights."""

from __future__ import annotations

import re
from typing import Any

from lucid import _C, Tensor, errors
from lucid._docs import share_sections
from lucid._warnings import warn
from lucid.nn._functional.loss import legacy_reduction, reduced

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "nll_loss",
    "smooth_l1_loss",
]


def _reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """`reduction`, or what the older arguments say; the engine checks it, as each loss has its own."""
    older = size_average is not None or reduce is not None or reduction == "elementwise_mean"
    return legacy_reduction(size_average, reduce, reduction) if older else reduction


class _labels:
    """A block whose errors about an index say that it is a target."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        found = re.search(r"index (-?\d+) is out of bounds .*size (\d+)", str(error)) if error is not None else None
        if isinstance(error, errors.IndexError) and found:
            index, classes = found.groups()
            raise errors.IndexError(
                f"{self.name}: Target {index} is out of bounds: there are {classes} classes, from 0"
            ) from None


def _compared(input: Tensor, target: Tensor) -> None:
    """Warns where two tensors are about to broadcast, which is hardly ever meant."""
    if input.shape != target.shape:
        warn(
            f"Using a target size ({target.shape}) that is different to the input size ({input.shape}). This will "
            "likely lead to incorrect results due to broadcasting. Please ensure they have the same size."
        )


def _weighted(losses: Tensor, input: Tensor, weight: Tensor, reduction: str, by_weight: bool) -> Tensor:
    if weight.shape != input.shape:
        raise errors.ValueError(
            f"Weights and input must have the same size, got {list(weight.shape)} and {list(input.shape)}."
        )
    made = losses * weight
    if by_weight and reduction == "mean":
        return made.sum() / weight.sum()
    return reduced(made, reduction)


def _check_probabilities(**given: Tensor) -> None:
    within = {name: ((p >= 0) & (p <= 1)).all() for name, p in given.items()}
    try:
        fine = bool(_C.stack([*within.values()]).all().item())
    except errors.RuntimeError:
        # Inside of a function transform there are no numbers to look at.
        return
    if not fine:
        name = next(name for name in within if not within[name].item())
        raise errors.RuntimeError(
            f"binary_cross_entropy: all elements of {name} should be between 0 and 1, got from "
            f"{given[name].min().item()} to {given[name].max().item()}"
        )


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """`(input - target)²`. With a `weight` of the input's shape, the mean is the weighted one."""
    reduction = _reduction(size_average, reduce, reduction)
    _compared(input, target)
    if weight is not None:
        return _weighted(_C.mse_loss(input, target, reduction="none"), input, weight, reduction, True)
    return _C.mse_loss(input, target, reduction=reduction)


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """`|input - target|`. With a `weight` of the input's shape, the mean is the weighted one."""
    reduction = _reduction(size_average, reduce, reduction)
    _compared(input, target)
    if weight is not None:
        return _weighted(_C.l1_loss(input, target, reduction="none"), input, weight, reduction, True)
    return _C.l1_loss(input, target, reduction=reduction)


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """`d² / (2 beta)` where the distance `d` is below `beta`, else `d - beta / 2`."""
    reduction = _reduction(size_average, reduce, reduction)
    _compared(input, target)
    return _C.smooth_l1_loss(input, target, reduction=reduction, beta=beta)


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """`d² / 2` where the distance `d` is below `delta`, else `delta (d - delta / 2)`.

    A `weight` of the input's shape multiplies each element's loss; the mean is still over the elements, as in PyTorch.
    """
    _compared(input, target)
    if weight is not None:
        return _weighted(_C.huber_loss(input, target, reduction="none", delta=delta), input, weight, reduction, False)
    return _C.huber_loss(input, target, reduction=reduction, delta=delta)


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """`-weight[target] · input[target]` for log-probabilities (N, C, …) and class indices (N, …); see `nn.NLLLoss`."""
    reduction = _reduction(size_average, reduce, reduction)
    with _labels("nll_loss"):
        return _C.nll_loss(input, target, weight, ignore_index=ignore_index, reduction=reduction)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """`nll_loss` of the log-softmax of logits (N, C, …); targets are class indices or probabilities."""
    reduction = _reduction(size_average, reduce, reduction)
    with _labels("cross_entropy"):
        return _C.cross_entropy(
            input, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
        )


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """`-(t log p + (1 - t) log(1 - p))` for probabilities, each logarithm held above -100.

    On the CPU anything but probabilities is a RuntimeError; on the GPU device, where a look at them would wait for what
    computes them, it is not noticed.
    """
    reduction = _reduction(size_average, reduce, reduction)
    if input.is_cpu and input.is_floating_point() and input.shape == target.shape:
        _check_probabilities(input=input.detach(), target=target.detach())
    return _C.binary_cross_entropy(input, target, weight, reduction=reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """`binary_cross_entropy` of the sigmoid of logits, without overflow; `pos_weight` multiplies the positive part."""
    reduction = _reduction(size_average, reduce, reduction)
    return _C.binary_cross_entropy_with_logits(input, target, weight, reduction=reduction, pos_weight=pos_weight)


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """`target (log target - input)` for log-probabilities `input`; "batchmean" divides the sum by the batch's size."""
    reduction = _reduction(size_average, reduce, reduction)
    if reduction == "mean" and size_average is None and reduce is None:
        warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size. 'batchmean' divides "
            "only by the batch size, and aligns with the KL div math definition."
        )
    return _C.kl_div(input, target, reduction=reduction, log_target=log_target)


# These functions and the ops that they call share one documentation.
_OLD = {
    "size_average": '(bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.',
    "reduce": '(bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.',
}
_WEIGHT = "(Tensor, optional): a weight for each element, of the shape of `input`."
for _loss in (smooth_l1_loss, nll_loss, cross_entropy, binary_cross_entropy, binary_cross_entropy_with_logits, kl_div):
    share_sections(_loss, getattr(_C, _loss.__name__), **_OLD)
share_sections(huber_loss, _C.huber_loss, weight=_WEIGHT)
for _plain in (mse_loss, l1_loss):
    share_sections(_plain, getattr(_C, _plain.__name__), **_OLD, weight=_WEIGHT)
