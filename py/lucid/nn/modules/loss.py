"""Losses as modules: each one call of the engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lucid import Tensor, errors
from lucid.nn import functional as F
from lucid.nn._functional.loss_linear import LinearCrossEntropyOptions
from lucid.nn.modules.distance import PairwiseDistance
from lucid.nn.modules.linear import Linear
from lucid.nn.modules.loss_plain import (
    BCELoss,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    MSELoss,
    NLLLoss,
    NLLLoss2d,
    SmoothL1Loss,
    _Loss,
    _WeightedLoss,
)

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CTCLoss",
    "CosineEmbeddingLoss",
    "CrossEntropyLoss",
    "GaussianNLLLoss",
    "HingeEmbeddingLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "LinearCrossEntropyLoss",
    "MSELoss",
    "MarginRankingLoss",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "MultilabelMarginLoss",
    "NLLLoss",
    "NLLLoss2d",
    "PoissonNLLLoss",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]


class MarginRankingLoss(_Loss):
    """`max(0, -y (x1 - x2) + margin)` for y of 1 and -1. Default margin: 0.0.

    Args:
        margin (float, default: 0.0): by how much the better score should be larger.
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".

    Example:
        >>> from lucid import nn
        >>> nn.MarginRankingLoss()(lucid.tensor([1.0]), lucid.tensor([2.0]), lucid.tensor([1.0]))
        tensor(1.)
    """

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.margin_ranking_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class HingeEmbeddingLoss(_Loss):
    """`x` where y = 1, `max(0, margin - x)` where y = -1. Default margin: 1.0.

    Args:
        margin (float, default: 1.0): the distance that dissimilar pairs should have.
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".

    Example:
        >>> from lucid import nn
        >>> nn.HingeEmbeddingLoss()(lucid.tensor([0.5, 0.25]), lucid.tensor([1, -1]))
        tensor(0.6250)
    """

    def __init__(
        self,
        margin: float = 1.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class CosineEmbeddingLoss(_Loss):
    """`1 - cos(x1, x2)` where y = 1, `max(0, cos(x1, x2) - margin)` where y = -1. Default margin: 0.0.

    Args:
        margin (float, default: 0.0): the cosine that dissimilar pairs may have, within -1 to 1.
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".

    Example:
        >>> from lucid import nn
        >>> nn.CosineEmbeddingLoss()(lucid.tensor([[1.0, 0.0]]), lucid.tensor([[0.0, 1.0]]), lucid.tensor([1]))
        tensor(1.)
    """

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.cosine_embedding_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class SoftMarginLoss(_Loss):
    """`log(1 + exp(-y x))` for targets of 1 and -1.

    Args:
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".

    Example:
        >>> from lucid import nn
        >>> nn.SoftMarginLoss()(lucid.tensor([0.0, 2.0]), lucid.tensor([1.0, -1.0]))
        tensor(1.4100)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class MultiLabelMarginLoss(_Loss):
    """Hinge loss of every listed label against every other class; see `nn.functional.multilabel_margin_loss`.

    Args:
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".

    Example:
        >>> from lucid import nn
        >>> nn.MultiLabelMarginLoss()(lucid.tensor([[0.0, 1.0, 0.5]]), lucid.tensor([[1, -1, 0]]))
        tensor(0.1667)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


# Lucid's other spelling.
MultilabelMarginLoss = MultiLabelMarginLoss


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """Binary cross-entropy of logits (N, C) with labels 0 and 1, averaged over the classes.

    Args:
        weight (Tensor, optional): a factor for each class, (C,).
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".

    Example:
        >>> from lucid import nn
        >>> nn.MultiLabelSoftMarginLoss()(lucid.zeros(1, 2), lucid.tensor([[1.0, 0.0]]))
        tensor(0.6931)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(input, target, weight=self.weight, reduction=self.reduction)


class MultiMarginLoss(_WeightedLoss):
    """`Σ_{i≠y} max(0, w_y (margin - x_y + x_i))^p / C`. Defaults: p 1, margin 1.

    Args:
        p (int, default: 1): 1 or 2, the exponent.
        margin (float, default: 1.0): by how much the right class should score higher.
        weight (Tensor, optional): a factor for each class, (C,).
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".

    Raises:
        ValueError: `p` is neither 1 nor 2, or `weight` is no vector.

    Example:
        >>> from lucid import nn
        >>> nn.MultiMarginLoss()(lucid.tensor([[0.0, 1.0]]), lucid.tensor([0]))
        tensor(1.)
    """

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise errors.ValueError(f"only p == 1 and p == 2 supported, got {p}")
        if weight is not None and weight.dim() != 1:
            raise errors.ValueError(
                f"MultiMarginLoss: expected weight to be None or 1D tensor, got {weight.dim()}D instead"
            )
        self.p = p
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multi_margin_loss(
            input, target, p=self.p, margin=self.margin, weight=self.weight, reduction=self.reduction
        )


class PoissonNLLLoss(_Loss):
    """The negative log-likelihood of counts; see `nn.functional.poisson_nll_loss`.

    Args:
        log_input (bool, default: True): the inputs are logarithms of the rates.
        full (bool, default: False): adds Stirling's approximation of log(y!).
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        eps (float, default: 1e-08): what keeps the logarithm of a rate of 0 finite.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".

    Example:
        >>> from lucid import nn
        >>> nn.PoissonNLLLoss()(lucid.tensor([0.0, 1.0]), lucid.tensor([1.0, 2.0]))
        tensor(0.8591)
    """

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-8,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(
            log_input, target, log_input=self.log_input, full=self.full, eps=self.eps, reduction=self.reduction
        )


