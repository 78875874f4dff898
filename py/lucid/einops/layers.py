"""`lucid.einops` as layers: `Rearrange`, `Reduce`, and `EinMix`, a linear layer written as an einsum."""

from __future__ import annotations

import math
from typing import Any

import lucid
from lucid import Tensor, nn
from lucid.einops import EinopsError, Reduction, einsum, rearrange, reduce
from lucid.einops._plan import ELLIPSIS, expression, sides

__all__ = ["EinMix", "Rearrange", "Reduce"]


class Rearrange(nn.Module):
    """`rearrange` as a layer.

    Args:
        pattern (str): both sides name the same axes.
        **axes_lengths (int): the lengths of axes that the shape does not determine.

    Raises:
        EinopsError: the pattern cannot be read; or, when called, it does not fit the shape.

    Example:
        >>> from lucid.einops.layers import Rearrange
        >>> Rearrange("b c h w -> b (c h w)")(lucid.zeros(2, 3, 4, 5)).shape
        lucid.Size([2, 60])
    """

    def __init__(self, pattern: str, **axes_lengths: int) -> None:
        super().__init__()
        sides(pattern, "rearrange")
        self.pattern, self.axes_lengths = pattern, axes_lengths

    def forward(self, input: Tensor) -> Tensor:
        """Returns `rearrange(input, pattern, **axes_lengths)`."""
        return rearrange(input, self.pattern, **self.axes_lengths)

    def extra_repr(self) -> str:
        return ", ".join([repr(self.pattern), *(f"{k}={v}" for k, v in self.axes_lengths.items())])


class Reduce(nn.Module):
    """`reduce` as a layer.

    Args:
        pattern (str): the axes of the left side that the right one does not name are reduced over.
        reduction (Reduction): a name or a function, as for `lucid.einops.reduce`.
        **axes_lengths (int): the lengths of axes that the shape does not determine.

    Raises:
        EinopsError: the pattern cannot be read; or, when called, it does not fit the shape.

    Example:
        >>> from lucid.einops.layers import Reduce
        >>> Reduce("b c h w -> b c", "mean")(lucid.ones(2, 3, 4, 5)).shape
        lucid.Size([2, 3])
    """

    def __init__(self, pattern: str, reduction: Reduction, **axes_lengths: int) -> None:
        super().__init__()
        sides(pattern, "reduce")
        self.pattern, self.reduction, self.axes_lengths = pattern, reduction, axes_lengths

    def forward(self, input: Tensor) -> Tensor:
        """Returns `reduce(input, pattern, reduction, **axes_lengths)`."""
        return reduce(input, self.pattern, self.reduction, **self.axes_lengths)

    def extra_repr(self) -> str:
        lengths = (f"{k}={v}" for k, v in self.axes_lengths.items())
        return ", ".join([repr(self.pattern), repr(self.reduction), *lengths])


