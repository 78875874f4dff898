"""Losses of elements and of classes, and the base classes of all losses."""

from __future__ import annotations

from lucid import Tensor, errors
from lucid._warnings import warn
from lucid.nn import functional as F
from lucid.nn._functional.loss import legacy_reduction
from lucid.nn.modules.module import Module

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CrossEntropyLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "MSELoss",
    "NLLLoss",
    "NLLLoss2d",
    "SmoothL1Loss",
]


class _Loss(Module):
    """A loss with a `reduction`: "mean" (the default), "sum" or "none".

    `size_average` and `reduce` are PyTorch's old names for it.
    """

    reduction: str

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__()
        # Without the older arguments each loss has its own reductions, which its function checks.
        older = size_average is not None or reduce is not None
        self.reduction = legacy_reduction(size_average, reduce, reduction) if older else reduction


class _WeightedLoss(_Loss):
    """A loss with a buffer `weight`."""

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class MSELoss(_Loss):
    """`(input - target)²`.

    Args:
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".

    Example:
        >>> from lucid import nn
        >>> nn.MSELoss()(lucid.tensor([1.0, 2.0]), lucid.tensor([1.0, 4.0]))
        tensor(2.)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, reduction=self.reduction)


class L1Loss(_Loss):
    """`|input - target|`.

    Args:
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".

    Example:
        >>> from lucid import nn
        >>> nn.L1Loss()(lucid.tensor([1.0, 2.0]), lucid.tensor([1.0, 4.0]))
        tensor(1.)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """Quadratic below `beta`, linear above with slope 1. Default beta: 1.

    Args:
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".
        beta (float, default: 1.0): where the parabola ends, not negative; 0 gives `L1Loss`.

    Example:
        >>> from lucid import nn
        >>> nn.SmoothL1Loss()(lucid.tensor([1.0, 2.0]), lucid.tensor([1.0, 4.0]))
        tensor(0.7500)
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        beta: float = 1.0,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """Quadratic below `delta`, linear above with slope `delta`. Default delta: 1.

    Args:
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".
        delta (float, default: 1.0): where the parabola ends, positive.

    Raises:
        ValueError: `delta` is not positive.

    Example:
        >>> from lucid import nn
        >>> nn.HuberLoss()(lucid.tensor([1.0, 2.0]), lucid.tensor([1.0, 4.0]))
        tensor(0.7500)
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        if not isinstance(delta, (float, int)):
            raise errors.TypeError(f"HuberLoss: delta must be a float or int, got: {type(delta)}")
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class NLLLoss(_WeightedLoss):
    """The negative log-likelihood of class indices (N, …) under log-probabilities (N, C, …).

    Args:
        weight (Tensor, optional): A factor per class (C).
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        ignore_index (int, default: -100): A target that counts nothing.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" (weighted by the classes' weight), "sum" or "none".

    Example:
        >>> from lucid import nn
        >>> nn.NLLLoss()(lucid.tensor([[-1.0, -2.0]]), lucid.tensor([1]))
        tensor(2.)
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class CrossEntropyLoss(_WeightedLoss):
    """`NLLLoss` of the log-softmax of logits (N, C, …); targets are class indices (N, …) or probabilities (N, C, …).

    Args:
        weight (Tensor, optional): A factor per class (C).
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        ignore_index (int, default: -100): A target index that counts nothing.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" (weighted by the classes' weight), "sum" or "none".
        label_smoothing (float, default: 0.0): The share of each target spread evenly over all classes.

    Example:
        >>> from lucid import nn
        >>> nn.CrossEntropyLoss()(lucid.tensor([[0.0, 0.0]]), lucid.tensor([1]))
        tensor(0.6931)
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class BCELoss(_WeightedLoss):
    """`-(t log p + (1 - t) log(1 - p))` for probabilities, each logarithm held above -100.

    Args:
        weight (Tensor, optional): a factor for each element, of a shape that broadcasts with the input.
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".

    Example:
        >>> from lucid import nn
        >>> nn.BCELoss()(lucid.tensor([0.5]), lucid.tensor([1.0]))
        tensor(0.6931)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """`BCELoss` of the sigmoid of logits, without overflow. `pos_weight` is a factor on the positive part.

    Args:
        weight (Tensor, optional): a factor for each element, of a shape that broadcasts with the input.
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".
        pos_weight (Tensor, optional): a factor of the positive part, of a shape that broadcasts with the input.

    Example:
        >>> from lucid import nn
        >>> nn.BCEWithLogitsLoss()(lucid.tensor([0.0]), lucid.tensor([1.0]))
        tensor(0.6931)
    """

    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, reduction=self.reduction, pos_weight=self.pos_weight
        )


class KLDivLoss(_Loss):
    """`target (log target - input)` for log-probabilities `input`; "batchmean" divides the sum by the batch's size.

    `log_target` says that the target is logarithms too. Default: False.

    Args:
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".
        log_target (bool, default: False): the targets are logarithms.

    Example:
        >>> from lucid import nn
        >>> nn.KLDivLoss(reduction="sum")(lucid.tensor([-0.6931, -0.6931]), lucid.tensor([0.25, 0.75]))
        tensor(0.1308)
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        log_target: bool = False,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class NLLLoss2d(NLLLoss):
    """`NLLLoss` by its old name for images, which is deprecated.

    Args:
        weight (Tensor, optional): a factor for each class, (C,).
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        ignore_index (int, default: -100): a target that does not count.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".

    Example:
        >>> from lucid import nn
        >>> nn.NLLLoss2d()(lucid.zeros(1, 2, 1, 1), lucid.zeros(1, 1, 1, dtype=lucid.int64))
        tensor(0.)
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        warn("`NLLLoss2d` is deprecated. Use `NLLLoss` instead.", FutureWarning)
        super().__init__(weight, size_average, ignore_index, reduce, reduction)


# Programs look for these classes in `loss`, which is where PyTorch has them.
for _cls in (
    _Loss,
    _WeightedLoss,
    MSELoss,
    L1Loss,
    SmoothL1Loss,
    HuberLoss,
    NLLLoss,
    CrossEntropyLoss,
    BCELoss,
    BCEWithLogitsLoss,
    KLDivLoss,
    NLLLoss2d,
):
    _cls.__module__ = "lucid.nn.modules.loss"
