"""Softmax over many classes, the rare ones in clusters with smaller projections (Grave et al., 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import lucid
from lucid import Tensor, errors
from lucid.nn import functional as F
from lucid.nn.modules.container import ModuleList, Sequential
from lucid.nn.modules.linear import Linear
from lucid.nn.modules.module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class _ASMoutput(NamedTuple):
    """Each target's log-probability, and their negative mean."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-probabilities of `n_classes` classes, sorted from frequent to rare, in clusters.

    Difference from PyTorch: all clusters are computed for every input, which gives the same numbers.

    Args:
        in_features (int): Size of the input.
        n_classes (int): How many classes.
        cutoffs (Sequence[int]): Where the clusters begin, rising; the classes below the first one are the head's
            own.
        div_value (float, default: 4.0): By how much each cluster's projection is smaller than the one before.
        head_bias (bool, default: False): Whether the head has a bias.
        device (lucid.device or str, optional): where the result is made; the current default device by default.
        dtype (lucid.dtype, optional): the dtype of the result; that of the arguments, or the default dtype, by
            default.

    Raises:
        ValueError: `cutoffs` is no rising sequence of integers within 1 to n_classes - 1.

    Example:
        >>> from lucid import nn
        >>> loss = nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs=[5, 10])
        >>> loss(lucid.randn(4, 8), lucid.tensor([0, 6, 12, 19])).output.shape
        lucid.Size([4])
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cuts = list(cutoffs)
        if not cuts:
            raise errors.ValueError("cutoffs should be a sequence of length larger than 0")
        if (
            cuts != sorted(cuts)
            or min(cuts) <= 0
            or max(cuts) > n_classes - 1
            or len(set(cuts)) != len(cuts)
            or any(int(c) != c for c in cuts)
        ):
            raise errors.ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each "
                "value is between 1 and n_classes-1"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cuts, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        place: Any = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **place)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            hidden = int(in_features // (div_value ** (i + 1)))
            size = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(
                Sequential(Linear(in_features, hidden, bias=False, **place), Linear(hidden, size, bias=False, **place))
            )

    def reset_parameters(self) -> None:
        """Draws new parameters."""
        self.head.reset_parameters()
        for cluster in self.tail:
            for layer in cluster.children():
                layer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        """Log-probabilities of the targets (N) under inputs (N, in_features), or without N, and their negative mean."""
        batched = target_.dim() > 0
        if target_.dim() > 1:
            raise errors.RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        if batched and (input_.dim() != 2 or input_.shape[0] != target_.shape[0]):
            raise errors.RuntimeError(
                "Input and target should have the same size in the batch dimension, and a 1D target needs a 2D input."
            )
        if not batched and input_.dim() != 1:
            raise errors.RuntimeError(
                f"0D target tensor expects 1D input tensor, but found inputs with size {input_.shape}."
            )
        x, y = (input_, target_) if batched else (input_.unsqueeze(0), target_.unsqueeze(0))
        if y.numel() and (int(y.min().item()) < 0 or int(y.max().item()) >= self.n_classes):
            raise errors.RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{int(y.min().item())}, {int(y.max().item())}] were found. "
            )
        output = self.log_prob(x).gather(1, y.to(lucid.int64).unsqueeze(1)).squeeze(1)
        loss = (-output).mean()
        return _ASMoutput(output if batched else output.squeeze(0), loss)

    def log_prob(self, input: Tensor) -> Tensor:
        """Log-probabilities of all classes, (N, n_classes)."""
        head = F.log_softmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for i, cluster in enumerate(self.tail):
            at = self.shortlist_size + i
            parts.append(F.log_softmax(cluster(input), 1) + head[:, at : at + 1])
        return lucid.cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class of each input."""
        return self.log_prob(input).argmax(1)