class EinMix(nn.Module):
    """A product with a weight along named axes, and a bias: `einsum(input, weight) + bias`.

    Both are drawn uniformly: the weight between ±sqrt(3 / fan_in), the bias between ±sqrt(1 / fan_in).

    Args:
        pattern (str): axes of the input and of the output: `"b (head c) -> b head d"`. Axes may be grouped.
        weight_shape (str): the axes of the weight, without groups. Those that the output does not name are summed
            over.
        bias_shape (str, optional): the axes of the output along which the bias varies; `None` for no bias.
        **axes_lengths (int): the length of each axis of the weight and of the bias.

    Raises:
        EinopsError: the pattern or a shape cannot be read, or a length is missing.

    Example:
        >>> from lucid.einops.layers import EinMix
        >>> EinMix("t b i -> t b o", weight_shape="i o", bias_shape="o", i=3, o=4)(lucid.ones(2, 5, 3)).shape
        lucid.Size([2, 5, 4])
    """

    def __init__(self, pattern: str, weight_shape: str, bias_shape: str | None = None, **axes_lengths: int) -> None:
        super().__init__()
        self.pattern, self.weight_shape, self.bias_shape = pattern, weight_shape, bias_shape
        self.axes_lengths = axes_lengths
        if pattern.count("->") != 1:
            raise EinopsError(f"EinMix: expected a pattern of the form 'axes -> axes', got {pattern!r}")
        left_text, right_text = pattern.split("->")
        left, right, weight = expression(left_text), expression(right_text), expression(weight_shape)
        if (ELLIPSIS in left.names) != (ELLIPSIS in right.names) or left.in_parentheses or ELLIPSIS in weight.names:
            raise EinopsError(f"EinMix: '...' must be on both sides of {pattern!r}, outside of groups, or nowhere")
        if any(isinstance(a, int) for e in (left, right, weight) for g in e.groups for a in g):
            raise EinopsError(f"EinMix: numbers are no axes, got {pattern!r} and {weight_shape!r}")
        if "(" in weight_shape:
            raise EinopsError(f"EinMix: groups are not supported in the weight's shape, got {weight_shape!r}")
        for what, names in (
            ("of the output are in neither input nor weight", right.names - left.names - weight.names),
            ("of the weight are in neither input nor output", weight.names - left.names - right.names),
            ("of the weight have no length", weight.names - set(axes_lengths)),
            ("with a length are not used", set(axes_lengths) - left.names - weight.names),
        ):
            if names:
                raise EinopsError(f"EinMix: axes {sorted(names)} {what}")

        def flat(groups: tuple[tuple[Any, ...], ...]) -> str:
            return " ".join(str(a) for g in groups for a in g)

        self._before = f"{left_text} -> {flat(left.groups)}" if any(len(g) != 1 for g in left.groups) else None
        grouped = any(len(g) != 1 for g in right.groups) or right.in_parentheses
        self._after = f"{flat(right.groups)} -> {right_text}" if grouped else None
        self._lengths = {k: v for k, v in axes_lengths.items() if k in left.names}
        self._equation = f"{flat(left.groups)}, {flat(weight.groups)} -> {flat(right.groups)}"
        sizes = [axes_lengths[str(a)] for g in weight.groups for a in g]
        fan_in = math.prod(axes_lengths[str(a)] for g in weight.groups for a in g if a not in right.names)
        bound = math.sqrt(3 / fan_in)
        self.weight = nn.Parameter(lucid.empty(sizes).uniform_(-bound, bound))
        self.bias: nn.Parameter | None = None
        if bias_shape is not None:
            names = expression(bias_shape).names
            if names - right.names or names - set(axes_lengths):
                raise EinopsError(f"EinMix: an axis of the bias {bias_shape!r} is not in the output, or has no length")
            order = [str(a) for g in right.groups for a in g]
            first = min((order.index(n) for n in names), default=0)
            if ELLIPSIS in order[first:]:
                raise EinopsError("EinMix: the axes of the bias must be after '...' in the output")
            shape = [axes_lengths[a] if a in names else 1 for a in order if a != ELLIPSIS]
            bound = math.sqrt(1 / fan_in)
            self.bias = nn.Parameter(lucid.empty(shape).uniform_(-bound, bound))

    def forward(self, input: Tensor) -> Tensor:
        """Returns the product with the weight, plus the bias."""
        if self._before is not None:
            input = rearrange(input, self._before, **self._lengths)
        result = einsum(input, self.weight, self._equation)
        if self.bias is not None:
            result = result + self.bias
        if self._after is None:
            return result
        named = expression(self._after.split("->")[0]).names
        return rearrange(result, self._after, **{k: v for k, v in self.axes_lengths.items() if k in named})

    def extra_repr(self) -> str:
        shown = [repr(s) for s in (self.pattern, self.weight_shape, self.bias_shape) if s is not None]
        return ", ".join([*shown, *(f"{k}={v}" for k, v in self.axes_lengths.items())])