class GaussianNLLLoss(_Loss):
    """The negative log-likelihood of normal variables of given variance; see `nn.functional.gaussian_nll_loss`.

    Args:
        full (bool, default: False): adds the constant log(2π)/2.
        eps (float, default: 1e-06): the smallest variance.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".

    Example:
        >>> from lucid import nn
        >>> nn.GaussianNLLLoss()(lucid.tensor([0.0]), lucid.tensor([1.0]), lucid.tensor([1.0]))
        tensor(0.5000)
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(None, None, reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        return F.gaussian_nll_loss(input, target, var, full=self.full, eps=self.eps, reduction=self.reduction)


class TripletMarginLoss(_Loss):
    """`max(0, d(a, p) - d(a, n) + margin)`; see `nn.functional.triplet_margin_loss`.

    Args:
        margin (float, default: 1.0): by how much the negative should be farther away.
        p (float, default: 2.0): the order of the norm.
        eps (float, default: 1e-06): what is added to each difference.
        swap (bool, default: False): takes the distance of positive and negative where it is smaller.
        size_average (bool, optional): deprecated, as in PyTorch: False with `reduce` True is `reduction="sum"`.
        reduce (bool, optional): deprecated, as in PyTorch: False is `reduction="none"`.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".

    Raises:
        ValueError: `margin` is not positive.

    Example:
        >>> from lucid import nn
        >>> nn.TripletMarginLoss()(lucid.zeros(1, 2), lucid.zeros(1, 2), lucid.tensor([[0.3, 0.4]]))
        tensor(0.5000)
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        if margin <= 0:
            raise errors.ValueError(f"TripletMarginLoss: expected margin to be greater than 0, got {margin} instead")
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_loss(
            anchor,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            eps=self.eps,
            swap=self.swap,
            reduction=self.reduction,
        )


class TripletMarginWithDistanceLoss(_Loss):
    """`TripletMarginLoss` with any distance; `PairwiseDistance` by default.

    Args:
        distance_function (Callable[[Tensor, Tensor], Tensor], optional): takes two tensors, and returns their
            distances.
        margin (float, default: 1.0): by how much the negative should be farther away.
        swap (bool, default: False): takes the distance of positive and negative where it is smaller.
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".

    Raises:
        ValueError: `margin` is not positive.

    Example:
        >>> from lucid import nn
        >>> nn.TripletMarginWithDistanceLoss()(lucid.zeros(1, 2), lucid.zeros(1, 2), lucid.tensor([[0.3, 0.4]]))
        tensor(0.5000)
    """

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(None, None, reduction)
        if margin <= 0:
            raise errors.ValueError(
                f"TripletMarginWithDistanceLoss: expected margin to be greater than 0, got {margin} instead"
            )
        self.distance_function: Any = PairwiseDistance() if distance_function is None else distance_function
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


class CTCLoss(_Loss):
    """The negative log-likelihood of label sequences over all alignments; see `nn.functional.ctc_loss`.

    Args:
        blank (int, default: 0): the label of "no label".
        reduction (str, default: "mean"): "mean" or "sum" over all elements, or "none".
        zero_infinity (bool, default: False): infinite losses, of targets longer than their inputs, count as 0, and
            have no gradient.

    Example:
        >>> from lucid import nn
        >>> log_probs = lucid.zeros(4, 1, 3).log_softmax(2)
        >>> nn.CTCLoss()(log_probs, lucid.tensor([[1, 2]]), (4,), (2,))
        tensor(0.8432)
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction=reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any) -> Tensor:
        return F.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )


class LinearCrossEntropyLoss(_WeightedLoss):
    """`CrossEntropyLoss` of a linear layer's logits; see `nn.functional.linear_cross_entropy`.

    The layer is the child `linear`, whose weight is flat: (C · d1 … dK, in).

    Args:
        in_features (int): Size of each input sample.
        num_classes (int): C.
        out_features (Sequence[int], optional): (d1, …, dK) for a loss at each of these places.
        bias (bool, default: False): Whether the layer has a bias.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.
        reduction (str, default: "mean"): "mean" (weighted by the classes' weight), "sum" or "none".
        weight (Tensor, optional): a factor for each class, (C,).
        ignore_index (int, optional): A target index that counts nothing; None is -100.
        label_smoothing (float, default: 0.0): The share of each target spread evenly over all classes.
        options (LinearCrossEntropyOptions, optional): Whether and how to go through the batch in pieces.

    Raises:
        ValueError: another `reduction`, or sizes that do not fit.

    Example:
        >>> from lucid import nn
        >>> nn.LinearCrossEntropyLoss(3, 4)(lucid.ones(2, 3), lucid.tensor([0, 3])).shape
        lucid.Size([])
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: Sequence[int] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: LinearCrossEntropyOptions | None = None,
    ) -> None:
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise errors.RuntimeError(f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}")
        if not 0 <= label_smoothing <= 1:
            raise errors.RuntimeError(f"expected label_smoothing to be in range [0, 1], got {label_smoothing}")
        super().__init__(weight, None, None, reduction)
        self.num_classes = num_classes
        self.out_features = tuple(out_features)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.linear = Linear(in_features, num_classes * math.prod(self.out_features), bias, device, dtype)
        self.options = options

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        places = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return F.linear_cross_entropy(
            input,
            self.linear.weight.reshape([*places, self.linear.in_features]),
            target,
            linear_bias=None if bias is None else bias.reshape(places),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        said = {
            "in_features": self.linear.in_features,
            "num_classes": self.num_classes,
            "out_features": self.out_features,
            "bias": self.linear.bias is not None,
            "reduction": self.reduction,
            "ignore_index": self.ignore_index,
            "label_smoothing": self.label_smoothing,
            "options": self.options,
        }
        return ", ".join(f"{name}={value}" for name, value in said.items())
