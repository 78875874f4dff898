"""Cross-entropy straight from the inputs of the last layer, in pieces of the batch if asked."""

from __future__ import annotations

import dataclasses
from typing import Any

import lucid
from lucid import Tensor, errors
from lucid._C import dtype as DType
from lucid._C import linear
from lucid._warnings import warn
from lucid.nn._functional.loss_plain import cross_entropy
from lucid.utils.checkpoint import checkpoint

__all__ = ["linear_cross_entropy"]

_POLICIES = ("auto", "accurate", "compact")


@dataclasses.dataclass(slots=True, frozen=True)
class LinearCrossEntropyOptions:
    """How `linear_cross_entropy` goes through the batch in pieces, so that the logits (N, C) are never there whole.

    Worth it where there are many classes: more than features, and no fewer samples than features. A piece's logits are
    computed again in backward, so gradients of gradients and `retain_graph` work as ever.

    Args:
        allow_retain_graph (bool, default: False): Accepted; it is always allowed here.
        batch_chunk_size (int, optional): Samples per piece.
        chunking_method (str, default: "auto"): "aspect_ratio" makes a piece's logits about as large as the whole
            input, "aspect_ratio:N" N times smaller; "auto" is the former where `batch_chunk_size` does not say.
            None: one piece.
        acc_policy (str, default: "auto"): "auto", "accurate" or "compact". Accepted; nothing of a piece is kept
            that it could choose about.
        acc_dtype (DType, optional): The dtype in which the pieces' losses are summed.

    Example:
        >>> from lucid import nn
        >>> nn.LinearCrossEntropyOptions(batch_chunk_size=128).batch_chunk_size
        128
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: DType | None = None

    def __post_init__(self) -> None:
        if self.acc_policy not in _POLICIES:
            raise errors.ValueError(
                f"invalid acc_policy: {self.acc_policy!r}; expected one of {', '.join(map(repr, _POLICIES))}"
            )
        if self.chunking_method not in (None, "auto"):
            name, colon, factor = str(self.chunking_method).partition(":")
            if name != "aspect_ratio" or (colon and not (factor.isdigit() and int(factor) > 0)):
                raise errors.ValueError(f"invalid chunking_method: {self.chunking_method!r}")
        size = self.batch_chunk_size
        if size is not None and not (isinstance(size, int) and size > 0):
            raise errors.ValueError(f"batch_chunk_size must be positive int or None, got {size!r}")
        if self.acc_dtype not in (None, lucid.float16, lucid.bfloat16, lucid.float32, lucid.float64):
            raise errors.ValueError(
                f"acc_dtype must be one of {{None, lucid.float16, lucid.bfloat16, lucid.float32, lucid.float64}}, got "
                f"{self.acc_dtype!r}. Pass acc_dtype=None to let the op pick automatically."
            )

    def _piece(self, samples: int, features: int, classes: int) -> int:
        """Samples per piece for these sizes."""
        given, method = self.batch_chunk_size, self.chunking_method
        if method is None or (method == "auto" and given is not None):
            return max(min(given or samples, samples), 1)
        factor = int(method.partition(":")[2] or 1)
        wanted = -(-samples // max(-(-classes // max(features, 1)), 1))
        size = max(min((1 << max(wanted - 1, 0).bit_length()) // factor, samples), 1)
        if given is not None and given != size:
            raise errors.ValueError(
                f"batch_chunk_size (={given}) and chunking_method ('{method}') give different chunk sizes ({given} vs "
                f"{size}); pass only one."
            )
        return size


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: LinearCrossEntropyOptions | None = None,
) -> Tensor:
    """`cross_entropy` of the logits `linear(input, linear_weight, linear_bias)`.

    Args:
        input (Tensor): (N, in) or (in,).
        linear_weight (Tensor): (C, in), or (C, d1, …, dK, in) for a loss at each place of (d1, …, dK).
        target (Tensor): Class indices (N, d1, …, dK), or probabilities (N, C, d1, …, dK).
        linear_bias (Tensor, optional): (C,), or (C, d1, …, dK).
        weight (Tensor, optional): a weight for each class, (C,).
        reduction (str, default: "mean"): As `cross_entropy` has them.
        ignore_index (int, optional): A target index that counts nothing; None is -100.
        label_smoothing (float, default: 0.0): As `cross_entropy` has them.
        options (LinearCrossEntropyOptions, optional): Whether and how to go through the batch in pieces; see
            `nn.LinearCrossEntropyOptions`. Losses at several places, and of one sample, are computed as a whole in
            any case, with a warning.

    Returns:
        Tensor: 0-d, or the shape of the targets for `reduction="none"`.

    Raises:
        RuntimeError: shapes that do not fit.

    Example:
        >>> import lucid.nn.functional as F
        >>> F.linear_cross_entropy(lucid.ones(2, 3), lucid.zeros(4, 3), lucid.tensor([0, 3]))
        tensor(1.3863)
    """
    _check(input, linear_weight, linear_bias)
    classes, *places, features = linear_weight.shape
    settings: dict[str, Any] = {"weight": weight, "label_smoothing": label_smoothing}
    if ignore_index is not None:
        if target.is_floating_point():
            raise errors.RuntimeError("ignore_index cannot be specified when target contains probabilities")
        settings["ignore_index"] = ignore_index

    def losses(x: Tensor, y: Tensor, w: Tensor, b: Tensor | None, reduction: str) -> Tensor:
        logits = linear(x, w.reshape([-1, features]), None if b is None else b.reshape(-1))
        return cross_entropy(logits.reshape([*x.shape[:-1], classes, *places]), y, reduction=reduction, **settings)

    whole = options is None or places or input.dim() == 1 or target.requires_grad
    # What does not fit together is for the plain way to refuse.
    if whole or not target.dim() or target.shape[0] != input.shape[0] or reduction not in ("none", "mean", "sum"):
        if options is not None and whole:
            warn(
                "linear_cross_entropy: losses at several places, of one sample, and with targets that require "
                "gradients are not computed in pieces; options have no effect"
            )
        return losses(input, target, linear_weight, linear_bias, reduction)
    assert options is not None
    size = options._piece(input.shape[0], features, classes)
    one = "none" if reduction == "none" else "sum"
    pieces = [
        checkpoint(losses, x, y, linear_weight, linear_bias, one, use_reentrant=False, preserve_rng_state=False)
        for x, y in zip(input.split(size), target.split(size), strict=True)
    ]
    if reduction == "none":
        return lucid.cat(pieces)
    low = input.dtype in (lucid.float16, lucid.bfloat16)
    wide = options.acc_dtype or (lucid.float32 if low else input.dtype)
    total = lucid.stack([piece.to(wide) for piece in pieces]).sum()
    if reduction == "mean":
        total = total / _counted(target, weight, -100 if ignore_index is None else ignore_index)
    return total.to(pieces[0].dtype)


def _check(input: Tensor, linear_weight: Tensor, linear_bias: Tensor | None) -> None:
    if input.dim() not in (1, 2):
        raise errors.RuntimeError(f"expected input with dimensionality 1 or 2, got {input.dim()}")
    if linear_weight.dim() < 2:
        raise errors.RuntimeError(f"expected linear_weight with dimensionality at least 2, got {linear_weight.dim()}")
    features = linear_weight.shape[-1]
    if input.shape[-1] != features:
        raise errors.RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), got "
            f"{input.shape[-1]} and {features}, respectively"
        )
    if linear_weight.dim() > 2 and input.dim() == 1:
        raise errors.RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} requires batched input, "
            f"(N, {features}), got unbatched input with shape {tuple(input.shape)}"
        )
    shape = tuple(linear_weight.shape[:-1])
    if linear_bias is not None and tuple(linear_bias.shape) != shape:
        raise errors.RuntimeError(f"expected linear_bias shape {shape}, got {tuple(linear_bias.shape)}")


def _counted(target: Tensor, weight: Tensor | None, ignored: int) -> Any:
    """What the mean divides by: the samples, or the weights of their classes without the ignored ones."""
    if target.is_floating_point():
        return target.shape[0]
    kept = target != ignored
    if weight is None:
        return kept.sum()
    return weight.index_select(0, target.masked_fill(kept.logical_not(), 0)).masked_fill(kept.logical_not(), 0).sum()
