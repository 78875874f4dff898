"""Gradients of convolutions as functions, with PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import lucid
from lucid import Tensor, autograd
from lucid.nn import functional as F

_Sizes = int | Sequence[int]


def _gradient(conv: Callable[[Tensor], Tensor], shape: Sequence[int], like: Tensor, grad_output: Tensor) -> Tensor:
    """What `conv`'s argument of this shape gets; convolutions are linear, so that its numbers do not matter."""
    with lucid.enable_grad():
        x = lucid.zeros(tuple(shape), dtype=like.dtype, device=like.device, requires_grad=True)
        # A gradient can be asked for of the result.
        again = grad_output.requires_grad or like.requires_grad
        made: Tensor = autograd.grad(conv(x), x, grad_output, create_graph=again)[0]
        return made


def _of(conv: Callable[..., Tensor], name: str) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    def of_input(
        input_size: Sequence[int],
        weight: Tensor,
        grad_output: Tensor,
        stride: _Sizes = 1,
        padding: _Sizes = 0,
        dilation: _Sizes = 1,
        groups: int = 1,
    ) -> Tensor:
        def run(x: Tensor) -> Tensor:
            return conv(x, weight, None, stride, padding, dilation, groups)

        return _gradient(run, input_size, weight, grad_output)

    def of_weight(
        input: Tensor,
        weight_size: Sequence[int],
        grad_output: Tensor,
        stride: _Sizes = 1,
        padding: _Sizes = 0,
        dilation: _Sizes = 1,
        groups: int = 1,
    ) -> Tensor:
        def run(w: Tensor) -> Tensor:
            return conv(input, w, None, stride, padding, dilation, groups)

        return _gradient(run, weight_size, input, grad_output)

    for made, what in ((of_input, "input"), (of_weight, "weight")):
        function: Any = made
        function.__name__ = function.__qualname__ = f"{name}_{what}"
        function.__doc__ = f"""The gradient of the {what} of `nn.functional.{name}`, of shape `{what}_size`, given that
        of its result.

        Raises:
            RuntimeError: the shapes do not fit.
        """
    return of_input, of_weight


conv1d_input, conv1d_weight = _of(F.conv1d, "conv1d")
conv2d_input, conv2d_weight = _of(F.conv2d, "conv2d")
conv3d_input, conv3d_weight = _of(F.conv3d, "conv3d")
