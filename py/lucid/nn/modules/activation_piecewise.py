"""Piecewise linear activations with parameters."""

from __future__ import annotations

from lucid import Tensor
from lucid._warnings import warn
from lucid.nn import functional as F
from lucid.nn.modules.module import Module

__all__ = [
    "Hardshrink",
    "Hardtanh",
    "ReLU6",
    "Softshrink",
    "Threshold",
]


class Hardtanh(Module):
    """`x` held within `min_val` (default: -1) to `max_val` (default: 1). `inplace` writes over the input.

    Args:
        min_val (float, default: -1.0): the lower bound.
        max_val (float, default: 1.0): the upper bound.
        inplace (bool, default: False): writes the result over the input.
        min_value (float, optional): deprecated name of `min_val`.
        max_value (float, optional): deprecated name of `max_val`.

    Raises:
        ValueError: `max_val` is not above `min_val`.

    Example:
        >>> from lucid import nn
        >>> nn.Hardtanh()(lucid.tensor([-3.0, 0.5]))
        tensor([-1.0000,  0.5000])
    """

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__()
        for value, older, newer in ((min_value, "min_value", "min_val"), (max_value, "max_value", "max_val")):
            if value is not None:
                warn(f"keyword argument `{older}` is deprecated and renamed to `{newer}`", FutureWarning)
        self.min_val = min_val if min_value is None else min_value
        self.max_val = max_val if max_value is None else max_value
        self.inplace = inplace
        if self.max_val <= self.min_val:
            raise AssertionError(f"max_val ({max_val}) must be larger than min_val ({min_val})")

    def forward(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}{', inplace=True' if self.inplace else ''}"


class ReLU6(Hardtanh):
    """`min(max(x, 0), 6)`. `inplace` writes over the input.

    Args:
        inplace (bool, default: False): writes the result over the input.

    Example:
        >>> from lucid import nn
        >>> nn.ReLU6()(lucid.tensor([-1.0, 8.0]))
        tensor([0., 6.])
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def forward(self, input: Tensor) -> Tensor:
        return F.relu6(input, self.inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class _Shrink(Module):
    """An activation that is 0 within `lambd`."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Hardshrink(_Shrink):
    """`x` where `|x| > lambd` (default: 0.5), else 0.

    Args:
        lambd (float, default: 0.5): the half width of the interval that gives 0.

    Example:
        >>> from lucid import nn
        >>> nn.Hardshrink()(lucid.tensor([-1.0, 0.25]))
        tensor([-1.,  0.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.hardshrink(input, self.lambd)


class Softshrink(_Shrink):
    """`x` moved towards 0 by `lambd` (default: 0.5), and 0 within it.

    Args:
        lambd (float, default: 0.5): the half width of the interval that gives 0, not negative.

    Example:
        >>> from lucid import nn
        >>> nn.Softshrink()(lucid.tensor([-1.0, 0.25]))
        tensor([-0.5000,  0.0000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softshrink(input, self.lambd)


class Threshold(Module):
    """`x` where `x > threshold`, else `value`. `inplace` writes over the input.

    Args:
        threshold (float): the limit, above which elements are kept.
        value (float): the result at and below it.
        inplace (bool, default: False): writes the result over the input.

    Example:
        >>> from lucid import nn
        >>> nn.Threshold(0.5, 20.0)(lucid.tensor([0.0, 1.0]))
        tensor([20.,  1.])
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}{', inplace=True' if self.inplace else ''}"


# Programs look for these classes in `activation`, which is where PyTorch has them.
for _cls in (Hardtanh, ReLU6, Hardshrink, Softshrink, Threshold):
    _cls.__module__ = "lucid.nn.modules.activation"
