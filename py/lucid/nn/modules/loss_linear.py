"""The cross-entropy loss with its last layer inside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lucid import Tensor, errors
from lucid.nn import functional as F
from lucid.nn._functional.loss_linear import LinearCrossEntropyOptions
from lucid.nn.modules.linear import Linear
from lucid.nn.modules.loss import _WeightedLoss

__all__ = ["LinearCrossEntropyLoss", "LinearCrossEntropyOptions"]


class LinearCrossEntropyLoss(_WeightedLoss):
    """`CrossEntropyLoss` of a linear layer's logits; see `nn.functional.linear_cross_entropy`.

    Args:
        in_features: Size of each input sample.
        num_classes: C.
        out_features: (d1, …, dK) for a loss at each of these places. Default: ().
        bias: Whether the layer has a bias. Default: False.
        reduction: "mean" (weighted by the classes' weight), "sum" or "none". Default: "mean".
        weight: A factor per class (C). Default: None.
        ignore_index: A target index that counts nothing; None is -100. Default: None.
        label_smoothing: The share of each target spread evenly over all classes. Default: 0.
        options: Whether and how to go through the batch in pieces. Default: None, as a whole.

    The layer is the child `linear`, whose weight is flat: (C · d1 … dK, in).
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
