"""`FloatFunctional`, which models that can be quantized are made of; there are no quantized layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lucid
from lucid import Tensor
from lucid._absent import teller
from lucid.nn.modules.module import Module

__all__ = ["FloatFunctional"]


class FloatFunctional(Module):
    """Operations as methods of a module, so that a quantizer could watch their results. They compute as they are.

    Example:
        >>> from lucid.nn.quantized import FloatFunctional
        >>> FloatFunctional().add_relu(lucid.tensor([1.0, -3.0]), lucid.ones(2))
        tensor([2., 0.])
    """

    def forward(self, x: Any) -> Any:
        """Not to be called; the methods are."""
        raise RuntimeError("FloatFunctional is not intended to use the 'forward'. Please use the underlying operation")

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """`x + y`."""
        return lucid.add(x, y)

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        """`x + y`."""
        return lucid.add(x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """`x * y`."""
        return lucid.mul(x, y)

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        """`x * y`."""
        return lucid.mul(x, y)

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        """`lucid.cat(x, dim)`."""
        return lucid.cat(x, dim)

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """`relu(x + y)`."""
        return lucid.relu(lucid.add(x, y))

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """`x @ y`."""
        return lucid.matmul(x, y)


if not TYPE_CHECKING:
    __getattr__ = teller(__name__)
